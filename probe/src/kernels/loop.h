// SPDX-License-Identifier: Apache-2.0
// One kernel in one instruction set, with regular and, if available, streaming stores.
// Included once for each set; it undefines the including file's macros at its end.

// One line of 64 bytes per step was the fastest for all sets when measured (copy by a tenth compared with one
// vector per step; scale and add by a sixth compared with four vectors of 256 bits).
#undef LOOP
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

LOOP(JOIN(SET, regular), STORE, (void)0)

#ifdef STREAM
// Waits until the streaming stores have left the write-combining buffers.
LOOP(JOIN(SET, streaming), STREAM, _mm_sfence())
#undef STREAM
#endif

#undef SET
#undef TARGET
#undef VECTOR
#undef WIDTH
#undef SPLAT
#undef LOAD
#undef STORE
#undef MULTIPLY
#undef PLUS
#undef FUSED
