// SPDX-License-Identifier: Apache-2.0
// Loaded latency: one PU follows a cycle while others load memory at rising rates. A curve has a chaser's NUMA
// node and bank, a relation of the load to them, and a share of reads in the load's traffic.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "aspects.h"
#include "fail.h"
#include "json.h"
#include "loaders.h"
#include "report.h"
#include "stop.h"
#include "walk.h"

const char *const load_names[LOADS] = {"local", "outgoing", "incoming"};

// A sample consists of looks. Those during which another program had one of the PUs are left out, unless all were
// disturbed: on a busy host the looks go on until a sixth of their number is undisturbed, or until the time is up.
enum { LOOK_NS = 500000, LOOKS = 24, SAMPLE_NS = 50000000, SANITY_NS = 100000 };
// The trials that find the pause of a rate, their looks, and the time that a new pause gets to settle.
enum { TRIALS = 5, TRIAL_LOOKS = 5, TRIAL_NS = 20000000, SETTLE_NS = 1000000 };
enum { CHUNK_STEPS = 256, TIMED_LOOPS = 1 << 20, LONGEST_PAUSE = 100000000 };

// The memory of a bank: the chaser's cycle, and the array of the loaders.
typedef struct {
    int bank;
    Memory cycle, load;
    uint64_t bytes; // of the array
    Order order;    // of the cycle
    Walk walk;
} Bank;

typedef struct {
    int node;
    Bank *bank, *load_bank;
    Load load;
    ReadShare share;
    List pus; // the chaser's, then the loaders'
} Curve;

typedef struct {
    const Options *options;
    const Curve *curve;
    Loaders loaders; // by member, without the chaser
    Samples *latency, *rate;
    int64_t *pauses; // of each rate, in loops
    void **place;    // of the chaser
} Run;

typedef struct {
    double latency; // ns
    double load;    // GB/s of the loaders
} Point;

// What the chaser and the loaders did, with their times (ns): passed, and on a PU.
typedef struct {
    double time, chasing, loading, steps, moved;
} Look;

static int loaders_of(const Curve *curve)
{
    return curve->pus.count - 1;
}

static double cpu_time(clockid_t clock)
{
    struct timespec used;
    clock_gettime(clock, &used);
    return (double)used.tv_sec * 1e9 + (double)used.tv_nsec;
}

static void start(const Run *run, Look *look)
{
    look->loading = cpu_time(CLOCK_PROCESS_CPUTIME_ID);
    look->chasing = cpu_time(CLOCK_THREAD_CPUTIME_ID);
    look->time = (double)team_now();
    look->moved = (double)loaders_steps(&run->loaders);
}

// Follows the cycle for a time; tells whether all threads ran all the time.
static bool chase(Run *run, int64_t duration, Look *look)
{
    Look before, after;
    start(run, &before);
    uint64_t steps = 0;
    do {
        run->place = chase_run(run->place, CHUNK_STEPS);
        steps += CHUNK_STEPS;
    } while ((double)team_now() - before.time < (double)duration && !stop_signal());
    start(run, &after);
    *look = (Look){.time = after.time - before.time,
                   .chasing = after.chasing - before.chasing,
                   .steps = (double)steps,
                   .moved = (after.moved - before.moved) * (double)load_bytes(run->curve->share)};
    look->loading = after.loading - before.loading - look->chasing;
    const int loading = atomic_load(&run->loaders.pause) == LOADERS_IDLE ? 0 : loaders_of(run->curve);
    return look->chasing > 0.97 * look->time && look->loading > 0.97 * look->time * loading;
}

static void set_pause(Run *run, int64_t pause)
{
    Look look;
    atomic_store(&run->loaders.pause, pause);
    chase(run, run->options->sanity ? SANITY_NS : SETTLE_NS, &look);
}

// Time off a PU is less load, not latency.
static Point sample(Run *run)
{
    const int usual = run->options->sanity ? 1 : LOOKS;
    const int64_t end = team_now() + (run->options->sanity ? 0 : SAMPLE_NS);
    Look sums[2] = {0}; // of disturbed and of undisturbed looks
    int number = 0, undisturbed = 0;
    do {
        Look look;
        const bool good = chase(run, run->options->sanity ? SANITY_NS : LOOK_NS, &look);
        sums[good].time += look.time;
        sums[good].chasing += look.chasing;
        sums[good].steps += look.steps;
        sums[good].moved += look.moved;
        undisturbed += good;
        number++;
    } while ((number < usual || undisturbed < usual / 6) && team_now() < end && !stop_signal());
    const Look *sum = &sums[undisturbed > 0];
    const double chasing = sum->chasing > 0 ? sum->chasing : sum->time; // some emulators have a coarse clock
    return (Point){.latency = chasing / sum->steps, .load = sum->moved / sum->time};
}

// What the loaders move (GB/s) while they are on their PUs: the median of looks, or 0 if they hardly were.
static double load_with(Run *run, int64_t pause)
{
    const int64_t duration = run->options->sanity ? SANITY_NS : LOOK_NS;
    const int64_t end = team_now() + (run->options->sanity ? 10 * SANITY_NS : TRIAL_NS);
    Samples rates = {0};
    set_pause(run, pause);
    do {
        Look look;
        chase(run, duration, &look);
        if (look.loading > 0.5 * (double)duration * loaders_of(run->curve))
            samples_add(&rates, look.moved / look.loading * loaders_of(run->curve));
    } while (rates.count < TRIAL_LOOKS && team_now() < end && !stop_signal());
    return rates.count ? samples_median(&rates) : 0;
}

// Finds the pause that makes the loaders move this rate (GB/s). A pause that loads still in flight hide has no
// effect, so the missing time of a step is added until the rate is reached.
static int64_t pause_of(Run *run, double wanted, int64_t pause, double loops)
{
    const double bytes = (double)load_bytes(run->curve->share) * loaders_of(run->curve);
    for (int trial = 0; trial < TRIALS && !stop_signal(); trial++) {
        const double reached = load_with(run, pause);
        if (reached <= 0)
            continue;
        if (fabs(reached - wanted) < 0.02 * wanted)
            break;
        const double more = (bytes / wanted - bytes / reached) * loops;
        pause = (int64_t)fmax(0, fmin(LONGEST_PAUSE, (double)pause + more));
    }
    return pause;
}

static void calibrate(Run *run)
{
    const int64_t begin = team_now();
    loaders_pause(TIMED_LOOPS);
    const double loops = TIMED_LOOPS / (double)(team_now() - begin); // per ns
    const double most = load_with(run, 0);
    int64_t pause = 0;
    for (int i = run->options->rates - 1; i >= 0; i--) {
        const double rate = run->options->rate[i];
        if (rate > 0 && rate < 1)
            pause = pause_of(run, rate * most, pause, loops);
        run->pauses[i] = rate > 0 ? pause : LOADERS_IDLE;
    }
}

static bool enough(const Run *run)
{
    for (int i = 0; i < run->options->rates; i++)
        if (!samples_enough(&run->latency[i], &run->options->repetitions) ||
            !samples_enough(&run->rate[i], &run->options->repetitions))
            return false;
    return true;
}

// The traffic on the load's bank (GB/s): the loaders', and the chaser's line per step if it is on the same bank.
static double traffic(const Run *run, const Point *point)
{
    const bool shared = run->curve->bank == run->curve->load_bank;
    return point->load + (shared ? (double)run->curve->bank->walk.host->line_bytes / point->latency : 0);
}

static void work_as_chaser(Run *run, Member *member)
{
    const Options *options = run->options;
    Point points[RATES_MOST];
    run->place = run->curve->bank->walk.head;
    calibrate(run);
    while (!enough(run) && !stop_signal()) {
        for (int i = 0; i < options->rates; i++) {
            set_pause(run, run->pauses[i]);
            points[i] = sample(run);
        }
        team_check(member);
        if (stop_signal()) // the curve is incomplete
            break;
        for (int i = 0; i < options->rates; i++) {
            samples_add(&run->latency[i], points[i].latency);
            samples_add(&run->rate[i], traffic(run, &points[i]));
        }
    }
    atomic_store(&run->loaders.pause, LOADERS_DONE);
}

static void work(Member *member, void *argument)
{
    Run *run = argument;
    team_together(member);
    if (member->id == 0)
        work_as_chaser(run, member);
    else
        loader_work(&run->loaders, member->id - 1);
    team_together(member);
    // Each part is checked by another thread than the one that loaded it.
    if (member->id > 0)
        loader_check(&run->loaders, member->id % run->loaders.count);
}

static void print(const Run *run, const Result *common, int rate)
{
    const Curve *curve = run->curve;
    for (int i = 0; i < 2; i++) {
        Result result = *common;
        result.metric = i ? "load_bandwidth" : "loaded_latency";
        result.unit = i ? "GB/s" : "ns";
        result.better = i ? "higher" : "lower";
        result.samples = i ? &run->rate[rate] : &run->latency[rate];
        report_open(&result);
        json_number("rate", run->options->rate[rate]);
        json_string("load", load_names[curve->load]);
        json_integer("load_bank", curve->load_bank->bank);
        json_number("read_share", read_shares[curve->share]);
        json_integer("loaders", loaders_of(curve));
        json_string("order", order_names[curve->bank->order]);
        json_string("instructions", load_instructions());
        json_integer("array_bytes", (int64_t)curve->load_bank->bytes);
        json_integer("size_bytes", (int64_t)run->options->size[0]);
        report_close();
    }
}

static void show(const Run *run, int number, int of)
{
    const Curve *curve = run->curve;
    const int last = run->options->rates - 1;
    report_say("%d/%d loaded latency NUMA node %d, bank %d: %.1f ns; %s load of bank %d by %d PUs, %s reads, "
               "%.2f GB/s: %.1f ns",
               number, of, curve->node, curve->bank->bank, samples_median(&run->latency[0]),
               load_names[curve->load], curve->load_bank->bank, loaders_of(curve), read_share_names[curve->share],
               samples_median(&run->rate[last]), samples_median(&run->latency[last]));
}

static void measure(const Options *options, const Curve *curve, int number, int of)
{
    Run run = {.options = options, .curve = curve};
    loaders_begin(&run.loaders, loaders_of(curve), curve->share, curve->load_bank->load.base,
                  curve->load_bank->bytes);
    run.latency = must_allocate((size_t)options->rates, sizeof *run.latency);
    run.rate = must_allocate((size_t)options->rates, sizeof *run.rate);
    run.pauses = must_allocate((size_t)options->rates, sizeof *run.pauses);
    Placed placed = team_run(curve->pus.values, curve->pus.count, work, &run);
    memory_look_again(&curve->bank->cycle);
    memory_look_again(&curve->load_bank->load);
    const char *wrong = *curve->bank->walk.wrong ? curve->bank->walk.wrong : curve->load_bank->load.reason;
    wrong = *wrong ? wrong : loaders_wrong(&run.loaders);
    const List node = {1, (int[]){curve->node}};
    const Result common = {
        .pu_nodes = &node, .pus = &curve->pus, .placed = &placed, .memory = &curve->bank->cycle, .wrong = wrong};
    if (run.latency[0].count) {
        show(&run, number, of);
        for (int i = 0; i < options->rates; i++)
            print(&run, &common, i);
    }
    loaders_free(&run.loaders);
    free(run.latency);
    free(run.rate);
    free(run.pauses);
    placed_free(&placed);
}

// Returns the chaser's PU and then the loaders' PUs, or an empty list without loaders.
static List crew(const Options *options, const Host *host, int node, Load load)
{
    const Node *here = host_node(host, node);
    List pus = loaders_pus(here);
    if (load == INCOMING)
        pus.count = 1;
    for (int i = 0; i < options->pu_nodes.count && load == INCOMING; i++) {
        const Node *there = host_node(host, options->pu_nodes.values[i]);
        for (int j = 0; j < there->cores && there != here; j++)
            list_add(&pus, there->pus.values[j]);
    }
    if (pus.count == 1)
        pus.count = 0;
    return pus;
}

// The bank that an outgoing load uses: the farthest one, of a NUMA node with PUs if there is any, or NULL.
static Bank *other_bank(const Options *options, const Host *host, Bank *banks, int node, const Bank *but)
{
    Bank *best = NULL;
    int farthest = 0;
    for (int i = 0; i < options->banks.count; i++) {
        const int far =
            host_distance(host, node, banks[i].bank) + (host_node(host, banks[i].bank)->pus.count ? 1 << 16 : 0);
        if (&banks[i] != but && far > farthest) {
            farthest = far;
            best = &banks[i];
        }
    }
    return best;
}

typedef struct {
    int count, omitted;
    Curve *curves;
    char (*reasons)[120]; // of the loads that are left out
} Curves;

static void add_curves(Curves *all, const Options *options, const Host *host, Bank *banks, int node, Bank *bank)
{
    for (Load load = LOCAL; load < LOADS; load++) {
        if (!options->load[load])
            continue;
        const List pus = crew(options, host, node, load);
        Bank *load_bank = load == OUTGOING ? other_bank(options, host, banks, node, bank) : bank;
        if (!pus.count || !load_bank) {
            const char *why = load == INCOMING ? "no other NUMA node has a PU to use"
                              : pus.count      ? "there is no other bank"
                                               : "the NUMA node has no second PU to use";
            snprintf(all->reasons[all->omitted++], sizeof *all->reasons, "%s load of NUMA node %d, bank %d: %s",
                     load_names[load], node, bank->bank, why);
            free(pus.values);
            continue;
        }
        for (ReadShare share = READ_ALL; share < READ_SHARES; share++)
            if (options->read_share[share])
                all->curves[all->count++] = (Curve){node, bank, load_bank, load, share, list_copy(&pus)};
        free(pus.values);
    }
}

// The nearest of a list of NUMA nodes.
static int nearest(const Host *host, const List *list, int to)
{
    int best = list->values[0];
    for (int i = 1; i < list->count; i++)
        if (host_distance(host, to, list->values[i]) < host_distance(host, to, best))
            best = list->values[i];
    return best;
}

// Every NUMA node with its nearest bank, and each bank that is nearest to none with its nearest NUMA node.
static Curves plan(const Options *options, const Host *host, Bank *banks)
{
    const List *nodes = &options->pu_nodes, *numbers = &options->banks;
    Curves all = {0};
    const size_t most = (size_t)(nodes->count + numbers->count) * LOADS;
    all.curves = must_allocate(most * READ_SHARES, sizeof *all.curves);
    all.reasons = must_allocate(most, sizeof *all.reasons);
    for (int i = 0; i < numbers->count; i++) {
        bool any = false;
        for (int j = 0; j < nodes->count; j++)
            if (nearest(host, numbers, nodes->values[j]) == numbers->values[i]) {
                add_curves(&all, options, host, banks, nodes->values[j], &banks[i]);
                any = true;
            }
        if (!any)
            add_curves(&all, options, host, banks, nearest(host, nodes, numbers->values[i]), &banks[i]);
    }
    return all;
}

static void on_pages(const Options *options, const Host *host, Bank *banks, const Curves *all, Pages pages,
                     uint64_t bytes)
{
    const int count = options->banks.count;
    for (int i = 0; i < count && !stop_signal(); i++) {
        const List bank = {1, &banks[i].bank};
        banks[i].bytes = bytes;
        banks[i].cycle = memory_take(host, &bank, pages, options->size[0], 0);
        banks[i].load = memory_take(host, &bank, pages, bytes, 1);
    }
    for (Order order = RANDOM; order < ORDERS; order++) {
        for (int i = 0; i < count && options->order[order] && !stop_signal(); i++) {
            banks[i].order = order;
            banks[i].walk = walk_build(host, &banks[i].cycle, options->size[0], host->line_bytes, order);
        }
        for (int i = 0; i < all->count && options->order[order] && !stop_signal(); i++)
            measure(options, &all->curves[i], i + 1, all->count);
    }
    for (int i = 0; i < count; i++) {
        memory_release(&banks[i].cycle);
        memory_release(&banks[i].load);
    }
}

void loaded_latency(const Options *options, const Host *host)
{
    Bank *banks = must_allocate((size_t)options->banks.count, sizeof *banks);
    for (int i = 0; i < options->banks.count; i++)
        banks[i].bank = options->banks.values[i];
    Curves all = plan(options, host, banks);
    if (!all.count)
        fail(EXIT_CANNOT, "no load can be made here; %s", all.reasons[0]);
    int loaders = 0;
    for (int i = 0; i < all.count; i++)
        loaders = loaders_of(&all.curves[i]) > loaders ? loaders_of(&all.curves[i]) : loaders;
    uint64_t bytes[PAGE_KINDS] = {0};
    // Impossible placements are refused before anything is measured.
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        bytes[pages] = options->pages[pages] ? loaders_bytes(options, host, pages, loaders) : 0;
    report_begin(options, host, all.count);
    for (int i = 0; i < all.omitted; i++)
        report_say("left out: %s", all.reasons[i]);
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        if (options->pages[pages] && !stop_signal())
            on_pages(options, host, banks, &all, pages, bytes[pages]);
    for (int i = 0; i < all.count; i++)
        free(all.curves[i].pus.values);
    free(all.curves);
    free(all.reasons);
    free(banks);
}
