// SPDX-License-Identifier: Apache-2.0
// What a loader does to memory: it reads all lines, and stores to none, a third or all of them.
#ifndef LOAD_H
#define LOAD_H

#include <stddef.h>

#include "kernels.h"

// By the share of reads in the memory traffic. A line that is stored to is read and written back: with a third of
// the lines stored to, three of four transfers are reads.
typedef enum { READ_ALL, READ_THREE_QUARTERS, READ_HALF, READ_SHARES } ReadShare;

extern const char *const read_share_names[READ_SHARES];
extern const double read_shares[READ_SHARES];

// Elements of a step. The lines that are stored to are its last ones, in runs of 512 bytes or more, so that the
// share also holds for lines of more than 64 bytes.
enum { LOAD_STEP = 24 * LINE };

// The elements of a step that are stored to, and the bytes that a step moves.
size_t load_stored(ReadShare share);
size_t load_bytes(ReadShare share);

// Reads a step and adds 1 to the elements that are stored to. Returns the sum of what was read.
typedef double LoadCode(double *step, ReadShare share);

LoadCode *load_code(void);
const char *load_instructions(void);

#endif
