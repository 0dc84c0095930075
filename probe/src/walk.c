// SPDX-License-Identifier: Apache-2.0
#include "walk.h"

#include "stop.h"

enum { TRIAL_STEPS = 4096, CHUNK_STEPS = 1 << 16, SAMPLE_NS = 12000000, SANITY_NS = 100000 };

typedef struct {
    Walk *walk;
    const Memory *memory;
    uint64_t bytes, stride;
    Order order;
} Build;

static void build(Member *member, void *argument)
{
    (void)member;
    const Build *task = argument;
    Walk *walk = task->walk;
    walk->head = chase_build(task->memory->base, task->bytes, task->stride, task->order, task->bytes);
    if (!chase_check(walk->head, walk->lines))
        walk->wrong = "the pointers do not make one cycle through all lines";
}

Walk walk_build(const Host *host, const Memory *memory, uint64_t bytes, uint64_t stride, Order order)
{
    Walk walk = {.host = host, .lines = bytes / stride, .wrong = ""};
    Build task = {&walk, memory, bytes, stride, order};
    Placed placed = team_run(host_nearest_pus(host, memory->banks.values[0])->values, 1, build, &task);
    placed_free(&placed);
    return walk;
}

// Follows the cycle in chunks, between which it checks for a signal; returns the time of a step (ns).
static double follow(void ***place, uint64_t steps)
{
    const int64_t begin = team_now();
    uint64_t done = 0;
    for (uint64_t chunk; done < steps && !stop_signal(); done += chunk) {
        chunk = steps - done < CHUNK_STEPS ? steps - done : CHUNK_STEPS;
        *place = chase_run(*place, chunk);
    }
    return (double)(team_now() - begin) / (double)(done ? done : 1);
}

Walker walker_warm(const Walk *walk, bool sanity)
{
    Walker walker = {.place = walk->head};
    // Warms the caches: one round, or enough steps to fill the caches twice.
    const uint64_t fills = 2 * walk->host->cache_bytes / walk->host->line_bytes + TRIAL_STEPS;
    follow(&walker.place, walk->lines < fills ? walk->lines : fills);
    const double step = follow(&walker.place, TRIAL_STEPS);
    const double wanted = (sanity ? SANITY_NS : SAMPLE_NS) / (step > 0.1 ? step : 0.1);
    walker.steps = ((uint64_t)wanted / 16 + 1) * 16; // chase_run() takes 16 at a time
    return walker;
}

double walker_sample(Walker *walker)
{
    return follow(&walker->place, walker->steps);
}

typedef struct {
    const Walk *walk;
    const Options *options;
    Samples *samples;
} Run;

static void run(Member *member, void *argument)
{
    Run *task = argument;
    Walker walker = walker_warm(task->walk, task->options->sanity);
    while (!samples_enough(task->samples, &task->options->repetitions) && !stop_signal()) {
        const double sample = walker_sample(&walker);
        team_check(member);
        if (!stop_signal()) // else the sample is incomplete
            samples_add(task->samples, sample);
    }
}

Samples walk_run(const Walk *walk, const Options *options, int pu, Placed *placed)
{
    Samples samples = {0};
    Run task = {walk, options, &samples};
    *placed = team_run(&pu, 1, run, &task);
    return samples;
}
