// SPDX-License-Identifier: Apache-2.0
// PUs that load a memory while another PU measures it. Each has a part of one array.
#ifndef LOADERS_H
#define LOADERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "options.h"

// Instead of a pause: no load until a pause is set, and the end.
enum { LOADERS_IDLE = -1, LOADERS_DONE = -2 };

// The part of one loader, with what it has done to it. Aligned to avoid false sharing.
typedef struct {
    _Alignas(128) atomic_uint_fast64_t steps;
    double *first, *last, *at;
    uint64_t rounds;
    double sum;
    bool wrong;
} Loader;

typedef struct {
    int count;
    Loader *members;
    ReadShare share;
    _Alignas(128) atomic_int_fast64_t pause; // loops after each step, or LOADERS_IDLE or LOADERS_DONE
} Loaders;

// The first PU of a NUMA node, which measures, then those that load: a PU of each other core, or the others of its
// core if there is no other core.
List loaders_pus(const Node *node);

// The bytes of each bank's array: the option's, or well past the caches as far as memory allows next to a
// cycle. Fails if it does not fit.
uint64_t loaders_bytes(const Options *options, const Host *host, Pages pages, int count);

// Divides an array, every element of which is 1, among loaders that are idle.
void loaders_begin(Loaders *loaders, int count, ReadShare share, char *array, uint64_t bytes);
void loaders_free(Loaders *loaders);

// What a loader's thread does until the pause is LOADERS_DONE.
void loader_work(Loaders *loaders, int number);

// Checks what another loader read and stored, after the end. Its part gets 1 in every element again.
void loader_check(Loaders *loaders, int number);

// Why the load was wrong, or empty.
const char *loaders_wrong(const Loaders *loaders);

// The steps of all loaders so far; load_bytes() of each.
uint64_t loaders_steps(const Loaders *loaders);

void loaders_pause(int64_t loops);

#endif
