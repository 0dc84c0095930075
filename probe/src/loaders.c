// SPDX-License-Identifier: Apache-2.0
#include "loaders.h"

#include <stdlib.h>
#include <time.h>

#include "arrays.h"
#include "fail.h"

enum { ASLEEP_NS = 100000 };

List loaders_pus(const Node *node)
{
    const int within = node->cores > 1 ? node->cores : node->pus.count;
    List pus = {0};
    for (int i = 0; i < within; i++)
        list_add(&pus, node->pus.values[i]);
    return pus;
}

uint64_t loaders_bytes(const Options *options, const Host *host, Pages pages, int count)
{
    const uint64_t banks = (uint64_t)options->banks.count, size = options->size[0];
    const uint64_t each = memory_available(host, &options->banks, pages) / banks;
    const uint64_t room = each > size ? (each - size) / 2 : 0;
    const uint64_t bytes = arrays_by_rule(options, host, room, 1, count, LOAD_STEP * sizeof(double));
    memory_require(host, &options->banks, pages, banks * (bytes + size));
    return bytes;
}

void loaders_begin(Loaders *loaders, int count, ReadShare share, char *array, uint64_t bytes)
{
    double *const elements = (double *)(void *)array;
    const size_t steps = bytes / sizeof(double) / LOAD_STEP;
    loaders->count = count;
    loaders->share = share;
    loaders->members = count ? must(aligned_alloc(_Alignof(Loader), sizeof(Loader) * (size_t)count)) : NULL;
    atomic_init(&loaders->pause, LOADERS_IDLE);
    for (int i = 0; i < count; i++) {
        double *first = elements + steps * (size_t)i / (size_t)count * LOAD_STEP;
        double *last = elements + steps * ((size_t)i + 1) / (size_t)count * LOAD_STEP;
        loaders->members[i] = (Loader){.first = first, .last = last, .at = first};
    }
}

void loaders_free(Loaders *loaders)
{
    free(loaders->members);
}

void loaders_pause(int64_t loops)
{
    for (int64_t i = 0; i < loops; i++)
        __asm__ volatile(""); // a loop in registers
}

void loader_work(Loaders *loaders, int number)
{
    Loader *loader = &loaders->members[number];
    LoadCode *code = load_code();
    const ReadShare share = loaders->share;
    uint64_t steps = 0;
    for (int64_t pause; (pause = atomic_load_explicit(&loaders->pause, memory_order_relaxed)) != LOADERS_DONE;) {
        if (pause == LOADERS_IDLE) { // asleep, as in the measurement of the latency without a load
            nanosleep(&(struct timespec){.tv_nsec = ASLEEP_NS}, NULL);
            continue;
        }
        loader->sum += code(loader->at, share);
        loader->at += LOAD_STEP;
        if (loader->at == loader->last) {
            loader->at = loader->first;
            loader->rounds++;
        }
        atomic_store_explicit(&loader->steps, ++steps, memory_order_relaxed);
        loaders_pause(pause);
    }
}

void loader_check(Loaders *loaders, int number)
{
    Loader *loader = &loaders->members[number];
    const size_t stored = load_stored(loaders->share), unchanged = LOAD_STEP - stored;
    bool all = true;
    double sum = 0;
    for (double *step = loader->first; step < loader->last; step += LOAD_STEP) {
        const double passes = (double)(loader->rounds + (step < loader->at));
        sum += (double)unchanged * passes + (double)stored * passes * (passes + 1) / 2;
        for (size_t i = 0; i < LOAD_STEP; i++) {
            all = all && step[i] == (i < unchanged ? 1 : 1 + passes);
            step[i] = 1;
        }
    }
    loader->wrong = !all || sum != loader->sum;
}

const char *loaders_wrong(const Loaders *loaders)
{
    for (int i = 0; i < loaders->count; i++)
        if (loaders->members[i].wrong)
            return "the values that the loaders read or stored are wrong";
    return "";
}

uint64_t loaders_steps(const Loaders *loaders)
{
    uint64_t steps = 0;
    for (int i = 0; i < loaders->count; i++)
        steps += atomic_load_explicit(&loaders->members[i].steps, memory_order_relaxed);
    return steps;
}
