# SPDX-License-Identifier: Apache-2.0
"""Time as a parameter: code that waits, samples or keeps to a budget asks a clock, which a test can replace."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import queue

T = TypeVar("T")
#: Seconds by which the clocks of two hosts may differ. A time that is further in the future is ignored.
MOST_SKEW = 3600.0


class Waitable(Protocol):
    """Something that happens once, such as a threading.Event."""

    def wait(self, timeout: float) -> bool:
        """Wait at most *timeout* seconds; return whether it has happened."""


class Clock:
    """The system's time. All durations are in seconds."""

    def monotonic(self) -> float:
        """Return the seconds since an unspecified start, which no change of the date affects."""
        return time.monotonic()

    def thread_time(self) -> float:
        """Return the CPU seconds of this thread."""
        return time.thread_time()

    def time(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait for this number of seconds."""
        time.sleep(seconds)

    def wait(self, event: Waitable, seconds: float) -> bool:
        """Wait at most *seconds* for an event; return whether it has happened."""
        return event.wait(seconds)

    def get(self, items: queue.SimpleQueue[T], seconds: float) -> T:
        """Return the next of *items*; raises queue.Empty if none comes within *seconds*."""
        return items.get(timeout=max(0.0, seconds))


SYSTEM_CLOCK = Clock()
