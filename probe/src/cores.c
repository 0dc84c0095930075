// SPDX-License-Identifier: Apache-2.0
// Cores: a chain of dependent additions on each PU, all PUs at once. Its rate is the clock of the core, as no
// other part of the host takes part. A PU that is slower than its siblings in every sample is a slow core.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "aspects.h"
#include "fail.h"
#include "json.h"
#include "report.h"
#include "stop.h"

enum { ADDITIONS = 1 << 12 };

// A slow core has less than this share of its siblings' rate. Threads that ran for less than this share of the
// time waited for others.
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
    int first;        // of the samples that count: the last quarter of a sustained load
    int slowed;       // a PU whose additions are made half as fast, to try what finds it, or -1
    double after;     // so many seconds
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
    const int slowed_from = member->pu == run->slowed ? (int)(run->after / run->options->seconds) : run->samples;
    for (int i = 0; i < run->samples; i++) {
        team_together(member);
        const int64_t begin = team_now(), end = begin + (int64_t)(run->options->seconds * 1e9);
        const double cpu = thread_seconds();
        const int times = i < slowed_from ? 1 : 2;
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
        if (run->options->sustain && !stop_signal() && !member->id && (i + 1) % (SUSTAINED_SAMPLES / 10) == 0)
            report_say("cores: %.3g of %.3g s, PU %d makes %.2f additions per ns", (i + 1) * run->options->seconds,
                       run->options->sustain, member->pu, run->measured[i].rate);
    }
    __asm__ volatile("" : : "r"(value)); // the result is used
}

// PUs of one kind are siblings: equal cores, on which as many PUs work.
typedef struct {
    long speed;      // of the core by firmware or kernel, 0 if unknown
    int here, other; // PUs of the core that work, and others
} Core;

static Core core_of(int pu, const List *pus)
{
    static const char *const speeds[] = {"cpu_capacity", "cpufreq/cpuinfo_max_freq"};
    Core core = {0};
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds && !core.speed; i++) {
        char *text = file_text("/sys/devices/system/cpu/cpu%d/%s", pu, speeds[i]);
        core.speed = text ? strtol(text, NULL, 10) : 0;
        free(text);
    }
    char *text = file_text("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", pu);
    List threads = {0};
    if (text && list_parse(text, &threads))
        for (int i = 0; i < threads.count; i++)
            *(list_has(pus, threads.values[i]) ? &core.here : &core.other) += 1;
    free(threads.values);
    free(text);
    return core;
}

static bool alike(const Core *a, const Core *b)
{
    return a->speed == b->speed && a->here == b->here && a->other == b->other;
}

// Adds to each element, times `sign`, the time (s) that a hypervisor has taken from its PU so far, if the kernel
// shows it.
static void add_stolen(const List *pus, int sign, double *stolen)
{
    const double second = (double)sysconf(_SC_CLK_TCK);
    FILE *file = fopen("/proc/stat", "re");
    char line[400];
    while (file && fgets(line, sizeof line, file)) {
        int number;
        long ticks;
        if (sscanf(line, "cpu%d %*d %*d %*d %*d %*d %*d %*d %ld", &number, &ticks) != 2)
            continue;
        for (int i = 0; i < pus->count; i++)
            if (pus->values[i] == number)
                stolen[i] += sign * (double)ticks / second;
    }
    if (file)
        fclose(file);
}

static const Sample *sample_of(const Run *run, int member, int sample)
{
    return &run->measured[member * run->samples + sample];
}

// The median rate of the siblings of a PU in one sample; its own without any.
static double siblings(const Run *run, const Core *kinds, int member, int sample, double *scratch)
{
    int count = 0;
    for (int i = 0; i < run->count; i++)
        if (i != member && alike(&kinds[i], &kinds[member]))
            scratch[count++] = sample_of(run, i, sample)->rate;
    return count ? median_of(scratch, count) : sample_of(run, member, sample)->rate;
}

// By how much a PU is slower than its siblings on average, if it is a slow core in every sample that counts, or 0.
static double loss_of(const Run *run, const Core *kinds, int member, double *scratch)
{
    double loss = 0;
    if (run->samples - run->first < 2) // one may be disturbed
        return 0;
    for (int sample = run->first; sample < run->samples; sample++) {
        const double rate = sample_of(run, member, sample)->rate;
        const double usual = siblings(run, kinds, member, sample, scratch);
        if (rate >= SLOW * usual)
            return 0;
        loss += (1 - rate / usual) / (run->samples - run->first);
    }
    return loss;
}

// The PUs whose threads waited for others in most samples.
static List waiting(const Run *run, const List *pus)
{
    List waited = {0};
    for (int i = 0; i < run->count; i++) {
        int short_of = 0;
        for (int sample = 0; sample < run->samples; sample++)
            short_of += sample_of(run, i, sample)->ran < RAN;
        if (2 * short_of > run->samples)
            list_add(&waited, pus->values[i]);
    }
    return waited;
}

// The median rate of a PU over the samples that count.
static double rate_of(const Run *run, int member, double *scratch)
{
    for (int sample = run->first; sample < run->samples; sample++)
        scratch[sample - run->first] = sample_of(run, member, sample)->rate;
    return median_of(scratch, run->samples - run->first);
}

static void inject(Run *run, const char *text, const List *pus)
{
    char end;
    int at = 0;
    const bool number = text && sscanf(text, "%7d%n", &run->slowed, &at) == 1 && list_has(pus, run->slowed);
    const bool alone = number && !text[at];
    if (text && !alone && !(number && sscanf(text + at, ",%lf%c", &run->after, &end) == 1 && run->after >= 0))
        fail(EXIT_USAGE, "--inject: '%s' is not PU or PU,AFTER with a PU that works and seconds", text);
}

static void put(const Run *run, const Result *common, const char *metric, const char *unit, const char *better,
                const double *values)
{
    Samples samples = {0};
    for (int i = run->first; i < run->samples; i++)
        samples_add(&samples, values[i]);
    Result result = *common;
    result.metric = metric;
    result.unit = unit;
    result.better = better;
    result.samples = &samples;
    report_open(&result);
    if (run->options->sustain)
        json_number("sustain_s", run->options->sustain);
}

// Prints a result for each slow core, or one of 0 without any. `stolen` is the time (s) that a hypervisor took.
static void put_slow(const Run *run, const Result *common, const Core *kinds, const double *stolen, double wall)
{
    double *scratch = must_allocate((size_t)(run->count + run->samples), sizeof *scratch);
    double *values = must_allocate((size_t)run->samples, sizeof *values);
    const int *pus = common->pus->values;
    int slow = 0;
    for (int i = 0; i < run->count; i++) {
        const double loss = loss_of(run, kinds, i, scratch);
        if (loss <= 0)
            continue;
        // A hypervisor, or a thread on the other PU of a core, slows a PU as well. The kernel counts in ticks.
        const bool is_robbed = stolen[i] > loss * wall / 2;
        if (is_robbed || kinds[i].other) {
            report_say("cores: PU %d is slower than its siblings, and others %s", pus[i],
                       is_robbed ? "on the hardware took its time" : "may use the other PU of its core");
            continue;
        }
        slow++;
        for (int sample = 0; sample < run->samples; sample++)
            values[sample] = 1;
        put(run, common, "slow_cores", "1", "lower", values);
        json_integer("pu", pus[i]);
        json_number("loss", loss);
        report_close();
        report_say("cores: PU %d is %.0f %% slower than its siblings when all run", pus[i], 100 * loss);
    }
    if (!slow) {
        put(run, common, "slow_cores", "1", "lower", values);
        report_close();
    }
    free(scratch);
    free(values);
}

static void put_clock(const Run *run, const Result *common)
{
    const bool is_sustained = run->options->sustain > 0;
    double *scratch = must_allocate((size_t)(run->count + run->samples), sizeof *scratch);
    double *values = must_allocate((size_t)run->samples, sizeof *values);
    for (int sample = 0; sample < run->samples; sample++) {
        for (int i = 0; i < run->count; i++)
            scratch[i] = sample_of(run, i, sample)->rate;
        values[sample] = median_of(scratch, run->count);
    }
    double slowest = 0;
    for (int i = 0; i < run->count; i++) {
        const double rate = rate_of(run, i, scratch);
        slowest = !i || rate < slowest ? rate : slowest;
    }
    // The rate is that of the time that a thread ran, whoever else used its PU. How little it ran is stated.
    const List waited = waiting(run, common->pus);
    put(run, common, is_sustained ? "sustained_clock" : "core_clock", "GHz", "higher", values);
    json_number("slowest", slowest);
    if (is_sustained) {
        json_begin("curve", '[');
        for (int sample = 0; sample < run->samples; sample++)
            json_number(NULL, values[sample]);
        json_end(']');
    }
    if (waited.count)
        json_integers("waited", waited.values, waited.count);
    report_close();
    if (waited.count)
        report_say("cores: the threads of %d PUs, first PU %d, ran for less than %.0f %% of the time: others use "
                   "these PUs, or a cgroup limits them",
                   waited.count, waited.values[0], 100 * RAN);
    report_say("cores: %d PUs at once, %.2f additions per ns, the slowest PU %.2f", run->count,
               median_of(values + run->first, run->samples - run->first), slowest);
    free(scratch);
    free(values);
    free(waited.values);
}

void cores(const Options *options, const Host *host)
{
    const List pus = options_pus(options, host, &options->pu_nodes);
    int bank = host_nearest_bank(host, pus.values[0]);
    Run run = {.options = options,
               .count = pus.count,
               .samples = options->sustain ? SUSTAINED_SAMPLES : options->repetitions.most,
               .slowed = -1};
    run.first = run.samples - options->repetitions.most;
    inject(&run, options->inject_text, &pus);
    run.measured = must_allocate((size_t)(run.count * run.samples), sizeof *run.measured);
    Core *kinds = must_allocate((size_t)run.count, sizeof *kinds);
    double *stolen = must_allocate((size_t)run.count, sizeof *stolen);
    for (int i = 0; i < run.count; i++)
        kinds[i] = core_of(pus.values[i], &pus);
    report_begin(options, host, run.count);
    Memory memory = memory_take(host, &(List){1, &bank}, PAGES_BASE, host->page_bytes, 0);
    add_stolen(&pus, -1, stolen);
    const int64_t begin = team_now();
    Placed placed = team_run(pus.values, pus.count, work, &run);
    const double wall = (double)(team_now() - begin) * 1e-9;
    add_stolen(&pus, 1, stolen);
    const Result common = {.pu_nodes = &options->pu_nodes,
                           .pus = &pus,
                           .placed = &placed,
                           .memory = &memory,
                           .wrong = run.slowed < 0 ? "" : "a fault was injected"};
    if (!stop_signal()) { // else samples are missing
        put_slow(&run, &common, kinds, stolen, wall);
        put_clock(&run, &common);
    }
    placed_free(&placed);
    memory_release(&memory);
    free(run.measured);
    free(kinds);
    free(stolen);
    free(pus.values);
}
