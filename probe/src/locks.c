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

// One measurement.
typedef struct {
    int threads;
    Placing placing;
    double work_ns;
    Parsing parsing;
    LockType lock;
    uint64_t batch; // records that are taken at once
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
    const Case *of;
    Shared *shared;
    Samples *samples;
    Part *parts;
    uint64_t turns; // of churn() for a record
    Speed speed;
    double waiting, holding; // shares of the threads' time, added up
    int shares;
    bool done, wrong;
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

// The time between two readings of the clock without that of a reading (ns).
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

// Makes the reader new.
static void begin(Run *run)
{
    run->shared->reader = (Reader){0};
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
            run->waiting += part->waited / part->timed;
            run->holding += part->held / part->timed;
            run->shares++;
        }
    }
    run->wrong = run->wrong || records != taken || checksum != text_sum(text, taken);
    return records;
}

static void work(Member *member, void *argument)
{
    Run *run = argument;
    const Text *text = run->text;
    const uint64_t batch = run->of->batch * text->record_bytes,
                   room = batch > text->block_bytes ? batch : text->block_bytes;
    Worker worker = {.buffer = must_allocate(room, 1), .record = record_make(text->record_bytes)};
    // A repetition has many units, so that threads that are done wait for a small part of it.
    const double units = 20e-9 * (double)run->of->batch * run->of->work_ns;
    const double seconds = run->options->seconds > units ? run->options->seconds : units;
    for (bool warm = false;; warm = true) {
        team_together(member);
        if (member->id == 0) {
            run->done = samples_enough(run->samples, &run->options->repetitions) || stop_signal();
            begin(run);
        }
        team_together(member);
        if (run->done)
            break;
        repeat(run, member, &worker, warm ? seconds : seconds / 4);
        team_check(member);
        team_together(member);
        if (member->id == 0) {
            const double rate = (double)total(run, warm) / team_span(member->team);
            if (warm && !stop_signal()) // else the repetition is incomplete
                samples_add(run->samples, rate);
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

static void add_parsings(const Options *options, Case *cases, int *count, Case of)
{
    for (of.parsing = ORIGINAL; of.parsing < PARSINGS; of.parsing++)
        for (of.lock = SPIN; of.lock < LOCK_TYPES && options->parsing[of.parsing]; of.lock++) {
            if (!options->lock[of.lock] || (of.lock == ATOMIC && of.parsing != BLOCKED))
                continue;
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
            for (int j = 0; j < options->works; j++) {
                of.work_ns = options->work[j];
                add_parsings(options, cases, &count, of);
            }
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

static void print(const Run *run, const Result *result)
{
    const Case *of = run->of;
    char text[128], waiting[64] = "";
    if (run->shares)
        snprintf(waiting, sizeof waiting, ", %.0f %% waiting", 100 * run->waiting / run->shares);
    report_say("locks %s %s, %llu records at once, work %.0f ns, %d threads, PUs %s, bank %d: %.3f M records/s%s",
               lock_names[of->lock], parsing_names[of->parsing], (unsigned long long)of->batch, of->work_ns,
               of->threads, list_text(result->pus, text, sizeof text), result->memory->banks.values[0],
               samples_median(run->samples) * 1e-6, waiting);
    report_open(result);
    json_string("lock", lock_names[of->lock]);
    json_string("parsing", parsing_names[of->parsing]);
    json_integer("batch", (int64_t)of->batch);
    json_number("work_ns", of->work_ns);
    json_string("placement", placing_names[of->placing]);
    json_integer("record_bytes", (int64_t)run->options->record_bytes);
    if (of->parsing == BLOCKED)
        json_integer("block_bytes", (int64_t)run->options->block_bytes);
    if (run->shares) {
        json_number("waiting", run->waiting / run->shares);
        json_number("holding", run->holding / run->shares);
    }
    report_close();
}

static void measure(const Options *options, const Host *host, Memory *memory, const Text *text, const List *near,
                    const Case *of, Speed speed)
{
    Samples samples = {0};
    Shared *shared = (Shared *)(void *)memory->base;
    Run run = {.options = options, .text = text, .of = of, .shared = shared, .samples = &samples, .speed = speed};
    run.turns = (uint64_t)(of->work_ns / speed.turn_ns + 0.5);
    run.parts = must(aligned_alloc(LOCK_ALIGNMENT, (size_t)of->threads * sizeof *run.parts));
    lock_make(&shared->lock, of->lock);
    const List pus = placed_pus(options, host, near, of->placing, of->threads);
    Placed placed = team_run(pus.values, pus.count, work, &run);
    lock_discard(&shared->lock);
    memory_look_again(memory);
    List nodes = {0};
    for (int i = 0; i < pus.count; i++) {
        const int node = host_node_of_pu(host, pus.values[i])->number;
        if (!list_has(&nodes, node))
            list_add(&nodes, node);
    }
    const Result result = {.metric = "lock_records",
                           .unit = "records/s",
                           .better = "higher",
                           .samples = &samples,
                           .pu_nodes = &nodes,
                           .pus = &pus,
                           .placed = &placed,
                           .memory = memory,
                           .wrong = run.wrong ? "not every record was handed out once" : ""};
    if (samples.count)
        print(&run, &result);
    free(nodes.values);
    free(pus.values);
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
        for (int i = 0; i < count && !stop_signal(); i++)
            if ((cases[i].parsing == BLOCKED) == blocks)
                measure(options, host, &memory, &text, &near, &cases[i], speed);
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
