// SPDX-License-Identifier: Apache-2.0
// The options of the command line, checked against the host.
#ifndef OPTIONS_H
#define OPTIONS_H

#include "chase.h"
#include "fastq.h"
#include "host.h"
#include "kernels/kernels.h"
#include "kernels/load.h"
#include "lock.h"
#include "memory.h"
#include "samples.h"

typedef enum {
    TOPOLOGY,
    LATENCY,
    BANDWIDTH,
    CONTENTION,
    LOADED_LATENCY,
    CORE_TO_CORE,
    LOCKS,
    CORRECTNESS,
    CORES,
    TAILS,
    ASPECTS
} Aspect;

// Of the loaders of loaded-latency to the chaser. local: PUs of its NUMA node on its bank. outgoing: the same PUs
// on another bank. incoming: PUs of other NUMA nodes on its bank.
typedef enum { LOCAL, OUTGOING, INCOMING, LOADS } Load;

extern const char *const load_names[LOADS];

// Of the threads of locks. compact: the PUs of the NUMA node nearest to the bank, then of the next one.
// spread: one PU of each NUMA node, then a second one of each.
typedef enum { COMPACT, SPREAD, PLACINGS } Placing;

extern const char *const placing_names[PLACINGS];

// Of cores: what each step of a chain waits for, and whether the PUs follow it at once or one by one.
typedef enum { REGISTERS, L1, L2, MEMORY_CHAIN, CHAINS } Chain;
typedef enum { TOGETHER, ALONE, RUNNINGS } Running;

extern const char *const chain_names[CHAINS];
extern const char *const running_names[RUNNINGS];

enum { SUSTAINED_SAMPLES = 100 };
enum { SIZES_MOST = 128, INTERLEAVE_MOST = 256, RATES_MOST = 64, PAIRS_DEFAULT = 2048, WORKS_MOST = 16 };

// Records hold reads of 100 bases and more; blocks are as in Langmead and others (2019).
enum { RECORD_BYTES = 256, RECORD_LEAST = 64, RECORD_MOST = 1 << 16, BLOCK_BYTES = 12288, BATCH_MOST = 4096 };

typedef struct {
    Aspect aspect;
    bool lines, xml, quiet, help, prune, sanity, cores, all_instructions;
    List pu_nodes, banks; // default: all; of core-to-core the nearest bank
    List set_sizes;       // of the PU-sets, in NUMA nodes
    List threads;         // empty: the aspect's own choice
    const char *interleave_text, *sizes_text, *rates_text, *work_text, *inject_text; // as given, or NULL
    int interleaves;
    List interleave[INTERLEAVE_MOST];
    uint64_t array_bytes; // 0: the aspect's own choice
    int sizes;
    uint64_t size[SIZES_MOST];
    int rates;
    double rate[RATES_MOST]; // ascending fractions, from 0 to 1
    bool load[LOADS], read_share[READ_SHARES];
    bool kernel[KERNELS], stores[STORES], instructions[INSTRUCTION_SETS], pages[PAGE_KINDS], order[ORDERS];
    int64_t pairs;    // of PUs, at most
    int64_t seed;     // of the order of placements and sizes; 0: ascending
    int64_t accesses; // of a sample
    bool chain[CHAINS], running[RUNNINGS];
    bool lock[LOCK_TYPES], parsing[PARSINGS], placing[PLACINGS];
    List batch; // records of a batch
    uint64_t record_bytes, block_bytes;
    int works;
    double work[WORKS_MOST]; // of a record (ns)
    double seconds;          // of a repetition, at least
    double sustain;          // of load on all PUs, or 0
    Repetitions repetitions;
} Options;

const char *aspect_name(Aspect aspect);

// A size above 0 such as 320MB or 16KiB, a list such as 0-3,8; they fail with EXIT_USAGE.
uint64_t options_size(const char *option, const char *text);
List options_list(const char *option, const char *text);

// Reads argv; prints the help or the version on request and ends; fails with EXIT_USAGE.
Options *options_read(int argc, char **argv);

// Fills in the defaults; fails for values that this host does not have or this process may not use.
void options_settle(Options *options, const Host *host);

void options_free(Options *options);

// The NUMA nodes whose PUs work, from the nearest to the bank to the farthest.
List options_near(const Options *options, const Host *host, int bank);

// The PUs of these NUMA nodes that the options let the probe use, in the nodes' order.
List options_pus(const Options *options, const Host *host, const List *nodes);

#endif
