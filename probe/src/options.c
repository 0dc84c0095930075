// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "help.h"

static const char *const aspects[ASPECTS] = {"topology", "latency", "bandwidth", "contention", "loaded-latency"};

const char *aspect_name(Aspect aspect)
{
    return aspects[aspect];
}

enum { L = 1 << LATENCY, B = 1 << BANDWIDTH, C = 1 << CONTENTION, O = 1 << LOADED_LATENCY, T = 1 << TOPOLOGY };
enum { MEASURED = L | B | C | O, EVERY = MEASURED | T };

// All options, and the aspects that accept them.
static const struct {
    const char *name;
    int argument, aspects;
} known[] = {
    {"json", no_argument, EVERY},
    {"jsonl", no_argument, EVERY},
    {"quiet", no_argument, EVERY},
    {"xml", optional_argument, T},
    {"sanity", no_argument, MEASURED},
    {"prune", no_argument, L | B},
    {"one-pu-per-core", no_argument, B | C | O},
    {"pu-nodes", required_argument, L | B | C | O},
    {"banks", required_argument, MEASURED},
    {"set-sizes", required_argument, B},
    {"interleave", required_argument, B},
    {"threads", required_argument, C | O},
    {"array-bytes", required_argument, B | C | O},
    {"sizes", required_argument, L | O},
    {"order", required_argument, L | O},
    {"kernels", required_argument, B},
    {"stores", required_argument, B},
    {"instructions", required_argument, B},
    {"pages", required_argument, MEASURED},
    {"min-repetitions", required_argument, MEASURED},
    {"max-repetitions", required_argument, MEASURED},
    {"confidence", required_argument, MEASURED},
    {"help", no_argument, EVERY},
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

typedef const char *Namer(int index);

// Sets chosen[i] for each name in a comma-separated list; clears the others.
static void names_option(const char *option, const char *text, bool *chosen, int count, Namer *name)
{
    char *copy = strdup(text), *rest = copy, *word;
    memset(chosen, 0, sizeof *chosen * (size_t)count);
    while ((word = strsep(&rest, ","))) {
        int i = 0;
        while (i < count && strcmp(word, name(i)))
            i++;
        if (i == count) {
            char names[100] = "";
            for (int j = 0; j < count; j++)
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", j ? ", " : "", name(j));
            fail(EXIT_USAGE, "--%s: '%s' is not one of %s", option, word, names);
        }
        chosen[i] = true;
    }
    free(copy);
}

static const char *kernel_of(int i)
{
    return kernel_facts((Kernel)i)->name;
}
static const char *stores_of(int i)
{
    return kernel_stores((Stores)i);
}
static const char *instructions_of(int i)
{
    return kernel_instructions((InstructionSet)i);
}
static const char *pages_of(int i)
{
    return pages_name((Pages)i);
}
static const char *order_of(int i)
{
    return order_name((Order)i);
}

// 4k is an alias of base on hosts with 4 KiB pages.
static void pages_option(Options *options, const char *text)
{
    char *copy = strdup(text), names[64] = "", *rest = copy, *word;
    while ((word = strsep(&rest, ","))) {
        if (!strcmp(word, "4k") && sysconf(_SC_PAGESIZE) != 4096)
            fail(EXIT_CANNOT, "--pages: base pages have %ld bytes here, not 4k", sysconf(_SC_PAGESIZE));
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? "," : "", strcmp(word, "4k") ? word : "base");
    }
    free(copy);
    names_option("pages", names, options->pages, PAGE_KINDS, pages_of);
}

static void read_one(Options *options, const char *name, const char *text)
{
#define IS(option) (!strcmp(name, option))
    if (IS("json") || IS("jsonl"))
        options->lines = IS("jsonl");
    else if (IS("quiet"))
        options->quiet = true;
    else if (IS("xml")) {
        options->xml = true;
        file_root = text ? text : file_root;
    } else if (IS("sanity"))
        options->sanity = true;
    else if (IS("prune"))
        options->prune = true;
    else if (IS("one-pu-per-core"))
        options->cores = true;
    else if (IS("pu-nodes"))
        options->pu_nodes = options_list(name, text);
    else if (IS("banks"))
        options->banks = options_list(name, text);
    else if (IS("set-sizes"))
        options->set_sizes = options_list(name, text);
    else if (IS("threads"))
        options->threads = options_list(name, text);
    else if (IS("array-bytes"))
        options->array_bytes = options_size(name, text);
    else if (IS("interleave"))
        options->interleave_text = text;
    else if (IS("sizes"))
        options->sizes_text = text;
    else if (IS("order"))
        names_option(name, text, options->order, ORDERS, order_of);
    else if (IS("kernels"))
        names_option(name, text, options->kernel, KERNELS, kernel_of);
    else if (IS("stores"))
        names_option(name, strcmp(text, "both") ? text : "regular,streaming", options->stores, STORES, stores_of);
    else if (IS("instructions"))
        names_option(name, text, options->instructions, INSTRUCTION_SETS, instructions_of);
    else if (IS("pages"))
        pages_option(options, text);
    else if (IS("min-repetitions"))
        options->repetitions.least = count_option(name, text);
    else if (IS("max-repetitions"))
        options->repetitions.most = count_option(name, text);
    else if (IS("confidence"))
        options->repetitions.confidence = fraction_option(name, text);
#undef IS
}

static Aspect aspect_of(const char *text)
{
    for (Aspect aspect = TOPOLOGY; aspect < ASPECTS; aspect++)
        if (text && !strcmp(text, aspects[aspect]))
            return aspect;
    fail(EXIT_USAGE, "%s%s%s: use topology, latency, bandwidth, contention or loaded-latency (see --help)",
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
    options->order[RANDOM] = options->stores[REGULAR] = options->pages[PAGES_BASE] = true;
    for (int i = 0; i < KERNELS; i++)
        options->kernel[i] = true;
    struct option table[KNOWN + 1] = {0};
    for (int i = 0; i < KNOWN; i++)
        table[i] = (struct option){known[i].name, known[i].argument, NULL, i};
    opterr = 0;
    for (int got; (got = getopt_long(argc - 1, argv + 1, ":", table, NULL)) != -1;) {
        const char *word = argv[optind]; // getopt's argv begins one word later, so this is the current word
        if (got == ':')
            fail(EXIT_USAGE, "%s needs a value", word);
        if (got == '?')
            fail(EXIT_USAGE, "%s: no such option, or a value too many (--help lists them)", word);
        if (!strcmp(known[got].name, "help")) {
            help_print();
            exit(0);
        }
        if (!(known[got].aspects & 1 << options->aspect))
            fail(EXIT_USAGE, "--%s is not an option of %s", known[got].name, aspect_name(options->aspect));
        read_one(options, known[got].name, optarg);
    }
    if (optind < argc - 1)
        fail(EXIT_USAGE, "'%s' is one word too many", argv[optind + 1]);
    return options;
}
