// SPDX-License-Identifier: Apache-2.0
// Threads pinned to one PU each, which begin together and are timed from the first begin to the last end.
#ifndef TEAM_H
#define TEAM_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct Team Team;

typedef struct {
    Team *team;
    int id, pu;
    int64_t begin, end; // of the timed part (ns), for team_span()
    int wrong_pu;       // another PU that the thread was seen on or may run on, or -1
} Member;

struct Team {
    int count;
    Member *members;
    atomic_int gate;
    struct {
        atomic_uint arrived, round;
    } barrier;
    void (*work)(Member *member, void *argument);
    void *argument;
};

// The observed placement of a team's threads.
typedef struct {
    int count, position; // position: the number of the team in the order in which teams ran, from 1 on
    int *pus;            // the PU that each thread was pinned to and seen on
    char reason[160];    // why the placement did not hold, or empty
} Placed;

// Runs work(member, argument) in count threads on the PUs and waits for them.
Placed team_run(const int *pus, int count, void (*work)(Member *, void *), void *argument);

void placed_free(Placed *placed);

// Waits for all members; they leave within a microsecond of each other.
void team_together(Member *member);

// Records it if the calling thread is not on its PU.
void team_check(Member *member);

// From the first begin to the last end (s). Only between two team_together().
double team_span(const Team *team);

int64_t team_now(void); // ns

// Tells the processor that this thread waits for another one.
void team_relax(void);

#endif
