// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "help.h"

static const char *const aspects[ASPECTS] = {"topology",       "latency",      "bandwidth", "contention",
                                             "loaded-latency", "core-to-core", "locks"};

const char *aspect_name(Aspect aspect)
{
    return aspects[aspect];
}

enum { L = 1 << LATENCY, B = 1 << BANDWIDTH, C = 1 << CONTENTION, O = 1 << LOADED_LATENCY, T = 1 << TOPOLOGY };
enum {
    P = 1 << CORE_TO_CORE,
    K = 1 << LOCKS,
    MEMORY = L | B | C | O | K,
    MEASURED = MEMORY | P,
    EVERY = MEASURED | T
};

typedef enum { CLEAR, SET, XML, LIST, TEXT, SIZE, COUNT, FRACTION, SECONDS, PAIRS, NAMES } Kind;

// All options: the aspects that accept them, the kind of their value, and the member of Options that it sets.
#define MEMBER(kind, member) kind, offsetof(Options, member), NULL, 0
#define CHOICE(member, names) NAMES, offsetof(Options, member), names, sizeof names / sizeof *names
static const struct {
    const char *name;
    int aspects;
    Kind kind;
    size_t member;
    const char *const *names; // the values that it can list
    int count;
} known[] = {
    {"json", EVERY, MEMBER(CLEAR, lines)},
    {"jsonl", EVERY, MEMBER(SET, lines)},
    {"quiet", EVERY, MEMBER(SET, quiet)},
    {"help", EVERY, MEMBER(SET, help)},
    {"xml", T, MEMBER(XML, xml)},
    {"sanity", MEASURED, MEMBER(SET, sanity)},
    {"prune", L | B, MEMBER(SET, prune)},
    {"one-pu-per-core", B | C | P | K, MEMBER(SET, cores)},
    {"pu-nodes", MEASURED, MEMBER(LIST, pu_nodes)},
    {"banks", MEASURED, MEMBER(LIST, banks)},
    {"set-sizes", B, MEMBER(LIST, set_sizes)},
    {"interleave", B, MEMBER(TEXT, interleave_text)},
    {"threads", C | K, MEMBER(LIST, threads)},
    {"loads", O, CHOICE(load, load_names)},
    {"read-shares", O, CHOICE(read_share, read_share_names)},
    {"rates", O, MEMBER(TEXT, rates_text)},
    {"array-bytes", B | C | O | K, MEMBER(SIZE, array_bytes)},
    {"pairs", P, MEMBER(PAIRS, pairs)},
    {"locks", K, CHOICE(lock, lock_names)},
    {"parsings", K, CHOICE(parsing, parsing_names)},
    {"batch", K, MEMBER(LIST, batch)},
    {"block-bytes", K, MEMBER(SIZE, block_bytes)},
    {"record-bytes", K, MEMBER(SIZE, record_bytes)},
    {"work", K, MEMBER(TEXT, work_text)},
    {"placement", K, CHOICE(placing, placing_names)},
    {"seconds", K, MEMBER(SECONDS, seconds)},
    {"sizes", L | O, MEMBER(TEXT, sizes_text)},
    {"order", L | O, CHOICE(order, order_names)},
    {"kernels", B, CHOICE(kernel, kernel_names)},
    {"stores", B, CHOICE(stores, store_names)},
    {"instructions", B, CHOICE(instructions, instruction_names)},
    {"pages", MEMORY, CHOICE(pages, page_names)},
    {"min-repetitions", MEASURED, MEMBER(COUNT, repetitions.least)},
    {"max-repetitions", MEASURED, MEMBER(COUNT, repetitions.most)},
    {"confidence", MEASURED, MEMBER(FRACTION, repetitions.confidence)},
};
enum { KNOWN = sizeof known / sizeof *known };

List options_list(const char *option, const char *text)
{
    List list;
    if (!list_parse(text, &list) || !list.count)
        fail(EXIT_USAGE, "--%s: '%s' is not a list of numbers such as 0-3,8", option, text);
    return list;
}

uint64_t options_size(const char *option, const char *text)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},     {"B", 1},      {"kB", 1e3},      {"MB", 1e6},
                 {"GB", 1e9}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824.0}};
    char *unit;
    const double value = strtod(text, &unit);
    unit += strspn(unit, " ");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(unit, units[i].unit) && unit > text && value > 0 && value * units[i].factor < 1e15)
            return (uint64_t)(value * units[i].factor);
    fail(EXIT_USAGE, "--%s: '%s' is not a size above 0 such as 320MB or 16KiB", option, text);
}

static int count_option(const char *option, const char *text)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (*end || end == text || value < 1 || value > SAMPLES_MOST)
        fail(EXIT_USAGE, "--%s: '%s' is not a whole number from 1 to %d", option, text, SAMPLES_MOST);
    return (int)value;
}

static double fraction_option(const char *option, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    if (*end || end == text || !(value > 0 && value < 1))
        fail(EXIT_USAGE, "--%s: '%s' is not a fraction between 0 and 1 such as 0.05", option, text);
    return value;
}

static double seconds_option(const char *option, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    if (*end || end == text || !(value >= 0.001 && value <= 60))
        fail(EXIT_USAGE, "--%s: '%s' is not a number of seconds from 0.001 to 60 such as 0.2", option, text);
    return value;
}

static int64_t pairs_option(const char *option, const char *text)
{
    char *end;
    const long long value = strtoll(text, &end, 10);
    if (!strcmp(text, "all"))
        return INT64_MAX;
    if (*end || end == text || value < 1)
        fail(EXIT_USAGE, "--%s: '%s' is not a whole number from 1 on, or 'all'", option, text);
    return value;
}

// Sets chosen[i] for each name in a comma-separated list; clears the others.
static void names_option(const char *option, const char *text, bool *chosen, const char *const *names, int count)
{
    char *copy = must(strdup(text)), *rest = copy;
    const char *word;
    memset(chosen, 0, sizeof *chosen * (size_t)count);
    while ((word = strsep(&rest, ","))) {
        if (names == page_names && !strcmp(word, "4k")) {
            if (sysconf(_SC_PAGESIZE) != 4096)
                fail(EXIT_CANNOT, "--pages: base pages have %ld bytes here, not 4k", sysconf(_SC_PAGESIZE));
            word = page_names[PAGES_BASE];
        }
        int i = 0;
        while (i < count && strcmp(word, names[i]))
            i++;
        if (i == count) {
            char all[100] = "";
            for (int j = 0; j < count; j++)
                snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", j ? ", " : "", names[j]);
            fail(EXIT_USAGE, "--%s: '%s' is not one of %s", option, word, all);
        }
        chosen[i] = true;
    }
    free(copy);
}

// Sets the member of an option; the text is its value, or NULL.
static void set_option(Options *options, int option, const char *text)
{
    const char *name = known[option].name;
    void *member = (char *)options + known[option].member;
    switch (known[option].kind) {
    case CLEAR:
    case SET:
        *(bool *)member = known[option].kind == SET;
        break;
    case XML:
        *(bool *)member = true;
        file_root = text ? text : file_root;
        break;
    case LIST:
        *(List *)member = options_list(name, text);
        break;
    case TEXT:
        *(const char **)member = text;
        break;
    case SIZE:
        *(uint64_t *)member = options_size(name, text);
        break;
    case COUNT:
        *(int *)member = count_option(name, text);
        break;
    case FRACTION:
        *(double *)member = fraction_option(name, text);
        break;
    case SECONDS:
        *(double *)member = seconds_option(name, text);
        break;
    case PAIRS:
        *(int64_t *)member = pairs_option(name, text);
        break;
    case NAMES:
        if (known[option].names == store_names && !strcmp(text, "both"))
            text = "regular,streaming";
        if (known[option].names == instruction_names && !strcmp(text, "all")) {
            options->all_instructions = true;
            break;
        }
        names_option(name, text, member, known[option].names, known[option].count);
    }
}

static Aspect aspect_of(const char *text)
{
    for (Aspect aspect = TOPOLOGY; aspect < ASPECTS; aspect++)
        if (text && !strcmp(text, aspects[aspect]))
            return aspect;
    fail(
        EXIT_USAGE,
        "%s%s%s: use topology, latency, bandwidth, contention, loaded-latency, core-to-core or locks (see --help)",
        text ? "there is no aspect '" : "no aspect", text ? text : "", text ? "'" : "");
}

Options *options_read(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : NULL;
    if (first && (!strcmp(first, "--help") || !strcmp(first, "-h"))) {
        help_print();
        exit(0);
    }
    if (first && !strcmp(first, "--version")) {
        puts("firsttouch-probe " PROBE_VERSION);
        exit(0);
    }
    Options *options = must_allocate(1, sizeof *options);
    options->aspect = aspect_of(first);
    options->repetitions = (Repetitions){.least = 0, .most = 10, .confidence = 0.05};
    // The lines of the load need the TLB as well, so the cycle of loaded latency spares it.
    options->order[options->aspect == LOADED_LATENCY ? PAGED : RANDOM] = true;
    options->stores[REGULAR] = options->pages[PAGES_BASE] = true;
    options->pairs = PAIRS_DEFAULT;
    options->record_bytes = RECORD_BYTES;
    options->block_bytes = BLOCK_BYTES;
    for (int i = 0; i < KERNELS; i++)
        options->kernel[i] = true;
    for (int i = 0; i < LOADS; i++)
        options->load[i] = true;
    for (int i = 0; i < READ_SHARES; i++)
        options->read_share[i] = true;
    struct option table[KNOWN + 1] = {0};
    for (int i = 0; i < KNOWN; i++) {
        const Kind kind = known[i].kind;
        const int argument = kind == XML ? optional_argument : kind > XML ? required_argument : no_argument;
        table[i] = (struct option){known[i].name, argument, NULL, i};
    }
    opterr = 0;
    for (int got; (got = getopt_long(argc - 1, argv + 1, ":", table, NULL)) != -1;) {
        const char *word = argv[optind]; // getopt's argv begins one word later, so this is the current word
        if (got == ':')
            fail(EXIT_USAGE, "%s needs a value", word);
        if (got == '?')
            fail(EXIT_USAGE, "%s: no such option, or a value too many (--help lists them)", word);
        if (!(known[got].aspects & 1 << options->aspect))
            fail(EXIT_USAGE, "--%s is not an option of %s", known[got].name, aspect_name(options->aspect));
        set_option(options, got, optarg);
        if (options->help) {
            help_print();
            exit(0);
        }
    }
    if (optind < argc - 1)
        fail(EXIT_USAGE, "'%s' is one word too many", argv[optind + 1]);
    return options;
}
