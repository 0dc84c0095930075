// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"

static const struct {
    const char *name, *help, *example;
} aspects[ASPECTS] = {
    {"topology", "the host, and the parts that this process may use; nothing is measured", "--xml"},
    {"latency", "pointer chasing over a cycle: a PU of each NUMA node x bank x size (ns)",
     "--sizes memory --pages thp"},
    {"bandwidth", "copy, scale, add, triad: sets of 1, 2, 4, ... NUMA nodes x bank (GB/s, STREAM's bytes)",
     "--pu-nodes 0,1 --set-sizes 2 --banks 0-7 --interleave none"},
    {"contention", "random read-modify-write of one bank by 1 thread, 2 threads, ... all (GB/s)",
     "--threads 1,2,8,64 --banks 0"},
    {"loaded-latency", "the chase while other PUs load memory at rising rates (ns, and the load in GB/s)",
     "--loads local --read-shares 1,0.5 --rates 0.5"},
    {"core-to-core", "two PUs change one line in turn by compare-and-swap (ns one way)", "--pairs all --jsonl"},
    {"locks", "threads take FASTQ records from one reader under a lock, and parse them (records/s)",
     "--locks spin,queue --parsings original,batched --batch 32 --work 1us"},
    {"correctness", "known answers of all PUs at once, and patterns in each bank (wrong ones)", "--seconds 10"},
    {"cores", "chains in registers, caches and memory, of all PUs at once and of each alone (slow PUs, GHz, ns)",
     "--chains registers,l2 --running all"},
    {"tails", "the slowest of single timed accesses, idle and while other PUs load the bank (ns)", "--banks 0"},
};

const char *aspect_name(Aspect aspect)
{
    return aspects[aspect].name;
}

enum { L = 1 << LATENCY, B = 1 << BANDWIDTH, C = 1 << CONTENTION, O = 1 << LOADED_LATENCY, T = 1 << TOPOLOGY };
enum {
    P = 1 << CORE_TO_CORE,
    K = 1 << LOCKS,
    A = 1 << CORRECTNESS,
    R = 1 << CORES,
    W = 1 << TAILS,
    MEMORY = L | B | C | O | K | W,
    REPEATED = MEMORY | P | R,
    MEASURED = REPEATED | A,
    EVERY = MEASURED | T
};

typedef enum { CLEAR, SET, XML, LIST, TEXT, SIZE, COUNT, FRACTION, SECONDS, PAIRS, NAMES } Kind;
typedef enum { PLACEMENT, MEASUREMENT, REPETITIONS, OUTPUT, GROUPS } Group;

// All options: the name of their value and what it says, with the default in parentheses; the aspects that accept
// them, their place in the help, the kind of their value, and the member of Options that it sets.
#define MEMBER(kind, member) kind, offsetof(Options, member), NULL, 0
#define CHOICE(member, names) NAMES, offsetof(Options, member), names, sizeof names / sizeof *names
static const struct {
    const char *name, *value, *help;
    int aspects;
    Group group;
    Kind kind;
    size_t member;
    const char *const *names; // the values that it can list
    int count;
} known[] = {
    {"pu-nodes", "LIST", "NUMA nodes whose PUs work, such as 0-3,8 (all that may be used)", MEASURED, PLACEMENT,
     MEMBER(LIST, pu_nodes)},
    {"banks", "LIST",
     "NUMA nodes that hold the data (all that may be used; core-to-core, locks: the bank nearest to the first PU)",
     MEASURED, PLACEMENT, MEMBER(LIST, banks)},
    {"set-sizes", "LIST", "NUMA nodes in a PU-set (1,2,4,... and all)", B, PLACEMENT, MEMBER(LIST, set_sizes)},
    {"interleave", "SETS",
     "data also interleaved: none, first (the first bank with each other one, as in the thesis), all, or lists, "
     "with / between: first/all/2-3 (first/all)",
     B, PLACEMENT, MEMBER(TEXT, interleave_text)},
    {"threads", "LIST", "numbers of threads (1,2,4,... and all)", C | K, PLACEMENT, MEMBER(LIST, threads)},
    {"placement", "LIST",
     "compact (the PUs of the nearest NUMA node first), spread (a PU of each NUMA node in turn) (both, spread "
     "where its PUs differ)",
     K, PLACEMENT, CHOICE(placing, placing_names)},
    {"one-pu-per-core", "", "use only the first PU of each core", B | C | P | K | A | R, PLACEMENT,
     MEMBER(SET, cores)},
    {"loads", "LOADS",
     "local (PUs of the chaser's NUMA node load its bank), outgoing (these PUs load the farthest bank), incoming "
     "(PUs of the other NUMA nodes load the chaser's bank) (those that this host can make)",
     O, PLACEMENT, CHOICE(load, load_names)},
    {"pairs", "N|all", "pairs of PUs, each kind of closeness first (2048)", P, PLACEMENT, MEMBER(PAIRS, pairs)},
    {"seed", "N",
     "measure banks, PU-sets, numbers of threads and sizes in the order that this number draws (ascending)",
     L | B | C | W, PLACEMENT, MEMBER(PAIRS, seed)},
    {"prune", "",
     "measure one of the placements that are alike by the firmware's distances; each result lists those it stands "
     "for",
     L | B | W, PLACEMENT, MEMBER(SET, prune)},
    {"sizes", "SIZES",
     "bytes of the cycle, such as 16KiB,256MiB; or memory (one size well past the caches) or curve (4 KiB to that "
     "size) (curve; loaded-latency, tails: memory)",
     L | O | W, MEASUREMENT, MEMBER(TEXT, sizes_text)},
    {"order", "ORDERS",
     "of the cycle: random (all lines), paged (64 pages at a time), sequential (ascending: prefetchers follow it) "
     "(random; loaded-latency: paged)",
     L | O, MEASUREMENT, CHOICE(order, order_names)},
    {"rates", "RATES",
     "fractions of the largest load, reached by pauses; 0 and 1 are always measured "
     "(0.1,0.25,0.4,0.55,0.7,0.8,0.9)",
     O, MEASUREMENT, MEMBER(TEXT, rates_text)},
    {"read-shares", "SHARES",
     "reads in the load's traffic: 1 (loads only), 0.75 (a third of the lines is also stored to), 0.5 (every line "
     "is) (1,0.75,0.5)",
     O, MEASUREMENT, CHOICE(read_share, read_share_names)},
    {"array-bytes", "SIZE",
     "of each array (4 x all last caches and at least 64 MB, as far as memory allows); locks: of the text (2 x "
     "the largest cache and at least 64 MiB); correctness: of the patterns (all last caches and at least 64 MB); "
     "cores: of the cycle in a bank (8 x the last caches of its PUs, from 64 MiB to 2 GiB)",
     B | C | O | K | A | R | W, MEASUREMENT, MEMBER(SIZE, array_bytes)},
    {"kernels", "KERNELS", "copy,scale,add,triad (all)", B, MEASUREMENT, CHOICE(kernel, kernel_names)},
    {"stores", "STORES", "regular, streaming or both (regular)", B, MEASUREMENT, CHOICE(stores, store_names)},
    {"instructions", "SETS",
     "plain,sse2,avx2,avx512,neon,sve, or all that are here (the widest here up to avx2; sve if its vectors are "
     "longer than neon's)",
     B, MEASUREMENT, CHOICE(instructions, instruction_names)},
    {"locks", "LOCKS",
     "spin, ticket, mutex (pthread), queue (MCS), and atomic, which hands out blocks by fetch-and-add (all)", K,
     MEASUREMENT, CHOICE(lock, lock_names)},
    {"parsings", "PARSINGS",
     "under the lock, a thread parses a record (original), copies one (deferred) or several (batched), or copies "
     "a block of fixed size (blocked) (all)",
     K, MEASUREMENT, CHOICE(parsing, parsing_names)},
    {"batch", "LIST", "records of a batch (1,2,4,...,256)", K, MEASUREMENT, MEMBER(LIST, batch)},
    {"block-bytes", "SIZE", "of a block, which spaces fill up (12288)", K, MEASUREMENT, MEMBER(SIZE, block_bytes)},
    {"record-bytes", "SIZE", "of the longest record; the shortest is an eighth shorter (256)", K, MEASUREMENT,
     MEMBER(SIZE, record_bytes)},
    {"work", "TIMES", "of a thread with each record, without memory, such as 0,250ns,1us (0,1us)", K, MEASUREMENT,
     MEMBER(TEXT, work_text)},
    {"accesses", "N", "of a sample (524288)", W, MEASUREMENT, MEMBER(PAIRS, accesses)},
    {"chains", "CHAINS",
     "of dependent steps: registers (additions), l1, l2, memory (pointers in the caches of a PU, and in its "
     "nearest "
     "bank) (all)",
     R, MEASUREMENT, CHOICE(chain, chain_names)},
    {"running", "LIST", "all (all PUs at once), alone (each PU in turn) (both)", R, MEASUREMENT,
     CHOICE(running, running_names)},
    {"seconds", "S",
     "of a repetition (0.2; cores: 0.05, alone a quarter or less); correctness: of each work on all PUs",
     K | A | R, MEASUREMENT, MEMBER(SECONDS, seconds)},
    {"sustain", "S",
     "of load, in 100 samples instead of the usual ones: the clock after minutes shows thermal and power limits",
     R, MEASUREMENT, MEMBER(SECONDS, sustain)},
    {"inject", "FAULT",
     "a fault of a PU, to try what finds it: PU,WORK,BIT,EVERY flips a bit of every so many answers; cores: PU, "
     "PU,CHAIN or PU,AFTER makes a PU half as fast (in one chain, or after so many seconds); tails: EVERY,NS "
     "makes one access in EVERY "
     "slower; the results are "
     "invalid",
     A | R | W, MEASUREMENT, MEMBER(TEXT, inject_text)},
    {"pages", "PAGES",
     "base, thp (transparent huge pages), huge (hugetlbfs); 4k is base on hosts with 4 KiB pages (base)", MEMORY,
     MEASUREMENT, CHOICE(pages, page_names)},
    {"min-repetitions", "N", "of each case, at least (5, or the most if that is less)", REPEATED, REPETITIONS,
     MEMBER(COUNT, repetitions.least)},
    {"max-repetitions", "N", "of each case, at most (10)", REPEATED, REPETITIONS, MEMBER(COUNT, repetitions.most)},
    {"confidence", "F", "stop when the confidence interval of the median is within +- F of it (0.05)", REPEATED,
     REPETITIONS, MEMBER(FRACTION, repetitions.confidence)},
    {"json", "", "one JSON document on standard output (default)", EVERY, OUTPUT, MEMBER(CLEAR, lines)},
    {"jsonl", "", "JSON lines: one for the host and options, one for each result, one for the end", EVERY, OUTPUT,
     MEMBER(SET, lines)},
    {"xml", "[=DIR]", "hwloc's XML of this host, or of the stored sys/ and proc/ in a folder", T, OUTPUT,
     MEMBER(XML, xml)},
    {"quiet", "", "no progress on standard error", EVERY, OUTPUT, MEMBER(SET, quiet)},
    {"sanity", "", "a short test run with small sizes; its values are not measurements", MEASURED, OUTPUT,
     MEMBER(SET, sanity)},
    {"help", "", "this help; behind an aspect, with its options only", EVERY, OUTPUT, MEMBER(SET, help)},
};
enum { KNOWN = sizeof known / sizeof *known };

enum { HELP_COLUMN = 24, HELP_WIDTH = 108 };

// Prints words from a column on, and begins a new line where the width ends.
static void help_words(const char *text, int *column)
{
    while (*text) {
        const int length = (int)strcspn(text, " ");
        if (*column > HELP_COLUMN && *column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", HELP_COLUMN, "");
            *column = HELP_COLUMN;
        } else if (*column > HELP_COLUMN) {
            putchar(' ');
            ++*column;
        }
        printf("%.*s", length, text);
        *column += length;
        text += length + strspn(text + length, " ");
    }
}

// Prints an option; the aspects that accept it if they are some of several.
static void help_option(int option, bool several)
{
    const char *value = known[option].value;
    const char *space = !*value || *value == '[' ? "" : " ";
    const int written = printf("  --%s%s%s", known[option].name, space, value);
    int column = HELP_COLUMN;
    printf("%*s", written < HELP_COLUMN ? HELP_COLUMN - written : 1, "");
    const int takers = known[option].aspects;
    for (Aspect aspect = TOPOLOGY;
         several && aspect < ASPECTS && takers != REPEATED && takers != MEASURED && takers != EVERY; aspect++)
        if (takers & 1 << aspect) {
            char word[40];
            snprintf(word, sizeof word, "%s%s", aspect_name(aspect), takers >> aspect > 1 ? "," : ":");
            help_words(word, &column);
        }
    help_words(known[option].help, &column);
    putchar('\n');
}

// Prints the help of one aspect, or of all.
static void help_print(const Aspect *only)
{
    static const char *const groups[GROUPS] = {"placement", "measurement", "repetitions", "output"};
    fputs("usage: firsttouch-probe ", stdout);
    for (Aspect aspect = TOPOLOGY; aspect < ASPECTS; aspect++)
        if (!only || *only == aspect)
            printf("%s%s", only || aspect == TOPOLOGY ? "" : "|", aspect_name(aspect));
    puts(only ? " [options]\n"
              : "\n                        [options]\n\n"
                "Measures the memory of a NUMA host in one process: every set of NUMA nodes whose PUs work with "
                "every\n"
                "bank that holds the data. The placement of pages and threads is verified.\n");
    for (Aspect aspect = TOPOLOGY; aspect < ASPECTS; aspect++)
        if (!only || *only == aspect)
            printf("  %-15s %s\n", aspect_name(aspect), aspects[aspect].help);
    for (Group group = PLACEMENT; group < GROUPS; group++) {
        bool begun = false;
        for (int i = 0; i < KNOWN; i++) {
            if (known[i].group != group || (only && !(known[i].aspects & 1 << *only)))
                continue;
            if (!begun)
                printf("\n%s\n", groups[group]);
            begun = true;
            help_option(i, !only);
        }
    }
    puts(
        "\nSizes: bytes, or with kB MB GB KiB MiB GiB. Exit status: 0 fine; 1 a result is wrong or its placement\n"
        "did not hold; 2 bad input; 3 impossible on this host; 128 + N stopped by signal N: completed\n"
        "results are printed and marked as partial. --version prints the version.\n\n"
        "examples:");
    for (Aspect aspect = TOPOLOGY; aspect < ASPECTS; aspect++)
        if (!only || *only == aspect)
            printf("  firsttouch-probe %s %s\n", aspect_name(aspect), aspects[aspect].example);
}

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

static double seconds_option(const char *option, const char *text, double least)
{
    char *end;
    const double value = strtod(text, &end);
    if (*end || end == text || !(value >= least && value <= 600))
        fail(EXIT_USAGE, "--%s: '%s' is not a number of seconds from %g to 600 such as 0.2", option, text, least);
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
        // A sample of a sustained load is as long as a repetition at least.
        *(double *)member =
            seconds_option(name, text, member == &options->sustain ? 1e-3 * SUSTAINED_SAMPLES : 1e-3);
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
        if (text && !strcmp(text, aspect_name(aspect)))
            return aspect;
    char all[160] = "";
    for (Aspect aspect = TOPOLOGY; aspect < ASPECTS; aspect++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
                 !aspect                 ? ""
                 : aspect == ASPECTS - 1 ? " or "
                                         : ", ",
                 aspect_name(aspect));
    fail(EXIT_USAGE, "%s%s%s: use %s (see --help)", text ? "there is no aspect '" : "no aspect", text ? text : "",
         text ? "'" : "", all);
}

Options *options_read(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : NULL;
    if (first && (!strcmp(first, "--help") || !strcmp(first, "-h"))) {
        help_print(NULL);
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
            help_print(&options->aspect);
            exit(0);
        }
    }
    if (optind < argc - 1)
        fail(EXIT_USAGE, "'%s' is one word too many", argv[optind + 1]);
    return options;
}
