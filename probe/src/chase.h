// SPDX-License-Identifier: Apache-2.0
// Pointer chasing over a random cycle of cache lines (thesis section 3.3, formula 3.2).
#ifndef CHASE_H
#define CHASE_H

#include <stdbool.h>
#include <stdint.h>

// random: over all lines at once, so that with small pages nearly every access misses the TLB as well.
// paged: over the lines of GROUP_BYTES, then of the next group in random order: the TLB covers a group.
typedef enum { RANDOM, PAGED, ORDERS } Order;

enum { GROUP_BYTES = 64 * 4096 };

const char *order_name(Order order);

// Writes one pointer into each line of the memory and returns the first; they make one cycle over all lines.
void **chase_build(char *base, uint64_t bytes, uint64_t line_bytes, Order order, uint64_t seed);

// Follows the pointers for so many steps (rounded up to 16).
void **chase_run(void **from, uint64_t steps);

// True where the cycle comes back to its beginning after exactly so many lines.
bool chase_check(void **from, uint64_t lines);

#endif
