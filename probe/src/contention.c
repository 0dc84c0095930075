// SPDX-License-Identifier: Apache-2.0
// Contention (thesis section 3.5): threads increment every byte of one bank's array once, in random order.
#include <stdio.h>
#include <stdlib.h>

#include "arrays.h"
#include "aspects.h"
#include "fail.h"
#include "json.h"
#include "report.h"
#include "stop.h"

typedef struct {
    const Options *options;
    const Host *host;
    const Memory *memory;
    Samples *samples;
    bool done;
    bool *wrong; // of each thread's part
} Run;

static uint64_t increment(volatile unsigned char *part, uint64_t bytes, uint64_t step, uint64_t at,
                          uint64_t accesses)
{
    for (uint64_t i = 0; i < accesses; i++) {
        part[at]++;
        at += step;
        at -= at >= bytes ? bytes : 0;
    }
    return at;
}

// Tells whether all bytes were incremented equally often, give or take one, and resets them to 0.
static bool right(unsigned char *part, uint64_t bytes, uint64_t accesses)
{
    const uint64_t rounds = accesses / bytes;
    uint64_t more = 0;
    bool within = true;
    for (uint64_t i = 0; i < bytes; i++) {
        const unsigned char above = (unsigned char)(part[i] - rounds);
        within = within && above <= 1;
        more += above;
        part[i] = 0;
    }
    return within && more == accesses % bytes;
}

// A repetition makes one access per line of the array; after one repetition per byte of a line, all bytes are
// done.
static void work(Member *member, void *argument)
{
    Run *run = argument;
    const uint64_t line = run->host->line_bytes, count = (uint64_t)member->team->count;
    const uint64_t bytes = run->memory->bytes / count / line * line, accesses = bytes / line;
    unsigned char *part = (unsigned char *)run->memory->base + bytes * (uint64_t)member->id;
    // Formula 3.3 accesses byte (j * 1009) % N. With this step, every byte is still accessed once, but two
    // successive accesses are never in one page, within which prefetchers work.
    const uint64_t step = coprime_step(bytes);
    uint64_t at = 0, all = 0;
    for (;;) {
        team_together(member);
        if (member->id == 0)
            run->done = samples_enough(run->samples, &run->options->repetitions) || stop_signal();
        team_together(member);
        if (run->done)
            break;
        member->begin = team_now();
        at = increment(part, bytes, step, at, accesses);
        member->end = team_now();
        all += accesses;
        team_check(member);
        team_together(member);
        if (member->id == 0) // formula 3.4: every access moves a line
            samples_add(run->samples, (double)(accesses * count * line) / team_span(member->team) * 1e-9);
    }
    run->wrong[member->id] = !right(part, bytes, all);
}

static void print(const Result *common, const Samples *samples, int threads)
{
    Samples each = *samples;
    for (int i = 0; i < each.count; i++)
        each.values[i] /= threads;
    for (int i = 0; i < 2; i++) {
        Result result = *common;
        result.metric = i ? "thread_bandwidth" : "total_bandwidth";
        result.samples = i ? &each : samples;
        report_open(&result);
        json_integer("array_bytes", (int64_t)common->memory->bytes);
        json_string("access", "random read-modify-write");
        report_close();
    }
}

static void measure(const Options *options, const Host *host, Memory *memory, const List *nodes, List pus)
{
    Samples samples = {0};
    Run run = {.options = options, .host = host, .memory = memory, .samples = &samples};
    run.wrong = must_allocate((size_t)pus.count, sizeof *run.wrong);
    Placed placed = team_run(pus.values, pus.count, work, &run);
    memory_look_again(memory);
    bool wrong = false;
    for (int i = 0; i < pus.count; i++)
        wrong = wrong || run.wrong[i];
    const Result common = {.unit = "GB/s",
                           .better = "higher",
                           .pu_nodes = nodes,
                           .pus = &pus,
                           .placed = &placed,
                           .memory = memory,
                           .wrong = wrong ? "not every byte was incremented once" : ""};
    if (samples.count) {
        char text[128];
        report_say("contention %d threads, PUs %s, bank %d: %.3f GB/s in total", pus.count,
                   list_text(&pus, text, sizeof text), memory->banks.values[0], samples_median(&samples));
        print(&common, &samples, pus.count);
    }
    placed_free(&placed);
    free(run.wrong);
}

// The first PU, or the first two PUs, of each NUMA node alone: the thesis's first and second mode.
static void few(const Options *options, const Host *host, Memory *memory, int threads)
{
    const List turns = list_turns(options->pu_nodes.count, options->seed);
    for (int i = 0; i < turns.count && !stop_signal(); i++) {
        const List node = {1, &options->pu_nodes.values[turns.values[i]]};
        const List pus = options_pus(options, host, &node);
        if (pus.count >= threads)
            measure(options, host, memory, &node, (List){threads, pus.values});
        free(pus.values);
    }
    free(turns.values);
}

void contention(const Options *options, const Host *host)
{
    const List all = options_pus(options, host, &options->pu_nodes);
    // Impossible placements are refused before anything is measured.
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        for (int i = 0; i < options->banks.count && options->pages[pages]; i++)
            arrays_bytes(options, host, &(List){1, &options->banks.values[i]}, pages, 1, all.count);
    free(all.values);
    report_begin(options, host, options->banks.count);
    const List banks = list_turns(options->banks.count, options->seed);
    const List counts = list_turns(options->threads.count, options->seed);
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        for (int i = 0; i < options->banks.count && options->pages[pages] && !stop_signal(); i++) {
            const List bank = {1, &options->banks.values[banks.values[i]]};
            const List nodes = options_near(options, host, bank.values[0]),
                       pus = options_pus(options, host, &nodes);
            const uint64_t bytes = arrays_bytes(options, host, &bank, pages, 1, pus.count);
            Memory memory = memory_take(host, &bank, pages, bytes, 0);
            for (int j = 0; j < options->threads.count && !stop_signal(); j++) {
                const int threads = options->threads.values[counts.values[j]];
                if (threads <= 2)
                    few(options, host, &memory, threads);
                else // on all nodes, from the nearest PUs to the farthest, as in figures 3.6 and 3.7
                    measure(options, host, &memory, &nodes, (List){threads, pus.values});
            }
            memory_release(&memory);
            free(nodes.values);
            free(pus.values);
        }
    free(banks.values);
    free(counts.values);
}
