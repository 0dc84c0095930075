// SPDX-License-Identifier: Apache-2.0
// Cores: each PU follows a chain of steps that wait for each other, all PUs at once and each alone. Additions show
// the clock of the core, as no other part of the host takes part. Cycles of pointers show its caches and its way
// to memory. A PU that is slower than its siblings in every sample is a slow core.
#include <math.h>
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

// The parts of a sample, whose median is used, and the most samples of a PU alone. The cycle through memory
// has one line in four: prefetchers bring neighbours.
enum { ADDITIONS = 1 << 12, PARTS = 32, STRIDE = 4 };

// Bytes of the small cycles: in the first cache of all processors, if two PUs share it; and well inside the
// second.
enum { L1_BYTES = 1 << 13, L2_BYTES = 1 << 18 };

const char *const chain_names[CHAINS] = {"registers", "l1", "l2", "memory"};
const char *const running_names[RUNNINGS] = {"all", "alone"};

// The steps between two readings of the clock.
static const uint64_t steps_of[CHAINS] = {ADDITIONS, 2048, 1024, 128};

// A slow core has less than this share of its siblings' rate. Two caches of one size differ more than two clocks,
// as pages lie at random in them; the way to memory is longer for some PUs of a bank.
static const double SLOW[CHAINS] = {0.9, 0.9, 0.8, 0.7};

// Threads that ran for less than this share of the time waited for others.
static const double RAN = 0.97;

// The time (s) in which all PUs follow a chain alone, one after the other.
static const double ALONE_SECONDS = 3;

typedef struct {
    double rate; // steps per ns of the time that the thread ran: of the median part
    double ran;  // the share of the time that it ran
} Sample;

// A chain followed by all PUs at once, or by each alone.
typedef struct {
    int samples;                     // of each PU, or 0 if it is not measured
    int first;                       // of the samples that count: the last quarter of a sustained load
    double seconds;                  // of a sample
    double wall;                     // (s) that a PU worked
    double *stolen;                  // (s) of each PU by a hypervisor
    Sample *sampled;                 // by member, then by sample
    double *shares;                  // of its siblings' rates that a PU has, in the same order
    double *best, *best_of_siblings; // rates of each PU: disturbances make samples worse, and never better
    int slowest;                     // member, by the median of its shares
    Placed placed;
} Way;

// PUs of one kind are siblings: equal cores with the same number of busy PUs.
typedef struct {
    long speed;      // of the core by firmware or kernel, 0 if unknown
    int here, other; // PUs of the core that work, and others
    List threads;    // PUs of the core
    int bank;        // the position of its bank
    int kind[2];     // equal for siblings: in the core, and in memory
} Core;

typedef struct {
    const Options *options;
    const Host *host;
    const List *pus;
    int count; // of PUs
    Core *cores;
    Way ways[RUNNINGS][CHAINS];
    Way again[RUNNINGS][CHAINS]; // of chains in which a PU looked slow
    List banks;                  // nearest to the PUs
    Memory *memory;              // of each bank
    uint64_t bytes[CHAINS];      // of the cycles
    uintptr_t *state[CHAINS];    // of each PU: where it is in its cycle
    double *frequency;           // of each PU while all run (GHz), 0 if the kernel does not show it
    const char *wrong;
    int slowed;          // a PU whose steps are made half as fast, to try what finds it, or -1
    int slowed_chain;    // of this chain, or CHAINS: of all
    double slowed_after; // seconds
    // What is measured now.
    Way *way;
    Chain chain;
    Running running;
    int turn, round; // of a PU that is alone
} Run;

static double thread_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// Additions each of which waits for the one before.
static uintptr_t additions(uintptr_t value)
{
    for (int i = 0; i < ADDITIONS / 8; i++) {
        // The compiler must neither join nor leave out any of them.
#define ADD                \
    value += (uintptr_t)i; \
    __asm__ volatile("" : "+r"(value));
        ADD ADD ADD ADD ADD ADD ADD ADD
#undef ADD
    }
    return value;
}

// Makes some steps of a chain; returns the place that they lead to.
static uintptr_t follow(Chain chain, uintptr_t place)
{
    return chain == REGISTERS ? additions(place) : (uintptr_t)chase_run((void **)place, steps_of[chain]);
}

// The clock of a PU that is at work (GHz), or 0 if the kernel does not show it.
static double frequency_of(int pu)
{
    char *text = file_text("/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", pu);
    const double frequency = text ? strtod(text, NULL) * 1e-6 : 0; // kHz
    free(text);
    return frequency;
}

// Measures a sample of a PU by the thread that is bound to it.
static void measure(Run *run, int member, int sample)
{
    Way *way = run->way;
    const Chain chain = run->chain;
    const bool is_slowed = run->pus->values[member] == run->slowed &&
                           (run->slowed_chain == (int)chain || run->slowed_chain == CHAINS) &&
                           sample >= (int)(run->slowed_after / way->seconds);
    double rates[PARTS];
    int parts = 0;
    uintptr_t place = run->state[chain][member];
    // Fills the caches.
    if (chain == L1 || chain == L2)
        place = (uintptr_t)chase_run((void **)place, 2 * run->bytes[chain] / run->host->line_bytes);
    const int64_t begin = team_now(), end = begin + (int64_t)(way->seconds * 1e9);
    const double cpu_begin = thread_seconds();
    double cpu = cpu_begin;
    int64_t now = begin;
    while (now < end && !stop_signal()) {
        const int64_t part_end = now + (end - begin) / PARTS;
        double steps = 0;
        for (; now < part_end && !stop_signal(); now = team_now()) {
            for (int i = 0; i <= is_slowed; i++)
                place = follow(chain, place);
            steps += (double)steps_of[chain];
        }
        const double later = thread_seconds();
        if (later > cpu && parts < PARTS)
            rates[parts++] = steps / ((later - cpu) * 1e9);
        cpu = later;
    }
    const double wall = (double)(now - begin) * 1e-9;
    run->state[chain][member] = place;
    way->sampled[member * way->samples + sample] =
        (Sample){.rate = parts ? median_of(rates, parts) : 0, .ran = wall > 0 ? (cpu - cpu_begin) / wall : 0};
}

static void work_together(Member *member, void *argument)
{
    Run *run = argument;
    const Way *way = run->way;
    for (int i = 0; i < way->samples; i++) {
        team_together(member);
        measure(run, member->id, i);
        if (run->chain == REGISTERS && i + 1 == way->samples) // others are still at work
            run->frequency[member->id] = frequency_of(member->pu);
        team_check(member);
        if (run->options->sustain && !stop_signal() && !member->id && (i + 1) % (SUSTAINED_SAMPLES / 10) == 0)
            report_say("cores: %.3g of %.3g s, PU %d makes %.2f additions per ns", (i + 1) * way->seconds,
                       run->options->sustain, member->pu, way->sampled[i].rate);
    }
}

static void work_alone(Member *member, void *argument)
{
    Run *run = argument;
    (void)member;
    measure(run, run->turn, run->round);
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

// Each PU in turn, round by round: a disturbance of some seconds is not in all samples of a PU.
static Placed take_turns(Run *run, int rounds)
{
    Placed placed = {.count = run->count, .pus = must_allocate((size_t)run->count, sizeof *placed.pus)};
    for (run->round = 0; run->round < rounds; run->round++)
        for (run->turn = 0; run->turn < run->count && !stop_signal(); run->turn++) {
            Placed one = team_run(&run->pus->values[run->turn], 1, work_alone, run);
            placed.pus[run->turn] = one.pus[0];
            if (!placed.reason[0])
                memcpy(placed.reason, one.reason, sizeof placed.reason);
            placed_free(&one);
        }
    return placed;
}

static void run_way(Run *run, Way *way, Running running, Chain chain)
{
    run->way = way;
    run->running = running;
    run->chain = chain;
    way->sampled = must_allocate((size_t)(run->count * way->samples), sizeof *way->sampled);
    way->stolen = must_allocate((size_t)run->count, sizeof *way->stolen);
    add_stolen(run->pus, -1, way->stolen);
    const int64_t begin = team_now();
    way->placed = running == ALONE ? take_turns(run, way->samples)
                                   : team_run(run->pus->values, run->count, work_together, run);
    way->wall = (double)(team_now() - begin) * 1e-9 / (running == ALONE ? run->count : 1);
    add_stolen(run->pus, 1, way->stolen);
    for (int i = 0; i < run->banks.count; i++)
        memory_look_again(&run->memory[i]);
}

static Core core_of(const Run *run, int pu)
{
    static const char *const speeds[] = {"cpu_capacity", "cpufreq/cpuinfo_max_freq"};
    Core core = {0};
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds && !core.speed; i++) {
        char *text = file_text("/sys/devices/system/cpu/cpu%d/%s", pu, speeds[i]);
        core.speed = text ? strtol(text, NULL, 10) : 0;
        free(text);
    }
    char *text = file_text("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", pu);
    if (text && list_parse(text, &core.threads))
        for (int i = 0; i < core.threads.count; i++)
            *(list_has(run->pus, core.threads.values[i]) ? &core.here : &core.other) += 1;
    free(text);
    const int bank = host_nearest_bank(run->host, pu);
    while (run->banks.values[core.bank] != bank)
        core.bank++;
    return core;
}

// Whether the rates of two PUs should be equal. PUs of another bank may have slower memory.
static bool alike(const Core *a, const Core *b, bool in_memory)
{
    return a->speed == b->speed && a->here == b->here && a->other == b->other &&
           (!in_memory || a->bank == b->bank);
}

// Numbers the kinds of PUs: each has the number of the first PU of its kind.
static void set_kinds(const Run *run)
{
    List firsts[2] = {{0}};
    for (int i = 0; i < run->count; i++)
        for (int in_memory = 0; in_memory < 2; in_memory++) {
            const List *first = &firsts[in_memory];
            int kind = 0;
            while (kind < first->count && !alike(&run->cores[first->values[kind]], &run->cores[i], in_memory))
                kind++;
            if (kind == first->count)
                list_add(&firsts[in_memory], i);
            run->cores[i].kind[in_memory] = kind;
        }
    free(firsts[0].values);
    free(firsts[1].values);
}

// Those of the values of all samples that count.
static Samples samples_of(const Way *way, const double *values)
{
    Samples samples = {0};
    for (int sample = way->first; sample < way->samples; sample++)
        samples_add(&samples, values[sample]);
    return samples;
}

static double rate_in(const Way *way, int member, int sample)
{
    return way->sampled[member * way->samples + sample].rate;
}

typedef struct {
    int kind, member;
    double value;
} Ranked;

static int by_kind(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    return x->kind != y->kind ? x->kind - y->kind : (x->value > y->value) - (x->value < y->value);
}

// Sets for each PU the median of the `values` of its siblings, or its own value if it has none.
static void set_siblings(const Run *run, Chain chain, const double *values, double *medians)
{
    Ranked *ranked = must_allocate((size_t)run->count, sizeof *ranked);
    for (int i = 0; i < run->count; i++)
        ranked[i] = (Ranked){run->cores[i].kind[chain == MEMORY_CHAIN], i, values[i]};
    qsort(ranked, (size_t)run->count, sizeof *ranked, by_kind);
    for (int begin = 0, end = 0; begin < run->count; begin = end) {
        while (end < run->count && ranked[end].kind == ranked[begin].kind)
            end++;
        const int others = end - begin - 1;
        for (int i = begin; i < end; i++) {
            // The middle of the others: all of the kind but this one.
            int low = begin + (others - 1) / 2, high = begin + others / 2;
            low += low >= i;
            high += high >= i;
            medians[ranked[i].member] = others ? (ranked[low].value + ranked[high].value) / 2 : ranked[i].value;
        }
    }
    free(ranked);
}

// Compares the rates of the PUs with their siblings', in each used sample.
static void compare(const Run *run, Chain chain, Way *way)
{
    const size_t count = (size_t)run->count;
    double *rates = must_allocate(count, sizeof *rates), *usual = must_allocate(count, sizeof *usual);
    way->shares = must_allocate(count * (size_t)way->samples, sizeof *way->shares);
    way->best = must_allocate(count, sizeof *way->best);
    way->best_of_siblings = must_allocate(count, sizeof *way->best_of_siblings);
    for (int sample = way->first; sample < way->samples; sample++) {
        for (int i = 0; i < run->count; i++) {
            rates[i] = rate_in(way, i, sample);
            way->best[i] = fmax(way->best[i], rates[i]);
        }
        set_siblings(run, chain, rates, usual);
        for (int i = 0; i < run->count; i++)
            way->shares[i * way->samples + sample] = usual[i] > 0 ? rates[i] / usual[i] : 1;
    }
    set_siblings(run, chain, way->best, way->best_of_siblings);
    double least = INFINITY;
    for (int i = 0; i < run->count; i++) {
        Samples shares = samples_of(way, &way->shares[i * way->samples]);
        const double share = samples_median(&shares);
        if (share < least) {
            least = share;
            way->slowest = i;
        }
    }
    free(rates);
    free(usual);
}

// By how much a PU is slower than its siblings, if it has less than `share` of their best rates in every sample
// that counts, or 0.
static double loss_of(const Way *way, int member, double share)
{
    // One sample or two may be disturbed.
    if (way->samples - way->first < 3 || way->best[member] >= share * way->best_of_siblings[member])
        return 0;
    return 1 - way->best[member] / way->best_of_siblings[member];
}

// The share of the time that the thread of a PU ran, in the median sample.
static double running_of(const Way *way, int member)
{
    Samples shares = {0};
    for (int sample = 0; sample < way->samples; sample++)
        samples_add(&shares, way->sampled[member * way->samples + sample].ran);
    return samples_median(&shares);
}

// The median rate of a PU over the samples that count.
static double rate_of(const Way *way, int member)
{
    Samples rates = {0};
    for (int sample = way->first; sample < way->samples; sample++)
        samples_add(&rates, rate_in(way, member, sample));
    return samples_median(&rates);
}

// PU, or PU and the chain that is slow, or PU and the seconds after which all are.
static void inject(Run *run, const char *text)
{
    char end;
    int at = 0;
    run->slowed = -1;
    run->slowed_chain = CHAINS;
    if (!text)
        return;
    const bool is_pu = sscanf(text, "%7d%n", &run->slowed, &at) == 1 && list_has(run->pus, run->slowed);
    for (int chain = 0; is_pu && text[at] == ',' && chain < CHAINS; chain++)
        if (!strcmp(text + at + 1, chain_names[chain]))
            run->slowed_chain = chain;
    const bool is_whole = !text[at] || run->slowed_chain < CHAINS ||
                          (sscanf(text + at, ",%lf%c", &run->slowed_after, &end) == 1 && run->slowed_after >= 0);
    if (!is_pu || !is_whole)
        fail(
            EXIT_USAGE,
            "--inject: '%s' is not PU, PU,CHAIN or PU,AFTER with a PU that works, a chain such as l2, and seconds",
            text);
}

// Makes the cycles of the PUs of one bank.
static void build(Member *member, void *argument)
{
    Run *run = argument;
    const uint64_t line = run->host->line_bytes, stride = STRIDE * line, bytes = run->bytes[MEMORY_CHAIN];
    char *base = run->memory[member->id].base;
    uint64_t here = 0;
    for (int i = 0; i < run->count; i++) {
        if (run->cores[i].bank != member->id)
            continue;
        run->state[L1][i] = (uintptr_t)chase_build(base, L1_BYTES, line, RANDOM, (uint64_t)i);
        base += L1_BYTES;
        run->state[L2][i] = (uintptr_t)chase_build(base, run->bytes[L2], line, RANDOM, (uint64_t)i);
        base += run->bytes[L2];
        here++;
    }
    if (!bytes)
        return;
    // All follow one cycle, evenly spaced, so that caches do not keep for one what another one has read.
    void **place = chase_build(base, bytes, stride, PAGED, 1);
    if (!chase_check(place, bytes / stride))
        run->wrong = "the pointers do not make one cycle through all lines";
    for (int i = 0; i < run->count; i++)
        if (run->cores[i].bank == member->id) {
            run->state[MEMORY_CHAIN][i] = (uintptr_t)place;
            place = chase_run(place, bytes / stride / here);
        }
}

// The size of the cycle through a bank's memory: beyond all caches of its PUs together, or 0 if there is no room.
static uint64_t memory_bytes(const Run *run)
{
    const Host *host = run->host;
    const Options *options = run->options;
    if (options->array_bytes) // a cycle has at least one step in a page
        return options->array_bytes < 4096 ? 4096 : options->array_bytes;
    if (options->sanity)
        return 1 << 20;
    const uint64_t least = UINT64_C(64) << 20, most = UINT64_C(2) << 30;
    uint64_t bytes = 8 * host->all_caches_bytes / (uint64_t)run->banks.count;
    bytes = bytes < least ? least : bytes > most ? most : bytes;
    while (bytes > memory_available(host, &run->banks, PAGES_BASE) / 4 / (uint64_t)run->banks.count)
        bytes /= 2;
    return bytes < STRIDE * host->cache_bytes ? 0 : bytes / GROUP_BYTES * GROUP_BYTES;
}

static void take_memory(Run *run)
{
    Way(*ways)[CHAINS] = run->ways;
    bool needed[CHAINS];
    for (int chain = 0; chain < CHAINS; chain++)
        needed[chain] = ways[TOGETHER][chain].samples || ways[ALONE][chain].samples;
    run->bytes[L1] = L1_BYTES;
    run->bytes[L2] = L2_BYTES;
    while (run->host->level2_bytes && run->bytes[L2] > 4 * L1_BYTES &&
           run->bytes[L2] > run->host->level2_bytes / 2)
        run->bytes[L2] /= 2;
    if (needed[MEMORY_CHAIN] && !(run->bytes[MEMORY_CHAIN] = memory_bytes(run))) {
        report_say("cores: the chain through memory is left out: there is no room for it beyond the caches");
        ways[TOGETHER][MEMORY_CHAIN].samples = ways[ALONE][MEMORY_CHAIN].samples = 0;
    }
    const bool is_small = !needed[L1] && !needed[L2] && !needed[MEMORY_CHAIN];
    for (int i = 0; i < run->banks.count; i++) {
        uint64_t bytes = run->bytes[MEMORY_CHAIN];
        for (int j = 0; j < run->count; j++)
            bytes += run->cores[j].bank == i ? L1_BYTES + run->bytes[L2] : 0;
        const List bank = {1, &run->banks.values[i]};
        run->memory[i] = memory_take(run->host, &bank, PAGES_BASE, is_small ? run->host->page_bytes : bytes, 0);
    }
    if (is_small || stop_signal())
        return;
    int *near = must_allocate((size_t)run->banks.count, sizeof *near);
    for (int i = 0; i < run->banks.count; i++)
        near[i] = host_nearest_pus(run->host, run->banks.values[i])->values[0];
    Placed placed = team_run(near, run->banks.count, build, run);
    placed_free(&placed);
    free(near);
}

// Begins a result with the samples that count of `values`.
static void put(const Run *run, const Way *way, const char *metric, const char *unit, const char *better,
                const double *values)
{
    const Samples samples = samples_of(way, values);
    Result result = {.metric = metric,
                     .unit = unit,
                     .better = better,
                     .samples = &samples,
                     .pu_nodes = &run->options->pu_nodes,
                     .pus = run->pus,
                     .placed = &way->placed,
                     .memory = run->memory,
                     .wrong = run->slowed < 0 ? run->wrong : "a fault was injected"};
    for (int i = 1; i < run->banks.count && !*result.wrong; i++)
        result.wrong = run->memory[i].reason;
    report_open(&result);
    if (run->options->sustain)
        json_number("sustain_s", run->options->sustain);
}

static void put_chain(const Run *run, Running running, Chain chain)
{
    json_string("chain", chain_names[chain]);
    json_string("running", running_names[running]);
    if (chain != REGISTERS)
        json_integer("size_bytes", (int64_t)run->bytes[chain]);
}

// Writes an object of the values above 0, with the numbers of their PUs.
static void put_by_pu(const Run *run, const char *key, const double *values)
{
    bool any = false;
    for (int i = 0; i < run->count; i++)
        any = any || values[i] > 0;
    if (!any)
        return;
    json_begin(key, '{');
    for (int i = 0; i < run->count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", run->pus->values[i]);
        if (values[i] > 0)
            json_number(number, values[i]);
    }
    json_end('}');
}

// The cores of which more than one PU works, as lists.
static void put_threads(const Run *run)
{
    json_begin("core_pus", '[');
    for (int i = 0; i < run->count; i++) {
        const List *threads = &run->cores[i].threads;
        if (run->cores[i].here > 1 && threads->values[0] == run->pus->values[i])
            json_integers(NULL, threads->values, threads->count);
    }
    json_end(']');
}

// The threads that had to wait for others. The rate refers to the time that a thread ran, whoever else used
// its PU.
static void put_waiting(const Run *run, const Way *way)
{
    List waited = {0};
    for (int i = 0; i < run->count; i++)
        if (running_of(way, i) < RAN)
            list_add(&waited, run->pus->values[i]);
    if (waited.count) {
        json_integers("waited", waited.values, waited.count);
        report_say("cores: the threads of %d PUs, first PU %d, ran for less than %.0f %% of the time: others use "
                   "these PUs, or a cgroup limits them",
                   waited.count, waited.values[0], 100 * RAN);
    }
    free(waited.values);
}

// Prints the rate of all PUs, or the time of a step.
static void put_rates(const Run *run, Running running, Chain chain)
{
    const Way *way = &run->ways[running][chain];
    const bool is_clock = chain == REGISTERS, is_sustained = run->options->sustain > 0;
    const char *clock = is_sustained ? "sustained_clock" : "core_clock", *unit = is_clock ? "GHz" : "ns";
    double *scratch = must_allocate((size_t)run->count, sizeof *scratch);
    double *values = must_allocate((size_t)way->samples, sizeof *values);
    for (int sample = 0; sample < way->samples; sample++) {
        for (int i = 0; i < run->count; i++)
            scratch[i] = rate_in(way, i, sample);
        values[sample] = is_clock ? median_of(scratch, run->count) : 1 / median_of(scratch, run->count);
    }
    for (int i = 0; i < run->count; i++)
        scratch[i] = is_clock ? rate_of(way, i) : 1 / rate_of(way, i);
    put(run, way, is_clock ? clock : "chain_latency", unit, is_clock ? "higher" : "lower", values);
    if (!is_clock || running == ALONE) // the case of all clocks is older than the other ones
        put_chain(run, running, chain);
    json_number("slowest", scratch[way->slowest]);
    put_by_pu(run, "by_pu", scratch);
    put_by_pu(run, "stolen_s", way->stolen);
    if (is_clock && running == TOGETHER) {
        put_by_pu(run, "frequency_ghz", run->frequency);
        put_threads(run);
    }
    if (is_sustained) {
        json_begin("curve", '[');
        for (int sample = 0; sample < way->samples; sample++)
            json_number(NULL, values[sample]);
        json_end(']');
    }
    if (running == TOGETHER)
        put_waiting(run, way);
    report_close();
    report_say("cores: %d PUs %s, %s: %.2f %s, the slowest, PU %d, %.2f", run->count,
               running == TOGETHER ? "at once" : "one by one", chain_names[chain],
               median_of(values + way->first, way->samples - way->first), unit, run->pus->values[way->slowest],
               scratch[way->slowest]);
    free(scratch);
    free(values);
}

// Prints the share of its siblings' rate that the slowest PU has.
static void put_slowest(const Run *run, Running running, Chain chain)
{
    const Way *way = &run->ways[running][chain];
    if (run->count < 2) // it has no siblings
        return;
    put(run, way, "slowest_core", "1", "higher", &way->shares[way->slowest * way->samples]);
    put_chain(run, running, chain);
    json_integer("slowest_pu", run->pus->values[way->slowest]);
    report_close();
}

// Prints what a result about slow cores is of: the chain (the clock's is older than the others, and has none), and
// the PUs if they are not all of the host. The others may be slow.
static void put_extent(const Run *run, Chain chain)
{
    char *text = file_text("/sys/devices/system/cpu/online");
    List online = {0};
    if (text && list_parse(text, &online) && run->count < online.count) {
        const unsigned long size = 8 * (unsigned long)run->count;
        char *pus = must_allocate(size, 1);
        json_string("measured_pus", list_text(run->pus, pus, size));
        free(pus);
    }
    free(text);
    free(online.values);
    if (chain == REGISTERS)
        return;
    json_string("chain", chain_names[chain]);
    json_integer("size_bytes", (int64_t)run->bytes[chain]);
}

// The loss identifies a slow core's case, so noise must not make a new one each time.
static double in_percent(double loss)
{
    return round(100 * loss) / 100;
}

// Prints a result for a slow core; false if others may have slowed it.
static bool put_slow(const Run *run, int member, Chain chain, const double *loss)
{
    const int pu = run->pus->values[member];
    // A hypervisor, or a thread on the other PU of a core, slows a PU as well.
    const char *why = run->cores[member].other ? "may use the other PU of its core" : NULL;
    for (int running = 0; running < RUNNINGS && !why; running++) {
        const Way *way = &run->ways[running][chain];
        if (loss[running] <= 0)
            continue;
        // The kernel counts in ticks. Others that the thread waited for have used its caches as well: to fill them
        // again takes less than half of the time that they had.
        if (way->stolen[member] > loss[running] * way->wall / 2)
            why = "on the hardware took its time";
        else if (chain != REGISTERS && loss[running] < (1 - running_of(way, member)) / 2)
            why = "use it";
    }
    if (why) {
        report_say("cores: PU %d is slower than its siblings (%s), and others %s", pu, chain_names[chain], why);
        return false;
    }
    const Way *way = &run->ways[TOGETHER][chain];
    double *values = must_allocate((size_t)way->samples, sizeof *values);
    for (int sample = 0; sample < way->samples; sample++)
        values[sample] = 1;
    put(run, way, "slow_cores", "1", "lower", values);
    json_integer("pu", pu);
    put_extent(run, chain);
    json_number("loss", in_percent(loss[TOGETHER]));
    if (run->ways[ALONE][chain].samples)
        json_number("loss_alone", in_percent(loss[ALONE]));
    report_close();
    free(values);
    return true;
}

// Whether a chain was measured in the ways that tell a slow core.
static bool tells_slow(const Run *run, int chain)
{
    return run->ways[TOGETHER][chain].samples && (chain == REGISTERS || run->ways[ALONE][chain].samples);
}

// By how much a PU is slower than its siblings in a chain that was measured in one way, and again if it looked
// slow.
static double least_loss(const Run *run, int member, Running running, Chain chain, double share)
{
    const Way *again = &run->again[running][chain];
    const double loss = loss_of(&run->ways[running][chain], member, share);
    return again->samples ? fmin(loss, loss_of(again, member, share)) : loss;
}

// Whether a PU is slow in a chain beyond what its clock explains, and by how much in each way. Alone, some cores
// have a higher clock than others by design. Caches and the way to memory must be slow in both ways: neighbours
// and other programs come and go.
static bool is_slow(const Run *run, int member, Chain chain, double *loss)
{
    double clock = 1; // the share of the siblings' clock
    for (int running = 0; running < RUNNINGS && chain != REGISTERS; running++)
        clock = fmin(clock, 1 - least_loss(run, member, (Running)running, REGISTERS, SLOW[REGISTERS]));
    for (int running = 0; running < RUNNINGS; running++)
        loss[running] = least_loss(run, member, (Running)running, chain, SLOW[chain] * clock);
    return loss[TOGETHER] > 0 && (chain == REGISTERS || loss[ALONE] > 0);
}

// Measures the chains again in which a PU looks slow, after a rest. Neighbours on the hardware and other programs
// may slow a PU for seconds without any trace; a slow core stays slow. The last quarter of a sustained load is
// long.
static void look_again(Run *run)
{
    bool rested = false;
    for (int chain = 0; chain < CHAINS && !run->options->sustain; chain++) {
        double loss[RUNNINGS];
        int member = 0;
        while (member < run->count && !is_slow(run, member, (Chain)chain, loss))
            member++;
        if (member == run->count)
            continue;
        report_say("cores: PU %d looks slow (%s): measured again", run->pus->values[member], chain_names[chain]);
        if (!rested)
            nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        rested = true;
        for (int running = 0; running < RUNNINGS && !stop_signal(); running++) {
            const Way *way = &run->ways[running][chain];
            Way *again = &run->again[running][chain];
            if (!way->samples)
                continue;
            *again = (Way){.samples = way->samples, .seconds = way->seconds};
            run_way(run, again, (Running)running, (Chain)chain);
            compare(run, (Chain)chain, again);
        }
    }
}

// Prints a result for each slow core and chain, and one of 0 for each chain without any. A chain that was not
// measured, or in one way only, has none: it must not clear a core that was slow in it before.
static void put_slow_cores(const Run *run)
{
    int slow[CHAINS] = {0};
    for (int i = 0; i < run->count; i++)
        for (int chain = 0; chain < CHAINS; chain++) {
            double loss[RUNNINGS];
            if (!is_slow(run, i, (Chain)chain, loss) || !put_slow(run, i, (Chain)chain, loss))
                continue;
            slow[chain]++;
            report_say("cores: PU %d is %.0f %% slower than its siblings %s%s", run->pus->values[i],
                       100 * loss[TOGETHER], chain == REGISTERS ? "when all run" : "in the chain through ",
                       chain == REGISTERS ? "" : chain_names[chain]);
        }
    for (int chain = 0; chain < CHAINS; chain++) {
        // A single PU has no sibling.
        if (slow[chain] || !tells_slow(run, chain) || (run->count < 2 && chain != REGISTERS))
            continue;
        const Way *way = &run->ways[TOGETHER][chain];
        double *values = must_allocate((size_t)way->samples, sizeof *values);
        put(run, way, "slow_cores", "1", "lower", values);
        put_extent(run, (Chain)chain);
        report_close();
        free(values);
    }
}

// Which ways are measured, and how often.
static int plan(Run *run)
{
    const Options *options = run->options;
    const int most = options->repetitions.most;
    const double alone = ALONE_SECONDS / (run->count * most), seconds = options->seconds / 4;
    int count = 0;
    for (int chain = 0; chain < CHAINS; chain++) {
        if (!options->chain[chain])
            continue;
        Way *ways[] = {&run->ways[TOGETHER][chain], &run->ways[ALONE][chain]};
        if (options->running[TOGETHER]) {
            ways[TOGETHER]->samples = options->sustain ? SUSTAINED_SAMPLES : most;
            ways[TOGETHER]->first = ways[TOGETHER]->samples - most;
            ways[TOGETHER]->seconds = options->seconds;
        }
        if (options->running[ALONE]) {
            ways[ALONE]->samples = most;
            ways[ALONE]->seconds = alone < seconds ? alone : seconds;
        }
        count += options->running[TOGETHER] + options->running[ALONE];
    }
    return count;
}

void cores(const Options *options, const Host *host)
{
    const List pus = options_pus(options, host, &options->pu_nodes);
    Run run = {.options = options, .host = host, .pus = &pus, .count = pus.count, .wrong = ""};
    inject(&run, options->inject_text);
    const int planned = plan(&run);
    run.cores = must_allocate((size_t)run.count, sizeof *run.cores);
    for (int i = 0; i < run.count; i++) {
        const int bank = host_nearest_bank(host, pus.values[i]);
        if (!list_has(&run.banks, bank))
            list_add(&run.banks, bank);
    }
    for (int i = 0; i < run.count; i++)
        run.cores[i] = core_of(&run, pus.values[i]);
    set_kinds(&run);
    run.memory = must_allocate((size_t)run.banks.count, sizeof *run.memory);
    run.frequency = must_allocate((size_t)run.count, sizeof *run.frequency);
    for (int chain = 0; chain < CHAINS; chain++)
        run.state[chain] = must_allocate((size_t)run.count, sizeof *run.state[chain]);
    report_begin(options, host, planned);
    take_memory(&run);
    for (int running = 0; running < RUNNINGS; running++)
        for (int chain = 0; chain < CHAINS; chain++) {
            if (!run.ways[running][chain].samples || stop_signal())
                continue;
            run_way(&run, &run.ways[running][chain], (Running)running, (Chain)chain);
            if (stop_signal()) // samples are missing
                continue;
            compare(&run, (Chain)chain, &run.ways[running][chain]);
            put_rates(&run, (Running)running, (Chain)chain);
            put_slowest(&run, (Running)running, (Chain)chain);
        }
    if (!stop_signal())
        look_again(&run);
    if (!stop_signal())
        put_slow_cores(&run);
    for (int i = 0; i < 2 * RUNNINGS * CHAINS; i++) {
        Way *way = (i % 2 ? run.ways : run.again)[i / 2 / CHAINS] + i / 2 % CHAINS;
        free(way->sampled);
        free(way->stolen);
        free(way->shares);
        free(way->best);
        free(way->best_of_siblings);
        placed_free(&way->placed);
    }
    for (int i = 0; i < run.banks.count; i++)
        memory_release(&run.memory[i]);
    for (int chain = 0; chain < CHAINS; chain++)
        free(run.state[chain]);
    for (int i = 0; i < run.count; i++)
        free(run.cores[i].threads.values);
    free(run.memory);
    free(run.frequency);
    free(run.banks.values);
    free(run.cores);
    free(pus.values);
}
