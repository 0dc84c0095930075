# SPDX-License-Identifier: Apache-2.0
"""Judges counts of events, such as memory errors, by the limits in metrics.toml.

All events of a host's newest session with counters are added, so a replaced module does not blame its host for
ever. A slow core is blamed until the chain that was slow is measured again. Proofs, such as wrong answers, hold
until the host's parts are replaced. Invalid records prove nothing, but make their case invalid until a later
session of their check.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from firsttouch.host.cpusets import parse_list
from firsttouch.judge.verdict import ORDER
from firsttouch.records.cases import Case
from firsttouch.records.catalogue import Limit
from firsttouch.records.groups import Bools, Floats, Ints
from firsttouch.records.samples_table import SamplesTable

_HOUR = 3.6e6  # ms


def is_exact(case: Case) -> bool:
    """Return whether values of a case are read or counted, so that one value is enough."""
    return case.exact or case.limit is not None


class EventLimits:
    """Judges the cases of *samples* that have a limit: :meth:`judge` takes the number of a case."""

    def __init__(self, samples: SamplesTable) -> None:
        self._samples = samples
        #: By the number of the case: host, session and time of each row.
        self._columns: dict[int, tuple[NDArray[np.int32], Ints, Ints]] = {}
        for number, case in enumerate(samples.cases):
            if case.limit:
                groups = samples.groups(number)
                host = np.repeat(samples.host[groups], samples.counts[groups])
                self._columns[number] = host, samples.session(groups), samples.event_times[number]
        self._parts = {number: _part(samples.cases[number]) for number in self._columns}
        self._newest = self._newest_session(self._columns)
        begins, ends = (np.full(len(samples.hosts), end) for end in (np.inf, -np.inf))
        for host, session, time in self._columns.values():
            now = session == self._newest[host]
            np.minimum.at(begins, host[now], time[now])
            np.maximum.at(ends, host[now], time[now])
        #: The hours of each host's newest session, at least one: rates over shorter times are meaningless.
        self._hours: Floats = np.maximum(1.0, np.where(ends >= begins, ends - begins, 0.0) / _HOUR)

    def _newest_session(self, numbers: Iterable[int]) -> Ints:
        """Return the newest session of each host in some cases (-1: none)."""
        newest = np.full(len(self._samples.hosts), -1)
        for number in numbers:
            np.maximum.at(newest, *self._columns[number][:2])
        return newest

    def judge(self, number: int, limit: Limit) -> tuple[NDArray[np.uint8], Bools]:
        """Return the verdicts (numbers) of the groups of a case with this *limit*, and the rows to use."""
        samples, groups, cases = self._samples, self._samples.groups(number), self._samples.cases
        rows, counts = samples.rows_of(groups), samples.counts[groups]
        (host, session, time), part = self._columns[number], self._parts[number]
        newest = self._newest
        if part is not None:
            of_part = (n for n, other in self._parts.items() if other == part)
            newest = self._newest_session(n for n in of_part if _has_measured(cases[n], cases[number]))
        # A session may begin with the old parts.
        counted = time >= samples.parts_since[host] if limit.lasting else session == newest[host]
        now = counted & samples.valid[rows]
        begins = np.cumsum(counts) - counts
        events = np.add.reduceat(np.where(now, samples.value[rows], 0.0), begins)
        if limit.per_hour:
            events = events / self._hours[samples.host[groups]]
        may_judge = samples.judged[rows][begins + counts - 1]
        bad = (events > limit.most) & may_judge
        words = np.where(bad, ORDER.index(limit.verdict), ORDER.index("pass")).astype(np.uint8)
        if limit.is_proof:
            of_check = self._newest_session(n for n in self._columns if cases[n].check == cases[number].check)
            unproved = (session == of_check[host]) & ~samples.valid[rows] & (samples.value[rows] > limit.most)
            words[np.logical_or.reduceat(unproved, begins) & may_judge & ~bad] = ORDER.index("invalid")
        return words, now


def _part(case: Case) -> tuple[str, object] | None:
    """Return the part that must be measured again to clear a case; None: any measurement with a limit."""
    limit = case.limit
    return (f"{case.check} {case.metric}", case.parameters.get(limit.by)) if limit and limit.by else None


def _has_measured(case: Case, other: Case) -> bool:
    """Return whether records of *case*, by default of all PUs, have measured the PU of the *other* case."""
    pu, pus = other.parameters.get("pu"), case.parameters.get("measured_pus")
    return pu is None or pus is None or pu in parse_list(pus)


def would_count(case: Case, other: Case) -> bool:
    """Return whether records of *case* would show the events of the *other* case, whatever its PU and bits."""
    if (case.system, case.check, case.metric) != (other.system, other.check, other.metric):
        return False
    differ = {name for name, value in case.parameters.items() if other.parameters.get(name, value) != value}
    return differ <= {"pu", "bits", "measured_pus"} and _has_measured(case, other)
