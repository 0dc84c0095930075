// SPDX-License-Identifier: Apache-2.0
// One kernel in one instruction set, with regular and, if available, streaming stores.
// Included once for each set; it undefines the including file's macros at its end.

// Waits until the streaming stores have left the processor's buffers.
#undef DRAIN
#if defined(__x86_64__)
#define DRAIN _mm_sfence()
#else
#define DRAIN __asm__ volatile("dsb ishst" ::: "memory")
#endif

#undef LOOP
#ifdef MASK
// A vector of run-time length per step; its mask ends at the last element.
#define LOOP(name, PUT, FINISH)                                                                           \
    TARGET static void name(double *restrict a, const double *b, const double *c, double q, size_t count) \
    {                                                                                                     \
        const VECTOR scalar = SPLAT(q);                                                                   \
        (void)scalar, (void)c;                                                                            \
        _Pragma("GCC unroll 4") for (size_t i = 0; i < count; i += WIDTH)                                 \
        {                                                                                                 \
            const svbool_t mask = MASK(i, count);                                                         \
            PUT(a + i, VALUE(i));                                                                         \
        }                                                                                                 \
        FINISH;                                                                                           \
    }
#else
// One line of 64 bytes per step was the fastest for all sets when measured (copy by a tenth compared with one
// vector per step; scale and add by a sixth compared with four vectors of 256 bits).
#define LOOP(name, PUT, FINISH)                                                                           \
    TARGET static void name(double *restrict a, const double *b, const double *c, double q, size_t count) \
    {                                                                                                     \
        const VECTOR scalar = SPLAT(q);                                                                   \
        (void)scalar, (void)c;                                                                            \
        for (size_t i = 0; i < count; i += LINE) {                                                        \
            _Pragma("GCC unroll 8") for (size_t j = i; j < i + LINE; j += WIDTH) PUT(a + j, VALUE(j));    \
        }                                                                                                 \
        FINISH;                                                                                           \
    }
#endif

LOOP(JOIN(SET, regular), STORE, (void)0)

#ifdef STREAM
LOOP(JOIN(SET, streaming), STREAM, DRAIN)
#undef STREAM
#endif

#undef SET
#undef TARGET
#undef VECTOR
#undef WIDTH
#undef MASK
#undef SPLAT
#undef LOAD
#undef STORE
#undef MULTIPLY
#undef PLUS
#undef FUSED
