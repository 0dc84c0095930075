// SPDX-License-Identifier: Apache-2.0
// The three arrays of STREAM in one block of memory, and the expected values of their elements.
#ifndef ARRAYS_H
#define ARRAYS_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "memory.h"
#include "options.h"

typedef struct {
    uint64_t bytes; // of one array
    size_t count;   // elements of one array
    double *a, *b, *c;
    double expected[3]; // the expected value of all elements of a, b and c
} Arrays;

// The size in bytes of one of `number` arrays in whole steps: the option's, or by STREAM's rule four times all
// caches, at least 64 MB, if there is `room`. Fails if it is too small for `threads` threads or to be memory
// behind the caches.
uint64_t arrays_by_rule(const Options *options, const Host *host, uint64_t room, int number, int threads,
                        uint64_t step);

// The same for arrays on these banks. Fails if they do not fit into the memory.
uint64_t arrays_bytes(const Options *options, const Host *host, const List *banks, Pages pages, int number,
                      int threads);

Arrays arrays_take(Memory *memory, const Host *host, const List *banks, Pages pages, uint64_t bytes);

// The scalar for the next repetition, chosen to keep the values between 1e-3 and 1e3.
double arrays_scalar(const Arrays *arrays);

// Runs a kernel over elements first to last, and over the expected values.
void arrays_pass(const Arrays *arrays, Kernel kernel, KernelCode *code, double q, size_t first, size_t last);
void arrays_expect(Arrays *arrays, Kernel kernel, double q);

// The largest relative error of elements first to last, of every `stride`-th line.
double arrays_error(const Arrays *arrays, size_t first, size_t last, size_t stride);

// The elements of one of several threads: equal parts, in whole steps of the kernels.
void arrays_part(const Arrays *arrays, int part, int parts, size_t *first, size_t *last);

#endif
