// SPDX-License-Identifier: Apache-2.0
#ifndef HELP_H
#define HELP_H

void help_print(void);

#endif
