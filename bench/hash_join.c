// SPDX-License-Identifier: Apache-2.0
// A hash join: build a table of unique keys, look random keys up, half of which
// are in it, and print a checksum.
//
//     hash_join table|rows MIB LOOKUPS THREADS
//
// `table` stores the rows in one array with linear probing (one large malloc).
// `rows` mallocs each row and chains the rows of a bucket, as
// std::unordered_map does (millions of small blocks from all threads). MIB is
// the size of the array, or of all buckets and rows without malloc's own
// overhead. The checksum does not depend on the threads.
#define _XOPEN_SOURCE 600 // pthread_barrier_t
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 256 };

typedef struct row {
    uint64_t key, value;
    struct row *next;
} Row;

typedef struct {
    _Atomic uint64_t key; // 0: empty
    uint64_t value;
} Slot;

static Slot *slots;           // `table`
static _Atomic(Row *) *heads; // `rows`
static uint64_t bits, rows, lookups, threads;
static pthread_barrier_t all_built;

// The finalizer of SplitMix64 maps different numbers to different keys, and
// only 0 to 0.
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t bucket_of(uint64_t key)
{
    return (key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - bits);
}

static void *checked(void *block)
{
    if (!block) {
        fprintf(stderr, "hash_join: not enough memory\n");
        exit(1);
    }
    return block;
}

static void insert(uint64_t key, uint64_t value)
{
    uint64_t bucket = bucket_of(key);
    if (heads) {
        Row *row = checked(malloc(sizeof *row));
        *row = (Row){key, value, atomic_load(&heads[bucket])};
        while (!atomic_compare_exchange_weak(&heads[bucket], &row->next, row)) {
        }
        return;
    }
    uint64_t empty = 0;
    while (!atomic_compare_exchange_strong(&slots[bucket].key, &empty, key)) {
        empty = 0;
        bucket = (bucket + 1) & ((UINT64_C(1) << bits) - 1);
    }
    slots[bucket].value = value;
}

static uint64_t value_of(uint64_t key)
{
    uint64_t bucket = bucket_of(key);
    if (heads) {
        const Row *row = atomic_load_explicit(&heads[bucket], memory_order_relaxed);
        while (row && row->key != key) {
            row = row->next;
        }
        return row ? row->value : 0;
    }
    for (;; bucket = (bucket + 1) & ((UINT64_C(1) << bits) - 1)) {
        uint64_t other = atomic_load_explicit(&slots[bucket].key, memory_order_relaxed);
        if (other == key || other == 0) {
            return other ? slots[bucket].value : 0;
        }
    }
}

// Inserts and looks up a share of the keys; returns its checksum in *argument,
// which is the thread's number before.
static void *work(void *argument)
{
    uint64_t *number = argument, sum = 0;
    for (uint64_t i = *number; i < rows; i += threads) {
        insert(mix(i + 1), i);
    }
    pthread_barrier_wait(&all_built);
    for (uint64_t i = *number; i < lookups; i += threads) {
        sum += value_of(mix(mix(~i) % (2 * rows) + 1));
    }
    *number = sum;
    return NULL;
}

int main(int argc, char **argv)
{
    uint64_t mib = argc == 5 ? strtoull(argv[2], NULL, 10) : 0;
    lookups = argc == 5 ? strtoull(argv[3], NULL, 10) : 0;
    threads = argc == 5 ? strtoull(argv[4], NULL, 10) : 0;
    bool chained = argc == 5 && strcmp(argv[1], "rows") == 0;
    if (argc != 5 || (!chained && strcmp(argv[1], "table") != 0) || !mib || !threads || threads > MAX_THREADS) {
        fprintf(stderr, "usage: hash_join table|rows MIB LOOKUPS THREADS (at most %d)\n", MAX_THREADS);
        return 2;
    }
    // Slots are a power of two, of which the rows fill five eighths; as many
    // buckets as rows at most.
    uint64_t each = chained ? sizeof *heads + sizeof(Row) : sizeof *slots;
    for (bits = 10; each << (bits + 1) <= mib << 20; bits++) {
    }
    uint64_t count = UINT64_C(1) << bits;
    rows = chained ? count : count / 8 * 5;
    void *block = checked(malloc(count * (chained ? sizeof *heads : sizeof *slots)));
    memset(block, 0, count * (chained ? sizeof *heads : sizeof *slots));
    if (chained) {
        heads = block;
    } else {
        slots = block;
    }
    pthread_t started[MAX_THREADS];
    uint64_t numbers[MAX_THREADS], sum = 0;
    pthread_barrier_init(&all_built, NULL, (unsigned)threads);
    for (uint64_t i = 0; i < threads; i++) {
        numbers[i] = i;
        if (pthread_create(&started[i], NULL, work, &numbers[i])) {
            fprintf(stderr, "hash_join: a thread cannot be started\n");
            return 1;
        }
    }
    for (uint64_t i = 0; i < threads; i++) {
        pthread_join(started[i], NULL);
        sum += numbers[i];
    }
    printf("%" PRIu64 " rows, %" PRIu64 " lookups, checksum %016" PRIx64 "\n", rows, lookups, sum);
    return 0;
}
