// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "json.h"

enum { SETS_MOST = 20000, PLACEMENTS_MOST = 200000 };

static double combinations(int n, int k)
{
    double result = 1;
    for (int i = 1; i <= k; i++)
        result = result * (n - k + i) / i;
    return result;
}

// All sets of `size` members of the list, in lexicographic order.
static void add_sets(Plan *plan, const List *members, int size)
{
    int *place = must_allocate((size_t)size, sizeof *place);
    for (int i = 0; i < size; i++)
        place[i] = i;
    for (int last = 0; last >= 0;) {
        List *set = &plan->sets[plan->set_count++];
        for (int i = 0; i < size; i++)
            list_add(set, members->values[place[i]]);
        for (last = size - 1; last >= 0 && place[last] == members->count - size + last;)
            last--;
        if (last < 0)
            break;
        place[last]++;
        for (int i = last + 1; i < size; i++)
            place[i] = place[i - 1] + 1;
    }
    free(place);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

// The properties that decide a placement's performance by the firmware's distances: for each working NUMA node its
// PUs and its distances to the banks, for each bank its kind. Sorted, so that node numbers do not matter.
static char *signature(const Host *host, const List *set, const List *banks)
{
    char **parts = must_allocate((size_t)set->count, sizeof *parts), *text = NULL;
    int *distances = must_allocate((size_t)banks->count, sizeof *distances);
    size_t size;
    for (int i = 0; i < set->count; i++) {
        const Node *node = host_node(host, set->values[i]);
        for (int j = 0; j < banks->count; j++)
            distances[j] = host_distance(host, node->number, banks->values[j]);
        qsort(distances, (size_t)banks->count, sizeof *distances, by_number);
        FILE *part = must(open_memstream(&parts[i], &size));
        fprintf(part, "%d/%d:", node->pus.count, node->cores);
        for (int j = 0; j < banks->count; j++)
            fprintf(part, "%d,", distances[j]);
        must(ferror(part) || fclose(part) ? NULL : parts[i]);
    }
    qsort(parts, (size_t)set->count, sizeof *parts, by_text);
    FILE *whole = must(open_memstream(&text, &size));
    for (int i = 0; i < set->count; i++) {
        fprintf(whole, "%s ", parts[i]);
        free(parts[i]);
    }
    for (int j = 0; j < banks->count; j++) {
        const Node *bank = host_node(host, banks->values[j]);
        fprintf(whole, "%s/%d/%" PRIu64 ";", bank->subtype, bank->has_pus, bank->side_cache);
    }
    must(ferror(whole) || fclose(whole) ? NULL : text);
    free(parts);
    free(distances);
    return text;
}

static void prune(Plan *plan, const Host *host)
{
    char **seen = must_allocate((size_t)plan->count, sizeof *seen);
    int *first = must_allocate((size_t)plan->count, sizeof *first), classes = 0;
    for (int i = 0; i < plan->count; i++) {
        Placement *placement = &plan->placements[i];
        char *text = signature(host, &plan->sets[placement->set], &plan->targets[placement->target]);
        for (int k = 0; k < classes && placement->alike < 0; k++)
            if (!strcmp(seen[k], text))
                placement->alike = first[k];
        if (placement->alike >= 0) {
            free(text);
            continue;
        }
        seen[classes] = text;
        first[classes++] = i;
    }
    plan->measured = classes;
    for (int k = 0; k < classes; k++)
        free(seen[k]);
    free(seen);
    free(first);
}

Plan plan_make(const Options *options, const Host *host, const List *set_sizes)
{
    Plan plan = {0};
    const int banks = options->banks.count;
    double sets = 0;
    for (int i = 0; i < set_sizes->count; i++)
        sets += combinations(options->pu_nodes.count, set_sizes->values[i]);
    const double all = sets * (banks + options->interleaves);
    if (sets > SETS_MOST || all > PLACEMENTS_MOST)
        fail(EXIT_USAGE, "%.0f placements are too many: choose fewer with --set-sizes, --pu-nodes or --banks",
             all);
    plan.sets = must_allocate((size_t)sets, sizeof *plan.sets);
    for (int i = 0; i < set_sizes->count; i++)
        add_sets(&plan, &options->pu_nodes, set_sizes->values[i]);
    plan.target_count = banks + options->interleaves;
    plan.targets = must_allocate((size_t)plan.target_count, sizeof *plan.targets);
    for (int i = 0; i < banks; i++)
        list_add(&plan.targets[i], options->banks.values[i]);
    for (int i = 0; i < options->interleaves; i++)
        plan.targets[banks + i] = list_copy(&options->interleave[i]);
    plan.placements = must_allocate((size_t)all, sizeof *plan.placements);
    for (int target = 0; target < plan.target_count; target++)
        for (int set = 0; set < plan.set_count; set++)
            plan.placements[plan.count++] = (Placement){set, target, -1};
    plan.target_turns = list_turns(plan.target_count, options->seed);
    plan.turns = list_turns(plan.count, options->seed);
    plan.measured = plan.count;
    if (options->prune)
        prune(&plan, host);
    return plan;
}

void plan_free(Plan *plan)
{
    for (int i = 0; i < plan->set_count; i++)
        free(plan->sets[i].values);
    for (int i = 0; i < plan->target_count; i++)
        free(plan->targets[i].values);
    free(plan->sets);
    free(plan->targets);
    free(plan->placements);
    free(plan->target_turns.values);
    free(plan->turns.values);
}

void plan_stands_for(const Plan *plan, int placement)
{
    json_begin("stands_for", '[');
    for (int i = placement + 1; i < plan->count; i++) {
        const Placement *other = &plan->placements[i];
        if (other->alike != placement)
            continue;
        json_begin(NULL, '{');
        json_integers("pu_nodes", plan->sets[other->set].values, plan->sets[other->set].count);
        json_integers("banks", plan->targets[other->target].values, plan->targets[other->target].count);
        json_end('}');
    }
    json_end(']');
}

bool plan_needs(const Plan *plan, int target)
{
    for (int i = 0; i < plan->count; i++)
        if (plan->placements[i].target == target && plan->placements[i].alike < 0)
            return true;
    return false;
}
