# SPDX-License-Identifier: Apache-2.0
"""How often running programs are sampled: often at first, then rarely enough not to slow them down."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.execution import placement_check

#: The largest fraction of time spent on sampling /proc, which slows the program down a little.
LOOK_SHARE = 0.02
#: Poll interval in seconds until every instance's memory has been sampled once, so that short ones are seen.
UNSEEN_PAUSE = 0.1
#: Between two samples, the programs' size is read at intervals of at least this length (s), using at most this
#: fraction of the time. A program whose memory has grown by a quarter is sampled at once.
SIZE_PAUSE, SIZE_SHARE = 0.05, 0.005
#: The longest such interval (s), even if that fraction is exceeded: on a slow host, programs would end with unseen
#: memory.
MOST_SIZE_PAUSE = 0.5
#: The first intervals (s), each longer by half, so that short programs are seen.
FIRST_PAUSE = 0.005


class Watching(NamedTuple):
    """How running programs are sampled: *look* adds a sample of a process to the earlier ones.

    Sampling takes at most *share* (a fraction) of the time. Until a job's memory has been sampled, and all its
    threads if *all_threads*, the intervals are short. *grown* returns, at a lower cost, whether a process has
    grown so much that the next sample is due.
    """

    share: float = LOOK_SHARE
    look: Callable[[int, placement_check.Observed], None] = placement_check.look
    all_threads: bool = False
    grown: Callable[[int, placement_check.Observed], bool] = placement_check.has_grown


class Pace:
    """The times of the samples, which come less often the longer a program runs."""

    def __init__(self, watching: Watching, clock: Clock = SYSTEM_CLOCK) -> None:
        self._share, self._clock = watching.share, clock
        self._pause = self._size_pause = FIRST_PAUSE

    def next(self, spent: float, *, seen: bool) -> float:
        """Return when the next sample is due after one of *spent* CPU seconds; *seen*: all jobs have samples.

        CPU time is used because on a busy host a sample also waits, which does not slow the program down.
        """
        self._pause = max(min(self._pause * 1.5, 5.0), spent / self._share)
        if not seen:
            self._pause = min(self._pause, UNSEEN_PAUSE)
        return self._clock.monotonic() + self._pause

    def next_size(self, spent: float) -> float:
        """Return when to read the programs' size next, if the last time took *spent* CPU seconds."""
        self._size_pause = min(1.5 * self._size_pause, SIZE_PAUSE)
        return self._clock.monotonic() + max(
            self._size_pause, self._pause / 50, min(spent / SIZE_SHARE, MOST_SIZE_PAUSE)
        )
