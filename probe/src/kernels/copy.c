// SPDX-License-Identifier: Apache-2.0
// copy: a[i] = b[i]
#define KERNEL copy
#define ARRAYS 2
#define VALUE(i) LOAD(b + (i))
#include "instruction_sets.h"
