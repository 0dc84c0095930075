// SPDX-License-Identifier: Apache-2.0
#include "available.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "fail.h"
#include "lists.h"

static const uint64_t RESERVE = UINT64_C(16) << 20; // minimum reserve for the kernel

// Free memory in KiB by the text of a meminfo, including page cache that can be dropped at once (file pages that
// are neither mapped nor dirty), which may fill a bank. Negative without a text.
static int64_t free_kib(const char *meminfo)
{
    const int64_t unused = text_number(meminfo, "MemFree:");
    if (unused < 0)
        return unused;
    const int64_t files = text_number(meminfo, "Active(file):") + text_number(meminfo, "Inactive(file):");
    const int64_t held =
        text_number(meminfo, "Dirty:") + text_number(meminfo, "Writeback:") + text_number(meminfo, "Mapped:");
    return unused + (files > held ? files - held : 0);
}

uint64_t available_on_bank(int bank, uint64_t memory)
{
    char *text = file_text("/sys/devices/system/node/node%d/meminfo", bank);
    int64_t kib = free_kib(text);
    free(text);
    if (kib < 0) { // a kernel without NUMA
        text = file_text("/proc/meminfo");
        kib = free_kib(text);
        free(text);
    }
    const uint64_t free_bytes = kib > 0 ? (uint64_t)kib << 10 : 0, share = memory / 50;
    const uint64_t reserve = share > RESERVE ? share : RESERVE;
    return free_bytes > reserve ? free_bytes - reserve : 0;
}

typedef struct {
    const char *limit, *usage, *cache; // names of files, and a key of memory.stat
} Names;

// Takes the limit of one cgroup if it is less. Its page cache counts as free, because the kernel reclaims it.
static void add_level(Cgroup *least, const char *folder, const Names *names)
{
    char *text = file_text("%s/%s", folder, names->limit);
    const uint64_t limit = text && text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : 0;
    free(text);
    // 0 is a broken read-out; "no limit" in version 1 is the largest number of pages.
    if (!limit || limit >= UINT64_C(1) << 62)
        return;
    text = file_text("%s/%s", folder, names->usage);
    uint64_t usage = text ? strtoull(text, NULL, 10) : 0;
    free(text);
    text = file_text("%s/memory.stat", folder);
    const int64_t cache = text_number(text, names->cache);
    free(text);
    usage -= cache > 0 && (uint64_t)cache < usage ? (uint64_t)cache : 0;
    const uint64_t left = limit > usage ? (limit - usage) / 16 * 15 : 0; // page tables and stacks count as well
    least->limit = limit < least->limit ? limit : least->limit;
    least->left = left < least->left ? left : least->left;
}

// Takes the limits of a cgroup and of all above it, up to the mount point.
static void add_levels(Cgroup *least, const char *mount, const char *group, const Names *names)
{
    char *folder = must_print("%s%s", mount, group);
    while (strlen(folder) >= strlen(mount)) {
        add_level(least, folder, names);
        char *slash = strrchr(folder, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    free(folder);
}

Cgroup cgroup_memory(void)
{
    static const Names first = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
                       second = {"memory.max", "memory.current", "inactive_file "};
    Cgroup least = {UINT64_MAX, UINT64_MAX};
    char *text = file_text("/proc/self/cgroup"), *rest = text, *line;
    while (rest && (line = strsep(&rest, "\n"))) {
        strsep(&line, ":");
        const char *controllers = strsep(&line, ":");
        if (!controllers || !line)
            continue;
        if (!*controllers) {
            char *unified = file_text("/sys/fs/cgroup/cgroup.controllers");
            add_levels(&least, unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified", line, &second);
            free(unified);
        } else if (strstr(controllers, "memory")) {
            add_levels(&least, "/sys/fs/cgroup/memory", line, &first);
        }
    }
    free(text);
    return least;
}

uint64_t address_space_left(int threads)
{
    struct rlimit limit, stack;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    char *text = file_text("/proc/self/status");
    const int64_t kib = text_number(text, "VmSize:");
    free(text);
    const uint64_t usual = UINT64_C(8) << 20;
    const uint64_t each =
        getrlimit(RLIMIT_STACK, &stack) || stack.rlim_cur > limit.rlim_cur ? usual : stack.rlim_cur;
    const uint64_t used = (kib > 0 ? (uint64_t)kib << 10 : 0) + (uint64_t)threads * each;
    return limit.rlim_cur > used ? (limit.rlim_cur - used) / 16 * 15 : 0; // the tables of the probe need some
}
