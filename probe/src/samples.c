// SPDX-License-Identifier: Apache-2.0
#include "samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void samples_add(Samples *samples, double value)
{
    if (samples->count < SAMPLES_MOST)
        samples->values[samples->count++] = value;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_doubles(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
}

double median_of(double *values, int count)
{
    sort_doubles(values, count);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

// Writes the samples in ascending order to sorted[SAMPLES_MOST], and returns their median.
static double sort(const Samples *samples, double *sorted)
{
    memcpy(sorted, samples->values, sizeof *sorted * (size_t)samples->count);
    return median_of(sorted, samples->count);
}

double samples_median(const Samples *samples)
{
    if (samples->count == 0)
        return NAN;
    double sorted[SAMPLES_MOST];
    return sort(samples, sorted);
}

// The number of smallest samples outside of the interval: the largest number for which the median lies below the
// interval with a probability of at most 1/64 (binomial distribution, p = 1/2). None are outside below ten
// samples.
static int outside(int count)
{
    double sum = 0;
    for (int below = 0; 2 * below < count; below++) {
        sum += exp(lgamma(count + 1.0) - lgamma(below + 1.0) - lgamma(count - below + 1.0) - count * log(2));
        if (sum > (1 + 1e-9) / 64)
            return below > 0 ? below - 1 : 0;
    }
    return 0;
}

double samples_interval(const Samples *samples)
{
    const int count = samples->count;
    if (count < SAMPLES_LEAST)
        return INFINITY;
    double sorted[SAMPLES_MOST];
    const double median = sort(samples, sorted);
    const int end = outside(count);
    const double half = fmax(median - sorted[end], sorted[count - 1 - end] - median);
    return half > 0 ? half / median : 0; // equal samples may all be 0
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
