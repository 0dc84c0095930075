// SPDX-License-Identifier: Apache-2.0
// Lists of numbers as the kernel writes them ("0-3,8"), and small text files of the kernel.
#ifndef LISTS_H
#define LISTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int count;
    int *values;
} List;

// Parses a list into ascending order; false if the text is not a list. An empty text is an empty list.
bool list_parse(const char *text, List *list);
bool list_has(const List *list, int value);
void list_add(List *list, int value);
List list_copy(const List *list);
char *list_text(const List *list, char *text, unsigned long size);

uint64_t common_divisor(uint64_t a, uint64_t b);

// A step near the golden section of `count` and coprime to it: steps modulo `count` visit all numbers below it,
// spread from the first on.
uint64_t coprime_step(uint64_t count);

// The next number of a reproducible sequence (splitmix64).
uint64_t random_next(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t limit);

// The numbers below `count` in an order drawn by the seed, or ascending if that is 0.
List list_turns(int count, int64_t seed);

// The folder of a stored host that holds the kernel's files, or empty for this host.
extern const char *file_root;

// The text of a small file without its last newline, or NULL. The caller frees it.
char *file_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The number after "key" in a text such as /proc/meminfo, or -1.
int64_t text_number(const char *text, const char *key);

#endif
