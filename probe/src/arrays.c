// SPDX-License-Identifier: Apache-2.0
#include "arrays.h"

#include <math.h>

#include "fail.h"

// The offset between arrays is whole pages. Other offsets were up to a tenth slower when measured.
static uint64_t distance(const Host *host, uint64_t bytes)
{
    return (bytes + host->page_bytes - 1) / host->page_bytes * host->page_bytes;
}

uint64_t arrays_by_rule(const Options *options, const Host *host, uint64_t room, int number, int threads,
                        uint64_t step)
{
    uint64_t bytes = options->array_bytes;
    if (!bytes && options->sanity)
        bytes = (uint64_t)threads << 18;
    if (!bytes) {
        const uint64_t least = 64000000, rule = 4 * host->all_caches_bytes;
        bytes = rule > least ? rule : least;
        bytes = room < bytes ? room : bytes;
        memory_beyond_caches((uint64_t)number * bytes, host->all_caches_bytes);
    }
    bytes = bytes / step * step;
    if (bytes < (uint64_t)threads * step)
        fail(options->array_bytes ? EXIT_USAGE : EXIT_CANNOT,
             "an array of %llu bytes is too small for %d threads: each needs %d", (unsigned long long)bytes,
             threads, (int)step);
    return bytes;
}

uint64_t arrays_bytes(const Options *options, const Host *host, const List *banks, Pages pages, int number,
                      int threads)
{
    const uint64_t room = memory_available(host, banks, pages) / (4 * (uint64_t)number) * 3;
    const uint64_t bytes = arrays_by_rule(options, host, room, number, threads, KERNEL_STEP * sizeof(double));
    memory_require(host, banks, pages, (uint64_t)number * distance(host, bytes));
    return bytes;
}

Arrays arrays_take(Memory *memory, const Host *host, const List *banks, Pages pages, uint64_t bytes)
{
    *memory = memory_take(host, banks, pages, 3 * distance(host, bytes), 1.0);
    Arrays arrays = {.bytes = bytes, .count = bytes / sizeof(double), .expected = {1, 1, 1}};
    arrays.a = (double *)(void *)memory->base;
    arrays.b = (double *)(void *)(memory->base + distance(host, bytes));
    arrays.c = (double *)(void *)(memory->base + 2 * distance(host, bytes));
    return arrays;
}

double arrays_scalar(const Arrays *arrays)
{
    // With all four kernels a becomes (2q + q^2) a: below 1 for the smaller scalar, above 1 for the larger one.
    const double *x = arrays->expected;
    return fmax(x[0], fmax(x[1], x[2])) > 1 ? 0.25 : 0.5;
}

void arrays_pass(const Arrays *arrays, Kernel kernel, KernelCode *code, double q, size_t first, size_t last)
{
    double *a = arrays->a + first, *b = arrays->b + first, *c = arrays->c + first;
    const size_t count = last - first;
    switch (kernel) {
    case COPY:
        code(c, a, NULL, q, count);
        break;
    case SCALE:
        code(b, c, NULL, q, count);
        break;
    case ADD:
        code(c, a, b, q, count);
        break;
    default:
        code(a, b, c, q, count);
    }
}

void arrays_expect(Arrays *arrays, Kernel kernel, double q)
{
    double *x = arrays->expected;
    switch (kernel) {
    case COPY:
        x[2] = x[0];
        break;
    case SCALE:
        x[1] = q * x[2];
        break;
    case ADD:
        x[2] = x[0] + x[1];
        break;
    default:
        x[0] = x[1] + q * x[2];
    }
}

double arrays_error(const Arrays *arrays, size_t first, size_t last, size_t stride)
{
    const double *const array[3] = {arrays->a, arrays->b, arrays->c};
    double worst = 0;
    for (int k = 0; k < 3; k++) {
        const double expected = arrays->expected[k];
        double error = 0;
        for (size_t i = first; i < last; i += LINE * stride)
            for (size_t j = i; j < i + LINE; j++) {
                const double here = fabs(array[k][j] - expected);
                error = here > error || here != here ? here : error;
            }
        error /= fabs(expected);
        worst = error > worst || error != error ? error : worst;
    }
    return worst;
}

void arrays_part(const Arrays *arrays, int part, int parts, size_t *first, size_t *last)
{
    const size_t steps = arrays->count / KERNEL_STEP;
    *first = steps * (size_t)part / (size_t)parts * KERNEL_STEP;
    *last = steps * ((size_t)part + 1) / (size_t)parts * KERNEL_STEP;
}
