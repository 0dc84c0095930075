// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

static const KernelFacts *const kernels[KERNELS] = {
    [COPY] = &copy_kernel, [SCALE] = &scale_kernel, [ADD] = &add_kernel, [TRIAD] = &triad_kernel};

const KernelFacts *kernel_facts(Kernel kernel)
{
    return kernels[kernel];
}

const char *const kernel_names[KERNELS] = {"copy", "scale", "add", "triad"};
const char *const instruction_names[INSTRUCTION_SETS] = {"plain", "sse2", "avx2", "avx512"};
const char *const store_names[STORES] = {"regular", "streaming"};

bool kernel_available(InstructionSet set)
{
#if defined(__x86_64__)
    switch (set) {
    case AVX512:
        return __builtin_cpu_supports("avx512f");
    case AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case SSE2:
        return true;
    default:
        break;
    }
#endif
    return set == PLAIN;
}

InstructionSet kernel_preferred(void)
{
    InstructionSet set = AVX2;
    while (!kernel_available(set))
        set--;
    return set;
}

KernelCode *kernel_code(Kernel kernel, InstructionSet set, Stores stores)
{
    return kernels[kernel]->code[set][stores];
}
