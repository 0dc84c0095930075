# SPDX-License-Identifier: Apache-2.0
"""Errors and throttling of this host during a measurement, as records."""

from __future__ import annotations

import time
from pathlib import Path

from firsttouch.host import health_counters
from firsttouch.host.health_counters import Counter
from firsttouch.records.schema import Record, software

CHECK = "health"


class Watch:
    """Reads the counters of the host (or of the stored *root*) when created, and again in :meth:`records`."""

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
