// SPDX-License-Identifier: Apache-2.0
// One function per aspect, each in a separate file: it begins the report and prints the results.
#ifndef ASPECTS_H
#define ASPECTS_H

#include "host.h"
#include "options.h"

void latency(const Options *options, const Host *host);
void bandwidth(const Options *options, const Host *host);
void contention(const Options *options, const Host *host);
void loaded_latency(const Options *options, const Host *host);
void core_to_core(const Options *options, const Host *host);
void locks(const Options *options, const Host *host);
void correctness(const Options *options, const Host *host);
void cores(const Options *options, const Host *host);
void tails(const Options *options, const Host *host);

#endif
