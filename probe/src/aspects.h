// SPDX-License-Identifier: Apache-2.0
// One function per aspect, each in a file of its own: it begins the report and prints its results.
#ifndef ASPECTS_H
#define ASPECTS_H

#include "host.h"
#include "options.h"

void latency(const Options *options, const Host *host);
void bandwidth(const Options *options, const Host *host);
void contention(const Options *options, const Host *host);
void loaded_latency(const Options *options, const Host *host);

#endif
