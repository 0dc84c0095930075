// SPDX-License-Identifier: Apache-2.0
#include "host.h"

#include <dirent.h>
#include <hwloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "available.h"
#include "fail.h"
#include "json.h"

enum { NODE_NUMBERS = 1024 }; // no kernel numbers its NUMA nodes this high

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

const Node *host_node_of_pu(const Host *host, int pu)
{
    for (int i = 0; i < host->count; i++)
        if (list_has(&host->nodes[i].pus, pu))
            return &host->nodes[i];
    return NULL;
}

int host_nearest_bank(const Host *host, int pu)
{
    const Node *of = host_node_of_pu(host, pu), *nearest = NULL;
    for (int i = 0; i < host->count; i++) {
        const Node *node = &host->nodes[i];
        if (node->data && (!nearest || host_distance(host, of->number, node->number) <
                                           host_distance(host, of->number, nearest->number)))
            nearest = node;
    }
    return nearest->number;
}

// The members of the kernel's list that follows a key in a text.
static hwloc_bitmap_t list_after(const char *text, const char *key)
{
    const char *line = text ? strstr(text, key) : NULL;
    if (!line)
        return NULL;
    line += strlen(key);
    line += strspn(line, " \t");
    char *list = must(strndup(line, strcspn(line, "\n")));
    hwloc_bitmap_t set = must(hwloc_bitmap_alloc());
    hwloc_bitmap_list_sscanf(set, list);
    free(list);
    return set;
}

// Restricts the allowed PUs and NUMA nodes of the topology to those that this process may use.
static void restrict_to_process(hwloc_topology_t topology)
{
    char *status = file_text("/proc/self/status");
    hwloc_bitmap_t pus = list_after(status, "Cpus_allowed_list:"),
                   nodes = list_after(status, "Mems_allowed_list:");
    free(status);
    if (pus)
        hwloc_bitmap_and(pus, pus, hwloc_topology_get_allowed_cpuset(topology));
    if (nodes)
        hwloc_bitmap_and(nodes, nodes, hwloc_topology_get_allowed_nodeset(topology));
    if ((pus || nodes) && hwloc_topology_allow(topology, pus, nodes, HWLOC_ALLOW_FLAG_CUSTOM))
        fail(EXIT_CANNOT, "hwloc has no PU, or no NUMA node, that this process may use");
    hwloc_bitmap_free(pus);
    hwloc_bitmap_free(nodes);
}

static hwloc_topology_t load_topology(void)
{
    hwloc_topology_t topology;
    // The kernel counts NVIDIA GPU memory as NUMA nodes; hwloc hides these nodes by default.
    setenv("HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES", "1", 1);
    setenv("HWLOC_HIDE_ERRORS", "2", 1);
    // The probe reports no devices. Without them, hwloc loads no plugins and reads no PCI configuration, which is
    // the most of its time: 10 of 14 ms on a virtual machine with six devices.
    setenv("HWLOC_PLUGINS_PATH", "/nonexistent", 1);
    if (*file_root) { // no cpuid and no PCI of this host
        setenv("HWLOC_FSROOT", file_root, 1);
        setenv("HWLOC_COMPONENTS", "linux,stop", 1);
        setenv("HWLOC_THISSYSTEM", "0", 1);
    }
    if (hwloc_topology_init(&topology) ||
        hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) ||
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_MEMCACHE, HWLOC_TYPE_FILTER_KEEP_ALL) ||
        hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) ||
        hwloc_topology_load(topology))
        fail(EXIT_CANNOT, "hwloc cannot read this host's topology");
    if (!*file_root && !hwloc_topology_is_thissystem(topology))
        fail(EXIT_CANNOT, "hwloc shows another machine: unset HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_FSROOT");
    restrict_to_process(topology);
    return topology;
}

// The NUMA nodes of the kernel. hwloc's lack memoryless ones, and those that contradict others.
static List online_nodes(void)
{
    List online = {0};
    char *text = file_text("/sys/devices/system/node/online");
    if (!text || !list_parse(text, &online)) // an old kernel has no such file
        for (int number = 0; number < NODE_NUMBERS; number++) {
            char *meminfo = file_text("/sys/devices/system/node/node%d/meminfo", number);
            if (meminfo)
                list_add(&online, number);
            free(meminfo);
        }
    free(text);
    if (!online.count) // a kernel without NUMA
        list_add(&online, 0);
    return online;
}

// The usable PUs of a NUMA node: the first of each core, then the second ones. Empties the set.
static void add_pus(Node *node, hwloc_topology_t topology, hwloc_bitmap_t usable)
{
    while (!hwloc_bitmap_iszero(usable)) {
        hwloc_bitmap_t firsts = must(hwloc_bitmap_dup(usable));
        hwloc_bitmap_singlify_per_core(topology, firsts, 0);
        for (int pu = hwloc_bitmap_first(firsts); pu >= 0; pu = hwloc_bitmap_next(firsts, pu))
            list_add(&node->pus, pu);
        hwloc_bitmap_andnot(usable, usable, firsts);
        hwloc_bitmap_free(firsts);
        if (!node->cores)
            node->cores = node->pus.count;
    }
}

// The second cache of a PU, divided by the PUs that share it.
static void add_level2(Host *host, hwloc_topology_t topology)
{
    for (hwloc_obj_t cache = NULL; (cache = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_L2CACHE, cache));) {
        const uint64_t part = cache->attr->cache.size / (uint64_t)hwloc_bitmap_weight(cache->complete_cpuset);
        if (part && (!host->level2_bytes || part < host->level2_bytes))
            host->level2_bytes = part;
    }
}

static void add_caches(Host *host, hwloc_topology_t topology)
{
    hwloc_bitmap_t rest = must(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology)));
    for (int pu; (pu = hwloc_bitmap_first(rest)) >= 0;) {
        hwloc_obj_t object = hwloc_get_pu_obj_by_os_index(topology, (unsigned)pu), last = object;
        for (; object; object = object->parent)
            if (hwloc_obj_type_is_dcache(object->type)) {
                last = object;
                if (last->attr->cache.linesize)
                    host->line_bytes = last->attr->cache.linesize;
            }
        hwloc_bitmap_andnot(rest, rest, last->cpuset);
        if (last->type == HWLOC_OBJ_PU)
            continue;
        host->all_caches_bytes += last->attr->cache.size;
        if (last->attr->cache.size > host->cache_bytes)
            host->cache_bytes = last->attr->cache.size;
    }
    hwloc_bitmap_free(rest);
}

// Adds a level after levels with at most its number of PUs. A level of one PU is not shared, so it is left out.
static void add_level(Place *place, int *sizes, int size, Level level)
{
    if (size < 2 || place->count == LEVELS_MOST)
        return;
    int at = place->count++;
    for (; at > 0 && sizes[at - 1] > size; at--) {
        place->levels[at] = place->levels[at - 1];
        sizes[at] = sizes[at - 1];
    }
    place->levels[at] = level;
    sizes[at] = size;
}

// What each usable PU shares with others. Of levels with the same PUs, the first added counts.
static void add_places(Host *host, hwloc_topology_t topology)
{
    static const struct {
        Share share;
        hwloc_obj_type_t type;
    } kinds[] = {{CORE, HWLOC_OBJ_CORE},      {CACHE, HWLOC_OBJ_L1CACHE}, {CACHE, HWLOC_OBJ_L2CACHE},
                 {CACHE, HWLOC_OBJ_L3CACHE},  {CACHE, HWLOC_OBJ_L4CACHE}, {CACHE, HWLOC_OBJ_L5CACHE},
                 {PACKAGE, HWLOC_OBJ_PACKAGE}};
    enum { TYPES = sizeof kinds / sizeof *kinds };
    const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    host->places = must_allocate((size_t)count, sizeof *host->places);
    for (int i = 0; i < count; i++) {
        hwloc_obj_t pu = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, (unsigned)i);
        const Node *node = host_node_of_pu(host, (int)pu->os_index);
        if (!node)
            continue;
        Place *place = &host->places[host->place_count++];
        place->pu = (int)pu->os_index;
        int sizes[LEVELS_MOST] = {0};
        for (int kind = 0; kind < TYPES; kind++) {
            if (kinds[kind].share == PACKAGE) // hwloc lacks NUMA nodes that the kernel has
                add_level(place, sizes, node->pus.count, (Level){-1 - node->number, NUMA_NODE, 0});
            hwloc_obj_t object = hwloc_get_ancestor_obj_by_type(topology, kinds[kind].type, pu);
            if (object)
                add_level(place, sizes, hwloc_bitmap_weight(object->cpuset),
                          (Level){(int64_t)object->gp_index, (int)kinds[kind].share,
                                  kinds[kind].share == CACHE ? (int)object->attr->cache.depth : 0});
        }
    }
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

// The PUs of a NUMA node that are offline: the kernel keeps links to them, but leaves them out of the node's list.
static List offline_pus(int number)
{
    List offline = {0}, of_node = {0};
    char *text = file_text("/sys/devices/system/cpu/offline");
    if (text)
        list_parse(text, &offline);
    for (int i = 0; i < offline.count; i++) {
        char *path = must_print("%s/sys/devices/system/node/node%d/cpu%d", file_root, number, offline.values[i]);
        struct stat link;
        if (!lstat(path, &link))
            list_add(&of_node, offline.values[i]);
        free(path);
    }
    free(offline.values);
    free(text);
    return of_node;
}

static void add_node(Host *host, hwloc_topology_t topology, int number)
{
    Node *node = &host->nodes[host->count++];
    node->number = number;
    char *text = file_text("/sys/devices/system/node/node%d/cpulist", number);
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology);
    hwloc_bitmap_t usable = text ? list_after(text, "") : must(hwloc_bitmap_dup(allowed)); // a kernel without NUMA
    free(text);
    const List offline = offline_pus(number);
    node->has_pus = !hwloc_bitmap_iszero(usable) || offline.count > 0;
    free(offline.values);
    hwloc_bitmap_and(usable, usable, allowed);
    add_pus(node, topology, usable);
    hwloc_bitmap_free(usable);
    hwloc_obj_t object = hwloc_get_numanode_obj_by_os_index(topology, (unsigned)number);
    if (object) {
        node->memory = object->attr->numanode.local_memory;
        if (object->subtype)
            snprintf(node->subtype, sizeof node->subtype, "%s", object->subtype);
        for (; object->parent->type == HWLOC_OBJ_MEMCACHE; object = object->parent)
            node->side_cache += object->parent->attr->cache.size;
    }
    node->data = node->memory && !of_device(node->subtype) &&
                 hwloc_bitmap_isset(hwloc_topology_get_allowed_nodeset(topology), (unsigned)number);
}

Host *host_load(void)
{
    Host *host = must_allocate(1, sizeof *host);
    hwloc_topology_t topology = load_topology();
    const List online = online_nodes();
    host->nodes = must_allocate((size_t)online.count, sizeof *host->nodes);
    for (int i = 0; i < online.count; i++)
        add_node(host, topology, online.values[i]);
    free(online.values);
    host->distances = distances(host);
    host->line_bytes = 64; // default if hwloc does not know
    add_caches(host, topology);
    add_level2(host, topology);
    add_places(host, topology);
    hwloc_topology_destroy(topology);
    host->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    char *text = file_text("/proc/meminfo");
    const int64_t kib = text_number(text, "Hugepagesize:");
    host->huge_bytes = kib > 0 ? (uint64_t)kib << 10 : 0;
    free(text);
    const List pu_nodes = host_pu_nodes(host), data = host_banks(host);
    if (!pu_nodes.count || !data.count)
        fail(EXIT_CANNOT, "no NUMA node has %s that this process may use", data.count ? "a PU" : "memory");
    free(pu_nodes.values);
    free(data.values);
    return host;
}

// Takes the text.
static void add_info(hwloc_obj_t object, const char *name, char *text)
{
    if (hwloc_obj_add_info(object, name, text))
        must(NULL);
    free(text);
}

// Adds what decides, for every process of the host, where pages lie or how large they are.
static void add_settings(hwloc_obj_t machine)
{
    static const char *const settings[][2] = {
        {"transparent_hugepage", "/sys/kernel/mm/transparent_hugepage/enabled"},
        {"numa_balancing", "/proc/sys/kernel/numa_balancing"},
        {"zone_reclaim_mode", "/proc/sys/vm/zone_reclaim_mode"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char *text = file_text("%s", settings[i][1]);
        const char *chosen = text && strchr(text, '[') ? strchr(text, '[') + 1 : text; // always [madvise] never
        if (text)
            add_info(machine, settings[i][0], must(strndup(chosen, strcspn(chosen, "]\n"))));
        free(text);
    }
}

// Adds the kernel's tier of each NUMA node (since Linux 6.1; lower is faster): hwloc has its own only since 2.10.
static void add_tiers(hwloc_topology_t topology)
{
    char *path = must_print("%s/sys/devices/virtual/memory_tiering", file_root);
    DIR *folder = opendir(path);
    free(path);
    int tier;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char *text = sscanf(entry->d_name, "memory_tier%d", &tier) == 1
                         ? file_text("/sys/devices/virtual/memory_tiering/%s/nodelist", entry->d_name)
                         : NULL;
        List nodes = {0};
        if (text && list_parse(text, &nodes))
            for (int i = 0; i < nodes.count; i++) {
                hwloc_obj_t node = hwloc_get_numanode_obj_by_os_index(topology, (unsigned)nodes.values[i]);
                if (node)
                    add_info(node, "KernelMemoryTier", must_print("%d", tier));
            }
        free(nodes.values);
        free(text);
    }
    if (folder)
        closedir(folder);
}

void host_print_xml(void)
{
    hwloc_topology_t topology = load_topology();
    hwloc_obj_t machine = hwloc_get_root_obj(topology);
    const List online = online_nodes();
    for (int i = 0; i < online.count; i++) {
        const int number = online.values[i];
        hwloc_obj_t node = hwloc_get_numanode_obj_by_os_index(topology, (unsigned)number);
        char *text = file_text("/sys/devices/system/node/node%d/%s", number, node ? "cpulist" : "meminfo");
        const int64_t kib = node ? 0 : text_number(text, "MemTotal:");
        if (node && text)
            add_info(node, "cpulist", must_print("%s", text));
        else if (kib > 0)
            add_info(machine, "LeftOutNUMANode", must_print("%d:%" PRId64, number, kib << 10));
        free(text);
        const List offline = offline_pus(number);
        char pus[4096];
        if (node && offline.count)
            add_info(node, "OfflinePUs", must_print("%s", list_text(&offline, pus, sizeof pus)));
        free(offline.values);
    }
    free(online.values);
    const uint64_t limit = cgroup_memory().limit;
    if (limit != UINT64_MAX)
        add_info(machine, "MemoryLimit", must_print("%" PRIu64, limit));
    add_settings(machine);
    add_tiers(topology);
    char *xml;
    int length;
    if (hwloc_topology_export_xmlbuffer(topology, &xml, &length, 0))
        fail(EXIT_CANNOT, "hwloc cannot write its XML");
    fputs(xml, stdout);
    json_line();
    hwloc_free_xmlbuffer(topology, xml);
    hwloc_topology_destroy(topology);
}

void host_free(Host *host)
{
    for (int i = 0; i < host->count; i++)
        free(host->nodes[i].pus.values);
    free(host->nodes);
    free(host->distances);
    free(host->places);
    free(host);
}
