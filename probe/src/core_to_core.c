// SPDX-License-Identifier: Apache-2.0
// Core-to-core latency: two PUs take turns in changing one cache line by compare-and-swap.
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "aspects.h"
#include "fail.h"
#include "json.h"
#include "report.h"
#include "stop.h"

enum { PARTS = 9, LEAST_TURNS = 2, MOST_TURNS = 1 << 16, SAMPLE_NS = 400000, SANITY_NS = 20000, TRIES = 1 << 12 };

// The word that both PUs change: even while it is the first PU's turn.
typedef _Atomic uint32_t Word;

typedef struct {
    const Options *options;
    const Host *host;
    char *page;
    Samples *samples;
    uint32_t turns; // of each PU in a part of a sample
    bool done, wrong;
} Run;

static Word *word_of(const Run *run, uint64_t line)
{
    return (Word *)(void *)(run->page +
                            line % (run->host->page_bytes / run->host->line_bytes) * run->host->line_bytes);
}

// Writes a line back to memory, so that no third PU's cache has a part in its moves.
static void evict(Word *word)
{
#if defined(__x86_64__)
    __builtin_ia32_clflush((void *)word);
    __builtin_ia32_mfence();
#elif defined(__aarch64__)
    __asm__ volatile("dc civac, %0\n\tdsb sy" : : "r"(word) : "memory");
#else
    (void)word;
#endif
}

// Changes the word from each second number on to the next, as soon as it is that number.
static uint32_t take_turns(Word *word, uint32_t next, uint32_t turns)
{
    for (uint32_t end = next + 2 * turns; next != end; next += 2)
        for (uint32_t tries = 0, seen = next; !atomic_compare_exchange_strong_explicit(
                 word, &seen, next + 1, memory_order_acq_rel, memory_order_relaxed);
             seen = next)
            // An emulator may run the other PU's thread only if this one pauses.
            if (++tries % TRIES == 0)
                team_relax();
    return next;
}

// Both PUs take turns in changing a line, another one than in the sample before. Returns nanoseconds per turn, the
// median of the sample's parts: an interrupt takes longer than thousands of turns.
static double sample(Run *run, Member *member, uint64_t line)
{
    Word *word = word_of(run, line);
    if (member->id == 0) {
        atomic_store_explicit(word, 0, memory_order_relaxed);
        evict(word);
    }
    team_together(member);
    const uint32_t turns = run->turns, first = (uint32_t)member->id;
    double parts[PARTS];
    uint32_t next = take_turns(word, first, 1); // the threads have begun
    for (int i = 0; i < PARTS; i++) {
        const int64_t begin = team_now();
        next = take_turns(word, next, turns);
        parts[i] = (double)(team_now() - begin) / (2.0 * turns);
    }
    team_together(member);
    if (member->id == 0 && atomic_load(word) != 2 * (PARTS * turns + 1))
        run->wrong = true;
    return median_of(parts, PARTS);
}

// Sets the turns of a part. An interrupt makes a trial slower, never faster.
static void calibrate(Run *run, Member *member)
{
    const double wanted = run->options->sanity ? SANITY_NS : SAMPLE_NS;
    double least = 0;
    for (uint64_t trial = 0; trial < 3; trial++) {
        const double turn = sample(run, member, trial);
        least = trial && least < turn ? least : turn;
        const double turns = wanted / (2 * PARTS * (least > 0.1 ? least : 0.1)) / (trial < 2 ? 8 : 1);
        if (member->id == 0)
            run->turns = turns < LEAST_TURNS ? LEAST_TURNS : turns > MOST_TURNS ? MOST_TURNS : (uint32_t)turns;
        team_together(member);
    }
}

static void work(Member *member, void *argument)
{
    Run *run = argument;
    calibrate(run, member);
    for (uint64_t line = 3;; line++) {
        if (member->id == 0)
            run->done = samples_enough(run->samples, &run->options->repetitions) || stop_signal();
        team_together(member);
        if (run->done)
            break;
        const double value = sample(run, member, line);
        team_check(member);
        if (member->id == 0)
            samples_add(run->samples, value);
    }
}

// The pages of a bank: each pair gets one that no pair used before.
typedef struct {
    Memory memory;
    uint64_t count, next;
} Shelf;

static int bank_of(const Host *host, const Place *places, const Pair *pair, int bank)
{
    return bank >= 0 ? bank : host_nearest_bank(host, places[pair->a].pu);
}

static Shelf *shelf_of(const Host *host, Shelf *shelves, int bank)
{
    return &shelves[host_node(host, bank) - host->nodes];
}

static double measure(const Options *options, const Host *host, const Place *places, const Pair *pair,
                      Shelf *shelf)
{
    const int pus[] = {places[pair->a].pu, places[pair->b].pu};
    Memory page = memory_page(&shelf->memory, shelf->next++);
    Samples samples = {0};
    Run run = {.options = options, .host = host, .page = page.base, .samples = &samples, .turns = LEAST_TURNS};
    Placed placed = team_run(pus, 2, work, &run);
    memory_look_again(&page);
    List nodes = {0};
    for (int i = 0; i < 2; i++) {
        const int node = host_node_of_pu(host, pus[i])->number;
        if (!list_has(&nodes, node))
            list_add(&nodes, node);
    }
    const Result result = {.metric = "pair_latency",
                           .unit = "ns",
                           .better = "lower",
                           .samples = &samples,
                           .pu_nodes = &nodes,
                           .pus = &(List){2, (int *)pus},
                           .placed = &placed,
                           .memory = &page,
                           .wrong = run.wrong ? "the two PUs did not change the line in turn" : ""};
    if (samples.count) {
        report_open(&result);
        json_string("shared", share_names[pair->share]);
        if (pair->share == CACHE)
            json_integer("cache_level", pair->cache_level);
        json_integer("pairs", pair->of_kind);
        json_integer("pairs_of", pair->all_of_kind);
        report_close();
    }
    free(nodes.values);
    free(page.found);
    placed_free(&placed);
    return samples_median(&samples);
}

// Prints a line for each kind of closeness.
static void say(const Pair *pairs, const double *medians, int64_t count)
{
    double *values = must_allocate((size_t)count, sizeof *values);
    for (int share = CORE; share < SHARES; share++) {
        int64_t number = 0;
        for (int64_t i = 0; i < count; i++)
            if (pairs[i].share == share && !isnan(medians[i]))
                values[number++] = medians[i];
        sort_doubles(values, (int)number);
        if (number)
            report_say("core-to-core %lld pairs that share a %s: %.1f ns (%.1f to %.1f)", (long long)number,
                       share_names[share], values[number / 2], values[0], values[number - 1]);
    }
    free(values);
}

// Measures all pairs with their lines on one bank, or (-1) each on the bank nearest to its first PU.
static void on_bank(const Options *options, const Host *host, const Place *places, const Pair *pairs,
                    int64_t planned, int bank)
{
    Shelf *shelves = must_allocate((size_t)host->count, sizeof *shelves);
    double *medians = must_allocate((size_t)planned, sizeof *medians);
    int64_t done = 0;
    for (int64_t i = 0; i < planned; i++)
        shelf_of(host, shelves, bank_of(host, places, &pairs[i], bank))->count++;
    for (int i = 0; i < host->count && !stop_signal(); i++)
        if (shelves[i].count)
            shelves[i].memory = memory_take(host, &(List){1, &host->nodes[i].number}, PAGES_BASE,
                                            shelves[i].count * host->page_bytes, 0);
    for (; done < planned && !stop_signal(); done++) {
        Shelf *shelf = shelf_of(host, shelves, bank_of(host, places, &pairs[done], bank));
        medians[done] = measure(options, host, places, &pairs[done], shelf);
        if (done % 100 == 99)
            report_say("core-to-core %lld of %lld pairs", (long long)done + 1, (long long)planned);
    }
    say(pairs, medians, done);
    for (int i = 0; i < host->count; i++)
        memory_release(&shelves[i].memory);
    free(shelves);
    free(medians);
}

void core_to_core(const Options *options, const Host *host)
{
    const List pus = options_pus(options, host, &options->pu_nodes);
    Place *places = must_allocate((size_t)host->place_count, sizeof *places);
    int count = 0;
    for (int i = 0; i < host->place_count; i++)
        if (list_has(&pus, host->places[i].pu))
            places[count++] = host->places[i];
    free(pus.values);
    if (count < 2)
        fail(EXIT_CANNOT, "core-to-core latency needs two PUs, and this process may use one");
    int64_t planned;
    Pair *pairs = pairs_plan(places, count, options->pairs, &planned);
    const int passes = options->banks.count ? options->banks.count : 1;
    // Impossible placements are refused before anything is measured.
    for (int i = 0; i < passes; i++) {
        const int bank = options->banks.count ? options->banks.values[i] : host_nearest_bank(host, places[0].pu);
        memory_require(host, &(List){1, &(int){bank}}, PAGES_BASE, (uint64_t)planned * host->page_bytes);
    }
    report_begin(options, host, (int)planned * passes);
    for (int i = 0; i < passes && !stop_signal(); i++)
        on_bank(options, host, places, pairs, planned, options->banks.count ? options->banks.values[i] : -1);
    free(pairs);
    free(places);
}
