# SPDX-License-Identifier: Apache-2.0
"""The passes of a fleet in columns: what is judged of records, of ten thousand hosts as of one.

Records of one host and case are passes: the same thing measured again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttouch.records import Better
from firsttouch.systems.vocabulary import PARAMETERS
from firsttouch.verdict.columns import Bools, Floats, Groups, Ints, stable
from firsttouch.verdict.model import case_name

#: Parameters that name a case beside those that a reference may name.
_BESIDE = ("effort", "division", "reads")
#: A session of a host ends where it has no record for longer than this (ms): a campaign, or a part of one. Several
#: campaigns of a day are sessions of their own; a job that is requeued after hours is two, which does no harm.
GAP = 3_600_000
#: Times of a host in :attr:`Passes.sessions` are below this (ms since 1970: the year 2109).
SPAN = 1 << 42


@dataclass(frozen=True)
class Case:
    """A metric of a check in one case: *parameters* are those that name it. Values are in *unit*."""

    system: str
    check: str
    metric: str
    parameters: Mapping[str, Any]
    unit: str
    better: Better

    @cached_property
    def name(self) -> str:
        """The metric with what tells its case from others of the check."""
        return case_name(self.check, self.metric, self.parameters)

    @property
    def exact(self) -> bool:
        """Tell whether values are read of the host and not measured: a single one is as good as many."""
        return self.check == "topology"


@dataclass(frozen=True)
class Passes:
    """All passes, ordered by case, host and time; a *group* is those of one host and case, oldest first.

    *hosts* are in alphabetical order, *cases* in the order in which they first came. Of each pass there is its
    *value*, its *time* (ms since 1970), whether it is *valid* and may be *judged*, and why not (a number of
    *reasons*). Of each group there is its *case*, its *host* and how many passes it has (*counts*).
    *settings* are the latest values of each host that explain its speed, *looks* (time, PUs that others kept busy)
    those of each host that was found busy. *sessions* are where sessions begin: host number x SPAN + time, sorted.
    """

    hosts: Sequence[str]
    cases: Sequence[Case]
    value: Floats
    time: Ints
    valid: Bools
    judged: Bools
    reason: NDArray[np.int32]
    reasons: Sequence[str]
    case: NDArray[np.int32]
    host: NDArray[np.int32]
    counts: Ints
    settings: Mapping[str, Mapping[str, float]]
    looks: Mapping[str, Sequence[tuple[int, float]]]
    sessions: Ints

    @cached_property
    def begins(self) -> Ints:
        """Return where the passes of each group begin."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def of_case(self) -> Ints:
        """Return where the groups of each case begin, and the number of all."""
        return np.searchsorted(self.case, np.arange(len(self.cases) + 1))

    @cached_property
    def of_host(self) -> tuple[Ints, NDArray[np.intp]]:
        """Return where the groups of each host begin in the order of hosts, and that order."""
        order = stable(self.host)
        return np.searchsorted(self.host[order], np.arange(len(self.hosts) + 1)), order

    def groups(self, case: int) -> slice:
        """Return the groups of a case."""
        return slice(int(self.of_case[case]), int(self.of_case[case + 1]))

    def passes(self, groups: slice) -> slice:
        """Return the passes of consecutive groups."""
        if groups.start == groups.stop:
            return slice(0, 0)
        last = groups.stop - 1
        return slice(int(self.begins[groups.start]), int(self.begins[last] + self.counts[last]))

    def session(self, groups: slice) -> Ints:
        """Return the number of each pass's session, for all passes of consecutive groups."""
        part = self.passes(groups)
        if len(self.sessions) == len(self.hosts):
            return np.zeros(part.stop - part.start, dtype=np.int64)
        return self._session(np.repeat(self.host[groups], self.counts[groups]), self.time[part])

    def _session(self, host: NDArray[np.int32], time: Ints) -> Ints:
        keys = host.astype(np.int64) * SPAN + np.clip(time, 0, SPAN - 1)
        return np.searchsorted(self.sessions, keys, side="right")

    def busy(self, groups: slice) -> Floats | None:
        """Return how many PUs others kept busy at each pass of consecutive groups; None: none on any host.

        What the last look before a pass saw, in the same session, is taken for what it was.
        """
        if not self.looks:
            return None
        number = {name: i for i, name in enumerate(self.hosts)}
        begin, found = self.passes(groups).start, None
        for name in self.looks:
            for group in np.flatnonzero(self.host[groups] == number.get(name, -1)).tolist():
                part = self.passes(slice(groups.start + group, groups.start + group + 1))
                if found is None:
                    found = np.zeros(self.passes(groups).stop - begin)
                found[part.start - begin : part.stop - begin] = self._seen(name, number[name], self.time[part])
        return found

    def _seen(self, name: str, number: int, time: Ints) -> Floats:
        """Return how many PUs the last look at a host saw busy, at each *time*."""
        looks = np.array([t for t, _ in self.looks[name]], dtype=np.int64)
        seen = np.array([busy for _, busy in self.looks[name]])
        last = np.searchsorted(looks, time, side="right") - 1
        host = np.full(len(time), number, dtype=np.int32)
        same = self._session(host, time) == self._session(host, looks[last])
        return np.where((last >= 0) & same, seen[last], 0.0)

    def good(self, cases: Sequence[int]) -> tuple[Groups, NDArray[np.int32]]:
        """Return the good passes (valid, to be judged) of *cases* taken as one, and their hosts' numbers."""
        parts = [self.passes(self.groups(case)) for case in cases]
        numbers = [np.repeat(self.host[g], self.counts[g]) for g in map(self.groups, cases)]
        host, time = np.concatenate(numbers), np.concatenate([self.time[p] for p in parts])
        kept = np.concatenate([self.valid[p] & self.judged[p] for p in parts])
        order = np.flatnonzero(kept)
        if len(cases) > 1:
            order = order[np.lexsort((time[order], host[order]))]
        found, counts = np.unique(host[order], return_counts=True)
        return Groups(np.concatenate([self.value[p] for p in parts])[order], counts), found


def case_of(check: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return those *parameters* of a record that tell its case from others of the check."""
    known = PARAMETERS.get(check)
    names = parameters if known is None else (*known, *_BESIDE)
    return {name: parameters[name] for name in names if name in parameters}


def split(passes: Passes, *names: str) -> dict[str, Passes]:
    """Return the passes of each system (and of *names*, where there may be none)."""
    systems = list(dict.fromkeys([*(case.system for case in passes.cases), *names]))
    if len(systems) == 1 and passes.cases:
        return {systems[0]: passes}
    return {name: _of_system(passes, name) for name in systems}


def of_hosts(passes: Passes, names: Collection[str]) -> Passes:
    """Return the passes of some hosts alone."""
    mine = np.array([host in names for host in passes.hosts], dtype=np.bool_)
    return _of_groups(passes, mine[passes.host], np.ones(len(passes.cases), dtype=np.bool_))


def _of_system(passes: Passes, system: str) -> Passes:
    mine = np.array([case.system == system for case in passes.cases], dtype=np.bool_)
    return _of_groups(passes, mine[passes.case] if len(mine) else np.zeros(0, dtype=np.bool_), mine)


def _of_groups(passes: Passes, groups: Bools, mine: Bools) -> Passes:
    """Return the passes of *groups*, which are all of the cases that are *mine*."""
    kept = np.repeat(groups, passes.counts)
    hosts, host = np.unique(passes.host[groups], return_inverse=True)
    case = np.cumsum(mine) - 1
    sessions = passes.sessions[np.isin(passes.sessions // SPAN, hosts)]
    return Passes(
        hosts=[passes.hosts[i] for i in hosts.tolist()],
        cases=[case for case, is_mine in zip(passes.cases, mine, strict=True) if is_mine],
        value=passes.value[kept],
        time=passes.time[kept],
        valid=passes.valid[kept],
        judged=passes.judged[kept],
        reason=passes.reason[kept],
        reasons=passes.reasons,
        case=case[passes.case[groups]].astype(np.int32),
        host=host.astype(np.int32),
        counts=passes.counts[groups],
        settings=passes.settings,
        looks=passes.looks,
        sessions=np.searchsorted(hosts, sessions // SPAN) * SPAN + sessions % SPAN,
    )
