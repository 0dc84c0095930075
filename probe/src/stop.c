// SPDX-License-Identifier: Apache-2.0
#include "stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <time.h>

// timeout(1) and Slurm signal a process and then its group: signals within this time are one.
enum { TOGETHER_MS = 1000 };

static atomic_int received;
static atomic_llong first_ms;

static void note(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const long long at = now.tv_sec * 1000LL + now.tv_nsec / 1000000;
    long long before = 0;
    if (atomic_compare_exchange_strong(&first_ms, &before, at)) {
        atomic_store(&received, number);
        return;
    }
    if (at - before < TOGETHER_MS)
        return;
    signal(number, SIG_DFL);
    raise(number);
}

void stop_install(void)
{
    // The first signal lets the report be completed. A later one ends the program at once.
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int stop_signal(void)
{
    return atomic_load(&received);
}
