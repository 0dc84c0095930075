// SPDX-License-Identifier: Apache-2.0
// Latency (thesis section 3.3): a PU of every NUMA node follows a cycle through every bank.
#include <stdlib.h>

#include "aspects.h"
#include "chase.h"
#include "json.h"
#include "plan.h"
#include "report.h"
#include "stop.h"
#include "walk.h"

// One cycle in the memory of a bank, with its options and placements.
typedef struct {
    const Options *options;
    const Host *host;
    const Plan *plan;
    Memory *memory;
    uint64_t bytes;
    Order order;
    int target;
} Curve;

static void print(const Curve *curve, const Result *result, int placement)
{
    report_open(result);
    json_string("order", order_names[curve->order]);
    json_integer("size_bytes", (int64_t)curve->bytes);
    json_integer("stride_bytes", (int64_t)curve->host->line_bytes);
    plan_stands_for(curve->plan, placement);
    report_close();
}

// Measures one point of the curve from every NUMA node.
static void point(const Curve *curve)
{
    Walk walk = walk_build(curve->host, curve->memory, curve->bytes, curve->host->line_bytes, curve->order);
    for (int turn = 0; turn < curve->plan->count && !stop_signal(); turn++) {
        const int i = curve->plan->turns.values[turn];
        const Placement *placement = &curve->plan->placements[i];
        if (placement->target != curve->target || placement->alike >= 0)
            continue;
        const List *set = &curve->plan->sets[placement->set];
        const List pu = {1, host_node(curve->host, set->values[0])->pus.values};
        Placed placed;
        Samples samples = walk_run(&walk, curve->options, pu.values[0], &placed);
        memory_look_again(curve->memory);
        const Result result = {.metric = curve->order == SEQUENTIAL ? "sequential_latency" : "random_latency",
                               .unit = "ns",
                               .better = "lower",
                               .samples = &samples,
                               .pu_nodes = set,
                               .pus = &pu,
                               .placed = &placed,
                               .memory = curve->memory,
                               .wrong = walk.wrong};
        if (samples.count) {
            report_say("latency NUMA node %d, bank %d, %llu KiB, %s, %s pages: %.1f ns", set->values[0],
                       curve->memory->banks.values[0], (unsigned long long)curve->bytes >> 10,
                       order_names[curve->order], page_names[curve->memory->pages], samples_median(&samples));
            print(curve, &result, i);
        }
        placed_free(&placed);
    }
}

void latency(const Options *options, const Host *host)
{
    int one = 1;
    const List alone = {1, &one};
    Plan plan = plan_make(options, host, &alone);
    uint64_t largest = 0;
    for (int i = 0; i < options->sizes; i++)
        largest = options->size[i] > largest ? options->size[i] : largest;
    // Impossible placements are refused before anything is measured.
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        for (int target = 0; target < plan.target_count && options->pages[pages]; target++)
            memory_require(host, &plan.targets[target], pages, largest);
    const List sizes = list_turns(options->sizes, options->seed);
    report_begin(options, host, plan.count);
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        for (int turn = 0; turn < plan.target_count && options->pages[pages] && !stop_signal(); turn++) {
            const int target = plan.target_turns.values[turn];
            if (!plan_needs(&plan, target))
                continue;
            Memory memory = memory_take(host, &plan.targets[target], pages, largest, 0);
            for (Order order = RANDOM; order < ORDERS; order++)
                for (int i = 0; i < options->sizes && options->order[order] && !stop_signal(); i++)
                    point(&(Curve){options, host, &plan, &memory, options->size[sizes.values[i]], order, target});
            memory_release(&memory);
        }
    free(sizes.values);
    plan_free(&plan);
}
