// SPDX-License-Identifier: Apache-2.0
// triad: a[i] = b[i] + q c[i]
#define KERNEL triad
#define ARRAYS 3
#define VALUE(i) FUSED(scalar, LOAD(c + (i)), LOAD(b + (i)))
#include "instruction_sets.h"
