// SPDX-License-Identifier: Apache-2.0 Base pages, transparent huge pages and hugetlbfs pages.
#ifndef PAGES_H
#define PAGES_H

#include "memory.h"

// Reserves untouched address space of the given size, a multiple of the page size.
char *pages_map(const Host *host, Pages pages, uint64_t bytes);

// Bytes of the free huge pages (hugetlbfs, the default size) of a bank.
uint64_t pages_free(const Host *host, int bank);

// The physical address behind a touched one, or 0 where the kernel hides it (it shows it to root).
uint64_t pages_physical(const Host *host, const volatile void *address);

// The fraction of a touched mapping that is in huge pages, from smaps.
double pages_huge_share(Pages pages, const char *base, uint64_t bytes);

#endif
