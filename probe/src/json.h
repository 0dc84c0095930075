// SPDX-License-Identifier: Apache-2.0
// A JSON writer that adds commas and escapes. The key is NULL inside an array.
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdint.h>

void json_begin(const char *key, char bracket); // '{' or '['
void json_end(char bracket);                    // '}' or ']'
void json_string(const char *key, const char *value);
void json_integer(const char *key, int64_t value);
void json_number(const char *key, double value); // null if it is not finite
void json_bool(const char *key, bool value);
void json_null(const char *key);
void json_integers(const char *key, const int *values, int count);

// Ends a line of output and flushes it; fails if the output cannot be written.
void json_line(void);

#endif
