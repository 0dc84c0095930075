// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fail.h"

static bool needs_comma;
static int depth;

static void text(const char *value)
{
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)value; *c; c++) {
        if (*c == '"' || *c == '\\')
            printf("\\%c", *c);
        else if (*c < 0x20)
            printf("\\u%04x", *c);
        else
            putchar(*c);
    }
    putchar('"');
}

static void name(const char *key)
{
    if (needs_comma)
        fputs(", ", stdout);
    needs_comma = true;
    if (key) {
        text(key);
        fputs(": ", stdout);
    }
}

void json_begin(const char *key, char bracket)
{
    name(key);
    putchar(bracket);
    needs_comma = false;
    depth++;
}

void json_end(char bracket)
{
    putchar(bracket);
    needs_comma = --depth > 0;
}

void json_string(const char *key, const char *value)
{
    name(key);
    text(value);
}

void json_integer(const char *key, int64_t value)
{
    name(key);
    printf("%" PRId64, value);
}

void json_number(const char *key, double value)
{
    if (!isfinite(value)) {
        json_null(key);
        return;
    }
    name(key);
    printf("%.7g", value);
}

void json_bool(const char *key, bool value)
{
    name(key);
    fputs(value ? "true" : "false", stdout);
}

void json_null(const char *key)
{
    name(key);
    fputs("null", stdout);
}

void json_integers(const char *key, const int *values, int count)
{
    json_begin(key, '[');
    for (int i = 0; i < count; i++)
        json_integer(NULL, values[i]);
    json_end(']');
}

void json_line(void)
{
    putchar('\n');
    if (fflush(stdout) || ferror(stdout)) {
        fail_hook = NULL; // the output cannot be written any more
        fail(EXIT_FAILED, "standard output cannot be written: %s", strerror(errno));
    }
}
