// SPDX-License-Identifier: Apache-2.0
// Cores: a chain of dependent additions on each PU, all PUs at once. Its rate is the clock of the core, as no
// other part of the host takes part. A PU that is slower than its siblings in every sample is a slow core.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aspects.h"
#include "fail.h"
#include "json.h"
#include "report.h"
#include "stop.h"

enum { ADDITIONS = 1 << 12 };

// A slow core has less than this share of its siblings' rate. Threads that ran for less than this share of the
// time were disturbed.
static const double SLOW = 0.9, RAN = 0.97;

typedef struct {
    double rate; // additions per ns, of the time that the thread ran
    double ran;  // the share of the time that it ran
} Sample;

typedef struct {
    const Options *options;
    int count;        // of PUs
    int samples;      // of each
    Sample *measured; // by member, then by sample
    int slowed;       // a PU whose additions are made half as fast, to try what finds it, or -1
} Run;

static double thread_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// Additions each of which waits for the one before.
static uint64_t additions(uint64_t value)
{
    for (int i = 0; i < ADDITIONS / 8; i++) {
        // The compiler must neither join nor leave out any of them.
#define ADD               \
    value += (uint64_t)i; \
    __asm__ volatile("" : "+r"(value));
        ADD ADD ADD ADD ADD ADD ADD ADD
#undef ADD
    }
    return value;
}

static void work(Member *member, void *argument)
{
    Run *run = argument;
    uint64_t value = (uint64_t)member->id;
    const int times = member->pu == run->slowed ? 2 : 1;
    for (int i = 0; i < run->samples; i++) {
        team_together(member);
        const int64_t begin = team_now(), end = begin + (int64_t)(run->options->seconds * 1e9);
        const double cpu = thread_seconds();
        int64_t now = begin;
        double count = 0;
        for (; now < end && !stop_signal(); now = team_now()) {
            for (int repeated = 0; repeated < times; repeated++)
                value = additions(value);
            count += ADDITIONS;
        }
        const double ran = thread_seconds() - cpu, wall = (double)(now - begin) * 1e-9;
        run->measured[member->id * run->samples + i] =
            (Sample){.rate = ran > 0 ? count / (ran * 1e9) : 0, .ran = wall > 0 ? ran / wall : 0};
        team_check(member);
    }
    __asm__ volatile("" : : "r"(value)); // the result is used
}

// Reads a line of what the kernel says of a PU; returns false if it says nothing.
static bool read_line(int pu, const char *name, char *text, int size)
{
    char path[100];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", pu, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    const bool is_read = fgets(text, size, file);
    fclose(file);
    if (is_read)
        text[strcspn(text, "\n")] = 0;
    return is_read;
}

// PUs of one kind are siblings: equal cores, on which as many PUs work.
typedef struct {
    long speed;      // of the core by firmware or kernel, 0 if unknown
    int here, other; // PUs of the core that work, and others
} Core;

static Core core_of(int pu, const List *pus)
{
    Core core = {0};
    char text[256];
    if (read_line(pu, "cpu_capacity", text, sizeof text) ||
        read_line(pu, "cpufreq/cpuinfo_max_freq", text, sizeof text))
        core.speed = strtol(text, NULL, 10);
    List threads;
    if (!read_line(pu, "topology/thread_siblings_list", text, sizeof text) || !list_parse(text, &threads))
        return core;
    for (int i = 0; i < threads.count; i++)
        *(list_has(pus, threads.values[i]) ? &core.here : &core.other) += 1;
    free(threads.values);
    return core;
}

static bool alike(const Core *a, const Core *b)
{
    return a->speed == b->speed && a->here == b->here && a->other == b->other;
}

// The time that a hypervisor has taken from a PU (ticks), 0 if the kernel does not show it.
static long stolen_ticks(int pu)
{
    FILE *file = fopen("/proc/stat", "r");
    char line[400];
    long stolen = 0;
    while (file && fgets(line, sizeof line, file)) {
        int number;
        long ticks;
        if (sscanf(line, "cpu%d %*d %*d %*d %*d %*d %*d %*d %ld", &number, &ticks) == 2 && number == pu)
            stolen = ticks;
    }
    if (file)
        fclose(file);
    return stolen;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

// The median rate of the siblings of a PU in one sample; its own without any.
static double siblings(const Run *run, const Core *kinds, int member, int sample, double *scratch)
{
    int count = 0;
    for (int i = 0; i < run->count; i++)
        if (i != member && alike(&kinds[i], &kinds[member]))
            scratch[count++] = run->measured[i * run->samples + sample].rate;
    return count ? median_of(scratch, count) : run->measured[member * run->samples + sample].rate;
}

static void put(const Result *common, const char *metric, const char *unit, const char *better,
                const double *values, int count)
{
    Samples samples = {0};
    for (int i = 0; i < count; i++)
        samples_add(&samples, values[i]);
    Result result = *common;
    result.metric = metric;
    result.unit = unit;
    result.better = better;
    result.samples = &samples;
    report_open(&result);
}

void cores(const Options *options, const Host *host)
{
    const List pus = options_pus(options, host, &options->pu_nodes);
    int bank = host_nearest_bank(host, pus.values[0]);
    Run run = {.options = options, .count = pus.count, .samples = options->repetitions.most, .slowed = -1};
    if (options->inject_text &&
        (sscanf(options->inject_text, "%d", &run.slowed) != 1 || !list_has(&pus, run.slowed)))
        fail(EXIT_USAGE, "--inject: '%s' is not the number of a PU that works", options->inject_text);
    run.measured = must_allocate((size_t)(run.count * run.samples), sizeof *run.measured);
    Core *kinds = must_allocate((size_t)run.count, sizeof *kinds);
    double *scratch = must_allocate((size_t)run.count, sizeof *scratch);
    double *values = must_allocate((size_t)run.samples, sizeof *values);
    double *rates = must_allocate((size_t)(run.count * run.samples), sizeof *rates);
    for (int i = 0; i < run.count; i++)
        kinds[i] = core_of(pus.values[i], &pus);
    report_begin(options, host, run.count);
    long *stolen = must_allocate((size_t)run.count, sizeof *stolen);
    for (int i = 0; i < run.count; i++)
        stolen[i] = stolen_ticks(pus.values[i]);
    Memory memory = memory_take(host, &(List){1, &bank}, PAGES_BASE, host->page_bytes, 0);
    Placed placed = team_run(pus.values, pus.count, work, &run);
    char reason[120] = "";
    if (run.slowed >= 0)
        snprintf(reason, sizeof reason, "a fault was injected");
    // The rate is that of the time that a thread ran, whoever else used its PU. How little it ran is stated.
    List waited = {0};
    for (int i = 0; i < run.count; i++) {
        int short_of = 0;
        for (int sample = 0; sample < run.samples; sample++)
            short_of += run.measured[i * run.samples + sample].ran < RAN;
        if (2 * short_of > run.samples)
            list_add(&waited, pus.values[i]);
    }
    for (int i = 0; i < run.count; i++)
        stolen[i] = stolen_ticks(pus.values[i]) - stolen[i];
    const Result common = {
        .pu_nodes = &options->pu_nodes, .pus = &pus, .placed = &placed, .memory = &memory, .wrong = reason};
    int slow = 0;
    for (int i = 0; i < run.count; i++) {
        double losses = 0;
        int below = 0;
        for (int sample = 0; sample < run.samples; sample++) {
            const double rate = run.measured[i * run.samples + sample].rate;
            const double usual = siblings(&run, kinds, i, sample, scratch);
            rates[i * run.samples + sample] = rate;
            below += rate < SLOW * usual;
            losses += usual > 0 ? (1 - rate / usual) / run.samples : 0;
        }
        if (below < run.samples)
            continue;
        // A hypervisor, or a thread on the other PU of a core, slows a PU as well.
        if (stolen[i] || kinds[i].other) {
            report_say("cores: PU %d is slower than its siblings, and others %s", pus.values[i],
                       stolen[i] ? "on the hardware took its time" : "may use the other PU of its core");
            continue;
        }
        slow++;
        for (int sample = 0; sample < run.samples; sample++)
            values[sample] = 1;
        put(&common, "slow_cores", "1", "lower", values, run.samples);
        json_integer("pu", pus.values[i]);
        json_number("loss", losses);
        report_close();
        report_say("cores: PU %d is %.0f %% slower than its siblings when all run", pus.values[i], 100 * losses);
    }
    if (!slow) {
        put(&common, "slow_cores", "1", "lower", values, run.samples);
        report_close();
    }
    for (int sample = 0; sample < run.samples; sample++) {
        for (int i = 0; i < run.count; i++)
            scratch[i] = rates[i * run.samples + sample];
        values[sample] = median_of(scratch, run.count);
    }
    double slowest = 0;
    for (int i = 0; i < run.count; i++) {
        const double rate = median_of(rates + i * run.samples, run.samples);
        slowest = !i || rate < slowest ? rate : slowest;
    }
    put(&common, "core_clock", "GHz", "higher", values, run.samples);
    json_number("slowest", slowest);
    if (waited.count)
        json_integers("waited", waited.values, waited.count);
    report_close();
    if (waited.count)
        report_say("cores: the threads of %d PUs, first PU %d, ran for less than %.0f %% of the time: others use "
                   "these PUs, or a cgroup limits them",
                   waited.count, waited.values[0], 100 * RAN);
    report_say("cores: %d PUs at once, %.2f additions per ns, the slowest PU %.2f", run.count,
               median_of(values, run.samples), slowest);
    placed_free(&placed);
    memory_release(&memory);
    free(run.measured);
    free(kinds);
    free(scratch);
    free(rates);
    free(values);
    free(stolen);
    free(waited.values);
    free(pus.values);
}
