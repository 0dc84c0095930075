// SPDX-License-Identifier: Apache-2.0
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fail.h"

const char *const page_names[PAGE_KINDS] = {"base", "thp", "huge"};

uint64_t pages_free(const Host *host, int bank)
{
    char *text = file_text("/sys/devices/system/node/node%d/hugepages/hugepages-%" PRIu64 "kB/free_hugepages",
                           bank, host->huge_bytes >> 10);
    const uint64_t count = text ? strtoull(text, NULL, 10) : 0;
    free(text);
    return count * host->huge_bytes;
}

void pages_require(const Host *host, Pages pages)
{
    if (pages == PAGES_BASE)
        return;
    if (!host->huge_bytes)
        fail(EXIT_CANNOT, "this kernel has no huge pages");
    if (pages == PAGES_HUGE) {
        uint64_t all = 0;
        for (int i = 0; i < host->count; i++)
            all += pages_free(host, host->nodes[i].number);
        if (!all)
            fail(EXIT_CANNOT, "no huge page is free: an administrator reserves them in "
                              "/sys/devices/system/node/node*/hugepages/*/nr_hugepages; or use --pages thp");
        return;
    }
    char *text = file_text("/sys/kernel/mm/transparent_hugepage/enabled");
    const bool never = !text || strstr(text, "[never]");
    free(text);
    if (never)
        fail(EXIT_CANNOT, "transparent huge pages are switched off here "
                          "(/sys/kernel/mm/transparent_hugepage/enabled): use --pages base");
}

char *pages_map(const Host *host, Pages pages, uint64_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (pages == PAGES_HUGE ? MAP_HUGETLB : 0);
    // Always aligned to a huge page: maps a little more and unmaps both ends.
    const uint64_t unit = host->huge_bytes > host->page_bytes ? host->huge_bytes : host->page_bytes;
    const uint64_t more = pages == PAGES_HUGE ? 0 : unit;
    char *mapped = mmap(NULL, bytes + more, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapped == MAP_FAILED)
        fail(EXIT_CANNOT, "%.0f MiB cannot be mapped: %s", (double)bytes / 1048576, strerror(errno));
    if (pages == PAGES_HUGE)
        return mapped;
    const uint64_t before = (unit - (uintptr_t)mapped % unit) % unit;
    if (before)
        munmap(mapped, before);
    if (more - before)
        munmap(mapped + before + bytes, more - before);
    // A kernel without transparent huge pages refuses both; pages_require() has already checked PAGES_THP.
    madvise(mapped + before, bytes, pages == PAGES_THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return mapped + before;
}

double pages_huge_share(Pages pages, const char *base, uint64_t bytes)
{
    if (pages == PAGES_HUGE)
        return 1;
    FILE *file = fopen("/proc/self/smaps", "re");
    if (!file)
        return 0;
    char line[512];
    bool ours = false;
    uint64_t huge = 0;
    while (fgets(line, sizeof line, file)) {
        uintptr_t from, to;
        uint64_t kib;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            ours = from < (uintptr_t)base + bytes && to > (uintptr_t)base;
        else if (ours && sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1)
            huge += kib << 10;
    }
    fclose(file);
    return huge > bytes ? 1 : (double)huge / (double)bytes;
}

uint64_t pages_physical(const Host *host, const volatile void *address)
{
    // Documentation/admin-guide/mm/pagemap.rst: bit 63 says that the page is there, bits 0 to 54 are its number.
    uint64_t entry = 0;
    const uintptr_t place = (uintptr_t)address;
    const int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    const off_t offset = (off_t)(place / host->page_bytes * sizeof entry);
    const bool read_whole = map >= 0 && pread(map, &entry, sizeof entry, offset) == (ssize_t)sizeof entry;
    if (map >= 0)
        close(map);
    const uint64_t number = entry & ((UINT64_C(1) << 55) - 1);
    return read_whole && entry >> 63 && number ? number * host->page_bytes + place % host->page_bytes : 0;
}
