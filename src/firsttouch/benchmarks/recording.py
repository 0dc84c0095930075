# SPDX-License-Identifier: Apache-2.0
"""Holds this host during a measurement, and appends the records and the host's error counters to a file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from firsttouch.host import health_counters
from firsttouch.host.health_counters import Counter
from firsttouch.records.schema import Record, append, check_appendable, software

CHECK = "health"


class Watch:
    """Reads the error counters of the host (or of a stored *root*) when created, and again in :meth:`records`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._began = root, time.monotonic()
        self._before = health_counters.read(root)
        self._seconds = 0.0
        #: The events, by counter: complete after :meth:`records`.
        self.counted: dict[Counter, int] = {}

    def records(self) -> list[Record]:
        """Return a record for each counter with events, and a record of 0 for each metric without any event.

        A metric without a readable counter has no record. The counters cover the whole host, including other
        programs.
        """
        self.counted = health_counters.difference(self._before, health_counters.read(self._root))
        self._seconds = round(time.monotonic() - self._began, 3)
        events = {counter: count for counter, count in self.counted.items() if count}
        quiet = {counter.metric for counter in self.counted} - {counter.metric for counter in events}
        return [
            *(self._record(counter.metric, count, module=counter.module) for counter, count in events.items()),
            *(self._record(metric, 0) for metric in sorted(quiet)),
        ]

    def _record(self, metric: str, count: int, **parameters: str) -> Record:
        return Record(
            *(CHECK, metric, "1", "lower", (float(count),)),
            parameters={**parameters, "seconds": self._seconds},
            software=software(),
        )

    def event_lines(self) -> list[str]:
        """Return a line for each counter with events: ``corrected errors: 3 in 12.0 s (DIMM_A1)``."""
        return [
            f"{counter.metric.replace('_', ' ')}: {count} in {self._seconds:.1f} s ({counter.module})"
            for counter, count in self.counted.items()
            if count
        ]


@contextlib.contextmanager
def hold_and_record(
    file: Path | None, *, share_host: bool = False, watched: bool = True, say: Callable[[str], None] = print
) -> Iterator[Callable[[Sequence[Record]], None]]:
    """Hold the host and yield a function that appends records to *file* (None: it discards them).

    With *share_host*, it does not wait for other runs. Without *watched*, as for a topology, it ignores other runs
    and error counters. Raises BadInput if the file holds anything but records.
    """
    from firsttouch.execution import host_lock  # noqa: PLC0415 - help of commands needs none

    if file:
        check_appendable(file)

    def keep(records: Sequence[Record]) -> None:
        if file:
            append(file, records)

    holding = host_lock.hold_unless_shared(say, share_host=share_host or not watched)
    with holding, watching_health(file if watched else None, say=say):
        yield keep


@contextlib.contextmanager
def watching_health(file: Path | None, *, say: Callable[[str], None] = print) -> Iterator[None]:
    """Append this host's error counts of the measurement to the *file* of records, if there is one.

    After an error nothing is appended: a step without a result has no health records.
    """
    if file is None:
        yield
        return
    watch = Watch()
    yield
    if measured := watch.records():
        append(file, measured)
    for text in watch.event_lines():
        say(f"firsttouch: {text}")
