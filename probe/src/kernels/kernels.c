// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include "arm64.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

static const KernelFacts *const kernels[KERNELS] = {
    [COPY] = &copy_kernel, [SCALE] = &scale_kernel, [ADD] = &add_kernel, [TRIAD] = &triad_kernel};

const KernelFacts *kernel_facts(Kernel kernel)
{
    return kernels[kernel];
}

const char *const kernel_names[KERNELS] = {"copy", "scale", "add", "triad"};
const char *const instruction_names[INSTRUCTION_SETS] = {"plain", "sse2", "avx2", "avx512", "neon", "sve"};
const char *const store_names[STORES] = {"regular", "streaming"};

bool kernel_available(InstructionSet set)
{
    switch (set) {
    case PLAIN:
        return true;
#if defined(__x86_64__)
    case SSE2:
        return true;
    case AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case AVX512:
        return __builtin_cpu_supports("avx512f");
#elif defined(__aarch64__)
    case NEON:
        return getauxval(AT_HWCAP) & HWCAP_ASIMD;
#if defined(HAVE_SVE)
    case SVE:
        return getauxval(AT_HWCAP) & HWCAP_SVE;
#endif
#endif
    default:
        return false;
    }
}

#if defined(__aarch64__)
// The bits of a vector of SVE that this process may use.
static int sve_bits(void)
{
    const int length = prctl(PR_SVE_GET_VL);
    return length < 0 ? 0 : 8 * (length & PR_SVE_VL_LEN_MASK);
}
#endif

InstructionSet kernel_preferred(void)
{
#if defined(__x86_64__)
    return kernel_available(AVX2) ? AVX2 : SSE2;
#elif defined(__aarch64__)
    return kernel_available(SVE) && sve_bits() > 128 ? SVE : NEON;
#else
    return PLAIN;
#endif
}

KernelCode *kernel_code(Kernel kernel, InstructionSet set, Stores stores)
{
    return kernels[kernel]->code[set][stores];
}
