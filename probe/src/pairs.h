// SPDX-License-Identifier: Apache-2.0
// What two PUs share, and which pairs of PUs a sweep measures.
#ifndef PAIRS_H
#define PAIRS_H

#include <stdint.h>

// HOST: nothing closer than the host itself.
typedef enum { CORE, CACHE, NUMA_NODE, PACKAGE, HOST, SHARES } Share;

enum { LEVELS_MOST = 12 };

// Something that a PU shares with others: two PUs share it if their ids are equal.
typedef struct {
    int64_t id;
    int share;       // Share
    int cache_level; // of CACHE, else 0
} Level;

// A PU with its levels, the closest first.
typedef struct {
    int pu, count;
    Level levels[LEVELS_MOST];
} Place;

typedef struct {
    int a, b;                     // places
    int share, cache_level;       // the closest level of both: their kind
    int64_t of_kind, all_of_kind; // how many pairs of this kind are planned, and how many there are
} Pair;

extern const char *const share_names[SHARES];

// Plans `wanted` pairs, or all if there are fewer. The places are in the order of a walk through the host, so that
// places that share a level follow each other. The choice is always the same: one pair of each kind of closeness;
// then each place with the next one, which connects all places by the closest pairs; then the others, each kind in
// turn, spread over the host. The caller frees the pairs.
Pair *pairs_plan(const Place *places, int count, int64_t wanted, int64_t *planned);

#endif
