// SPDX-License-Identifier: Apache-2.0
// The repetitions of one measurement, and when there are enough of them.
#ifndef SAMPLES_H
#define SAMPLES_H

#include <stdbool.h>

// Below five samples there is no interval of the median that is worth the name.
enum { SAMPLES_LEAST = 5, SAMPLES_MOST = 1000 };

typedef struct {
    int least, most;
    double confidence; // how far from the median its confidence interval may reach, as a fraction of the median
} Repetitions;

typedef struct {
    int count;
    double values[SAMPLES_MOST];
} Samples;

void samples_add(Samples *samples, double value);
double samples_median(const Samples *samples);

// How far the confidence interval of the median reaches from it, over the median; infinite below SAMPLES_LEAST
// samples. Its ends are samples (the sign test's interval, nothing is assumed of the distribution), at a level
// of 93.75 % or more.
double samples_interval(const Samples *samples);

// True where no further repetition is needed: at the limit, or narrow enough after the least number.
bool samples_enough(const Samples *samples, const Repetitions *wanted);

// Why the repetitions ended: narrow, limit or signal.
const char *samples_ended(const Samples *samples, const Repetitions *wanted);

#endif
