// SPDX-License-Identifier: Apache-2.0
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void (*fail_hook)(const char *reason);

_Noreturn void fail(int status, const char *format, ...)
{
    char reason[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    void (*hook)(const char *) = fail_hook;
    fail_hook = NULL;
    if (hook)
        hook(reason);
    fprintf(stderr, "firsttouch-probe: error: %s\n", reason);
    exit(status);
}

void *must(void *pointer)
{
    if (!pointer)
        fail(EXIT_CANNOT, "no memory left for the probe's own tables");
    return pointer;
}

void *must_allocate(unsigned long count, unsigned long size)
{
    return must(calloc(count ? count : 1, size));
}

char *must_print(const char *format, ...)
{
    char *text;
    va_list arguments;
    va_start(arguments, format);
    const int written = vasprintf(&text, format, arguments);
    va_end(arguments);
    return must(written < 0 ? NULL : text);
}
