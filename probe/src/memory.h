// SPDX-License-Identifier: Apache-2.0
// Memory on a bank, or interleaved over several: allocated and touched once, its pages verified with move_pages.
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
    double huge_share; // fraction of the bytes in huge pages
    bool verified;     // false on a kernel without NUMA
    char reason[200];  // why the placement did not hold, or empty
} Memory;

extern const char *const page_names[PAGE_KINDS];
const char *memory_policy(const Memory *memory); // bind or interleave

// Fails if this host does not have such pages.
void pages_require(const Host *host, Pages pages);

// Bytes that can be allocated on these banks with these pages. Interleaved, the fullest bank limits all.
uint64_t memory_available(const Host *host, const List *banks, Pages pages);

// The bytes rounded up to whole pages; fails if they are not available.
uint64_t memory_require(const Host *host, const List *banks, Pages pages, uint64_t bytes);

// Fails if arrays or a cycle of this size fit into the caches twice over: they would measure caches.
void memory_beyond_caches(uint64_t bytes, uint64_t caches);

// Allocates memory, touches it (every double is `value`) by PUs near the banks, and verifies its pages.
// Fails as memory_require() does, or if the kernel refuses to place the pages or to report their nodes.
Memory memory_take(const Host *host, const List *banks, Pages pages, uint64_t bytes, double value);
void memory_release(Memory *memory);

// A page of the memory, verified again. It is released with the memory, its `found` with free().
Memory memory_page(const Memory *memory, uint64_t page);

// Checks one of every 64 pages again; sets reason if pages have moved.
void memory_look_again(Memory *memory);

// The largest number of bytes that were allocated at once.
uint64_t memory_most(void);

#endif
