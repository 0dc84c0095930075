// SPDX-License-Identifier: Apache-2.0
// STREAM's four kernels, each in a separate file, for every instruction set that the compiler supports.
#ifndef KERNELS_H
#define KERNELS_H

#include <stdbool.h>
#include <stddef.h>

// Those of each architecture from narrow to wide. PLAIN is the compiler's default for the architecture.
typedef enum { PLAIN, SSE2, AVX2, AVX512, NEON, SVE, INSTRUCTION_SETS } InstructionSet;
typedef enum { REGULAR, STREAMING, STORES } Stores;
typedef enum { COPY, SCALE, ADD, TRIAD, KERNELS } Kernel;

enum { LINE = 8, KERNEL_STEP = 64 }; // elements of a line; array parts are multiples of the step

// a[i] = f(b[i], c[i], q); arrays are aligned to 64 bytes. copy and scale do not use c.
typedef void KernelCode(double *restrict a, const double *b, const double *c, double q, size_t count);

typedef struct {
    int arrays; // arrays that the kernel reads or writes, as STREAM counts bytes
    KernelCode *code[INSTRUCTION_SETS][STORES];
} KernelFacts;

extern const KernelFacts copy_kernel, scale_kernel, add_kernel, triad_kernel;

const KernelFacts *kernel_facts(Kernel kernel);
extern const char *const kernel_names[KERNELS], *const instruction_names[INSTRUCTION_SETS],
                                                    *const store_names[STORES];

// True if this processor and this build have the instruction set.
bool kernel_available(InstructionSet set);

// x86: the widest of up to 256 bits. Regular stores of 512 bits were measured to be a tenth slower than
// stores of 256 (Xeon of family 6, model 85), streaming ones no faster. arm64: SVE if its vectors are longer
// than NEON's 128 bits.
InstructionSet kernel_preferred(void);

// NULL if the instruction set has no such stores.
KernelCode *kernel_code(Kernel kernel, InstructionSet set, Stores stores);

#endif
