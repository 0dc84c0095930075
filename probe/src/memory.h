// SPDX-License-Identifier: Apache-2.0
// Memory on a bank, or interleaved over several: taken and touched once, its pages verified with move_pages.
#ifndef MEMORY_H
#define MEMORY_H

#include "host.h"

typedef enum { PAGES_BASE, PAGES_THP, PAGES_HUGE, PAGE_KINDS } Pages;

typedef struct {
    const Host *host;
    char *base;
    uint64_t bytes;
    List banks;
    bool interleave;
    Pages pages;
    int64_t *found;    // pages of host->page_bytes seen on each NUMA node, by its place in host->nodes
    double huge_share; // part of the bytes that lies in huge pages
    bool verified;     // false on a kernel without NUMA, where there is nothing to ask
    char reason[200];  // why the placement did not hold, or empty
} Memory;

const char *pages_name(Pages pages);
const char *memory_policy(const Memory *memory); // bind or interleave

// Fails where this host has no such pages for anybody.
void pages_require(const Host *host, Pages pages);

// Bytes that can be taken on these banks with these pages. Interleaved, each bank gives as much as the fullest.
uint64_t memory_available(const Host *host, const List *banks, Pages pages);

// The bytes in whole pages; fails where there are not so many.
uint64_t memory_require(const Host *host, const List *banks, Pages pages, uint64_t bytes);

// Takes and touches memory (every double is `value`) by PUs near the banks, and verifies it.
// Fails as memory_require() does, or where the kernel refuses to place or to tell.
Memory memory_take(const Host *host, const List *banks, Pages pages, uint64_t bytes, double value);
void memory_release(Memory *memory);

// Looks at one of every 64 pages once more; sets reason where they are no longer where they were.
void memory_look_again(Memory *memory);

// The most bytes that were taken at once so far.
uint64_t memory_most(void);

#endif
