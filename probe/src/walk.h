// SPDX-License-Identifier: Apache-2.0
// A cycle of pointers in memory, and the time of a step through it by one PU.
#ifndef WALK_H
#define WALK_H

#include "options.h"
#include "team.h"

typedef struct {
    const Host *host;
    void **head;
    uint64_t lines;    // of the cycle
    const char *wrong; // why the cycle is wrong, or empty
} Walk;

// Makes a cycle of one line in each stride, and follows it once, on a PU near the memory.
Walk walk_build(const Host *host, const Memory *memory, uint64_t bytes, uint64_t stride, Order order);

// Nanoseconds per step, after warm-up. The thread's observed placement is in *placed, which the caller frees.
Samples walk_run(const Walk *walk, const Options *options, int pu, Placed *placed);

// The same within a team: warm-up, then one sample per call.
typedef struct {
    void **place;
    uint64_t steps; // of a sample
} Walker;

Walker walker_warm(const Walk *walk, bool sanity);
double walker_sample(Walker *walker); // ns

#endif
