// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "available.h"
#include "fail.h"
#include "pages.h"
#include "stop.h"
#include "team.h"

enum { NODE_NUMBERS = 1024, BITS = 8 * sizeof(unsigned long) };

static uint64_t most_taken;

uint64_t memory_most(void)
{
    return most_taken;
}

const char *memory_policy(const Memory *memory)
{
    return memory->interleave ? "interleave" : "bind";
}

uint64_t memory_available(const Host *host, const List *banks, Pages pages)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < banks->count; i++) {
        const int bank = banks->values[i];
        const uint64_t here =
            pages == PAGES_HUGE ? pages_free(host, bank) : available_on_bank(bank, host_node(host, bank)->memory);
        least = here < least ? here : least;
    }
    const uint64_t total = least * (uint64_t)banks->count, limit = cgroup_memory().left;
    const uint64_t space = address_space_left(host->place_count);
    const uint64_t mapped = space < total ? space : total;
    // cgroups do not count huge pages of hugetlbfs as memory.
    return pages != PAGES_HUGE && limit < mapped ? limit : mapped;
}

static void bind(const Memory *memory)
{
    unsigned long mask[NODE_NUMBERS / BITS] = {0};
    char text[128];
    for (int i = 0; i < memory->banks.count; i++)
        if (memory->banks.values[i] < NODE_NUMBERS)
            mask[memory->banks.values[i] / BITS] |= 1ul << memory->banks.values[i] % BITS;
    const int mode = memory->interleave ? MPOL_INTERLEAVE : MPOL_BIND;
    if (!syscall(SYS_mbind, memory->base, memory->bytes, mode, mask, (unsigned long)NODE_NUMBERS, 0))
        return;
    if (errno == ENOSYS && memory->host->count == 1)
        return; // a kernel without NUMA has a single node
    fail(EXIT_CANNOT, "the kernel refuses to put memory on NUMA node %s (mbind: %s)%s",
         list_text(&memory->banks, text, sizeof text), strerror(errno),
         errno == EPERM ? "; in a container, its seccomp profile must allow mbind and move_pages" : "");
}

typedef struct {
    Memory *memory;
    double value;
} Touch;

static uint64_t touch_block_bytes(const Memory *memory)
{
    return memory->host->huge_bytes ? memory->host->huge_bytes : 1 << 21;
}

static uint64_t touch_blocks(const Memory *memory)
{
    const uint64_t block = touch_block_bytes(memory);
    return (memory->bytes + block - 1) / block;
}

static void touch(Member *member, void *argument)
{
    const Touch *task = argument;
    const uint64_t block = touch_block_bytes(task->memory), blocks = touch_blocks(task->memory);
    // Blocks are dealt out in turn, so that all PUs touch memory even if there are few blocks.
    for (uint64_t i = (uint64_t)member->id; i < blocks; i += (uint64_t)member->team->count) {
        double *place = (double *)(void *)(task->memory->base + i * block);
        const uint64_t bytes = i + 1 < blocks ? block : task->memory->bytes - i * block;
        for (uint64_t j = 0; j < bytes / sizeof *place; j++)
            place[j] = task->value;
        if (stop_signal())
            return;
    }
}

// Sets the reason if the NUMA nodes of the `looked` pages are wrong.
static void judge(Memory *memory, const int64_t *found, uint64_t looked)
{
    const Host *host = memory->host;
    for (int i = 0; i < host->count; i++) {
        const bool asked = list_has(&memory->banks, host->nodes[i].number);
        // Interleaved memory is even to within a huge page, plus 2 % for other mappings in between: the tolerance
        // of the policy interleave in policies.json.
        const double even = asked ? (double)looked / memory->banks.count : 0;
        const double slack = asked ? 0.02 * even + (double)(host->huge_bytes / host->page_bytes) : 0;
        const double here = (double)found[i];
        const bool wrong = memory->interleave ? here < even - slack || here > even + slack : here != even;
        if (wrong && !memory->reason[0])
            snprintf(memory->reason, sizeof memory->reason,
                     "%.0f of %.0f pages are on NUMA node %d, %.0f should be", here, (double)looked,
                     host->nodes[i].number, even);
    }
}

// Reads the NUMA nodes of some pages from the kernel; false on a kernel without NUMA.
static bool ask(const Host *host, void **addresses, int *places, uint64_t batch)
{
    if (!syscall(SYS_move_pages, 0, (unsigned long)batch, addresses, NULL, places, 0))
        return true;
    if (errno == ENOSYS && host->count == 1)
        return false;
    fail(EXIT_CANNOT,
         "the kernel refuses to tell where pages lie (move_pages: %s), so no placement can be verified%s",
         strerror(errno), errno == EPERM ? "; in a container, its seccomp profile must allow it" : "");
}

// Counts every `stride`-th page by its NUMA node.
static void look(Memory *memory, uint64_t stride, int64_t *found)
{
    enum { BATCH = 4096 };
    const Host *host = memory->host;
    const uint64_t pages = memory->bytes / host->page_bytes;
    void **addresses = must_allocate(BATCH, sizeof *addresses);
    int *places = must_allocate(BATCH, sizeof *places);
    uint64_t looked = 0;
    bool told = true;
    for (uint64_t next = 0; next < pages && told;) {
        uint64_t batch = 0;
        for (; batch < BATCH && next < pages; next += stride)
            addresses[batch++] = memory->base + next * host->page_bytes;
        told = ask(host, addresses, places, batch);
        for (uint64_t i = 0; i < batch && told; i++, looked++) {
            const Node *node = places[i] < 0 ? NULL : host_node(host, places[i]);
            if (node)
                found[node - host->nodes]++;
            else if (!memory->reason[0])
                snprintf(memory->reason, sizeof memory->reason, "a page is on no NUMA node: %s",
                         places[i] < 0 ? strerror(-places[i]) : "unknown number");
        }
    }
    free(addresses);
    free(places);
    memory->verified = told;
    if (told)
        judge(memory, found, looked);
}

void memory_look_again(Memory *memory)
{
    int64_t *found = must_allocate((size_t)memory->host->count, sizeof *found);
    look(memory, 64, found);
    free(found);
}

uint64_t memory_require(const Host *host, const List *banks, Pages pages, uint64_t bytes)
{
    char text[128];
    const uint64_t unit = pages == PAGES_BASE ? host->page_bytes : host->huge_bytes;
    const uint64_t whole = (bytes + unit - 1) / unit * unit, available = memory_available(host, banks, pages);
    if (whole > available)
        fail(EXIT_CANNOT, "%.0f MiB are needed on NUMA node %s, where %.0f MiB can be had (%s pages)",
             (double)whole / 1048576, list_text(banks, text, sizeof text), (double)available / 1048576,
             page_names[pages]);
    return whole;
}

void memory_beyond_caches(uint64_t bytes, uint64_t caches)
{
    if (bytes < 2 * caches)
        fail(EXIT_CANNOT,
             "%llu MiB of memory can be had, too few to measure memory behind caches of %llu MiB: a limit of a "
             "cgroup, or other programs' memory",
             (unsigned long long)bytes >> 20, (unsigned long long)caches >> 20);
}

Memory memory_take(const Host *host, const List *banks, Pages pages, uint64_t bytes, double value)
{
    Memory memory = {.host = host, .interleave = banks->count > 1, .pages = pages};
    memory.bytes = memory_require(host, banks, pages, bytes);
    memory.banks = list_copy(banks);
    memory.base = pages_map(host, pages, memory.bytes);
    memory.found = must_allocate((size_t)host->count, sizeof *memory.found);
    bind(&memory);
    Touch task = {&memory, value};
    const List *pus = host_nearest_pus(host, banks->values[0]);
    const uint64_t blocks = touch_blocks(&memory);
    Placed placed = team_run(pus->values, blocks < (uint64_t)pus->count ? (int)blocks : pus->count, touch, &task);
    placed_free(&placed);
    most_taken = memory.bytes > most_taken ? memory.bytes : most_taken;
    if (stop_signal())
        return memory;
    memory.huge_share = pages_huge_share(pages, memory.base, memory.bytes);
    look(&memory, 1, memory.found);
    if (!memory.reason[0] && pages == PAGES_THP && memory.huge_share < 0.9)
        snprintf(memory.reason, sizeof memory.reason, "only %.0f %% of the memory is in transparent huge pages",
                 100 * memory.huge_share);
    return memory;
}

Memory memory_page(const Memory *memory, uint64_t page)
{
    Memory part = *memory;
    part.base += page * memory->host->page_bytes;
    part.bytes = memory->host->page_bytes;
    part.found = must_allocate((size_t)memory->host->count, sizeof *part.found);
    part.reason[0] = '\0';
    look(&part, 1, part.found);
    return part;
}

void memory_release(Memory *memory)
{
    if (memory->base)
        munmap(memory->base, memory->bytes);
    free(memory->banks.values);
    free(memory->found);
    *memory = (Memory){0};
}
