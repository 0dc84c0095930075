// SPDX-License-Identifier: Apache-2.0
#include "samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom; further on the normal one is near.
static const double student[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                 2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                 2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};

void samples_add(Samples *samples, double value)
{
    if (samples->count < SAMPLES_MOST)
        samples->values[samples->count++] = value;
}

double samples_mean(const Samples *samples)
{
    double sum = 0;
    for (int i = 0; i < samples->count; i++)
        sum += samples->values[i];
    return sum / samples->count;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_median(const Samples *samples)
{
    const int count = samples->count;
    if (count == 0)
        return NAN;
    double sorted[SAMPLES_MOST];
    memcpy(sorted, samples->values, sizeof *sorted * (size_t)count);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

double samples_interval(const Samples *samples)
{
    const int freedom = samples->count - 1;
    if (freedom < 1)
        return INFINITY;
    const double mean = samples_mean(samples);
    double squares = 0;
    for (int i = 0; i < samples->count; i++)
        squares += (samples->values[i] - mean) * (samples->values[i] - mean);
    const int known = (int)(sizeof student / sizeof *student);
    const double quantile = freedom <= known ? student[freedom - 1] : 1.960 + 2.5 / freedom;
    return quantile * sqrt(squares / freedom / samples->count) / mean;
}

static bool narrow(const Samples *samples, const Repetitions *wanted)
{
    return samples->count >= wanted->least && samples_interval(samples) <= wanted->confidence;
}

bool samples_enough(const Samples *samples, const Repetitions *wanted)
{
    return samples->count >= wanted->most || narrow(samples, wanted);
}

const char *samples_ended(const Samples *samples, const Repetitions *wanted)
{
    if (narrow(samples, wanted))
        return "narrow";
    return samples->count >= wanted->most ? "limit" : "signal";
}
