// SPDX-License-Identifier: Apache-2.0
// The repetitions of one measurement, and when there are enough of them.
#ifndef SAMPLES_H
#define SAMPLES_H

#include <stdbool.h>

enum { SAMPLES_MOST = 1000 };

typedef struct {
    int least, most;
    double confidence; // wanted half-width of the 95 % confidence interval of the mean, as a fraction of the mean
} Repetitions;

typedef struct {
    int count;
    double values[SAMPLES_MOST];
} Samples;

void samples_add(Samples *samples, double value);
double samples_mean(const Samples *samples);
double samples_median(const Samples *samples);

// Half-width of the 95 % confidence interval of the mean (Student's t) over the mean; infinite below two samples.
double samples_interval(const Samples *samples);

// True where no further repetition is needed: at the limit, or narrow enough after the least number.
bool samples_enough(const Samples *samples, const Repetitions *wanted);

// Why the repetitions ended: narrow, limit or signal.
const char *samples_ended(const Samples *samples, const Repetitions *wanted);

#endif
