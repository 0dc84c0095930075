// SPDX-License-Identifier: Apache-2.0
// NEON's vectors in pairs, because non-temporal stores exist for pairs of registers only (STNP); and whether the
// compiler can build functions for SVE.
#ifndef ARM64_H
#define ARM64_H

#if defined(__aarch64__)
#include <arm_neon.h>

// GCC 10 and clang 17 compile single functions for SVE; others need it for the whole program.
#if defined(__ARM_FEATURE_SVE) || (defined(__clang__) ? __clang_major__ >= 17 : __GNUC__ >= 10)
#define HAVE_SVE 1
#include <arm_sve.h>
#endif

static inline float64x2x2_t neon_splat(double x)
{
    return (float64x2x2_t){{vdupq_n_f64(x), vdupq_n_f64(x)}};
}

static inline float64x2x2_t neon_load(const double *p)
{
    return (float64x2x2_t){{vld1q_f64(p), vld1q_f64(p + 2)}};
}

static inline void neon_store(double *p, float64x2x2_t v)
{
    vst1q_f64(p, v.val[0]);
    vst1q_f64(p + 2, v.val[1]);
}

// Compilers have no common intrinsic for STNP.
static inline void neon_stream(double *p, float64x2x2_t v)
{
    __asm__("stnp %q1, %q2, %0" : "=Q"(*(float64x2x2_t *)(void *)p) : "w"(v.val[0]), "w"(v.val[1]));
}

static inline float64x2x2_t neon_multiply(float64x2x2_t x, float64x2x2_t y)
{
    return (float64x2x2_t){{vmulq_f64(x.val[0], y.val[0]), vmulq_f64(x.val[1], y.val[1])}};
}

static inline float64x2x2_t neon_plus(float64x2x2_t x, float64x2x2_t y)
{
    return (float64x2x2_t){{vaddq_f64(x.val[0], y.val[0]), vaddq_f64(x.val[1], y.val[1])}};
}

static inline float64x2x2_t neon_fused(float64x2x2_t x, float64x2x2_t y, float64x2x2_t z)
{
    return (float64x2x2_t){{vfmaq_f64(z.val[0], x.val[0], y.val[0]), vfmaq_f64(z.val[1], x.val[1], y.val[1])}};
}
#endif

#endif
