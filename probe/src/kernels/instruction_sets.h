// SPDX-License-Identifier: Apache-2.0
// Defines the including file's kernel for every instruction set, and its entry in the table.
#include "arm64.h"
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

#if defined(__aarch64__)
#define SET neon
#define TARGET
#define VECTOR float64x2x2_t
#define WIDTH 4
#define SPLAT(x) neon_splat(x)
#define LOAD(p) neon_load(p)
#define STORE(p, v) neon_store(p, v)
#define STREAM(p, v) neon_stream(p, v)
#define MULTIPLY(x, y) neon_multiply(x, y)
#define PLUS(x, y) neon_plus(x, y)
#define FUSED(x, y, z) neon_fused(x, y, z)
#include "loop.h"
#endif

#if defined(HAVE_SVE)
#define SET sve
#define TARGET __attribute__((target("+sve")))
#define VECTOR svfloat64_t
#define WIDTH svcntd()
#define MASK(j, count) svwhilelt_b64((uint64_t)(j), (uint64_t)(count))
#define SPLAT(x) svdup_f64(x)
#define LOAD(p) svld1_f64(mask, p)
#define STORE(p, v) svst1_f64(mask, p, v)
#define STREAM(p, v) svstnt1_f64(mask, p, v)
#define MULTIPLY(x, y) svmul_f64_x(mask, x, y)
#define PLUS(x, y) svadd_f64_x(mask, x, y)
#define FUSED(x, y, z) svmla_f64_x(mask, z, x, y)
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
#if defined(__aarch64__)
    .code[NEON] = {[REGULAR] = neon_regular, [STREAMING] = neon_streaming},
#endif
#if defined(HAVE_SVE)
    .code[SVE] = {[REGULAR] = sve_regular, [STREAMING] = sve_streaming},
#endif
};
