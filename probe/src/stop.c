// SPDX-License-Identifier: Apache-2.0
#include "stop.h"

#include <signal.h>
#include <stdatomic.h>

static atomic_int received;

static void note(int number)
{
    atomic_store(&received, number);
}

void stop_install(void)
{
    // A second signal of the same kind ends the program at once.
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int stop_signal(void)
{
    return atomic_load(&received);
}
