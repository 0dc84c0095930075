// SPDX-License-Identifier: Apache-2.0
// One kernel in one instruction set, with regular stores and, where it has them, streaming ones.
// Included once for each: it takes what the including file defines and undefines it.

TARGET static void JOIN(SET, regular)(double *restrict a, const double *b, const double *c, double q, size_t count)
{
    const VECTOR scalar = SPLAT(q);
    (void)scalar, (void)c;
    for (size_t i = 0; i < count; i += 4 * WIDTH) {
        const VECTOR v0 = VALUE(i), v1 = VALUE(i + WIDTH), v2 = VALUE(i + 2 * WIDTH), v3 = VALUE(i + 3 * WIDTH);
        STORE(a + i, v0);
        STORE(a + i + WIDTH, v1);
        STORE(a + i + 2 * WIDTH, v2);
        STORE(a + i + 3 * WIDTH, v3);
    }
}

#ifdef STREAM
TARGET static void JOIN(SET, streaming)(double *restrict a, const double *b, const double *c, double q,
                                        size_t count)
{
    const VECTOR scalar = SPLAT(q);
    (void)scalar, (void)c;
    for (size_t i = 0; i < count; i += 4 * WIDTH) {
        const VECTOR v0 = VALUE(i), v1 = VALUE(i + WIDTH), v2 = VALUE(i + 2 * WIDTH), v3 = VALUE(i + 3 * WIDTH);
        STREAM(a + i, v0);
        STREAM(a + i + WIDTH, v1);
        STREAM(a + i + 2 * WIDTH, v2);
        STREAM(a + i + 3 * WIDTH, v3);
    }
    // Written when they have left the write-combining buffers, not before.
    _mm_sfence();
}
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
