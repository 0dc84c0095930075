// SPDX-License-Identifier: Apache-2.0
// Errors end the program with one line on standard error and the exit status of the command-line contract.
#ifndef FAIL_H
#define FAIL_H

enum {
    EXIT_FAILED = 1, // a measurement is wrong or could not be finished
    EXIT_USAGE = 2,  // bad input
    EXIT_CANNOT = 3, // this host or its limits do not allow it
};

_Noreturn void fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

// fail() calls it first, to end a document that has begun, with the reason.
extern void (*fail_hook)(const char *reason);

// These fail if there is no memory left for the probe's own tables. must() returns the pointer of an allocation.
void *must(void *pointer);
void *must_allocate(unsigned long count, unsigned long size);
char *must_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
