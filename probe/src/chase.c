// SPDX-License-Identifier: Apache-2.0
#include "chase.h"

#include <stdlib.h>

#include "fail.h"
#include "lists.h"

const char *const order_names[ORDERS] = {"random", "paged", "sequential"};

static void **line(char *base, uint64_t line_bytes, uint64_t index)
{
    return (void **)(void *)(base + index * line_bytes);
}

// Sattolo's shuffle of the identity has a single cycle. The pointers themselves are shuffled, without a table.
static void **build_random(char *base, uint64_t lines, uint64_t line_bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < lines; i++)
        *line(base, line_bytes, i) = line(base, line_bytes, i);
    for (uint64_t i = lines - 1; i > 0; i--) {
        void **a = line(base, line_bytes, i), **b = line(base, line_bytes, random_below(&seed, i));
        void *other = *a;
        *a = *b;
        *b = other;
    }
    return line(base, line_bytes, 0);
}

static void shuffled(uint64_t *order, uint64_t count, uint64_t *seed)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t j = random_below(seed, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

static void **build_paged(char *base, uint64_t lines, uint64_t line_bytes, uint64_t seed)
{
    const uint64_t group = GROUP_BYTES / line_bytes, groups = (lines + group - 1) / group;
    uint64_t *outer = must_allocate(groups, sizeof *outer), *inner = must_allocate(group, sizeof *inner);
    void **head = NULL, **tail = NULL;
    shuffled(outer, groups, &seed);
    for (uint64_t g = 0; g < groups; g++) {
        const uint64_t first = outer[g] * group, count = lines - first < group ? lines - first : group;
        shuffled(inner, count, &seed);
        for (uint64_t i = 0; i < count; i++) {
            void **next = line(base, line_bytes, first + inner[i]);
            if (tail)
                *tail = next;
            else
                head = next;
            tail = next;
        }
    }
    *tail = head;
    free(outer);
    free(inner);
    return head;
}

static void **build_sequential(char *base, uint64_t lines, uint64_t line_bytes)
{
    for (uint64_t i = 0; i < lines; i++)
        *line(base, line_bytes, i) = line(base, line_bytes, (i + 1) % lines);
    return line(base, line_bytes, 0);
}

void **chase_build(char *base, uint64_t bytes, uint64_t line_bytes, Order order, uint64_t seed)
{
    const uint64_t lines = bytes / line_bytes;
    if (order == SEQUENTIAL)
        return build_sequential(base, lines, line_bytes);
    return (order == PAGED ? build_paged : build_random)(base, lines, line_bytes, seed);
}

void **chase_run(void **from, uint64_t steps)
{
    void **p = from;
    for (uint64_t i = 0; i < steps; i += 16) {
#define STEP p = (void **)*p;
        STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP
#undef STEP
    }
    // Keeps the compiler from removing the loop.
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

bool chase_check(void **from, uint64_t lines)
{
    void **p = (void **)*from;
    uint64_t steps = 1;
    for (; p != from && steps <= lines; steps++)
        p = (void **)*p;
    return steps == lines;
}
