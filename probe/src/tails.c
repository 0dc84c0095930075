// SPDX-License-Identifier: Apache-2.0
// Tails: the slowest accesses. A PU times each access of a cycle through a bank's memory, idle and while the other
// cores of its NUMA node load the bank. Between accesses it times a chain of additions of the same length, which
// uses no memory: what is slow there is an interruption (interrupts, firmware, a hypervisor) and is subtracted.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aspects.h"
#include "fail.h"
#include "json.h"
#include "loaders.h"
#include "plan.h"
#include "report.h"
#include "stop.h"
#include "team.h"
#include "walk.h"

// Accesses of a sample, and those that are timed between two chains of additions.
// The cycle has one line in four: prefetchers bring neighbours.
enum {
    STRIDE = 4,
    ACCESSES = 1 << 19,
    SANITY_ACCESSES = 1 << 14,
    MOST_ACCESSES = 1 << 30,
    BLOCK = 64,
    TRIALS = 1 << 12
};

// The least delay by an interrupt (ns): entry, handler and exit of the shortest ones take longer.
static const double INTERRUPTION = 500;

// The times (ns) between two refreshes of a memory chip: JEDEC's tREFI of DDR4 (JESD79-4), of DDR5 (JESD79-5), and
// of DDR5 with fine granularity. Real clocks are within a percent. Chance gives no strength above this one.
static const double REFRESHES[] = {7800, 3900, 1950}, CERTAIN = 6;
// The time (ns) in which delays are folded: the longer it is, the more periods must be tried.
static const double LONGEST = 1e8;
enum { REFRESHED = 1 << 16, EVENTS = 1 << 11 };

// The bins of a histogram: each value up to 128 ticks, then 64 of equal width in each octave. Printed are 8.
enum { FINE = 64, COARSE = 8, OCTAVES = 44, BINS = FINE * OCTAVES };

static const struct {
    const char *metric;
    double beyond; // the share of accesses that are slower
} percentiles[] = {
    {"latency_p50", 0.5}, {"latency_p99", 0.01}, {"latency_p99_9", 0.001}, {"latency_p99_99", 0.0001}};
enum { PERCENTILES = sizeof percentiles / sizeof *percentiles };

typedef struct {
    uint64_t accesses[BINS], chains[BINS];
} Histogram;

typedef struct {
    const Options *options;
    const Walk *walk;
    Loaders loaders;
    bool loaded;
    uint64_t count;     // accesses of a sample
    void **place;       // in the cycle
    uint64_t timer;     // the ticks between two readings of the clock
    uint64_t step;      // the ticks of which all readings are multiples: 26 on some processors
    uint64_t additions; // of a chain
    uint64_t every;     // every N-th access is made slower to test the detection, or 0
    double slower;      // by this time (ns)
    double tick;        // ns
    Histogram *sample, *sum;
    Samples values[PERCENTILES];
    double interrupted, seconds; // of the chains: the number of interruptions, and their time
    uint64_t slow_chains;
    struct {
        double period, delay; // ns, or 0 if no refresh is seen
        double share;         // of the delayed accesses that come with the period
    } refresh;
} Run;

// Ticks of the processor's clock. Earlier work has ended, and later work has not begun.
static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("dsb ld\n\tisb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(value) : : "memory");
    return value;
#else
    atomic_thread_fence(memory_order_seq_cst);
    const int64_t now = team_now();
    atomic_thread_fence(memory_order_seq_cst);
    return (uint64_t)now;
#endif
}

static inline void additions(uint64_t count)
{
    uint64_t value = count;
    for (uint64_t i = 0; i < count; i++)
        __asm__ volatile("" : "+r"(value) : "r"(i)); // the loop's own addition is the chain
}

static int bin_of(uint64_t value)
{
    if (value < 2 * FINE)
        return (int)value;
    const int octave = 63 - __builtin_clzll(value) - 6; // 2^6 is FINE
    return octave < OCTAVES - 1 ? octave * FINE + (int)(value >> octave) : BINS - 1;
}

static uint64_t least_of(int bin)
{
    if (bin < 2 * FINE)
        return (uint64_t)bin;
    return (uint64_t)(bin % FINE + FINE) << (bin / FINE - 1);
}

static void count_access(Run *run, uint64_t begin, uint64_t end)
{
    const uint64_t took = end - begin;
    run->sample->accesses[bin_of(took > run->timer ? took - run->timer : 0)]++;
}

static void wait_for(double time)
{
    for (const int64_t end = team_now() + (int64_t)time; team_now() < end;)
        team_relax();
}

// Times accesses, and the same number of chains of additions; the timer's own time is subtracted from each.
static void measure(Run *run)
{
    uint64_t begins[BLOCK], ends[BLOCK];
    void **place = run->place;
    memset(run->sample, 0, sizeof *run->sample);
    for (uint64_t done = 0; done < run->count && !stop_signal(); done += BLOCK) {
        for (int i = 0; i < BLOCK; i++) {
            begins[i] = ticks();
            place = (void **)*place;
            __asm__ volatile("" : "+r"(place) : : "memory");
            if (run->every && (done + (uint64_t)i) % run->every == 0)
                wait_for(run->slower);
            ends[i] = ticks();
        }
        for (int i = 0; i < BLOCK; i++)
            count_access(run, begins[i], ends[i]);
        for (int i = 0; i < BLOCK; i++) {
            begins[i] = ticks();
            additions(run->additions);
            ends[i] = ticks();
        }
        for (int i = 0; i < BLOCK; i++) {
            const uint64_t took = ends[i] - begins[i];
            run->sample->chains[bin_of(took > run->timer ? took - run->timer : 0)]++;
        }
    }
    run->place = place;
}

// The value (ticks) that a share of the counts are above; interpolated within its bin, or its step of the clock.
static double beyond(const double *counts, double share, uint64_t step)
{
    double total = 0, above = 0;
    for (int bin = 0; bin < BINS; bin++)
        total += counts[bin];
    for (int bin = BINS - 1; bin >= 0; bin--) {
        if (counts[bin] > 0 && above + counts[bin] >= share * total) {
            const double low = (double)least_of(bin);
            const double width = fmax((double)step, bin + 1 < BINS ? (double)least_of(bin + 1) - low : 0);
            return low + width * (1 - (share * total - above) / counts[bin]);
        }
        above += counts[bin];
    }
    return 0;
}

static double median_ticks(const uint64_t *counts)
{
    double *values = must_allocate(BINS, sizeof *values);
    for (int bin = 0; bin < BINS; bin++)
        values[bin] = (double)counts[bin];
    const double median = beyond(values, 0.5, 1);
    free(values);
    return median;
}

// Subtracts accesses that an interruption made slow: the number of slow chains. A chain is slow that took
// INTERRUPTION longer than the median. Its delay added to an access of the median gives the bin; if there are
// fewer accesses in it, accesses in bins within an octave are removed too. Returns the number of slow chains.
static uint64_t subtract(const Run *run, const Histogram *histogram, double *counts)
{
    const double access = median_ticks(histogram->accesses), chain = median_ticks(histogram->chains);
    const double slow = chain + INTERRUPTION / run->tick;
    const double scale = chain > 0 ? access / chain : 1;
    uint64_t number = 0;
    for (int bin = 0; bin < BINS; bin++)
        counts[bin] = (double)histogram->accesses[bin];
    for (int bin = BINS - 1; bin >= 0 && (double)least_of(bin) > slow; bin--) {
        number += histogram->chains[bin];
        double left = scale * (double)histogram->chains[bin];
        const double delayed = (double)least_of(bin) - chain + access;
        const int first = bin_of((uint64_t)delayed), lowest = bin_of((uint64_t)(slow - chain + access));
        for (int away = 0; left > 0 && away < FINE; away++)
            for (int side = away ? -1 : 1; side <= 1; side += 2) {
                const int there = first + side * away;
                if (there < lowest || there >= BINS)
                    continue;
                const double part = fmin(left, counts[there]);
                counts[there] -= part;
                left -= part;
            }
    }
    return number;
}

// The ticks between two readings, their step, and the additions that take as long as an access.
static void calibrate(Run *run)
{
    uint64_t *const alone = must_allocate(BINS, sizeof *alone);
    uint64_t *const access = must_allocate(BINS, sizeof *access);
    uint64_t *const chain = must_allocate(BINS, sizeof *chain);
    const uint64_t trial = 1000;
    run->step = 0;
    for (int i = 0; i < TRIALS; i++) {
        uint64_t begin = ticks();
        const uint64_t between = ticks() - begin;
        alone[bin_of(between)]++;
        run->step = common_divisor(run->step, between);
        begin = ticks();
        run->place = (void **)*run->place;
        __asm__ volatile("" : "+r"(run->place) : : "memory");
        access[bin_of(ticks() - begin)]++;
        begin = ticks();
        additions(trial);
        chain[bin_of(ticks() - begin)]++;
    }
    const double timer = median_ticks(alone);
    const double each = (median_ticks(chain) - timer) / (double)trial;
    run->timer = (uint64_t)timer;
    run->additions = each > 0 ? (uint64_t)fmax(1, (median_ticks(access) - timer) / each) : 1;
    free(alone);
    free(access);
    free(chain);
}

// Writes a line back to memory, and waits for a time that differs.
static void evict(void **line, uint64_t *seed)
{
#if defined(__x86_64__)
    __builtin_ia32_clflush(line);
    __builtin_ia32_mfence();
#elif defined(__aarch64__)
    __asm__ volatile("dc civac, %0\n\tdsb sy" : : "r"(line) : "memory");
#else
    (void)line;
#endif
    additions(random_below(seed, 512));
}

// The mean of the phases of times in a period: its length is 1 if they all have the same one, and 0 if they have
// any.
static double phase_of(const double *times, int count, double period, double *phase)
{
    double x = 0, y = 0;
    for (int i = 0; i < count; i++) {
        x += cos(2 * M_PI * times[i] / period);
        y += sin(2 * M_PI * times[i] / period);
    }
    *phase = atan2(y, x);
    return hypot(x, y) / count;
}

// Looks for refreshes: while a chip refreshes, accesses to it wait, and it refreshes at a known period. So one
// line is read from memory again and again, and the times at which it took long are folded at that period.
static void find_refresh(Run *run)
{
    double *took = must_allocate(REFRESHED, sizeof *took), *begins = must_allocate(REFRESHED, sizeof *begins);
    double *sorted = must_allocate(REFRESHED, sizeof *sorted), events[EVENTS], delays[EVENTS];
    uint64_t seed = 1;
    const uint64_t origin = ticks();
    for (int i = 0; i < REFRESHED && !stop_signal(); i++) {
        evict(run->place, &seed);
        const uint64_t begin = ticks();
        void **place = (void **)*run->place;
        __asm__ volatile("" : "+r"(place) : : "memory");
        took[i] = run->tick * (double)(ticks() - begin);
        begins[i] = run->tick * (double)(begin - origin);
    }
    memcpy(sorted, took, REFRESHED * sizeof *took);
    const double median = median_of(sorted, REFRESHED);
    int count = 0;
    for (int i = 0; i < REFRESHED && count < EVENTS && begins[i] < LONGEST; i++)
        if (took[i] > 1.3 * median && took[i] < median + INTERRUPTION) {
            events[count] = begins[i];
            delays[count++] = took[i] - median;
        }
    double best = count ? CERTAIN / sqrt(count) : 1, phase = 0, refreshes_at = 0;
    for (size_t i = 0; i < sizeof REFRESHES / sizeof *REFRESHES && !run->refresh.period; i++) {
        const double usual = REFRESHES[i], step = count ? usual * usual / (4 * events[count - 1]) : usual;
        for (double period = 0.99 * usual; period < 1.01 * usual; period += step) {
            const double share = phase_of(events, count, period, &phase);
            if (share <= best)
                continue;
            best = run->refresh.share = share;
            run->refresh.period = period;
            refreshes_at = phase;
        }
    }
    // The delays of those that begin in the same quarter of a period.
    int refreshed = 0;
    for (int i = 0; i < count && run->refresh.period; i++)
        if (cos(2 * M_PI * events[i] / run->refresh.period - refreshes_at) > M_SQRT1_2)
            delays[refreshed++] = delays[i];
    run->refresh.delay = refreshed ? median_of(delays, refreshed) : 0;
    free(took);
    free(begins);
    free(sorted);
}

static void work_alone(Run *run, Member *member)
{
    double *counts = must_allocate(BINS, sizeof *counts);
    Walker walker = walker_warm(run->walk, run->options->sanity);
    run->place = walker.place;
    atomic_store(&run->loaders.pause, run->loaded ? 0 : LOADERS_IDLE);
    calibrate(run);
    // The last percentile decides when there are enough samples: it spreads most.
    while (!samples_enough(&run->values[PERCENTILES - 1], &run->options->repetitions) && !stop_signal()) {
        const int64_t time = team_now();
        const uint64_t begin = ticks();
        measure(run);
        const uint64_t end = ticks();
        run->tick = (double)(team_now() - time) / (double)(end - begin);
        team_check(member);
        if (stop_signal()) // the sample is incomplete
            break;
        run->slow_chains += subtract(run, run->sample, counts);
        for (int i = 0; i < PERCENTILES; i++)
            samples_add(&run->values[i], run->tick * beyond(counts, percentiles[i].beyond, run->step));
        for (int bin = 0; bin < BINS; bin++) {
            run->sum->accesses[bin] += run->sample->accesses[bin];
            run->sum->chains[bin] += run->sample->chains[bin];
            run->seconds += (double)run->sample->chains[bin] * (double)least_of(bin) * run->tick * 1e-9;
        }
    }
    // Other programs may hide it.
    for (int i = 0; i < 3 && !run->loaded && !run->options->sanity && !run->refresh.period && !stop_signal(); i++)
        find_refresh(run);
    atomic_store(&run->loaders.pause, LOADERS_DONE);
    free(counts);
}

static void work(Member *member, void *argument)
{
    Run *run = argument;
    team_together(member);
    if (member->id == 0)
        work_alone(run, member);
    else
        loader_work(&run->loaders, member->id - 1);
    team_together(member);
    if (member->id > 0)
        loader_check(&run->loaders, member->id % run->loaders.count);
}

// The accesses of all samples by their time, from the fastest on: the least time (ns) of each bin, the accesses,
// and how many of them an interruption delayed.
static void print_histogram(const Run *run)
{
    double *counts = must_allocate(BINS, sizeof *counts);
    subtract(run, run->sum, counts);
    for (int field = 0; field < 3; field++) {
        json_begin((const char *[]){"histogram_ns", "histogram_accesses", "histogram_interrupted"}[field], '[');
        for (int bin = 0; bin < BINS; bin += FINE / COARSE) {
            uint64_t accesses = 0;
            double interrupted = 0;
            for (int fine = bin; fine < bin + FINE / COARSE; fine++) {
                accesses += run->sum->accesses[fine];
                interrupted += (double)run->sum->accesses[fine] - counts[fine];
            }
            if (accesses)
                json_number(NULL, field == 0   ? run->tick * (double)least_of(bin)
                                  : field == 1 ? (double)accesses
                                               : interrupted);
        }
        json_end(']');
    }
    free(counts);
}

// How many percentiles a sample tells: beyond the last of them is one access or more.
static int known_percentiles(const Run *run)
{
    int known = 1;
    while (known < PERCENTILES && percentiles[known].beyond * (double)run->count >= 1)
        known++;
    return known;
}

static void print(const Run *run, const Result *common, const Plan *plan, int placement)
{
    const int last = known_percentiles(run) - 1;
    for (int i = 0; i <= last; i++) {
        Result result = *common;
        result.metric = percentiles[i].metric;
        result.unit = "ns";
        result.better = "lower";
        result.samples = &run->values[i];
        report_open(&result);
        json_string("load", run->loaded ? load_names[LOCAL] : "none");
        json_integer("loaders", run->loaders.count);
        json_integer("accesses", (int64_t)run->count);
        json_integer("size_bytes", (int64_t)run->options->size[0]);
        json_integer("stride_bytes", (int64_t)(STRIDE * run->walk->host->line_bytes));
        json_string("order", order_names[PAGED]);
        json_number("timer_ns", run->tick * (double)run->timer);
        json_number("tick_ns", run->tick * (double)run->step);
        json_number("interruptions_per_s", run->seconds > 0 ? (double)run->slow_chains / run->seconds : 0);
        if (i == last)
            print_histogram(run);
        if (i == last && run->refresh.period > 0) {
            json_number("refresh_period_ns", run->refresh.period);
            json_number("refresh_delay_ns", run->refresh.delay);
            json_number("refresh_share", run->refresh.share);
        }
        if (!run->loaded)
            plan_stands_for(plan, placement);
        report_close();
    }
}

static void point(Run *run, const Plan *plan, int placement, Memory *cycle, Memory *load, uint64_t load_bytes_of)
{
    const Host *host = run->walk->host;
    const List *set = &plan->sets[plan->placements[placement].set];
    List pus = loaders_pus(host_node(host, set->values[0]));
    pus.count = run->loaded ? pus.count : 1;
    loaders_begin(&run->loaders, pus.count - 1, READ_THREE_QUARTERS, load->base, load_bytes_of);
    run->sample = must_allocate(1, sizeof *run->sample);
    run->sum = must_allocate(1, sizeof *run->sum);
    Placed placed = team_run(pus.values, pus.count, work, run);
    memory_look_again(cycle);
    const char *wrong = run->every ? "a fault was injected" : run->walk->wrong;
    const Result common = {.pu_nodes = set,
                           .pus = &pus,
                           .placed = &placed,
                           .memory = cycle,
                           .wrong = *wrong ? wrong : loaders_wrong(&run->loaders)};
    if (run->values[0].count) {
        char text[100] = "";
        for (int i = 1; i < known_percentiles(run); i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), ", %g %% %.0f",
                     100 * (1 - percentiles[i].beyond), samples_median(&run->values[i]));
        report_say("tails NUMA node %d, bank %d, %s: %.0f ns%s", set->values[0], cycle->banks.values[0],
                   run->loaded ? "loaded" : "idle", samples_median(&run->values[0]), text);
        if (run->refresh.period > 0)
            report_say(
                "tails: refreshes every %.0f ns delay an access by %.0f ns; %.0f %% of the delays come with them",
                run->refresh.period, run->refresh.delay, 100 * run->refresh.share);
        print(run, &common, plan, placement);
    }
    placed_free(&placed);
    loaders_free(&run->loaders);
    free(run->sample);
    free(run->sum);
    free(pus.values);
}

static void inject(Run *run, const char *text)
{
    char end;
    unsigned long long every = 0;
    if (text && (sscanf(text, "%llu,%lf%c", &every, &run->slower, &end) != 2 || !every || strchr(text, '-') ||
                 !(run->slower > 0 && run->slower <= 1e6)))
        fail(EXIT_USAGE, "--inject: '%s' is not EVERY,NS: one access in EVERY takes up to 1000000 NS longer",
             text);
    run->every = every;
}

void tails(const Options *options, const Host *host)
{
    int one = 1;
    const List alone = {1, &one};
    Plan plan = plan_make(options, host, &alone);
    Pages pages = PAGES_BASE;
    while (!options->pages[pages])
        pages++;
    int loaders = 1;
    for (int i = 0; i < options->pu_nodes.count; i++) {
        const List pus = loaders_pus(host_node(host, options->pu_nodes.values[i]));
        loaders = pus.count > loaders ? pus.count : loaders;
        free(pus.values);
    }
    const uint64_t bytes = loaders_bytes(options, host, pages, loaders);
    const int64_t usual = options->sanity ? SANITY_ACCESSES : ACCESSES;
    const uint64_t blocks = ((uint64_t)(options->accesses ? options->accesses : usual) + BLOCK - 1) / BLOCK;
    Run first = {.options = options, .count = blocks * BLOCK};
    if (first.count > MOST_ACCESSES)
        fail(EXIT_USAGE, "--accesses: a sample has at most %d", MOST_ACCESSES);
    inject(&first, options->inject_text);
    report_begin(options, host, plan.count);
    for (int turn = 0; turn < plan.target_count && !stop_signal(); turn++) {
        const int target = plan.target_turns.values[turn];
        if (!plan_needs(&plan, target))
            continue;
        const List *bank = &plan.targets[target];
        const int nearest = host_nearest_pus(host, bank->values[0])->values[0];
        Memory cycle = memory_take(host, bank, pages, options->size[0], 0);
        Memory load = memory_take(host, bank, pages, bytes, 1);
        const Walk walk = walk_build(host, &cycle, options->size[0], STRIDE * host->line_bytes, PAGED);
        for (int j = 0; j < plan.count && !stop_signal(); j++) {
            const int i = plan.turns.values[j];
            const Placement *placement = &plan.placements[i];
            if (placement->target != target || placement->alike >= 0)
                continue;
            const Node *node = host_node(host, plan.sets[placement->set].values[0]);
            for (int loaded = 0; loaded <= 1 && !stop_signal(); loaded++) {
                if (loaded && (node->pus.count < 2 || !list_has(&node->pus, nearest)))
                    continue; // the load comes from the bank's own NUMA node
                Run run = first;
                run.walk = &walk;
                run.loaded = loaded;
                point(&run, &plan, i, &cycle, &load, bytes);
            }
        }
        memory_release(&cycle);
        memory_release(&load);
    }
    plan_free(&plan);
}
