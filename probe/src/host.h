// SPDX-License-Identifier: Apache-2.0
// The host: NUMA nodes as the kernel numbers them, their PUs, memory and distances, and what may be used of it.
#ifndef HOST_H
#define HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "lists.h"

typedef struct {
    int number;
    List pus;        // that this process may use: first PUs of all cores, then the second ones
    int cores;       // so many of them are the first of their core
    uint64_t memory; // bytes, 0 for a memoryless one
    bool data;       // data may lie there: it has memory, it is allowed, and it is no device's
    char subtype[32];
} Node;

typedef struct {
    int count;
    Node *nodes;
    int *distances; // count x count, from the firmware; NULL where it tells none
    uint64_t line_bytes, page_bytes, huge_bytes;
    uint64_t cache_bytes;      // the largest cache that one PU reaches
    uint64_t all_caches_bytes; // the last caches of all PUs that may be used, together
} Host;

Host *host_load(void);
void host_free(Host *host);

// The NUMA node of that number, or NULL.
const Node *host_node(const Host *host, int number);

// The firmware's distance; where it tells none, Linux's 10 to itself and 20 to others.
int host_distance(const Host *host, int from, int to);

// NUMA nodes with PUs that may be used, and those that data may lie on.
List host_pu_nodes(const Host *host);
List host_banks(const Host *host);

// PUs of the NUMA node that is nearest to the bank and has some: who touches its memory first.
const List *host_nearest_pus(const Host *host, int bank);

#endif
