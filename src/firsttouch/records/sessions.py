# SPDX-License-Identifier: Apache-2.0
"""The sessions of all hosts in a table of measurements."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from firsttouch.records.groups import Bools, Floats, Ints
from firsttouch.records.samples_table import SamplesTable

DAY = 86_400_000  # ms


class Sessions(Struct, frozen=True, dict=True):
    """All sessions of all hosts, sorted by *host* (a number) and *time* (ms since 1970).

    *number* is the session's number in the table, *begins* the first session of each host, *current* whether the
    host had its present parts.
    """

    number: Ints
    host: Ints
    time: Ints
    begins: Ints
    current: Bools

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return len(self.begins)

    @cached_property
    def place(self) -> Ints:
        """The place of each number of a session among these."""
        place = np.zeros(int(self.number.max(initial=0)) + 1, dtype=np.int64)
        place[self.number] = np.arange(len(self.number))
        return place

    @cached_property
    def interval(self) -> float:
        """The usual time between two sessions of a host (ms), a day at least."""
        gaps = np.diff(self.time)[np.diff(self.host) == 0]
        return max(float(np.median(gaps)) if len(gaps) else 0.0, float(DAY))

    @cached_property
    def weeks(self) -> tuple[Floats, Ints, Ints]:
        """The intervals with sessions: their numbers, their first sessions, and the place of each session."""
        numbers = np.rint(self.time / self.interval)
        return np.unique(numbers, return_index=True, return_inverse=True)

    @classmethod
    def from_table(cls, table: SamplesTable) -> Sessions:
        """Return the sessions of a table."""
        is_measured = np.zeros(len(table.session_times), dtype=np.bool_)
        for groups, _ in table.by_case():
            if not is_measured[table.host_sessions[0] :].all():
                is_measured[table.session(groups)] = True
        number = np.flatnonzero(is_measured)
        host = np.searchsorted(table.host_sessions, number, side="right") - 1
        begins = np.searchsorted(host, np.arange(len(table.hosts)))
        return cls(number, host, table.session_times[number], begins, number >= table.first_sessions[host])
