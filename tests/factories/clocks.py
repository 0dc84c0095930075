# SPDX-License-Identifier: Apache-2.0
"""A clock that stands still until a test, or the code under test by waiting, moves it."""

from __future__ import annotations

import queue
import time

from firsttouch.clock import Clock, T, Waitable


class ManualClock(Clock):
    """Time passes only by :meth:`sleep`, which returns at once, and by waiting in vain for an event.

    *sleeps* are the durations of all waits in vain, in order. Real events come first: what has already happened is
    returned without time passing. Each wait in vain yields the processor for a millisecond, so that a loop that
    waits for a real process or thread does not keep it from running.
    """

    def __init__(self, now: float = 1000.0, date: float = 1.7e9) -> None:
        self.now, self._date = now, date - now
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.now

    def time(self) -> float:
        return self._date + self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
        time.sleep(0.001)

    def wait(self, event: Waitable, seconds: float) -> bool:
        if event.wait(0):
            return True
        self.sleep(seconds)
        return event.wait(0)

    def get(self, items: queue.SimpleQueue[T], seconds: float) -> T:
        try:
            return items.get_nowait()
        except queue.Empty:
            self.sleep(max(0.0, seconds))
            return items.get_nowait()
