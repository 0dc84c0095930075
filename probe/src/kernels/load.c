// SPDX-License-Identifier: Apache-2.0
#include "load.h"

const char *const read_share_names[READ_SHARES] = {"1", "0.75", "0.5"};
const double read_shares[READ_SHARES] = {1, 0.75, 0.5};

size_t load_stored(ReadShare share)
{
    static const size_t stored[READ_SHARES] = {0, LOAD_STEP / 3, LOAD_STEP};
    return stored[share];
}

size_t load_bytes(ReadShare share)
{
    return (LOAD_STEP + load_stored(share)) * sizeof(double);
}

// The vectors are the compiler's, which every architecture has. Four sums hide the latency of an addition.
#define LOADER(NAME, TARGET, BYTES)                                                     \
    typedef double NAME##_vector __attribute__((vector_size(BYTES), may_alias));        \
    TARGET static double NAME(double *step, ReadShare share)                            \
    {                                                                                   \
        enum { WIDTH = BYTES / sizeof(double) };                                        \
        const size_t unchanged = LOAD_STEP - load_stored(share);                        \
        const NAME##_vector one = (NAME##_vector){0} + 1;                               \
        NAME##_vector sums[4] = {0};                                                    \
        for (size_t i = 0; i < unchanged; i += 4 * WIDTH)                               \
            _Pragma("GCC unroll 4") for (size_t j = 0; j < 4; j++) sums[j] +=           \
                *(const NAME##_vector *)(const void *)(step + i + j * WIDTH);           \
        for (size_t i = unchanged; i < LOAD_STEP; i += 4 * WIDTH)                       \
            _Pragma("GCC unroll 4") for (size_t j = 0; j < 4; j++)                      \
            {                                                                           \
                NAME##_vector *place = (NAME##_vector *)(void *)(step + i + j * WIDTH); \
                const NAME##_vector value = *place;                                     \
                sums[j] += value;                                                       \
                *place = value + one;                                                   \
            }                                                                           \
        const NAME##_vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);            \
        double sum = 0;                                                                 \
        for (size_t i = 0; i < WIDTH; i++)                                              \
            sum += all[i];                                                              \
        return sum;                                                                     \
    }

#if defined(__x86_64__)
LOADER(load_narrow, , 16)
LOADER(load_wide, __attribute__((target("avx2"))), 32)

LoadCode *load_code(void)
{
    return kernel_available(AVX2) ? load_wide : load_narrow;
}

const char *load_instructions(void)
{
    return kernel_available(AVX2) ? "avx2" : "sse2";
}
#else
LOADER(load_narrow, , 16)

LoadCode *load_code(void)
{
    return load_narrow;
}

const char *load_instructions(void)
{
#if defined(__aarch64__)
    return "neon";
#else
    return "plain";
#endif
}
#endif
