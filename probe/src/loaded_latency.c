// SPDX-License-Identifier: Apache-2.0
// Loaded latency: one PU follows the cycle while others copy arrays on the same bank.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "arrays.h"
#include "aspects.h"
#include "fail.h"
#include "json.h"
#include "report.h"
#include "stop.h"
#include "walk.h"

enum { BLOCK = 1 << 13 }; // elements that a thread copies before it checks for the end

// Bytes that one thread has copied, in a separate cache line to avoid false sharing.
typedef struct {
    _Alignas(128) atomic_uint_fast64_t bytes;
} Counter;

typedef struct {
    const Options *options;
    const Walk *walk;
    const Arrays *arrays;
    KernelCode *copy;
    Counter *counters;
    int loaders;
    atomic_bool done;
    Samples latency, load;
} Run;

static uint64_t moved(const Run *run)
{
    uint64_t bytes = 0;
    for (int i = 1; i <= run->loaders; i++)
        bytes += atomic_load_explicit(&run->counters[i].bytes, memory_order_relaxed);
    return bytes;
}

static void chase(Run *run, Member *member)
{
    Walker walker = walker_warm(run->walk, run->options->sanity); // with the load on
    while (!samples_enough(&run->latency, &run->options->repetitions) && !stop_signal()) {
        const uint64_t before = moved(run);
        const int64_t begin = team_now();
        const double sample = walker_sample(&walker);
        const double seconds = (double)(team_now() - begin) * 1e-9;
        team_check(member);
        if (stop_signal()) // the sample is incomplete
            break;
        samples_add(&run->latency, sample);
        samples_add(&run->load, (double)(moved(run) - before) / seconds * 1e-9);
    }
    atomic_store(&run->done, true);
}

static void load(Run *run, Member *member)
{
    size_t first, last;
    arrays_part(run->arrays, member->id - 1, run->loaders, &first, &last);
    for (size_t at = first; !atomic_load_explicit(&run->done, memory_order_relaxed);) {
        const size_t end = last - at < BLOCK ? last : at + BLOCK;
        arrays_pass(run->arrays, COPY, run->copy, 0, at, end);
        atomic_fetch_add_explicit(&run->counters[member->id].bytes, 2 * (end - at) * sizeof(double),
                                  memory_order_relaxed);
        at = end == last ? first : end;
    }
}

static void work(Member *member, void *argument)
{
    Run *run = argument;
    team_together(member);
    if (member->id == 0)
        chase(run, member);
    else
        load(run, member);
}

// The walker's PU, then the loaders' PUs, nearest to the bank first.
static List crew(const Options *options, const Host *host, int node, int bank, int loaders)
{
    const List nodes = options_near(options, host, bank), near = options_pus(options, host, &nodes);
    List pus = {0};
    list_add(&pus, host_node(host, node)->pus.values[0]);
    for (int i = 0; i < near.count && pus.count <= loaders; i++)
        if (near.values[i] != pus.values[0])
            list_add(&pus, near.values[i]);
    free(nodes.values);
    free(near.values);
    return pus;
}

static void print(const Run *run, const Result *common, const Memory *memory)
{
    for (int i = 0; i < 2; i++) {
        Result result = *common;
        result.metric = i ? "load_bandwidth" : "loaded_latency";
        result.unit = i ? "GB/s" : "ns";
        result.better = i ? "higher" : "lower";
        result.samples = i ? &run->load : &run->latency;
        report_open(&result);
        json_integer("loaders", run->loaders);
        json_string("kernel", "copy");
        json_string("stores", store_names[REGULAR]);
        json_string("instructions", instruction_names[kernel_preferred()]);
        json_integer("array_bytes", (int64_t)run->arrays->bytes);
        json_integer("size_bytes", (int64_t)memory->bytes);
        report_close();
    }
}

static void measure(const Options *options, const Host *host, const Walk *walk, Memory *cycle,
                    const Arrays *arrays, Memory *memory, int node, int loaders)
{
    Run run = {.options = options, .walk = walk, .arrays = arrays, .loaders = loaders};
    run.copy = kernel_code(COPY, kernel_preferred(), REGULAR);
    run.counters = must(aligned_alloc(128, sizeof(Counter) * ((size_t)loaders + 1)));
    for (int i = 0; i <= loaders; i++)
        atomic_init(&run.counters[i].bytes, 0);
    const List nodes = {1, &node}, pus = crew(options, host, node, cycle->banks.values[0], loaders);
    Placed placed = team_run(pus.values, pus.count, work, &run);
    memory_look_again(cycle);
    memory_look_again(memory);
    const char *wrong = *walk->wrong ? walk->wrong : memory->reason;
    if (!*wrong && !(arrays_error(arrays, 0, arrays->count, 1) < 1e-10))
        wrong = "the arrays hold wrong values";
    const Result common = {.pu_nodes = &nodes, .pus = &pus, .placed = &placed, .memory = cycle, .wrong = wrong};
    if (run.latency.count) {
        report_say("loaded latency NUMA node %d, bank %d, %d threads copy %.2f GB/s: %.1f ns", node,
                   cycle->banks.values[0], loaders, samples_median(&run.load), samples_median(&run.latency));
        print(&run, &common, cycle);
    }
    free(run.counters);
    free(pus.values);
    placed_free(&placed);
}

static void on_bank(const Options *options, const Host *host, const List *bank, Pages pages, Order order)
{
    const List pus = options_pus(options, host, &options->pu_nodes);
    Memory cycle = memory_take(host, bank, pages, options->size[0], 0), memory;
    const uint64_t bytes = arrays_bytes(options, host, bank, pages, 3, pus.count);
    const Arrays arrays = arrays_take(&memory, host, bank, pages, bytes);
    if (!stop_signal()) {
        const Walk walk = walk_build(host, &cycle, options->size[0], order);
        for (int node = 0; node < options->pu_nodes.count; node++)
            for (int i = 0; i < options->threads.count && !stop_signal(); i++)
                measure(options, host, &walk, &cycle, &arrays, &memory, options->pu_nodes.values[node],
                        options->threads.values[i]);
    }
    memory_release(&memory);
    memory_release(&cycle);
    free(pus.values);
}

void loaded_latency(const Options *options, const Host *host)
{
    const List all = options_pus(options, host, &options->pu_nodes);
    // Impossible placements are refused before anything is measured.
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        for (int i = 0; i < options->banks.count && options->pages[pages]; i++)
            arrays_bytes(options, host, &(List){1, &options->banks.values[i]}, pages, 3, all.count);
    free(all.values);
    report_begin(options, host, options->pu_nodes.count * options->banks.count);
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        for (Order order = RANDOM; order < ORDERS; order++)
            for (int i = 0; i < options->banks.count && !stop_signal(); i++)
                if (options->pages[pages] && options->order[order])
                    on_bank(options, host, &(List){1, &options->banks.values[i]}, pages, order);
}
