// SPDX-License-Identifier: Apache-2.0
// Correctness: each PU repeats work whose answer is known, all PUs at once, and each bank keeps patterns.
//
// Answers are the same on every machine: integers, doubles in IEEE arithmetic without contraction, bytes. A test
// computes them by another program.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aspects.h"
#include "fail.h"
#include "json.h"
#include "pages.h"
#include "report.h"
#include "stop.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

// Answers are short: a fault that shows once in a million of them is met in seconds. Any wrong bit of a step
// changes the answer.
enum { LANES = 8, STEPS = 16, BYTES = 1 << 12, TEXT = 1 << 10, SCRATCH = 4 * BYTES };

static const uint64_t FACTOR = 6364136223846793005u, TERM = 1442695040888963407u;

// Read at run time, so that no compiler computes an answer.
static volatile uint64_t nothing = 0;

static uint64_t rotated(uint64_t value, int bits)
{
    return bits ? value << bits | value >> (64 - bits) : value;
}

static uint64_t seed_of(int lane)
{
    return (uint64_t)(lane + 1) * TERM + nothing;
}

static double real_seed_of(int lane)
{
    return 0.1 + (double)(lane + (int)nothing) / 16;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t digest_of(const void *data, uint64_t bytes)
{
    uint64_t digest = TERM, word;
    for (uint64_t i = 0; i < bytes; i += sizeof word) {
        memcpy(&word, (const char *)data + i, sizeof word);
        digest = (digest ^ word) * FACTOR;
        digest ^= digest >> 32;
    }
    return digest;
}

// Pseudorandom bytes.
static void fill(char *data, uint64_t bytes)
{
    uint64_t state = seed_of(0);
    for (uint64_t i = 0; i < bytes; i += sizeof state) {
        state = state * FACTOR + TERM;
        memcpy(data + i, &state, sizeof state);
    }
}

static uint64_t integers(char *scratch)
{
    (void)scratch;
    uint64_t digest = 0;
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t x = seed_of(lane);
        for (int step = 0; step < STEPS; step++) {
            x = x * FACTOR + TERM;
            x ^= x >> 29;
            x += x / (1000003 + (uint64_t)lane);
            x ^= (uint64_t)__builtin_popcountll(x) << 17;
        }
        digest ^= rotated(x, lane);
    }
    return digest;
}

// The logistic map is chaotic: an error of the last bit grows with each step.
static uint64_t reals(char *scratch)
{
    (void)scratch;
    uint64_t digest = 0;
    for (int lane = 0; lane < LANES; lane++) {
        double y = real_seed_of(lane);
        for (int step = 0; step < STEPS; step++) {
            y = 3.99 * (y - y * y);
            y = 1 / (1 / y);
            y = __builtin_sqrt(y * y);
        }
        digest ^= rotated(bits_of(y), lane);
    }
    return digest;
}

#if defined(__x86_64__)
__attribute__((target("fma")))
#endif
static uint64_t
fused(char *scratch)
{
    (void)scratch;
    uint64_t digest = 0;
    for (int lane = 0; lane < LANES; lane++) {
        double y = real_seed_of(lane);
        for (int step = 0; step < STEPS; step++) {
            y = 3.99 * __builtin_fma(-y, y, y);
        }
        digest ^= rotated(bits_of(y), lane);
    }
    return digest;
}

// The same 8 lanes of integers and of doubles in vectors of each width.
#define VECTORS(name, width, attributes)                                                                        \
    attributes static uint64_t name(char *scratch)                                                              \
    {                                                                                                           \
        typedef uint64_t Integers __attribute__((vector_size(width)));                                          \
        typedef double Reals __attribute__((vector_size(width)));                                               \
        enum { EACH = (width) / 8, COUNT = LANES / EACH };                                                      \
        Integers x[COUNT];                                                                                      \
        Reals y[COUNT];                                                                                         \
        (void)scratch;                                                                                          \
        for (int lane = 0; lane < LANES; lane++) {                                                              \
            x[lane / EACH][lane % EACH] = seed_of(lane);                                                        \
            y[lane / EACH][lane % EACH] = real_seed_of(lane);                                                   \
        }                                                                                                       \
        for (int step = 0; step < STEPS; step++)                                                                \
            for (int i = 0; i < COUNT; i++) {                                                                   \
                x[i] = x[i] * FACTOR + TERM;                                                                    \
                x[i] ^= x[i] >> 29;                                                                             \
                x[i] ^= x[i] << 13;                                                                             \
                y[i] = 3.99 * (y[i] - y[i] * y[i]);                                                             \
                y[i] = 1 / (1 / y[i]);                                                                          \
            }                                                                                                   \
        uint64_t digest = 0;                                                                                    \
        for (int lane = 0; lane < LANES; lane++)                                                                \
            digest ^=                                                                                           \
                rotated(x[lane / EACH][lane % EACH] ^ rotated(bits_of(y[lane / EACH][lane % EACH]), 31), lane); \
        return digest;                                                                                          \
    }

#if defined(__x86_64__)
VECTORS(vectors_sse2, 16, )
VECTORS(vectors_avx2, 32, __attribute__((target("avx2"))))
VECTORS(vectors_avx512, 64, __attribute__((target("avx512f,avx512dq"))))

__attribute__((target("sse4.2"))) static uint64_t checksums(char *scratch)
{
    (void)scratch;
    uint64_t crc = nothing, state = seed_of(0);
    for (int step = 0; step < BYTES / 8; step++) {
        state = state * FACTOR + TERM;
        crc = __builtin_ia32_crc32di(crc, state);
    }
    return crc;
}
#elif defined(__aarch64__)
VECTORS(vectors_neon, 16, )

__attribute__((target("+crc"))) static uint64_t checksums(char *scratch)
{
    (void)scratch;
    uint32_t crc = (uint32_t)nothing;
    uint64_t state = seed_of(0);
    for (int step = 0; step < BYTES / 8; step++) {
        state = state * FACTOR + TERM;
        crc = __builtin_aarch64_crc32cx(crc, state);
    }
    return crc;
}
#endif

static uint64_t copies(char *scratch)
{
    fill(scratch, BYTES);
    memcpy(scratch + BYTES + 3, scratch, BYTES);
    memmove(scratch + BYTES, scratch + BYTES + 3, BYTES);
    return digest_of(scratch + BYTES, BYTES);
}

#if defined(__x86_64__)
static uint64_t streams(char *scratch)
{
    fill(scratch, BYTES);
    for (int i = 0; i < BYTES; i += 8) {
        long long word;
        memcpy(&word, scratch + i, sizeof word);
        __builtin_ia32_movnti64((long long *)(void *)(scratch + BYTES + i), word);
    }
    __builtin_ia32_sfence();
    return digest_of(scratch + BYTES, BYTES);
}
#endif

// Text of words is written as literals (0, byte) and matches (length, distance / 256, distance % 256), and read
// again.
static uint64_t compression(char *scratch)
{
    unsigned char *text = (unsigned char *)scratch, *packed = text + BYTES, *unpacked = packed + 2 * BYTES;
    uint16_t latest[256] = {0};
    uint64_t state = seed_of(0);
    for (int i = 0; i < TEXT; i++) {
        if (i % 8 == 0)
            state = state * FACTOR + TERM;
        text[i] = (unsigned char)('a' + (state >> (40 + i % 8 % 3)) % 5);
    }
    int size = 0;
    for (int i = 0; i < TEXT;) {
        int length = 0;
        const int key = i + 3 < TEXT ? (text[i] * 31 + text[i + 1] * 7 + text[i + 2]) & 255 : 0, at = latest[key];
        if (i + 3 < TEXT) {
            while (at < i && length < 255 && i + length < TEXT && text[at + length] == text[i + length])
                length++;
            latest[key] = (uint16_t)i;
        }
        if (length > 3) {
            packed[size++] = (unsigned char)length;
            packed[size++] = (unsigned char)((i - at) >> 8);
            packed[size++] = (unsigned char)(i - at);
            i += length;
        } else {
            packed[size++] = 0;
            packed[size++] = text[i++];
        }
    }
    int end = 0;
    for (int i = 0; i < size && end < TEXT;)
        if (packed[i]) {
            const int distance = packed[i + 1] << 8 | packed[i + 2];
            for (int left = packed[i]; left > 0 && end < TEXT; left--, end++)
                unpacked[end] = unpacked[end >= distance ? end - distance : 0];
            i += 3;
        } else {
            unpacked[end++] = packed[i + 1];
            i += 2;
        }
    memset(packed + size, 0, 8);
    return digest_of(packed, (uint64_t)(size + 7) / 8 * 8) ^ digest_of(unpacked, TEXT);
}

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
static bool has_fma(void)
{
    return __builtin_cpu_supports("fma");
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
}

static bool has_crc(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
static bool has_crc(void)
{
    return getauxval(AT_HWCAP) & HWCAP_CRC32;
}
#endif

static const struct {
    const char *name;
    uint64_t (*unit)(char *scratch);
    bool (*available)(void);
    uint64_t answer;
} works[] = {
    {"integer", integers, always, UINT64_C(0x22b5882e62c71887)},
    {"floating point", reals, always, UINT64_C(0x46596019b1d31c40)},
#if defined(__x86_64__)
    {"fused multiply-add", fused, has_fma, UINT64_C(0x46596019b35cf6c7)},
    {"sse2 vectors", vectors_sse2, always, UINT64_C(0xc32a0bcb5c349950)},
    {"avx2 vectors", vectors_avx2, has_avx2, UINT64_C(0xc32a0bcb5c349950)},
    {"avx512 vectors", vectors_avx512, has_avx512, UINT64_C(0xc32a0bcb5c349950)},
    {"crc32c", checksums, has_crc, UINT64_C(0x5957b82d)},
    {"streaming stores", streams, always, UINT64_C(0x5eeb68aaa79607cc)},
#elif defined(__aarch64__)
    {"fused multiply-add", fused, always, UINT64_C(0x46596019b35cf6c7)},
    {"neon vectors", vectors_neon, always, UINT64_C(0xc32a0bcb5c349950)},
    {"crc32c", checksums, has_crc, UINT64_C(0x5957b82d)},
#endif
    {"copy", copies, always, UINT64_C(0x5eeb68aaa79607cc)},
    {"compression", compression, always, UINT64_C(0x8f8cb5b8d25f4bf)},
};
enum { WORKS = sizeof works / sizeof *works };

// What a PU did of a work.
typedef struct {
    uint64_t units, wrong, bits;
} Tally;

typedef struct {
    const Options *options;
    char *scratch;
    int count;
    Tally (*tallies)[WORKS]; // by member
    bool chosen[WORKS];
} Run;

// A fault to inject into the answers of one PU, to try what finds it: PU,WORK,BIT,EVERY.
typedef struct {
    int pu, work, bit;
    uint64_t every;
} Fault;
static Fault fault = {.pu = -1};

static void read_fault(const char *text, const List *pus)
{
    char name[40];
    unsigned long long every = 0;
    int end = 0;
    if (!text)
        return;
    const int values = sscanf(text, "%7d,%39[^,],%2d,%18llu%n", &fault.pu, name, &fault.bit, &every, &end);
    if (values != 4 || text[end] || strchr("+-", text[0]) || strstr(text, ",-") || strstr(text, ",+") || !every ||
        fault.bit > 63)
        fail(EXIT_USAGE, "--inject: '%s' is not PU,WORK,BIT,EVERY such as 1,integer,17,1000", text);
    if (!list_has(pus, fault.pu))
        fail(EXIT_USAGE, "--inject: PU %d does not work", fault.pu);
    fault.every = every;
    for (fault.work = 0; fault.work < WORKS && strcmp(works[fault.work].name, name);)
        fault.work++;
    if (fault.work == WORKS && strcmp(name, "memory"))
        fail(EXIT_USAGE, "--inject: this host has no work called '%s'; the patterns are called memory", name);
}

static void work(Member *member, void *argument)
{
    Run *run = argument;
    char *scratch = run->scratch + (uint64_t)member->id * SCRATCH;
    for (int i = 0; i < WORKS; i++) {
        if (!run->chosen[i])
            continue;
        Tally *tally = &run->tallies[member->id][i];
        const bool is_faulty = fault.pu == member->pu && fault.work == i;
        team_together(member);
        const int64_t end = team_now() + (int64_t)(run->options->seconds * 1e9);
        do {
            uint64_t answer = works[i].unit(scratch);
            if (is_faulty && tally->units % fault.every == fault.every - 1)
                answer ^= UINT64_C(1) << fault.bit;
            tally->units++;
            tally->wrong += answer != works[i].answer;
            tally->bits |= answer ^ works[i].answer;
        } while (team_now() < end && !stop_signal());
        team_check(member);
    }
}

// A fault that affects one of N answers of a PU would have shown in `units` with a probability of 95 %.
static uint64_t shown_by(uint64_t units)
{
    return (uint64_t)(1 / -expm1(log(0.05) / (double)units));
}

// Begins a result that counts wrong ones; `least` are the answers of the PU that gave the fewest, if that matters.
static void open_count(const Result *common, const Tally *tally, uint64_t least)
{
    Samples samples = {0};
    samples_add(&samples, (double)tally->wrong);
    Result result = *common;
    result.unit = "1";
    result.better = "lower";
    result.samples = &samples;
    result.wrong = fault.pu < 0 ? "" : "faults were injected";
    report_open(&result);
    json_integer("units", (int64_t)tally->units);
    if (least)
        json_integer("shows_one_in", (int64_t)shown_by(least));
    if (tally->wrong) {
        char bits[24];
        snprintf(bits, sizeof bits, "0x%016llx", (unsigned long long)tally->bits);
        json_string("bits", bits);
    }
}

// Prints a result for each PU with wrong answers, or one of 0 for a work without any.
static void put_work(const Run *run, int i, const Result *common, const List *pus)
{
    uint64_t units = 0, least = UINT64_MAX;
    int faulty = 0;
    for (int member = 0; member < run->count; member++) {
        const uint64_t here = run->tallies[member][i].units;
        units += here;
        least = here < least ? here : least;
    }
    for (int member = 0; member < run->count; member++)
        if (run->tallies[member][i].wrong) {
            faulty++;
            open_count(common, &run->tallies[member][i], 0);
            json_string("work", works[i].name);
            json_integer("pu", pus->values[member]);
            report_close();
            report_say("correctness %s: PU %d gave %llu wrong answers of %llu", works[i].name, pus->values[member],
                       (unsigned long long)run->tallies[member][i].wrong,
                       (unsigned long long)run->tallies[member][i].units);
        }
    if (!faulty && !stop_signal()) { // else the work may not have been done
        open_count(common, &(Tally){.units = units}, least);
        json_string("work", works[i].name);
        report_close();
        report_say("correctness %s: %llu answers of %d PUs, all right; a fault in one of %llu would have shown",
                   works[i].name, (unsigned long long)units, run->count, (unsigned long long)shown_by(least));
    }
}

// Patterns in memory: each word is written and read again, as the pattern and as its complement.
enum { PATTERNS = 6 };

static uint64_t pattern_of(int pattern, uint64_t place)
{
    switch (pattern) {
    case 0:
        return nothing;
    case 1:
        return UINT64_C(0x5555555555555555);
    case 2:
        return UINT64_C(1) << (place & 63);
    case 3:
        return place;
    case 4:
        return (place + 1) * FACTOR;
    default:
        return UINT64_C(0x00ff00ff00ff00ff) << (place & 7);
    }
}

typedef struct {
    volatile uint64_t *words;
    uint64_t each; // words of a member
    Tally *tallies;
    uint64_t *first; // the first wrong word of each member
    bool is_stopped; // before all patterns were kept
} Shelves;

static void keep(Member *member, void *argument)
{
    Shelves *shelves = argument;
    const uint64_t begin = (uint64_t)member->id * shelves->each, end = begin + shelves->each;
    Tally *tally = &shelves->tallies[member->id];
    const bool is_faulty = fault.pu == member->pu && fault.work == WORKS;
    for (int pattern = 0; pattern < 2 * PATTERNS; pattern++) {
        // All must agree: who ends early leaves the others waiting.
        if (!member->id)
            shelves->is_stopped = stop_signal();
        team_together(member);
        if (shelves->is_stopped)
            break;
        const uint64_t flip = pattern % 2 ? UINT64_MAX : 0;
        for (uint64_t i = begin; i < end; i++)
            shelves->words[i] = pattern_of(pattern / 2, i) ^ flip;
        // All have written before one reads: caches hold little of it.
        team_together(member);
        for (uint64_t i = begin; i < end; i++) {
            uint64_t word = shelves->words[i] ^ pattern_of(pattern / 2, i) ^ flip;
            if (is_faulty && i % fault.every == fault.every - 1)
                word ^= UINT64_C(1) << fault.bit;
            tally->units++;
            if (word) {
                if (!tally->wrong++)
                    shelves->first[member->id] = i;
                tally->bits |= word;
            }
        }
        team_together(member);
    }
    team_check(member);
}

static void put_place(const Host *host, const volatile void *address, uint64_t offset)
{
    json_integer("offset", (int64_t)offset);
    const uint64_t physical = pages_physical(host, address);
    char text[24];
    snprintf(text, sizeof text, "0x%llx", (unsigned long long)physical);
    if (physical)
        json_string("physical_address", text);
}

static void patterns(const Host *host, int bank, uint64_t bytes)
{
    const List *pus = host_nearest_pus(host, bank);
    Memory memory = memory_take(host, &(List){1, &bank}, PAGES_BASE, bytes, 0);
    Shelves shelves = {.words = (volatile uint64_t *)(void *)memory.base};
    shelves.each = memory.bytes / 8 / (uint64_t)pus->count;
    shelves.tallies = must_allocate((size_t)pus->count, sizeof *shelves.tallies);
    shelves.first = must_allocate((size_t)pus->count, sizeof *shelves.first);
    Placed placed = team_run(pus->values, pus->count, keep, &shelves);
    memory_look_again(&memory);
    Tally all = {0};
    uint64_t first = UINT64_MAX;
    for (int i = 0; i < pus->count; i++) {
        all.units += shelves.tallies[i].units;
        all.wrong += shelves.tallies[i].wrong;
        all.bits |= shelves.tallies[i].bits;
        if (shelves.tallies[i].wrong && shelves.first[i] < first)
            first = shelves.first[i];
    }
    const int node = host_node_of_pu(host, pus->values[0])->number;
    const Result result = {.metric = "wrong_words",
                           .pu_nodes = &(List){1, (int *)&node},
                           .pus = pus,
                           .placed = &placed,
                           .memory = &memory};
    if (all.wrong || !shelves.is_stopped) {
        open_count(&result, &all, 0);
        if (all.wrong)
            put_place(host, &shelves.words[first], first * 8);
        report_close();
        report_say("correctness of memory: bank %d, %llu words kept %d patterns: %llu wrong", bank,
                   (unsigned long long)(memory.bytes / 8), 2 * PATTERNS, (unsigned long long)all.wrong);
    }
    free(shelves.tallies);
    free(shelves.first);
    placed_free(&placed);
    memory_release(&memory);
}

void correctness(const Options *options, const Host *host)
{
    const List pus = options_pus(options, host, &options->pu_nodes);
    read_fault(options->inject_text, &pus);
    uint64_t bytes = options->array_bytes ? options->array_bytes : host->all_caches_bytes;
    if (options->sanity)
        bytes = 1 << 20;
    else if (!options->array_bytes && bytes < 64000000)
        bytes = 64000000;
    int bank = host_nearest_bank(host, pus.values[0]);
    const uint64_t scratch = (uint64_t)pus.count * SCRATCH;
    memory_require(host, &(List){1, &bank}, PAGES_BASE, scratch);
    for (int i = 0; i < options->banks.count; i++)
        memory_require(host, &(List){1, &options->banks.values[i]}, PAGES_BASE, bytes);
    Run run = {.options = options, .count = pus.count};
    int planned = options->banks.count;
    for (int i = 0; i < WORKS; i++)
        planned += run.chosen[i] = works[i].available();
    report_begin(options, host, planned);
    Memory memory = memory_take(host, &(List){1, &bank}, PAGES_BASE, scratch, 0);
    run.scratch = memory.base;
    run.tallies = must_allocate((size_t)pus.count, sizeof *run.tallies);
    Placed placed = team_run(pus.values, pus.count, work, &run);
    memory_look_again(&memory);
    const Result common = {.metric = "wrong_answers",
                           .pu_nodes = &options->pu_nodes,
                           .pus = &pus,
                           .placed = &placed,
                           .memory = &memory};
    for (int i = 0; i < WORKS; i++)
        if (run.chosen[i])
            put_work(&run, i, &common, &pus);
    placed_free(&placed);
    memory_release(&memory);
    free(run.tallies);
    for (int i = 0; i < options->banks.count && !stop_signal(); i++)
        patterns(host, options->banks.values[i], bytes);
    free(pus.values);
}
