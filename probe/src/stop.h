// SPDX-License-Identifier: Apache-2.0
// Signals: completed measurements are still printed, marked as partial.
#ifndef STOP_H
#define STOP_H

void stop_install(void);

// The signal that asked to stop, or 0.
int stop_signal(void);

#endif
