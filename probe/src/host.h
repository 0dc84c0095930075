// SPDX-License-Identifier: Apache-2.0
// The host: NUMA nodes by kernel number, their PUs, memory and distances, and the parts that may be used.
#ifndef HOST_H
#define HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "lists.h"
#include "pairs.h"

typedef struct {
    int number;
    List pus;        // usable PUs: the first of each core, then the second ones
    int cores;       // the number of first PUs among them
    uint64_t memory; // bytes, 0 for a memoryless one
    bool has_pus;    // the kernel knows PUs, usable, online or not: a bank without any is often a slower one
    bool data;       // data may be placed there: it has memory, is allowed, and is not device memory
    char subtype[32];
    uint64_t side_cache; // bytes of the memory-side caches in front of the memory, such as HBM in cache mode
} Node;

typedef struct {
    int count;
    Node *nodes;
    int place_count;
    Place *places;  // the usable PUs, in hwloc's order
    int *distances; // count x count, from the firmware; NULL if it reports none
    uint64_t line_bytes, page_bytes, huge_bytes;
    uint64_t cache_bytes;      // the largest cache that one PU reaches
    uint64_t level2_bytes;     // the least part of a second cache that a PU has, or 0 if it is unknown
    uint64_t all_caches_bytes; // sum of the last caches of all usable PUs
} Host;

Host *host_load(void);

// Prints hwloc's XML of this host, or of the stored one of file_root. Only what this process may use is allowed in
// it; what hwloc does not know is in its info attributes.
void host_print_xml(void);

void host_free(Host *host);

// The NUMA node of that number, or NULL.
const Node *host_node(const Host *host, int number);

// The NUMA node of a usable PU, or NULL.
const Node *host_node_of_pu(const Host *host, int pu);

// The firmware's distance, or Linux's default: 10 to the node itself, 20 to others.
int host_distance(const Host *host, int from, int to);

// NUMA nodes with usable PUs, and those that may hold data.
List host_pu_nodes(const Host *host);
List host_banks(const Host *host);

// The bank nearest to a usable PU.
int host_nearest_bank(const Host *host, int pu);

// PUs of the nearest NUMA node that has any; they touch the bank's memory first.
const List *host_nearest_pus(const Host *host, int bank);

#endif
