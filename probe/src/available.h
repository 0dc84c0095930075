// SPDX-License-Identifier: Apache-2.0
// Memory that is available now.
#ifndef AVAILABLE_H
#define AVAILABLE_H

#include <stdint.h>

// Bytes on a bank of so much memory that are free or reclaimable page cache, less a reserve for the kernel.
uint64_t available_on_bank(int bank, uint64_t memory);

typedef struct {
    uint64_t limit, left; // bytes; UINT64_MAX without a limit
} Cgroup;

// The smallest memory limit of the process's cgroups (both versions, all levels), and the least that they leave.
Cgroup cgroup_memory(void);

// The address space (ulimit -v) that remains next to the stacks of a number of threads.
uint64_t address_space_left(int threads);

#endif
