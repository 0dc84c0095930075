// SPDX-License-Identifier: Apache-2.0
// Defines the including file's kernel for every instruction set, and its entry in the table.
#include "kernels.h"

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)

#define SET plain
#define TARGET
#define VECTOR double
#define WIDTH 1
#define SPLAT(x) (x)
#define LOAD(p) (*(p))
#define STORE(p, v) (*(p) = (v))
#define MULTIPLY(x, y) ((x) * (y))
#define PLUS(x, y) ((x) + (y))
#define FUSED(x, y, z) ((x) * (y) + (z))
#include "loop.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define SET sse2
#define TARGET
#define VECTOR __m128d
#define WIDTH 2
#define SPLAT(x) _mm_set1_pd(x)
#define LOAD(p) _mm_load_pd(p)
#define STORE(p, v) _mm_store_pd(p, v)
#define STREAM(p, v) _mm_stream_pd(p, v)
#define MULTIPLY(x, y) _mm_mul_pd(x, y)
#define PLUS(x, y) _mm_add_pd(x, y)
#define FUSED(x, y, z) _mm_add_pd(_mm_mul_pd(x, y), z)
#include "loop.h"

#define SET avx2
#define TARGET __attribute__((target("avx2,fma")))
#define VECTOR __m256d
#define WIDTH 4
#define SPLAT(x) _mm256_set1_pd(x)
#define LOAD(p) _mm256_load_pd(p)
#define STORE(p, v) _mm256_store_pd(p, v)
#define STREAM(p, v) _mm256_stream_pd(p, v)
#define MULTIPLY(x, y) _mm256_mul_pd(x, y)
#define PLUS(x, y) _mm256_add_pd(x, y)
#define FUSED(x, y, z) _mm256_fmadd_pd(x, y, z)
#include "loop.h"

#define SET avx512
#define TARGET __attribute__((target("avx512f")))
#define VECTOR __m512d
#define WIDTH 8
#define SPLAT(x) _mm512_set1_pd(x)
#define LOAD(p) _mm512_load_pd(p)
#define STORE(p, v) _mm512_store_pd(p, v)
#define STREAM(p, v) _mm512_stream_pd(p, v)
#define MULTIPLY(x, y) _mm512_mul_pd(x, y)
#define PLUS(x, y) _mm512_add_pd(x, y)
#define FUSED(x, y, z) _mm512_fmadd_pd(x, y, z)
#include "loop.h"
#endif

const KernelFacts JOIN(KERNEL, kernel) = {
    .arrays = ARRAYS,
    .code[PLAIN] = {[REGULAR] = plain_regular},
#if defined(__x86_64__)
    .code[SSE2] = {[REGULAR] = sse2_regular, [STREAMING] = sse2_streaming},
    .code[AVX2] = {[REGULAR] = avx2_regular, [STREAMING] = avx2_streaming},
    .code[AVX512] = {[REGULAR] = avx512_regular, [STREAMING] = avx512_streaming},
#endif
};
