// SPDX-License-Identifier: Apache-2.0
#include "pairs.h"

#include <stdbool.h>
#include <stdlib.h>

#include "fail.h"
#include "lists.h"

enum { CACHE_LEVELS = 8, KINDS = SHARES * CACHE_LEVELS };

const char *const share_names[SHARES] = {"core", "cache", "numa-node", "package", "host"};

// The pairs of one kind of closeness, in the order in which they are planned.
typedef struct {
    int64_t count, next, taken;
    uint64_t step;
    Pair *pairs;
    bool *used;
} Kind;

static Pair pair_of(const Place *places, int a, int b)
{
    const Place *first = &places[a], *second = &places[b];
    for (int i = 0; i < first->count; i++)
        for (int j = 0; j < second->count; j++)
            if (first->levels[i].id == second->levels[j].id)
                return (Pair){a, b, first->levels[i].share, first->levels[i].cache_level, 0, 0};
    return (Pair){a, b, HOST, 0, 0, 0};
}

static int kind_of(const Pair *pair)
{
    return pair->share * CACHE_LEVELS + pair->cache_level % CACHE_LEVELS;
}

static Kind *sorted_by_kind(const Place *places, int count)
{
    Kind *kinds = must_allocate(KINDS, sizeof *kinds);
    for (int a = 0; a < count; a++)
        for (int b = a + 1; b < count; b++) {
            const Pair pair = pair_of(places, a, b);
            kinds[kind_of(&pair)].count++;
        }
    for (int i = 0; i < KINDS; i++) {
        kinds[i].pairs = must_allocate((size_t)kinds[i].count + 1, sizeof *kinds[i].pairs);
        kinds[i].used = must_allocate((size_t)kinds[i].count + 1, sizeof *kinds[i].used);
        kinds[i].step = coprime_step((uint64_t)kinds[i].count);
    }
    // The pairs of neighbours come first in their kind.
    for (int apart = 1; apart < count; apart++)
        for (int a = 0; a + apart < count; a++) {
            const Pair pair = pair_of(places, a, a + apart);
            Kind *kind = &kinds[kind_of(&pair)];
            kind->pairs[kind->next++] = pair;
        }
    return kinds;
}

// The next pair of a kind that is not planned yet; false if there is none.
static bool take(Kind *kind, Pair *pair)
{
    if (kind->taken == kind->count)
        return false;
    while (kind->used[kind->next])
        kind->next = (int64_t)(((uint64_t)kind->next + kind->step) % (uint64_t)kind->count);
    kind->used[kind->next] = true;
    kind->taken++;
    *pair = kind->pairs[kind->next];
    return true;
}

Pair *pairs_plan(const Place *places, int count, int64_t wanted, int64_t *planned)
{
    const int64_t all = (int64_t)count * (count - 1) / 2;
    const int64_t most = wanted < all ? wanted : all;
    Pair *pairs = must_allocate((size_t)most + 1, sizeof *pairs);
    Kind *kinds = sorted_by_kind(places, count);
    int64_t done = 0;
    for (int i = 0; i < KINDS; i++) {
        kinds[i].next = 0;
        done += done < most && take(&kinds[i], &pairs[done]);
    }
    // Neighbours, spread over the host if not all of them are wanted.
    const uint64_t links = count > 1 ? (uint64_t)count - 1 : 0, step = coprime_step(links);
    int64_t *places_in_kind = must_allocate((size_t)links + 1, sizeof *places_in_kind), seen[KINDS] = {0};
    for (uint64_t i = 0; i < links; i++) {
        const Pair pair = pair_of(places, (int)i, (int)i + 1);
        places_in_kind[i] = seen[kind_of(&pair)]++;
    }
    for (uint64_t i = 0, at = 0; i < links && done < most; i++, at = (at + step) % links) {
        const Pair pair = pair_of(places, (int)at, (int)at + 1);
        Kind *kind = &kinds[kind_of(&pair)];
        if (kind->used[places_in_kind[at]])
            continue;
        kind->used[places_in_kind[at]] = true;
        kind->taken++;
        pairs[done++] = pair;
    }
    while (done < most)
        for (int i = 0; i < KINDS && done < most; i++)
            done += take(&kinds[i], &pairs[done]);
    for (int64_t i = 0; i < done; i++) {
        pairs[i].of_kind = kinds[kind_of(&pairs[i])].taken;
        pairs[i].all_of_kind = kinds[kind_of(&pairs[i])].count;
    }
    for (int i = 0; i < KINDS; i++) {
        free(kinds[i].pairs);
        free(kinds[i].used);
    }
    free(kinds);
    free(places_in_kind);
    *planned = done;
    return pairs;
}
