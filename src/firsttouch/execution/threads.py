# SPDX-License-Identifier: Apache-2.0
"""Threads whose start and end are known even if a signal interrupts them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection

from firsttouch.errors import MORE_THREADS, CannotHere
from firsttouch.tools import defer_signals

#: Longest time in seconds until a signal is handled.
_SIGNAL_PAUSE = 0.5


class WorkerThread:
    """A thread that is never half started, and whose end is never missed, when a signal arrives.

    An exception of a signal handler may leave Thread.start() although the thread runs; and after one in
    Thread.join(), Python 3.11 regards a running thread as ended.
    """

    def __init__(self, name: str, work: Callable[[], object], *, pus: Collection[int] = ()) -> None:
        """Prepare a thread that calls *work*; it and its children run on *pus* (empty: on its creator's)."""
        self._ended = threading.Event()

        def body() -> None:
            try:
                if pus:
                    os.sched_setaffinity(0, pus)
                work()
            finally:
                self._ended.set()

        self._thread = threading.Thread(target=body, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; raises CannotHere if the host has none left."""
        try:
            with defer_signals():
                self._thread.start()
        except RuntimeError as error:
            raise CannotHere(f"{error}: {MORE_THREADS}") from error

    @property
    def is_started(self) -> bool:
        """Whether *work* was or will be called."""
        return self._thread.ident is not None

    def join(self) -> None:
        """Wait until *work* has ended, if it was started."""
        if self.is_started:
            # A signal just before Python waits does not end the wait; it is handled after the timeout.
            while not self._ended.wait(_SIGNAL_PAUSE):
                pass
            self._thread.join()
