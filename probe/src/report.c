// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fail.h"
#include "json.h"
#include "stop.h"

static const Options *asked;
static const Host *host;
static int results, invalid;
static char first_reason[300];

static void host_document(void)
{
    json_begin("host", '{');
    json_begin("numa_nodes", '[');
    for (int i = 0; i < host->count; i++) {
        const Node *node = &host->nodes[i];
        json_begin(NULL, '{');
        json_integer("number", node->number);
        json_integers("usable_pus", node->pus.values, node->pus.count);
        json_integer("usable_cores", node->cores);
        json_integer("memory_bytes", (int64_t)node->memory);
        json_bool("data", node->data);
        json_string("subtype", node->subtype);
        json_integer("memory_side_cache_bytes", (int64_t)node->side_cache);
        json_end('}');
    }
    json_end(']');
    if (host->distances) {
        json_begin("distances", '[');
        for (int i = 0; i < host->count; i++)
            json_integers(NULL, host->distances + i * host->count, host->count);
        json_end(']');
    } else {
        json_null("distances");
    }
    json_integer("line_bytes", (int64_t)host->line_bytes);
    json_integer("page_bytes", (int64_t)host->page_bytes);
    json_integer("huge_page_bytes", (int64_t)host->huge_bytes);
    json_integer("cache_bytes", (int64_t)host->cache_bytes);
    json_integer("all_caches_bytes", (int64_t)host->all_caches_bytes);
    json_begin("instructions", '[');
    for (InstructionSet set = PLAIN; set < INSTRUCTION_SETS; set++)
        if (kernel_available(set))
            json_string(NULL, instruction_names[set]);
    json_end(']');
    json_end('}');
}

static void end_document(const char *status, const char *reason)
{
    if (asked->lines) {
        json_begin(NULL, '{');
        json_string("type", "end");
    } else {
        json_end(']');
    }
    json_string("status", status);
    json_string("reason", reason);
    json_integer("count", results);
    json_integer("invalid", invalid);
    json_integer("most_memory_bytes", (int64_t)memory_most());
    json_end('}');
    json_line();
}

static void abandon(const char *reason)
{
    end_document("failed", reason);
}

void report_begin(const Options *options, const Host *seen, int placements)
{
    asked = options;
    host = seen;
    json_begin(NULL, '{');
    if (options->lines)
        json_string("type", "begin");
    json_string("probe", PROBE_VERSION);
    json_integer("schema", 1);
    json_string("aspect", aspect_name(options->aspect));
    json_integer("placements", placements);
    json_integer("seed", options->seed);
    json_bool("sanity", options->sanity);
    json_integer("min_repetitions", options->repetitions.least);
    json_integer("max_repetitions", options->repetitions.most);
    json_number("confidence", options->repetitions.confidence);
    host_document();
    if (options->lines) {
        json_end('}');
        json_line();
    } else {
        json_begin("results", '[');
        json_line();
    }
    fail_hook = abandon;
}

static void placement_document(const Result *result)
{
    const Memory *memory = result->memory;
    json_begin("pages", '{');
    json_string("asked", page_names[memory->pages]);
    json_number("huge_share", memory->huge_share);
    json_bool("verified", memory->verified);
    json_begin("found", '{');
    for (int i = 0; i < host->count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", host->nodes[i].number);
        if (memory->found[i])
            json_integer(number, memory->found[i]);
    }
    json_end('}');
    json_end('}');
    json_integer("position", result->placed->position);
    json_integers("pus_found", result->placed->pus, result->placed->count);
}

// A memory-side cache may be as large as a bank. Memory that fits into it is not what the result is about.
static void side_cache_document(const Memory *memory)
{
    uint64_t caches = 0;
    for (int i = 0; i < memory->banks.count; i++)
        caches += host_node(host, memory->banks.values[i])->side_cache;
    if (!caches)
        return;
    json_integer("memory_side_cache_bytes", (int64_t)caches);
    json_string("measures", memory->bytes <= caches ? "memory-side cache" : "memory behind a memory-side cache");
}

void report_open(const Result *result)
{
    const Samples *samples = result->samples;
    const char *reason = result->wrong;
    if (!*reason)
        reason = *result->placed->reason ? result->placed->reason : result->memory->reason;
    results++;
    if (*reason && !invalid++)
        snprintf(first_reason, sizeof first_reason, "%s", reason);
    json_begin(NULL, '{');
    if (asked->lines)
        json_string("type", "result");
    json_string("aspect", aspect_name(asked->aspect));
    json_string("metric", result->metric);
    json_string("unit", result->unit);
    json_string("better", result->better);
    json_number("value", samples_median(samples));
    json_begin("samples", '[');
    for (int i = 0; i < samples->count; i++)
        json_number(NULL, samples->values[i]);
    json_end(']');
    json_number("interval", samples_interval(samples));
    json_string("ended", samples_ended(samples, &asked->repetitions));
    json_string("status", *reason ? "invalid" : "valid");
    json_string("reason", reason);
    json_bool("partial", stop_signal() && !samples_enough(samples, &asked->repetitions));
    json_integers("pu_nodes", result->pu_nodes->values, result->pu_nodes->count);
    json_integers("pus", result->pus->values, result->pus->count);
    json_integer("threads", result->pus->count);
    json_string("policy", memory_policy(result->memory));
    json_integers("banks", result->memory->banks.values, result->memory->banks.count);
    json_integer("memory_bytes", (int64_t)result->memory->bytes);
    side_cache_document(result->memory);
    placement_document(result);
}

void report_close(void)
{
    json_end('}');
    json_line();
}

int report_end(void)
{
    fail_hook = NULL;
    const int signal = stop_signal();
    if (signal) {
        char reason[80];
        snprintf(reason, sizeof reason, "stopped by %s", strsignal(signal));
        end_document("partial", reason);
        fprintf(stderr, "firsttouch-probe: %s; what had been measured is printed\n", reason);
        return 128 + signal;
    }
    if (invalid) {
        end_document("invalid", first_reason);
        fprintf(stderr, "firsttouch-probe: error: %d of %d results are invalid: %s\n", invalid, results,
                first_reason);
        return EXIT_FAILED;
    }
    end_document("complete", "");
    return 0;
}

void report_say(const char *format, ...)
{
    if (asked && asked->quiet)
        return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}
