// SPDX-License-Identifier: Apache-2.0
// The output: one JSON document, or JSON lines, with each result as soon as it is complete.
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
    const char *wrong; // why the values are wrong, or empty
} Result;

void report_begin(const Options *options, const Host *host, int placements);

// Begins a result with the common fields; the aspect adds its fields with json.h and closes it.
void report_open(const Result *result);
void report_close(void);

// Ends the output; returns the program's exit status.
int report_end(void);

// Prints a line of progress on standard error, unless --quiet is set.
void report_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
