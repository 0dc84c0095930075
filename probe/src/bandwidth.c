// SPDX-License-Identifier: Apache-2.0
// Bandwidth (thesis section 3.4): STREAM's kernels by every PU-set on every bank, and interleaved.
#include <stdio.h>
#include <stdlib.h>

#include "arrays.h"
#include "aspects.h"
#include "fail.h"
#include "json.h"
#include "plan.h"
#include "report.h"
#include "stop.h"

enum { CHECK_STRIDE = KERNEL_STEP / LINE };

// One way to run one kernel, with its samples.
typedef struct {
    Kernel kernel;
    Stores stores;
    InstructionSet instructions;
    KernelCode *code;
    Samples samples;
} Case;

typedef struct {
    const Options *options;
    Arrays *arrays;
    Case *cases;
    int count;
    bool several; // instruction sets or store types
    bool done;
    double scalar;
    size_t stride, line; // the final check reads every stride-th line, from this one on
    double *errors;      // the largest relative error in each thread's part
} Run;

// Each repetition runs all cases that need another sample, as STREAM alternates between its kernels.
static void work(Member *member, void *argument)
{
    Run *run = argument;
    Arrays *arrays = run->arrays;
    size_t first, last;
    arrays_part(arrays, member->id, member->team->count, &first, &last);
    for (;;) {
        team_together(member);
        if (member->id == 0) {
            run->done = true;
            for (int i = 0; i < run->count; i++)
                run->done = run->done && samples_enough(&run->cases[i].samples, &run->options->repetitions);
            run->done = run->done || stop_signal();
        }
        team_together(member);
        if (run->done)
            break;
        for (int i = 0; i < run->count; i++) {
            Case *one = &run->cases[i];
            const bool enough = samples_enough(&one->samples, &run->options->repetitions);
            if (member->id == 0)
                run->scalar = arrays_scalar(arrays);
            team_together(member);
            if (enough) // all threads agree, because the samples change only after the next barrier
                continue;
            member->begin = team_now();
            arrays_pass(arrays, one->kernel, one->code, run->scalar, first, last);
            member->end = team_now();
            team_check(member);
            team_together(member);
            if (member->id == 0) {
                const double bytes = (double)arrays->bytes * kernel_facts(one->kernel)->arrays;
                samples_add(&one->samples, bytes / team_span(member->team) * 1e-9);
                arrays_expect(arrays, one->kernel, run->scalar);
            }
        }
    }
    // Each part is checked by another thread than the one that wrote it.
    const int other = (member->id + 1) % member->team->count;
    arrays_part(arrays, other, member->team->count, &first, &last);
    run->errors[member->id] = arrays_error(arrays, first + run->line * LINE, last, run->stride);
}

static int make_cases(const Options *options, Case *cases)
{
    int count = 0;
    for (InstructionSet set = PLAIN; set < INSTRUCTION_SETS; set++)
        for (Stores stores = REGULAR; stores < STORES; stores++)
            for (Kernel kernel = COPY; kernel < KERNELS; kernel++) {
                KernelCode *code = kernel_code(kernel, set, stores);
                if (options->instructions[set] && options->stores[stores] && options->kernel[kernel] && code)
                    cases[count++] = (Case){.kernel = kernel, .stores = stores, .instructions = set, .code = code};
            }
    return count;
}

static void print(const Run *run, const Result *common, const Plan *plan, int placement)
{
    for (int i = 0; i < run->count; i++) {
        const Case *one = &run->cases[i];
        if (!one->samples.count)
            continue;
        char metric[32];
        snprintf(metric, sizeof metric, "%s_bandwidth", kernel_names[one->kernel]);
        Result result = *common;
        result.metric = metric;
        result.samples = &one->samples;
        report_open(&result);
        json_string("kernel", kernel_names[one->kernel]);
        json_string("stores", store_names[one->stores]);
        json_string("instructions", instruction_names[one->instructions]);
        json_integer("array_bytes", (int64_t)run->arrays->bytes);
        plan_stands_for(plan, placement);
        report_close();
    }
}

static void show(const Run *run, const List *set, const Memory *memory, int number, int of)
{
    char nodes[128], banks[128], rates[1024] = "";
    size_t used = 0;
    for (int i = 0; i < run->count && used < sizeof rates; i++) {
        const Case *one = &run->cases[i];
        const Case *before = i ? one - 1 : NULL;
        if (!one->samples.count)
            continue;
        used += (size_t)snprintf(rates + used, sizeof rates - used, "%s", i ? ", " : "");
        // The cases of an instruction set and store type follow each other.
        if (used < sizeof rates && run->several &&
            (!before || before->instructions != one->instructions || before->stores != one->stores))
            used += (size_t)snprintf(rates + used, sizeof rates - used,
                                     "%s %s: ", instruction_names[one->instructions], store_names[one->stores]);
        if (used < sizeof rates)
            used += (size_t)snprintf(rates + used, sizeof rates - used, "%s %.2f", kernel_names[one->kernel],
                                     samples_median(&one->samples));
    }
    report_say("%d/%d bandwidth PU-set %s, %s %s: %s GB/s", number, of, list_text(set, nodes, sizeof nodes),
               memory->interleave ? "interleaved over" : "bank", list_text(&memory->banks, banks, sizeof banks),
               rates);
}

static void measure(const Options *options, const Host *host, const Plan *plan, int placement, Arrays *arrays,
                    Memory *memory, int number)
{
    Case cases[INSTRUCTION_SETS * STORES * KERNELS];
    const List *set = &plan->sets[plan->placements[placement].set];
    const List pus = options_pus(options, host, set);
    Run run = {.options = options, .arrays = arrays, .cases = cases};
    run.count = make_cases(options, cases);
    for (int i = 1; i < run.count; i++)
        run.several =
            run.several || cases[i].instructions != cases[0].instructions || cases[i].stores != cases[0].stores;
    // Placements on the same arrays check different lines, and together all of them, which makes the sweep a tenth
    // shorter. A wrong value that later repetitions read stays wrong. A value that each repetition recomputes (c,
    // if only copy runs) is checked after a placement's last repetition, on that placement's lines.
    run.stride = plan->set_count < CHECK_STRIDE ? (size_t)plan->set_count : CHECK_STRIDE;
    run.line = (size_t)number % run.stride;
    run.errors = must_allocate((size_t)pus.count, sizeof *run.errors);
    Placed placed = team_run(pus.values, pus.count, work, &run);
    memory_look_again(memory);
    char wrong[120] = "";
    for (int i = 0; i < pus.count; i++)
        if (!(run.errors[i] < 1e-10)) // also true for NaN
            snprintf(wrong, sizeof wrong, "the arrays hold wrong values: relative error %.3g", run.errors[i]);
    const Result common = {.unit = "GB/s",
                           .better = "higher",
                           .pu_nodes = set,
                           .pus = &pus,
                           .placed = &placed,
                           .memory = memory,
                           .wrong = wrong};
    show(&run, set, memory, number, plan->measured);
    print(&run, &common, plan, placement);
    free(run.errors);
    placed_free(&placed);
    free(pus.values);
}

void bandwidth(const Options *options, const Host *host)
{
    Plan plan = plan_make(options, host, &options->set_sizes);
    const List all = options_pus(options, host, &options->pu_nodes);
    // Impossible placements are refused before anything is measured.
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++)
        for (int target = 0; target < plan.target_count && options->pages[pages]; target++)
            arrays_bytes(options, host, &plan.targets[target], pages, 3, all.count);
    report_begin(options, host, plan.count);
    for (Pages pages = PAGES_BASE; pages < PAGE_KINDS; pages++) {
        int number = 0;
        for (int turn = 0; turn < plan.target_count && options->pages[pages] && !stop_signal(); turn++) {
            const int target = plan.target_turns.values[turn];
            if (!plan_needs(&plan, target))
                continue;
            Memory memory;
            const List *banks = &plan.targets[target];
            const uint64_t bytes = arrays_bytes(options, host, banks, pages, 3, all.count);
            Arrays arrays = arrays_take(&memory, host, banks, pages, bytes);
            for (int i = 0; i < plan.count && !stop_signal(); i++) {
                const int placement = plan.turns.values[i];
                if (plan.placements[placement].target == target && plan.placements[placement].alike < 0)
                    measure(options, host, &plan, placement, &arrays, &memory, ++number);
            }
            memory_release(&memory);
        }
    }
    free(all.values);
    plan_free(&plan);
}
