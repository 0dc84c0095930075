// SPDX-License-Identifier: Apache-2.0
// Locks: threads take records from one reader and parse them, under each type of lock and with each way to parse.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aspects.h"
#include "fail.h"
#include "json.h"
#include "report.h"
#include "stop.h"

const char *const placing_names[PLACINGS] = {"compact", "spread"};

// The state that threads share, on the bank of the text.
typedef struct {
    Lock lock;
    _Alignas(LOCK_ALIGNMENT) Reader reader;
    _Alignas(LOCK_ALIGNMENT) atomic_uint_fast64_t next_block;
} Shared;

// One measurement, and what it showed.
typedef struct {
    int threads;
    Placing placing;
    double work_ns;
    Parsing parsing;
    LockType lock;
    uint64_t batch; // records that are taken at once
    Samples samples;
    double waiting, holding; // shares of the threads' time, added up
    int shares;
    bool wrong;
} Case;

// What the clocks of this host showed before.
typedef struct {
    double turn_ns, clock_ns; // of churn() and of team_now()
} Speed;

// A thread's part of a repetition, on lines that no other thread uses.
typedef struct {
    _Alignas(LOCK_ALIGNMENT) uint64_t records;
    uint64_t checksum;
    double waited, held, timed; // of the units that were timed (ns)
} Part;

typedef struct {
    const Options *options;
    const Text *text;
    Case **cases; // they have the same threads
    int count;
    Case *of; // the case of this repetition
    Shared *shared;
    Part *parts;
    uint64_t turns; // of churn() for a record
    Speed speed;
    uint64_t random;
    bool done;
    _Alignas(LOCK_ALIGNMENT) atomic_bool stop;
} Run;

// A thread's own memory.
typedef struct {
    Waiter waiter;
    char *buffer;
    Record record;
    uint64_t churned;
} Worker;

// Work that needs no memory.
static uint64_t churn(uint64_t value, uint64_t turns)
{
    for (uint64_t i = 0; i < turns; i++) {
        value = value * UINT64_C(6364136223846793005) + 1;
        __asm__ volatile("" : "+r"(value));
    }
    return value;
}

static void handle(const Run *run, Worker *worker, Part *part)
{
    part->checksum += worker->record.checksum;
    part->records++;
    worker->churned = churn(worker->churned, run->turns);
}

// Takes records while no other thread can; returns the end of what is in the buffer.
static const char *take(const Run *run, Worker *worker)
{
    Reader *reader = &run->shared->reader;
    char *end = worker->buffer;
    switch (run->of->parsing) {
    case ORIGINAL:
        reader_parse(reader, run->text, &worker->record);
        break;
    case DEFERRED:
    case BATCHED:
        for (uint64_t i = 0; i < run->of->batch; i++)
            end = reader_copy(reader, run->text, end);
        break;
    default:
        reader_copy_block(reader, run->text, end);
        end += run->text->block_bytes;
    }
    return end;
}

// Takes a block without a lock, and copies it afterwards.
static const char *take_atomically(const Run *run, Worker *worker)
{
    const Text *text = run->text;
    const uint64_t block = atomic_fetch_add_explicit(&run->shared->next_block, 1, memory_order_relaxed);
    Reader reader = {.position = block % (text->bytes / text->block_bytes) * text->block_bytes};
    reader_copy_block(&reader, text, worker->buffer);
    return worker->buffer + text->block_bytes;
}

// The time between two readings of the clock without the cost of a reading (ns).
static double elapsed(const Run *run, int64_t from, int64_t to)
{
    const double time = (double)(to - from) - run->speed.clock_ns;
    return time > 0 ? time : 0;
}

// Takes, parses and handles records; adds the times to the part if the unit is timed. Returns the time at its end.
static int64_t unit(const Run *run, Worker *worker, Part *part, bool timed)
{
    const bool locked = run->of->lock != ATOMIC;
    int64_t begin = timed ? team_now() : 0, held = begin, released = begin;
    const char *at = worker->buffer, *end;
    if (locked) {
        lock_acquire(&run->shared->lock, &worker->waiter);
        held = timed ? team_now() : 0;
        end = take(run, worker);
        released = timed ? team_now() : 0;
        lock_release(&run->shared->lock, &worker->waiter);
    } else {
        end = take_atomically(run, worker);
    }
    if (run->of->parsing == ORIGINAL)
        handle(run, worker, part);
    else
        for (uint64_t i = 0; i < run->of->batch; i++) {
            at = record_parse(&worker->record, at, end);
            handle(run, worker, part);
        }
    if (!timed)
        return 0;
    const int64_t now = team_now();
    const double waited = elapsed(run, begin, held), inside = elapsed(run, held, released);
    part->waited += waited;
    part->held += inside;
    part->timed += waited + inside + elapsed(run, released, now);
    return now;
}

// Reading the clock takes as long as a short critical section, so only some of short units are timed.
static uint64_t stride(const Run *run)
{
    const double least = (double)run->of->batch * (run->of->work_ns + 100);
    return least > 20000 ? 1 : least > 2000 ? 8 : 64;
}

static void repeat(Run *run, Member *member, Worker *worker, double seconds)
{
    const uint64_t every = stride(run);
    Part part = {0};
    member->begin = team_now();
    const int64_t deadline = member->begin + (int64_t)(seconds * 1e9);
    for (uint64_t i = 0; !atomic_load_explicit(&run->stop, memory_order_relaxed); i++)
        if ((unit(run, worker, &part, i % every == 0) >= deadline || stop_signal()))
            atomic_store_explicit(&run->stop, true, memory_order_relaxed);
    member->end = team_now();
    run->parts[member->id] = part;
}

// Mixes the cases, so that none of them always follows the same other one.
static void mix(Run *run)
{
    for (int i = run->count - 1; i > 0; i--) {
        const int j = (int)random_below(&run->random, (uint64_t)i + 1);
        Case *other = run->cases[i];
        run->cases[i] = run->cases[j];
        run->cases[j] = other;
    }
}

static bool enough(const Run *run)
{
    for (int i = 0; i < run->count; i++)
        if (!samples_enough(&run->cases[i]->samples, &run->options->repetitions))
            return false;
    return true;
}

// Prepares a repetition of a case, with a new reader and lock.
static void begin(Run *run, Case *of)
{
    run->of = of;
    run->turns = (uint64_t)(of->work_ns / run->speed.turn_ns + 0.5);
    run->shared->reader = (Reader){0};
    lock_make(&run->shared->lock, of->lock);
    atomic_store_explicit(&run->shared->next_block, 0, memory_order_relaxed);
    atomic_store_explicit(&run->stop, false, memory_order_relaxed);
}

// Adds the parts up, and checks that each record was handed out once. Returns the number of records.
static uint64_t total(Run *run, bool counts)
{
    const Text *text = run->text;
    const uint64_t taken =
        run->of->lock == ATOMIC ? run->shared->next_block * text->block_holds : run->shared->reader.records;
    uint64_t records = 0, checksum = 0;
    for (int i = 0; i < run->of->threads; i++) {
        const Part *part = &run->parts[i];
        records += part->records;
        checksum += part->checksum;
        // All threads run equally long, but one that rarely gets the lock has few units.
        if (counts && part->timed > 0 && run->of->lock != ATOMIC) {
            run->of->waiting += part->waited / part->timed;
            run->of->holding += part->held / part->timed;
            run->of->shares++;
        }
    }
    run->of->wrong = run->of->wrong || records != taken || checksum != text_sum(text, taken);
    return records;
}

// Bytes of the largest batch or block.
static uint64_t room(const Run *run)
{
    uint64_t bytes = run->text->block_bytes;
    for (int i = 0; i < run->count; i++) {
        const uint64_t batch = run->cases[i]->batch * run->text->record_bytes;
        bytes = batch > bytes ? batch : bytes;
    }
    return bytes;
}

// A repetition has many units, so that threads that are done wait for a small part of it.
static double seconds_of(const Run *run)
{
    const double units = 20e-9 * (double)run->of->batch * run->of->work_ns;
    return run->options->seconds > units ? run->options->seconds : units;
}

static void say(const Run *run, int round)
{
    const Case *any = run->cases[0];
    if (round)
        report_say("locks %s, %d threads, %d cases: repetition %d", placing_names[any->placing], any->threads,
                   run->count, round);
}

// Measures all cases in turn, in each round once: a host that gets slower or faster meanwhile is as slow or as
// fast for all of them. The first round warms up.
static void work(Member *member, void *argument)
{
    Run *run = argument;
    Worker worker = {.buffer = must_allocate(room(run), 1), .record = record_make(run->text->record_bytes)};
    for (int round = 0, next = 0;; next++) {
        if (next == run->count) {
            next = 0;
            round++;
        }
        team_together(member);
        if (member->id == 0) {
            run->done = (next == 0 && enough(run)) || stop_signal();
            if (next == 0 && !run->done) {
                mix(run);
                say(run, round);
            }
            begin(run, run->cases[next]);
        }
        team_together(member);
        if (run->done)
            break;
        repeat(run, member, &worker, round ? seconds_of(run) : seconds_of(run) / 4);
        team_check(member);
        team_together(member);
        if (member->id == 0) {
            const double rate = (double)total(run, round > 0) / team_span(member->team);
            if (round && !stop_signal()) // else the repetition is incomplete
                samples_add(&run->of->samples, rate);
            lock_discard(&run->shared->lock);
        }
    }
    record_free(&worker.record);
    free(worker.buffer);
}

static void measure_speed(Member *member, void *argument)
{
    enum { TRIALS = 20, TURNS = 100000, READINGS = 1000 };
    (void)member;
    Speed *speed = argument;
    *speed = (Speed){1e9, 1e9};
    // An interrupt makes a trial slower, never faster.
    for (int i = 0; i < TRIALS; i++) {
        const int64_t start = team_now();
        churn(1, TURNS);
        const int64_t churned = team_now();
        for (int j = 0; j < READINGS; j++)
            team_now();
        const double turn = (double)(churned - start) / TURNS, clock = (double)(team_now() - churned) / READINGS;
        speed->turn_ns = turn < speed->turn_ns ? turn : speed->turn_ns;
        speed->clock_ns = clock < speed->clock_ns ? clock : speed->clock_ns;
    }
}

// The PUs of the first threads of a placement.
static List placed_pus(const Options *options, const Host *host, const List *nodes, Placing placing, int threads)
{
    List pus = options_pus(options, host, nodes);
    if (placing == SPREAD) {
        List spread = {0};
        for (int round = 0; spread.count < pus.count; round++)
            for (int i = 0; i < nodes->count; i++) {
                const List of = options_pus(options, host, &(List){1, &nodes->values[i]});
                if (round < of.count)
                    list_add(&spread, of.values[round]);
                free(of.values);
            }
        free(pus.values);
        pus = spread;
    }
    pus.count = threads;
    return pus;
}

// True if both placements have the same PUs.
static bool same(const Options *options, const Host *host, const List *nodes, int threads)
{
    const List compact = placed_pus(options, host, nodes, COMPACT, threads),
               spread = placed_pus(options, host, nodes, SPREAD, threads);
    bool all = true;
    for (int i = 0; i < threads; i++)
        all = all && list_has(&compact, spread.values[i]);
    free(compact.values);
    free(spread.values);
    return all;
}

static void add(Case *cases, int *count, Case of)
{
    if (cases)
        cases[*count] = of;
    ++*count;
}

static void add_locks(const Options *options, Case *cases, int *count, Case of)
{
    for (int j = 0; j < options->works; j++)
        for (of.lock = SPIN; of.lock < LOCK_TYPES; of.lock++) {
            if (!options->lock[of.lock] || (of.lock == ATOMIC && of.parsing != BLOCKED))
                continue;
            of.work_ns = options->work[j];
            of.batch = of.parsing == BLOCKED ? options->block_bytes / options->record_bytes : 1;
            for (int i = 0; i < (of.parsing == BATCHED ? options->batch.count : 1); i++) {
                if (of.parsing == BATCHED)
                    of.batch = (uint64_t)options->batch.values[i];
                add(cases, count, of);
            }
        }
}

// Writes what is measured with one bank to `cases`, or only counts it (NULL).
static int plan(const Options *options, const Host *host, const List *nodes, Case *cases)
{
    int count = 0;
    Case of = {0};
    for (int i = 0; i < options->threads.count; i++)
        for (of.placing = COMPACT; of.placing < PLACINGS; of.placing++) {
            of.threads = options->threads.values[i];
            if (!options->placing[of.placing] ||
                (of.placing == SPREAD && options->placing[COMPACT] && same(options, host, nodes, of.threads)))
                continue;
            for (of.parsing = ORIGINAL; of.parsing < PARSINGS; of.parsing++)
                if (options->parsing[of.parsing])
                    add_locks(options, cases, &count, of);
        }
    return count;
}

// The text's size: larger than the caches that a PU reaches.
static uint64_t text_bytes(const Options *options, const Host *host, const List *bank, Pages pages)
{
    const uint64_t least = options->parsing[BLOCKED] ? options->block_bytes : options->record_bytes;
    uint64_t bytes = options->array_bytes;
    if (!bytes && options->sanity)
        bytes = UINT64_C(1) << 18;
    if (!bytes) {
        const uint64_t room = memory_available(host, bank, pages) / 4, large = UINT64_C(64) << 20;
        bytes = 2 * host->cache_bytes > large ? 2 * host->cache_bytes : large;
        bytes = room < bytes ? room : bytes;
    }
    if (bytes < least)
        fail(options->array_bytes ? EXIT_USAGE : EXIT_CANNOT,
             "a text of %llu bytes is too small for a block or record of %llu (--array-bytes)",
             (unsigned long long)bytes, (unsigned long long)least);
    memory_require(host, bank, pages, host->page_bytes + bytes);
    return bytes;
}

static void print(const Options *options, const Case *of, const Result *result)
{
    char text[128], waiting[64] = "";
    if (of->shares)
        snprintf(waiting, sizeof waiting, ", %.0f %% waiting", 100 * of->waiting / of->shares);
    report_say("locks %s %s, %llu records at once, work %.0f ns, %d threads, PUs %s, bank %d: %.3f M records/s%s",
               lock_names[of->lock], parsing_names[of->parsing], (unsigned long long)of->batch, of->work_ns,
               of->threads, list_text(result->pus, text, sizeof text), result->memory->banks.values[0],
               samples_median(&of->samples) * 1e-6, waiting);
    report_open(result);
    json_string("lock", lock_names[of->lock]);
    json_string("parsing", parsing_names[of->parsing]);
    json_integer("batch", (int64_t)of->batch);
    json_number("work_ns", of->work_ns);
    json_string("placement", placing_names[of->placing]);
    json_integer("record_bytes", (int64_t)options->record_bytes);
    if (of->parsing == BLOCKED)
        json_integer("block_bytes", (int64_t)options->block_bytes);
    if (of->shares) {
        json_number("waiting", of->waiting / of->shares);
        json_number("holding", of->holding / of->shares);
    }
    report_close();
}

// True if one team of threads can measure both cases: blocks are in a separate text.
static bool alike(const Case *a, const Case *b)
{
    return a->threads == b->threads && a->placing == b->placing &&
           (a->parsing == BLOCKED) == (b->parsing == BLOCKED);
}

// Measures cases with the same threads together.
static void measure(const Options *options, const Host *host, Memory *memory, const Text *text, const List *near,
                    Case *cases, int count, Speed speed)
{
    Shared *shared = (Shared *)(void *)memory->base;
    Run run = {.options = options, .text = text, .count = count, .shared = shared, .speed = speed, .random = 1};
    run.parts = must(aligned_alloc(LOCK_ALIGNMENT, (size_t)cases->threads * sizeof *run.parts));
    run.cases = must_allocate((size_t)count, sizeof *run.cases);
    for (int i = 0; i < count; i++)
        run.cases[i] = &cases[i];
    const List pus = placed_pus(options, host, near, cases->placing, cases->threads);
    Placed placed = team_run(pus.values, pus.count, work, &run);
    lock_discard(&shared->lock);
    memory_look_again(memory);
    List nodes = {0};
    for (int i = 0; i < pus.count; i++) {
        const int node = host_node_of_pu(host, pus.values[i])->number;
        if (!list_has(&nodes, node))
            list_add(&nodes, node);
    }
    for (int i = 0; i < count; i++) {
        const Result result = {.metric = "lock_records",
                               .unit = "records/s",
                               .better = "higher",
                               .samples = &cases[i].samples,
                               .pu_nodes = &nodes,
                               .pus = &pus,
                               .placed = &placed,
                               .memory = memory,
                               .wrong = cases[i].wrong ? "not every record was handed out once" : ""};
        if (cases[i].samples.count)
            print(options, &cases[i], &result);
    }
    free(nodes.values);
    free(pus.values);
    free(run.cases);
    free(run.parts);
    placed_free(&placed);
}

static void on_bank(const Options *options, const Host *host, const List *bank, Pages pages)
{
    const List near = options_near(options, host, bank->values[0]);
    const int count = plan(options, host, &near, NULL);
    Case *cases = must_allocate((size_t)count, sizeof *cases);
    plan(options, host, &near, cases);
    Speed speed;
    Placed placed = team_run(host_node(host, near.values[0])->pus.values, 1, measure_speed, &speed);
    placed_free(&placed);
    const uint64_t bytes = text_bytes(options, host, bank, pages);
    Memory memory = memory_take(host, bank, pages, host->page_bytes + bytes, 0);
    for (int blocks = 0; blocks < 2 && !stop_signal(); blocks++) {
        if (blocks && !options->parsing[BLOCKED])
            continue;
        Text text = text_write(memory.base + host->page_bytes, bytes, options->record_bytes,
                               blocks ? options->block_bytes : 0);
        for (int i = 0, next; i < count && !stop_signal(); i = next) {
            for (next = i + 1; next < count && alike(&cases[i], &cases[next]);)
                next++;
            if ((cases[i].parsing == BLOCKED) == blocks)
                measure(options, host, &memory, &text, &near, &cases[i], next - i, speed);
        }
        text_free(&text);
    }
    memory_release(&memory);
    free(cases);
    free(near.values);
}

void locks(const Options *options, const Host *host)
{
    int planned = 0;
    // Impossible placements are refused before anything is measured.
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        for (int i = 0; i < options->banks.count && options->pages[pages]; i++) {
            text_bytes(options, host, &(List){1, &options->banks.values[i]}, pages);
            const List near = options_near(options, host, options->banks.values[i]);
            planned += plan(options, host, &near, NULL);
            free(near.values);
        }
    report_begin(options, host, planned);
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        for (int i = 0; i < options->banks.count && options->pages[pages] && !stop_signal(); i++)
            on_bank(options, host, &(List){1, &options->banks.values[i]}, pages);
}
