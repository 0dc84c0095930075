// SPDX-License-Identifier: Apache-2.0
// Pointer chasing over a cycle of cache lines (thesis section 3.3, formula 3.2).
#ifndef CHASE_H
#define CHASE_H

#include <stdbool.h>
#include <stdint.h>

// random: over all lines, so with small pages nearly every access misses the TLB as well.
// paged: over the lines of one group of GROUP_BYTES, which the TLB covers, then of the next group in random order.
// sequential: over all lines in ascending order, which prefetchers follow.
typedef enum { RANDOM, PAGED, SEQUENTIAL, ORDERS } Order;

enum { GROUP_BYTES = 64 * 4096 };

extern const char *const order_names[ORDERS];

// Writes one pointer into each line, which form one cycle over all lines, and returns the first.
void **chase_build(char *base, uint64_t bytes, uint64_t line_bytes, Order order, uint64_t seed);

// Follows the pointers for a number of steps (rounded up to 16).
void **chase_run(void **from, uint64_t steps);

// True if the cycle returns to its beginning after exactly this number of lines.
bool chase_check(void **from, uint64_t lines);

#endif
