// SPDX-License-Identifier: Apache-2.0
// Base pages, transparent huge pages and those of hugetlbfs.
#ifndef PAGES_H
#define PAGES_H

#include "memory.h"

// Address space for so many bytes, a multiple of the page size, with nothing touched yet.
char *pages_map(const Host *host, Pages pages, uint64_t bytes);

// Bytes of the free huge pages (hugetlbfs, the default size) of a bank.
uint64_t pages_free(const Host *host, int bank);

// The part of a touched mapping that lies in huge pages, as the kernel tells it (smaps).
double pages_huge_share(Pages pages, const char *base, uint64_t bytes);

#endif
