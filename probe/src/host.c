// SPDX-License-Identifier: Apache-2.0
#include "host.h"

#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"

// hwloc's subtypes (also with CXL- before them) of device memory, which is never used for data.
static bool of_device(const char *subtype)
{
    if (!strncmp(subtype, "CXL-", 4))
        subtype += 4;
    return !strcmp(subtype, "GPUMemory") || !strcmp(subtype, "NVIDIAGPUMemory") || !strcmp(subtype, "SPM");
}

const Node *host_node(const Host *host, int number)
{
    for (int i = 0; i < host->count; i++)
        if (host->nodes[i].number == number)
            return &host->nodes[i];
    return NULL;
}

int host_distance(const Host *host, int from, int to)
{
    const Node *a = host_node(host, from), *b = host_node(host, to);
    if (host->distances && a && b)
        return host->distances[(a - host->nodes) * host->count + (b - host->nodes)];
    return from == to ? 10 : 20;
}

List host_pu_nodes(const Host *host)
{
    List list = {0};
    for (int i = 0; i < host->count; i++)
        if (host->nodes[i].pus.count)
            list_add(&list, host->nodes[i].number);
    return list;
}

List host_banks(const Host *host)
{
    List list = {0};
    for (int i = 0; i < host->count; i++)
        if (host->nodes[i].data)
            list_add(&list, host->nodes[i].number);
    return list;
}

const List *host_nearest_pus(const Host *host, int bank)
{
    const Node *nearest = NULL;
    for (int i = 0; i < host->count; i++) {
        const Node *node = &host->nodes[i];
        if (!node->pus.count)
            continue;
        if (!nearest || host_distance(host, node->number, bank) < host_distance(host, nearest->number, bank))
            nearest = node;
    }
    return &nearest->pus;
}

// The list after a key of /proc/self/status, such as Mems_allowed_list.
static List allowed(const char *key)
{
    List list = {0};
    char *status = file_text("/proc/self/status");
    char *found = status ? strstr(status, key) : NULL;
    if (found) {
        found += strlen(key);
        found += strspn(found, ": \t");
        found[strcspn(found, "\n")] = '\0';
        list_parse(found, &list);
    }
    free(status);
    return list;
}

// The usable PUs of a NUMA node, ordered by their rank in their core.
static void add_pus(Node *node, hwloc_topology_t topology, const List *members, const List *may)
{
    bool more = true;
    for (int rank = 0; more; rank++) {
        more = false;
        for (int i = 0; i < members->count; i++) {
            const int pu = members->values[i];
            hwloc_obj_t object = hwloc_get_pu_obj_by_os_index(topology, (unsigned)pu);
            if (!list_has(may, pu) || !object)
                continue;
            hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, object);
            int place = 0;
            for (int before = 0; core && before < pu; before++)
                place += hwloc_bitmap_isset(core->cpuset, (unsigned)before) && list_has(may, before) &&
                         list_has(members, before);
            if (place == rank)
                list_add(&node->pus, pu);
            more = more || place > rank;
        }
        if (rank == 0)
            node->cores = node->pus.count;
    }
}

static void add_caches(Host *host, hwloc_topology_t topology, const List *may)
{
    hwloc_bitmap_t seen = hwloc_bitmap_alloc();
    for (int i = 0; i < may->count; i++) {
        hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned)may->values[i]), last = NULL;
        for (hwloc_obj_t above = pu; above; above = above->parent) {
            if (!hwloc_obj_type_is_dcache(above->type))
                continue;
            last = above;
            if (above->attr->cache.linesize)
                host->line_bytes = above->attr->cache.linesize;
        }
        if (!last || hwloc_bitmap_isset(seen, (unsigned)may->values[i]))
            continue;
        hwloc_bitmap_or(seen, seen, last->cpuset);
        host->all_caches_bytes += last->attr->cache.size;
        if (last->attr->cache.size > host->cache_bytes)
            host->cache_bytes = last->attr->cache.size;
    }
    hwloc_bitmap_free(seen);
}

// The kernel's matrix, because hwloc's lacks memoryless NUMA nodes.
static int *distances(const Host *host)
{
    int *matrix = must_allocate((size_t)host->count * (size_t)host->count, sizeof *matrix);
    for (int i = 0; i < host->count; i++) {
        char *text = file_text("/sys/devices/system/node/node%d/distance", host->nodes[i].number), *rest = text;
        for (int j = 0; j < host->count; j++) {
            char *end = rest;
            const long value = rest ? strtol(rest, &end, 10) : 0;
            if (end == rest || value < 1) {
                free(text);
                free(matrix);
                return NULL;
            }
            matrix[i * host->count + j] = (int)value;
            rest = end;
        }
        free(text);
    }
    return matrix;
}

static void add_node(Host *host, hwloc_topology_t topology, int number, const List *may, const List *banks)
{
    Node *node = &host->nodes[host->count++];
    node->number = number;
    List members = {0};
    char *text = file_text("/sys/devices/system/node/node%d/cpulist", number);
    if (text)
        list_parse(text, &members);
    else
        for (int i = 0; i < may->count; i++) // a kernel without NUMA
            list_add(&members, may->values[i]);
    free(text);
    add_pus(node, topology, &members, may);
    free(members.values);
    hwloc_obj_t object = hwloc_get_numanode_obj_by_os_index(topology, (unsigned)number);
    if (object) {
        node->memory = object->attr->numanode.local_memory;
        if (object->subtype)
            snprintf(node->subtype, sizeof node->subtype, "%s", object->subtype);
    }
    node->data = node->memory && list_has(banks, number) && !of_device(node->subtype);
}

Host *host_load(void)
{
    Host *host = must_allocate(1, sizeof *host);
    hwloc_topology_t topology;
    // The kernel counts NVIDIA GPU memory as NUMA nodes; hwloc hides these nodes by default.
    setenv("HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES", "1", 1);
    if (hwloc_topology_init(&topology) ||
        hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) ||
        hwloc_topology_load(topology))
        fail(EXIT_CANNOT, "hwloc cannot read this host's topology");
    if (!hwloc_topology_is_thissystem(topology))
        fail(EXIT_CANNOT, "hwloc shows another machine: unset HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_FSROOT");
    const List may = allowed("Cpus_allowed_list"), banks = allowed("Mems_allowed_list");
    char *text = file_text("/sys/devices/system/node/online");
    List online = {0};
    if (!text || !list_parse(text, &online) || !online.count)
        list_add(&online, 0);
    free(text);
    host->nodes = must_allocate((size_t)online.count, sizeof *host->nodes);
    for (int i = 0; i < online.count; i++)
        add_node(host, topology, online.values[i], &may, &banks);
    host->distances = distances(host);
    host->line_bytes = 64; // default if hwloc does not know
    add_caches(host, topology, &may);
    host->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    text = file_text("/proc/meminfo");
    const int64_t kib = text_number(text, "Hugepagesize:");
    host->huge_bytes = kib > 0 ? (uint64_t)kib << 10 : 0;
    free(text);
    free(online.values);
    free(may.values);
    free(banks.values);
    hwloc_topology_destroy(topology);
    const List pu_nodes = host_pu_nodes(host), data = host_banks(host);
    if (!pu_nodes.count || !data.count)
        fail(EXIT_CANNOT, "no NUMA node has %s that this process may use", data.count ? "a PU" : "memory");
    free(pu_nodes.values);
    free(data.values);
    return host;
}

void host_free(Host *host)
{
    for (int i = 0; i < host->count; i++)
        free(host->nodes[i].pus.values);
    free(host->nodes);
    free(host->distances);
    free(host);
}
