// SPDX-License-Identifier: Apache-2.0
#include "lock.h"

#include <sched.h>

#include "fail.h"
#include "team.h"

const char *const lock_names[LOCK_TYPES] = {"spin", "ticket", "mutex", "queue", "atomic"};

// A waiter that has paused this often yields its PU before each further look: pauses then take as long as a switch
// of threads, and on a busy or emulated host the owner may need the PU. TBB and today's aligners wait like this.
enum { PAUSES = 31, PAUSES_PER_TICKET = 4 };

static void pause_for(unsigned *paused, unsigned pauses)
{
    if (*paused >= PAUSES) {
        sched_yield();
        return;
    }
    for (unsigned i = 0; i < pauses; i++)
        team_relax();
    *paused += pauses;
}

// Pauses once, twice, four times, ...
static void pause_longer(unsigned *paused)
{
    pause_for(paused, *paused + 1);
}

void lock_make(Lock *lock, LockType type)
{
    lock->type = type;
    switch (type) {
    case SPIN:
        atomic_init(&lock->state.taken, false);
        break;
    case TICKET:
        atomic_init(&lock->state.ticket.next, 0);
        atomic_init(&lock->state.ticket.serving, 0);
        break;
    case MUTEX:
        if (pthread_mutex_init(&lock->state.mutex, NULL))
            fail(EXIT_CANNOT, "the system has no resources left for a mutex");
        break;
    default:
        atomic_init(&lock->state.last, NULL);
    }
}

void lock_discard(Lock *lock)
{
    if (lock->type == MUTEX)
        pthread_mutex_destroy(&lock->state.mutex);
}

static void acquire_spin(Lock *lock)
{
    unsigned paused = 0;
    while (atomic_exchange_explicit(&lock->state.taken, true, memory_order_acquire))
        while (atomic_load_explicit(&lock->state.taken, memory_order_relaxed))
            pause_longer(&paused);
}

static void acquire_ticket(Lock *lock)
{
    const unsigned ticket = atomic_fetch_add_explicit(&lock->state.ticket.next, 1, memory_order_relaxed);
    for (unsigned paused = 0, serving;
         (serving = atomic_load_explicit(&lock->state.ticket.serving, memory_order_acquire)) != ticket;)
        pause_for(&paused, (ticket - serving) * PAUSES_PER_TICKET);
}

static void acquire_queue(Lock *lock, Waiter *waiter)
{
    atomic_store_explicit(&waiter->next, NULL, memory_order_relaxed);
    atomic_store_explicit(&waiter->waits, true, memory_order_relaxed);
    Waiter *before = atomic_exchange_explicit(&lock->state.last, waiter, memory_order_acq_rel);
    if (!before)
        return;
    atomic_store_explicit(&before->next, waiter, memory_order_release);
    unsigned paused = 0;
    while (atomic_load_explicit(&waiter->waits, memory_order_acquire))
        pause_longer(&paused);
}

static void release_queue(Lock *lock, Waiter *waiter)
{
    Waiter *next = atomic_load_explicit(&waiter->next, memory_order_acquire), *last = waiter;
    if (!next && atomic_compare_exchange_strong_explicit(&lock->state.last, &last, NULL, memory_order_release,
                                                         memory_order_relaxed))
        return;
    // A waiter that is the last one now has not yet told this thread.
    for (unsigned paused = 0; !next; next = atomic_load_explicit(&waiter->next, memory_order_acquire))
        pause_longer(&paused);
    atomic_store_explicit(&next->waits, false, memory_order_release);
}

void lock_acquire(Lock *lock, Waiter *waiter)
{
    switch (lock->type) {
    case SPIN:
        acquire_spin(lock);
        break;
    case TICKET:
        acquire_ticket(lock);
        break;
    case MUTEX:
        pthread_mutex_lock(&lock->state.mutex);
        break;
    default:
        acquire_queue(lock, waiter);
    }
}

void lock_release(Lock *lock, Waiter *waiter)
{
    switch (lock->type) {
    case SPIN:
        atomic_store_explicit(&lock->state.taken, false, memory_order_release);
        break;
    case TICKET: // only the owner changes it
        atomic_store_explicit(&lock->state.ticket.serving,
                              atomic_load_explicit(&lock->state.ticket.serving, memory_order_relaxed) + 1,
                              memory_order_release);
        break;
    case MUTEX:
        pthread_mutex_unlock(&lock->state.mutex);
        break;
    default:
        release_queue(lock, waiter);
    }
}
