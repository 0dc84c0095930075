# SPDX-License-Identifier: Apache-2.0
"""How often running programs are sampled: often at first, then so seldom that it does not slow them down."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.execution import placement_check

#: At most this fraction of the time is spent on sampling /proc, which slows the program down a little.
LOOK_SHARE = 0.02
#: Poll interval in seconds until every instance's memory has been sampled once; short ones would end unseen.
UNSEEN_PAUSE = 0.1
#: Between two samples, the size of the programs is read after pauses (s) of at least this length, which take at
#: most this fraction of the time. A program whose memory has grown by a quarter is sampled at once.
SIZE_PAUSE, SIZE_SHARE = 0.05, 0.005
#: The longest such pause (s) for the sake of that fraction: on a slow host, programs would end with memory unseen.
MOST_SIZE_PAUSE = 0.5
#: The first pauses (s), which become longer by a half each: a short program must not end unseen.
FIRST_PAUSE = 0.005


class Watching(NamedTuple):
    """How running programs are sampled: *look* adds a sample of a process to the earlier ones.

    Sampling takes at most *share* (a fraction) of the time. Until a job's memory has been sampled, and all its
    threads if *all_threads*, the pauses are short. *grown* tells, at a lower cost, whether a process holds so much
    more memory than was sampled that the next look is due.
    """

    share: float = LOOK_SHARE
    look: Callable[[int, placement_check.Observed], None] = placement_check.look
    all_threads: bool = False
    grown: Callable[[int, placement_check.Observed], bool] = placement_check.grown


class Pace:
    """The times of the samples, which come less often the longer a program runs."""

    def __init__(self, watching: Watching, clock: Clock = SYSTEM_CLOCK) -> None:
        self._share, self._clock = watching.share, clock
        self._pause = self._size_pause = FIRST_PAUSE

    def next(self, spent: float, *, seen: bool) -> float:
        """Return when the next sample is due after one that took *spent* CPU seconds; *seen*: all have samples.

        On a busy host a sample lasts longer than it costs, and its waits do not slow the program down.
        """
        self._pause = max(min(self._pause * 1.5, 5.0), spent / self._share)
        if not seen:
            self._pause = min(self._pause, UNSEEN_PAUSE)
        return self._clock.monotonic() + self._pause

    def next_size(self, spent: float) -> float:
        """Return when the programs' size is due to be read, after that took *spent* CPU seconds the last time."""
        self._size_pause = min(1.5 * self._size_pause, SIZE_PAUSE)
        return self._clock.monotonic() + max(
            self._size_pause, self._pause / 50, min(spent / SIZE_SHARE, MOST_SIZE_PAUSE)
        )
