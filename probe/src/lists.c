// SPDX-License-Identifier: Apache-2.0
#include "lists.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

const char *file_root = "";

enum { HIGHEST = 1 << 14 }; // no kernel numbers its PUs this high

bool list_has(const List *list, int value)
{
    for (int i = 0; i < list->count; i++)
        if (list->values[i] == value)
            return true;
    return false;
}

void list_add(List *list, int value)
{
    list->values = must(realloc(list->values, sizeof value * ((size_t)list->count + 1)));
    list->values[list->count++] = value;
}

static bool number(const char **text, long *value)
{
    if (!isdigit((unsigned char)**text))
        return false;
    char *end;
    *value = strtol(*text, &end, 10);
    *text = end;
    return *value < HIGHEST;
}

bool list_parse(const char *text, List *list)
{
    bool members[HIGHEST] = {false};
    *list = (List){0};
    while (*text) {
        long first, last;
        if (!number(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !number(&text, &last)))
            return false;
        if (last < first || (*text && *text != ','))
            return false;
        if (*text == ',' && !*++text)
            return false;
        for (long i = first; i <= last; i++)
            members[i] = true;
    }
    for (int i = 0; i < HIGHEST; i++)
        list->count += members[i];
    list->values = must_allocate((unsigned long)list->count, sizeof(int));
    for (int i = 0, next = 0; i < HIGHEST; i++)
        if (members[i])
            list->values[next++] = i;
    return true;
}

List list_copy(const List *list)
{
    List copy = {list->count, must_allocate((unsigned long)list->count, sizeof(int))};
    if (list->count)
        memcpy(copy.values, list->values, sizeof(int) * (size_t)list->count);
    return copy;
}

char *list_text(const List *list, char *text, unsigned long size)
{
    unsigned long used = 0;
    text[0] = '\0';
    for (int i = 0, last; i < list->count && used < size; i = last + 1) {
        for (last = i; last + 1 < list->count && list->values[last + 1] == list->values[last] + 1;)
            last++;
        used += (unsigned long)snprintf(text + used, size - used, last > i ? "%s%d-%d" : "%s%d", i ? "," : "",
                                        list->values[i], list->values[last]);
    }
    return text;
}

uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint64_t coprime_step(uint64_t count)
{
    uint64_t step = (uint64_t)((double)count * 0.6180339887498949) | 1;
    while (common_divisor(count, step) != 1)
        step += 2;
    return step;
}

uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t random_below(uint64_t *state, uint64_t limit)
{
    return (uint64_t)((unsigned __int128)random_next(state) * limit >> 64);
}

List list_turns(int count, int64_t seed)
{
    List turns = {0};
    uint64_t state = (uint64_t)seed;
    for (int i = 0; i < count; i++) {
        list_add(&turns, i);
        const int j = seed ? (int)random_below(&state, (uint64_t)i + 1) : i;
        turns.values[i] = turns.values[j];
        turns.values[j] = i;
    }
    return turns;
}

char *file_text(const char *format, ...)
{
    char *name, *path;
    va_list arguments;
    va_start(arguments, format);
    must(vasprintf(&name, format, arguments) < 0 ? NULL : name);
    va_end(arguments);
    path = must_print("%s%s", file_root, name);
    FILE *file = fopen(path, "re");
    free(name);
    free(path);
    if (!file)
        return NULL;
    const size_t most = 1 << 16;
    char *text = must_allocate(most, 1);
    const size_t length = fread(text, 1, most - 1, file);
    fclose(file);
    if (length && text[length - 1] == '\n')
        text[length - 1] = '\0';
    return text;
}

int64_t text_number(const char *text, const char *key)
{
    const char *found = text ? strstr(text, key) : NULL;
    return found ? strtoll(found + strlen(key), NULL, 10) : -1;
}
