// SPDX-License-Identifier: Apache-2.0 The placements of a sweep (thesis algorithm 1): PU-sets x banks, and
// which of them are equivalent.
#ifndef PLAN_H
#define PLAN_H

#include "options.h"

typedef struct {
    int set, target; // places in Plan.sets and Plan.targets
    int alike;       // the placement that is measured instead, or -1
} Placement;

typedef struct {
    List *sets;    // NUMA nodes whose PUs work together
    List *targets; // banks: one, or several to interleave over
    int set_count, target_count, count, measured;
    Placement *placements;    // target by target
    List target_turns, turns; // the order in which targets and placements are measured
} Plan;

// Sets of the requested sizes (at least one size), on all banks and interleave sets.
Plan plan_make(const Options *options, const Host *host, const List *set_sizes);
void plan_free(Plan *plan);

// Prints the field stands_for of a result: the equivalent placements.
void plan_stands_for(const Plan *plan, int placement);

// True if any placement on this target is measured; else its memory is not needed.
bool plan_needs(const Plan *plan, int target);

#endif
