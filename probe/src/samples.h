// SPDX-License-Identifier: Apache-2.0
// The repetitions of one measurement, and when there are enough of them.
#ifndef SAMPLES_H
#define SAMPLES_H

#include <stdbool.h>

// Fewer than five samples do not give a useful interval of the median.
enum { SAMPLES_LEAST = 5, SAMPLES_MOST = 1000 };

typedef struct {
    int least, most;
    double confidence; // largest accepted half-width of the median's confidence interval, relative to the median
} Repetitions;

typedef struct {
    int count;
    double values[SAMPLES_MOST];
} Samples;

void samples_add(Samples *samples, double value);
double samples_median(const Samples *samples);

// Sorts doubles into ascending order; the median of one or more, which are sorted then.
void sort_doubles(double *values, int count);
double median_of(double *values, int count);

// The half-width of the median's confidence interval relative to the median; infinite below SAMPLES_LEAST samples.
// Its ends are samples (the interval of the sign test, for any distribution), at a level of 93.75 % for five
// samples and of at least 96.8 % for more. samples_enough() looks after each repetition, which lowers the level:
// with 95 % for each look, 1 in 10 intervals missed the median of up to 100 repetitions (bench/repetitions.py).
double samples_interval(const Samples *samples);

// True if no further repetition is needed: at the limit, or if the interval is narrow enough.
bool samples_enough(const Samples *samples, const Repetitions *wanted);

// Why the repetitions ended: narrow, limit or signal.
const char *samples_ended(const Samples *samples, const Repetitions *wanted);

#endif
