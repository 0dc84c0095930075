# SPDX-License-Identifier: Apache-2.0
"""Threads whose start and end no signal hides."""

from __future__ import annotations

import threading
from collections.abc import Callable

from firsttouch.errors import MORE_THREADS, CannotHere
from firsttouch.tools import defer_signals

#: Longest pause in seconds until a signal is handled.
_SIGNAL_PAUSE = 0.5


class WorkerThread:
    """A thread that a signal neither starts half nor hides the end of.

    The exception of a signal handler may leave Thread.start() when the thread runs, and after one in Thread.join()
    Python 3.11 takes a living thread for ended.
    """

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        """Prepare a thread that calls *work*."""
        self._ended = threading.Event()

        def body() -> None:
            try:
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
            # A signal that comes just before Python waits does not end the wait. It is handled after the pause.
            while not self._ended.wait(_SIGNAL_PAUSE):
                pass
            self._thread.join()
