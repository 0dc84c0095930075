// SPDX-License-Identifier: Apache-2.0
// How much memory may be taken now.
#ifndef AVAILABLE_H
#define AVAILABLE_H

#include "host.h"

// Bytes that are free on a bank or hold page cache that can be dropped, less what the kernel needs to go on.
uint64_t available_on_bank(const Host *host, int bank);

// Bytes that the process's cgroups (of both versions, and all above) leave; UINT64_MAX where they set no limit.
uint64_t available_in_cgroup(void);

#endif
