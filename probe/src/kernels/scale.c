// SPDX-License-Identifier: Apache-2.0
// scale: a[i] = q b[i]
#define KERNEL scale
#define ARRAYS 2
#define VALUE(i) MULTIPLY(scalar, LOAD(b + (i)))
#include "instruction_sets.h"
