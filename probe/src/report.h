// SPDX-License-Identifier: Apache-2.0
// What the probe prints: one JSON document, or JSON lines, with a result as soon as it is there.
#ifndef REPORT_H
#define REPORT_H

#include "options.h"
#include "team.h"

typedef struct {
    const char *metric, *unit, *better;
    const Samples *samples;
    const List *pu_nodes, *pus; // asked for
    const Placed *placed;       // found
    const Memory *memory;
    const char *wrong; // what the check of the values found, or empty
} Result;

void report_begin(const Options *options, const Host *host, int placements);

// Begins a result with the fields that all have; the aspect adds its own with json.h and closes it.
void report_open(const Result *result);
void report_close(void);

// Ends the output; returns the program's exit status.
int report_end(void);

// A line of progress on standard error, unless the options want none.
void report_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
