// SPDX-License-Identifier: Apache-2.0
// Checks the options against the host: fills in defaults and refuses impossible values.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "options.h"
#include "report.h"

// Refuses members of a list that may not be used.
static void must_be_among(const char *option, const List *list, const List *may, const Host *host,
                          const char *what)
{
    for (int i = 0; i < list->count; i++) {
        if (!host_node(host, list->values[i]))
            fail(EXIT_USAGE, "--%s: there is no NUMA node %d here", option, list->values[i]);
        if (!list_has(may, list->values[i]))
            fail(EXIT_USAGE, "--%s: NUMA node %d has no %s that this process may use", option, list->values[i],
                 what);
    }
}

// 1, 2, 4, ... and the most.
static List doubling(int most)
{
    List list = {0};
    for (int i = 1; i < most; i *= 2)
        list_add(&list, i);
    list_add(&list, most);
    return list;
}

List options_pus(const Options *options, const Host *host, const List *nodes)
{
    List pus = {0};
    for (int i = 0; i < nodes->count; i++) {
        const Node *node = host_node(host, nodes->values[i]);
        for (int j = 0; j < (options->cores ? node->cores : node->pus.count); j++)
            list_add(&pus, node->pus.values[j]);
    }
    return pus;
}

List options_near(const Options *options, const Host *host, int bank)
{
    List near = list_copy(&options->pu_nodes);
    for (int i = 1; i < near.count; i++) // insertion sort is stable, and the list is short
        for (int j = i;
             j > 0 && host_distance(host, near.values[j], bank) < host_distance(host, near.values[j - 1], bank);
             j--) {
            const int other = near.values[j];
            near.values[j] = near.values[j - 1];
            near.values[j - 1] = other;
        }
    return near;
}

static void add_interleave(Options *options, List set)
{
    if (options->interleaves == INTERLEAVE_MOST)
        fail(EXIT_USAGE, "--interleave: more than %d sets", INTERLEAVE_MOST);
    options->interleave[options->interleaves++] = set;
}

static void settle_interleave(Options *options, const Host *host)
{
    const List *banks = &options->banks;
    char *text = must(strdup(options->interleave_text ? options->interleave_text : "first/all")), *rest = text,
         *word;
    const List usable = host_banks(host);
    while ((word = strsep(&rest, "/"))) {
        if (!strcmp(word, "none"))
            continue;
        if (!strcmp(word, "first")) {
            for (int i = 1; i < banks->count; i++) {
                List pair = {0};
                list_add(&pair, banks->values[0]);
                list_add(&pair, banks->values[i]);
                add_interleave(options, pair);
            }
        } else if (!strcmp(word, "all")) {
            // With two banks, "first" already contains this set.
            if (banks->count > 2 || (banks->count == 2 && !options->interleaves))
                add_interleave(options, list_copy(banks));
        } else {
            List set = options_list("interleave", word);
            must_be_among("interleave", &set, &usable, host, "memory");
            if (set.count < 2)
                fail(EXIT_USAGE, "--interleave: '%s' is one bank; a set has two or more", word);
            add_interleave(options, set);
        }
    }
    free(usable.values);
    free(text);
}

static void settle_instructions(Options *options)
{
    const bool all = options->all_instructions || options->sanity;
    bool any = false;
    for (InstructionSet set = PLAIN; set < INSTRUCTION_SETS; set++) {
        any = any || options->instructions[set];
        if (options->instructions[set] && !kernel_available(set))
            fail(EXIT_CANNOT, "this processor, or this build, has no %s", instruction_names[set]);
    }
    for (InstructionSet set = PLAIN; set < INSTRUCTION_SETS; set++)
        if (!any)
            options->instructions[set] = all ? kernel_available(set) : set == kernel_preferred();
    for (InstructionSet set = PLAIN; set < INSTRUCTION_SETS; set++)
        if (options->instructions[set] && options->stores[STREAMING] && !kernel_code(COPY, set, STREAMING)) {
            if (!all && !options->stores[REGULAR])
                fail(EXIT_CANNOT, "there are no streaming stores in %s", instruction_names[set]);
        }
}

// Powers of two and the sizes half-way between, from 4 KiB to the largest.
static void curve(Options *options, uint64_t largest)
{
    for (uint64_t size = 4096; size < largest; size *= 2) {
        options->size[options->sizes++] = size;
        if (size + size / 2 < largest)
            options->size[options->sizes++] = size + size / 2;
    }
    options->size[options->sizes++] = largest;
}

// A power of two well past the last cache, at most a quarter of the memory available on any bank.
static uint64_t memory_size(const Options *options, const Host *host, Pages pages)
{
    uint64_t size = UINT64_C(64) << 20;
    while (size < 3 * host->cache_bytes)
        size *= 2;
    for (int i = 0; i < options->banks.count; i++) {
        const List one = {1, &options->banks.values[i]};
        while (size > (UINT64_C(1) << 20) && size > memory_available(host, &one, pages) / 4)
            size /= 2;
    }
    memory_beyond_caches(size, host->cache_bytes);
    return size;
}

static void settle_sizes(Options *options, const Host *host)
{
    // The load evicts the cycle from the caches, so a curve over sizes would be flat.
    const char *choice = options->aspect == LATENCY ? "curve" : "memory";
    const char *wanted = options->sizes_text ? options->sizes_text : options->sanity ? "1MiB" : choice;
    Pages pages = PAGES_BASE;
    while (!options->pages[pages])
        pages++;
    char *text = must(strdup(wanted)), *rest = text, *word;
    while ((word = strsep(&rest, ","))) {
        if (options->sizes >= SIZES_MOST / 2)
            fail(EXIT_USAGE, "--sizes: more than %d sizes", SIZES_MOST / 2);
        if (!strcmp(word, "memory")) {
            options->size[options->sizes++] = memory_size(options, host, pages);
            continue;
        }
        if (!strcmp(word, "curve")) {
            curve(options, memory_size(options, host, pages));
            continue;
        }
        const uint64_t size = options_size("sizes", word) / host->line_bytes * host->line_bytes;
        if (size < 16 * host->line_bytes)
            fail(EXIT_USAGE, "--sizes: %s is less than 16 lines of %d bytes", word, (int)host->line_bytes);
        options->size[options->sizes++] = size;
    }
    free(text);
    if (options->aspect != LATENCY && options->sizes != 1)
        fail(EXIT_USAGE, "--sizes: %s takes one size", aspect_name(options->aspect));
}

// The largest number of PUs of a NUMA node: contention runs one or two threads within a node.
static int widest(const Options *options, const Host *host)
{
    int most = 0;
    for (int i = 0; i < options->pu_nodes.count; i++) {
        const List node = {1, &options->pu_nodes.values[i]}, pus = options_pus(options, host, &node);
        most = pus.count > most ? pus.count : most;
        free(pus.values);
    }
    return most;
}

// Refuses numbers of threads that the PUs do not have; returns the most.
static int most_threads(const Options *options, const Host *host)
{
    const List pus = options_pus(options, host, &options->pu_nodes);
    const int least = 1, most = pus.count;
    free(pus.values);
    for (int i = 0; i < options->threads.count; i++)
        if (options->threads.values[i] < least || options->threads.values[i] > most)
            fail(EXIT_USAGE, "--threads: %d threads; with these PUs it can be %d to %d",
                 options->threads.values[i], least, most);
    return most;
}

static void settle_threads(Options *options, const Host *host)
{
    const int most = most_threads(options, host);
    const bool pairs = widest(options, host) > 1;
    if (!pairs && list_has(&options->threads, 2))
        fail(EXIT_CANNOT, "--threads: two threads share a NUMA node, and none here has two PUs to use");
    if (!options->threads.count) {
        const List more = doubling(most);
        for (int i = 0; i < more.count; i++)
            if (more.values[i] != 2 || pairs)
                list_add(&options->threads, more.values[i]);
        if (!pairs && most > 1)
            report_say("contention of two threads is left out: no NUMA node has two PUs to use");
        free(more.values);
    }
}

// The rates in ascending order, once each, with 0 and 1: a curve has its idle latency and its largest load.
static void settle_rates(Options *options)
{
    const char *wanted = options->rates_text ? options->rates_text : "0.1,0.25,0.4,0.55,0.7,0.8,0.9";
    char *text = must(strdup(options->rates_text || !options->sanity ? wanted : "0.5")), *rest = text, *word;
    double rates[RATES_MOST] = {0, 1};
    int count = 2;
    while ((word = strsep(&rest, ","))) {
        char *end;
        const double rate = strtod(word, &end);
        if (*end || end == word || !(rate >= 0 && rate <= 1))
            fail(EXIT_USAGE, "--rates: '%s' is not a fraction from 0 to 1 such as 0.25", word);
        if (count == RATES_MOST)
            fail(EXIT_USAGE, "--rates: more than %d rates", RATES_MOST - 2);
        rates[count++] = rate;
    }
    free(text);
    sort_doubles(rates, count);
    for (int i = 0; i < count; i++)
        if (!options->rates || rates[i] > options->rate[options->rates - 1])
            options->rate[options->rates++] = rates[i];
}

// Times such as 0, 250ns, 1us or 0.5ms.
static void settle_work(Options *options)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}};
    char *text = must(strdup(options->work_text ? options->work_text
                             : options->sanity  ? "0"
                                                : "0,1us")),
         *rest = text, *word;
    while ((word = strsep(&rest, ","))) {
        char *unit;
        double work = strtod(word, &unit);
        size_t i = 0;
        while (i < sizeof units / sizeof *units && strcmp(unit, units[i].unit))
            i++;
        const bool with_unit = i < sizeof units / sizeof *units;
        work *= with_unit ? units[i].factor : 1;
        if (unit == word || (!with_unit && (*unit || work != 0)) || !(work >= 0 && work <= 1e7))
            fail(EXIT_USAGE, "--work: '%s' is not a time from 0 to 10ms such as 250ns or 1us", word);
        if (options->works == WORKS_MOST)
            fail(EXIT_USAGE, "--work: more than %d times", WORKS_MOST);
        options->work[options->works++] = work;
    }
    free(text);
}

// Sets all members if none is set; true if there were some.
static bool settle_choice(bool *chosen, int count)
{
    bool any = false;
    for (int i = 0; i < count; i++)
        any = any || chosen[i];
    for (int i = 0; i < count && !any; i++)
        chosen[i] = true;
    return any;
}

static void settle_locks(Options *options, const Host *host)
{
    const int most = most_threads(options, host);
    if (!options->threads.count)
        options->threads = doubling(most);
    const bool asked = settle_choice(options->lock, LOCK_TYPES);
    settle_choice(options->parsing, PARSINGS);
    if (options->lock[ATOMIC] && !options->parsing[BLOCKED]) {
        if (asked)
            fail(EXIT_USAGE, "--locks: atomic hands out blocks only, so --parsings must have blocked");
        options->lock[ATOMIC] = false;
    }
    if (!options->batch.count)
        options->batch = options->sanity ? options_list("batch", "32") : doubling(256);
    for (int i = 0; i < options->batch.count; i++)
        if (options->batch.values[i] < 1 || options->batch.values[i] > BATCH_MOST)
            fail(EXIT_USAGE, "--batch: %d records; a batch has 1 to %d", options->batch.values[i], BATCH_MOST);
    if (options->record_bytes < RECORD_LEAST || options->record_bytes > RECORD_MOST)
        fail(EXIT_USAGE, "--record-bytes: %llu bytes; a record has %d to %d",
             (unsigned long long)options->record_bytes, RECORD_LEAST, RECORD_MOST);
    if (options->parsing[BLOCKED] && options->block_bytes < options->record_bytes)
        fail(EXIT_USAGE, "--block-bytes: a block of %llu bytes is smaller than a record of %llu (--record-bytes)",
             (unsigned long long)options->block_bytes, (unsigned long long)options->record_bytes);
    if (!settle_choice(options->placing, PLACINGS))
        options->placing[SPREAD] = options->pu_nodes.count > 1;
    else if (options->placing[SPREAD] && options->pu_nodes.count == 1)
        fail(EXIT_CANNOT, "--placement: spread needs two NUMA nodes with PUs to use, and there is one");
    if (!options->seconds)
        options->seconds = options->sanity ? 0.001 : 0.2;
    settle_work(options);
}

static void settle_cores(Options *options)
{
    if (options->sustain) {
        if (options->chain[L1] || options->chain[L2] || options->chain[MEMORY_CHAIN] || options->running[ALONE])
            fail(EXIT_USAGE, "--sustain: all PUs make additions at once (--chains registers --running all)");
        options->chain[REGISTERS] = options->running[TOGETHER] = true;
    }
    settle_choice(options->chain, CHAINS);
    settle_choice(options->running, RUNNINGS);
    if (options->sustain && options->seconds)
        fail(EXIT_USAGE, "--sustain: a hundredth of this time is the sample, so --seconds has no meaning");
    if (options->sustain) {
        // The last quarter counts.
        options->repetitions.least = options->repetitions.most = SUSTAINED_SAMPLES / 4;
        options->seconds = options->sustain / SUSTAINED_SAMPLES;
    }
    if (!options->seconds)
        options->seconds = options->sanity ? 0.002 : 0.05;
}

void options_settle(Options *options, const Host *host)
{
    const List pu_nodes = host_pu_nodes(host), banks = host_banks(host);
    must_be_among("pu-nodes", &options->pu_nodes, &pu_nodes, host, "PU");
    must_be_among("banks", &options->banks, &banks, host, "memory");
    if (!options->pu_nodes.count)
        options->pu_nodes = list_copy(&pu_nodes);
    if (!options->banks.count && options->aspect == LOCKS)
        list_add(&options->banks,
                 host_nearest_bank(host, host_node(host, options->pu_nodes.values[0])->pus.values[0]));
    else if (!options->banks.count && options->aspect != CORE_TO_CORE)
        options->banks = list_copy(&banks);
    free(pu_nodes.values);
    free(banks.values);
    if (options->sanity)
        options->repetitions.least = options->repetitions.most = 2;
    if (options->aspect == CORES)
        settle_cores(options);
    if (options->aspect == CORRECTNESS) {
        options->repetitions.least = options->repetitions.most = 1;
        if (!options->seconds)
            options->seconds = options->sanity ? 0.001 : 0.2;
    }
    if (!options->repetitions.least)
        options->repetitions.least =
            options->repetitions.most < SAMPLES_LEAST ? options->repetitions.most : SAMPLES_LEAST;
    if (options->repetitions.least > options->repetitions.most)
        fail(EXIT_USAGE, "--min-repetitions %d is more than --max-repetitions %d", options->repetitions.least,
             options->repetitions.most);
    if (options->prune && !host->distances)
        fail(EXIT_CANNOT, "--prune: the firmware reports no distances, so no placements are known to be alike");
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        if (options->pages[pages])
            pages_require(host, pages);
    if (!options->set_sizes.count)
        options->set_sizes = doubling(options->pu_nodes.count);
    for (int i = 0; i < options->set_sizes.count; i++)
        if (options->set_sizes.values[i] < 1 || options->set_sizes.values[i] > options->pu_nodes.count)
            fail(EXIT_USAGE, "--set-sizes: %d; there are %d NUMA nodes with PUs to choose from",
                 options->set_sizes.values[i], options->pu_nodes.count);
    if (options->aspect == BANDWIDTH) {
        settle_interleave(options, host);
        settle_instructions(options);
    }
    if (options->aspect == LATENCY || options->aspect == LOADED_LATENCY || options->aspect == TAILS)
        settle_sizes(options, host);
    if (options->aspect == LOADED_LATENCY)
        settle_rates(options);
    if (options->aspect == CONTENTION)
        settle_threads(options, host);
    if (options->aspect == LOCKS)
        settle_locks(options, host);
}

void options_free(Options *options)
{
    free(options->pu_nodes.values);
    free(options->banks.values);
    free(options->set_sizes.values);
    free(options->threads.values);
    free(options->batch.values);
    for (int i = 0; i < options->interleaves; i++)
        free(options->interleave[i].values);
    free(options);
}
