// SPDX-License-Identifier: Apache-2.0
// Locks that threads wait for in different ways.
#ifndef LOCK_H
#define LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

// spin: all waiters read one word, and try to change it as soon as it is free. ticket: waiters are served in
// order; each pauses in proportion to the number of those before it. mutex: pthread_mutex_t, whose waiters
// sleep. queue: waiters are served in order; each waits at a separate cache line (Mellor-Crummey and Scott,
// 1991). atomic: no lock; a fetch-and-add hands out blocks of fixed size.
typedef enum { SPIN, TICKET, MUTEX, QUEUE, ATOMIC, LOCK_TYPES } LockType;

extern const char *const lock_names[LOCK_TYPES];

// Two lines of 64 bytes, which prefetchers fetch together, or one of 128.
enum { LOCK_ALIGNMENT = 128 };

// A waiter's place in the queue.
typedef struct Waiter {
    _Alignas(LOCK_ALIGNMENT) _Atomic(struct Waiter *) next;
    atomic_bool waits;
} Waiter;

typedef struct {
    LockType type;
    _Alignas(LOCK_ALIGNMENT) union {
        atomic_bool taken;
        struct {
            atomic_uint next, serving;
        } ticket;
        pthread_mutex_t mutex;
        _Atomic(Waiter *) last;
    } state;
} Lock;

void lock_make(Lock *lock, LockType type);
void lock_discard(Lock *lock);

// The waiter belongs to the calling thread until it has released the lock.
void lock_acquire(Lock *lock, Waiter *waiter);
void lock_release(Lock *lock, Waiter *waiter);

#endif
