// SPDX-License-Identifier: Apache-2.0
#include "team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <stdlib.h>

#include "fail.h"

enum { WAITING, GO, GIVE_UP, SPINS = 2000, PU_NUMBERS = 1 << 14 };

int64_t team_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void team_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex(void *word, int operation, int value)
{
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

// Spins for a while, then sleeps, because on an emulated or busy host other threads need the PU.
static void barrier(Team *team)
{
    const unsigned round = atomic_load(&team->barrier.round);
    if (atomic_fetch_add(&team->barrier.arrived, 1) + 1 == (unsigned)team->count) {
        atomic_store(&team->barrier.arrived, 0);
        atomic_store(&team->barrier.round, round + 1);
        futex(&team->barrier.round, FUTEX_WAKE, INT_MAX);
        return;
    }
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&team->barrier.round) != round)
            return;
        team_relax();
    }
    while (atomic_load(&team->barrier.round) == round)
        futex(&team->barrier.round, FUTEX_WAIT, (int)round);
}

void team_together(Member *member)
{
    // Threads may sleep in the first barrier; all are awake after it and spin in the second.
    barrier(member->team);
    barrier(member->team);
}

// Pins the calling thread and reads its affinity back.
static void pin(Member *member)
{
    const size_t size = CPU_ALLOC_SIZE(PU_NUMBERS);
    cpu_set_t *set = CPU_ALLOC(PU_NUMBERS);
    if (!set) {
        member->wrong_pu = INT_MAX;
        return;
    }
    CPU_ZERO_S(size, set);
    CPU_SET_S((size_t)member->pu, size, set);
    sched_setaffinity(0, size, set);
    CPU_ZERO_S(size, set);
    if (sched_getaffinity(0, size, set))
        member->wrong_pu = INT_MAX;
    for (int pu = 0; pu < PU_NUMBERS; pu++)
        if (CPU_ISSET_S((size_t)pu, size, set) && pu != member->pu)
            member->wrong_pu = pu;
    CPU_FREE(set);
    team_check(member);
}

void team_check(Member *member)
{
    const int pu = sched_getcpu();
    if (pu != member->pu && member->wrong_pu < 0)
        member->wrong_pu = pu < 0 ? INT_MAX : pu;
}

static void *start(void *argument)
{
    Member *member = argument;
    Team *team = member->team;
    while (atomic_load(&team->gate) == WAITING)
        futex(&team->gate, FUTEX_WAIT, WAITING);
    if (atomic_load(&team->gate) == GIVE_UP)
        return NULL;
    pin(member);
    team->work(member, team->argument);
    team_check(member);
    return NULL;
}

double team_span(const Team *team)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (int i = 0; i < team->count; i++) {
        first = team->members[i].begin < first ? team->members[i].begin : first;
        last = team->members[i].end > last ? team->members[i].end : last;
    }
    return (double)(last - first) * 1e-9;
}

Placed team_run(const int *pus, int count, void (*work)(Member *, void *), void *argument)
{
    Team team = {.count = count, .work = work, .argument = argument};
    pthread_t *threads = must_allocate((size_t)count, sizeof *threads);
    team.members = must_allocate((size_t)count, sizeof *team.members);
    atomic_init(&team.gate, WAITING);
    int made = 0, error = 0;
    for (; made < count && !error; made += !error) {
        team.members[made] = (Member){.team = &team, .id = made, .pu = pus[made], .wrong_pu = -1};
        error = pthread_create(&threads[made], NULL, start, &team.members[made]);
    }
    atomic_store(&team.gate, error ? GIVE_UP : GO);
    futex(&team.gate, FUTEX_WAKE, INT_MAX);
    for (int i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    if (error)
        fail(EXIT_CANNOT, "thread %d of %d cannot be started: %s", made + 1, count, strerror(error));
    static int teams;
    Placed placed = {.count = count, .position = ++teams, .pus = must_allocate((size_t)count, sizeof *placed.pus)};
    for (int i = 0; i < count; i++) {
        const Member *member = &team.members[i];
        placed.pus[i] = member->wrong_pu < 0 ? member->pu : member->wrong_pu;
        if (member->wrong_pu >= 0 && !placed.reason[0])
            snprintf(placed.reason, sizeof placed.reason, "the thread of PU %d is not bound to it alone: PU %d",
                     member->pu, member->wrong_pu);
    }
    free(team.members);
    return placed;
}

void placed_free(Placed *placed)
{
    free(placed->pus);
    placed->pus = NULL;
}
