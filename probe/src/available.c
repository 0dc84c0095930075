// SPDX-License-Identifier: Apache-2.0
#include "available.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

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

uint64_t available_on_bank(const Host *host, int bank)
{
    char *text = file_text("/sys/devices/system/node/node%d/meminfo", bank);
    int64_t kib = free_kib(text);
    free(text);
    if (kib < 0) { // a kernel without NUMA
        text = file_text("/proc/meminfo");
        kib = free_kib(text);
        free(text);
    }
    const Node *node = host_node(host, bank);
    const uint64_t free_bytes = kib > 0 ? (uint64_t)kib << 10 : 0, share = node->memory / 50;
    const uint64_t reserve = share > RESERVE ? share : RESERVE;
    return free_bytes > reserve ? free_bytes - reserve : 0;
}

// Memory left below the limit of one cgroup. Its page cache counts as free, because the kernel reclaims it.
static uint64_t left(const char *folder, const char *limit_file, const char *usage_file, const char *cache_key)
{
    char *limit_text = file_text("%s/%s", folder, limit_file),
         *usage_text = file_text("%s/%s", folder, usage_file);
    char *statistics = file_text("%s/memory.stat", folder);
    uint64_t result = UINT64_MAX;
    if (limit_text && usage_text && limit_text[0] >= '0' && limit_text[0] <= '9') {
        const uint64_t limit = strtoull(limit_text, NULL, 10);
        uint64_t usage = strtoull(usage_text, NULL, 10);
        const int64_t cache = text_number(statistics, cache_key);
        usage -= cache > 0 && (uint64_t)cache < usage ? (uint64_t)cache : 0;
        // 0 is a broken read-out; "no limit" in version 1 is the largest number of pages.
        if (limit > 0 && limit < UINT64_C(1) << 62)
            result = limit > usage ? (limit - usage) / 16 * 15 : 0; // page tables and stacks count as well
    }
    free(limit_text);
    free(usage_text);
    free(statistics);
    return result;
}

// The minimum over a cgroup and all above it, up to the mount point.
static uint64_t least_above(const char *mount, const char *group, bool second_version)
{
    char *folder;
    if (asprintf(&folder, "%s%s", mount, group) < 0)
        fail(EXIT_CANNOT, "no memory left for the probe's own tables");
    uint64_t least = UINT64_MAX;
    while (strlen(folder) >= strlen(mount)) {
        const uint64_t here = second_version ? left(folder, "memory.max", "memory.current", "inactive_file ")
                                             : left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                                    "total_inactive_file ");
        least = here < least ? here : least;
        char *slash = strrchr(folder, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    free(folder);
    return least;
}

uint64_t available_in_cgroup(void)
{
    uint64_t least = UINT64_MAX;
    char *text = file_text("/proc/self/cgroup"), *rest = text, *line;
    while (rest && (line = strsep(&rest, "\n"))) {
        strsep(&line, ":");
        const char *controllers = strsep(&line, ":");
        if (!controllers || !line)
            continue;
        uint64_t here = UINT64_MAX;
        if (!*controllers) {
            char *unified = file_text("/sys/fs/cgroup/cgroup.controllers");
            here = least_above(unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified", line, true);
            free(unified);
        } else if (strstr(controllers, "memory")) {
            here = least_above("/sys/fs/cgroup/memory", line, false);
        }
        least = here < least ? here : least;
    }
    free(text);
    return least;
}
