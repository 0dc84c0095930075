// SPDX-License-Identifier: Apache-2.0
// add: a[i] = b[i] + c[i]
#define KERNEL add
#define ARRAYS 3
#define VALUE(i) PLUS(LOAD(b + (i)), LOAD(c + (i)))
#include "instruction_sets.h"
