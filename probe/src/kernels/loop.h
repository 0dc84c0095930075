// SPDX-License-Identifier: Apache-2.0
// One kernel in one instruction set, with regular stores and, where it has them, streaming ones.
// Included once for each set: it takes what the including file defines and undefines it.

// A line of 64 bytes at a time: measured, that is the fastest for all sets (copy by a tenth against a vector at a
// time; scale and add by a sixth against four vectors of 256 bits).
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
// Written when they have left the write-combining buffers, not before.
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
