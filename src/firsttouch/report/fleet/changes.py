# SPDX-License-Identifier: Apache-2.0
"""What changed between two campaigns of the same hosts, metric by metric: direction, size and certainty.

Hosts are paired, so that what they differ by among themselves does not matter. The size is the median of their
relative changes, its interval that between two of their order statistics, and p that of the sign test: both are
exact whatever the distribution (W. J. Conover, Practical nonparametric statistics, 1971). Over all metrics, p is
corrected by Holm's method (S. Holm, A simple sequentially rejective multiple test procedure, 1979).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from firsttouch.report.fleet.ranks import worse
from firsttouch.verdict.columns import Floats
from firsttouch.verdict.fleet import LOSS
from firsttouch.verdict.model import natural
from firsttouch.verdict.passes import Case, Passes

Word = Literal["worse", "better", "changed", "undecided", "unchanged"]
#: From what has to be looked at first.
ORDER: Sequence[Word] = ("worse", "changed", "better", "undecided", "unchanged")
CONFIDENCE = 0.99
#: With fewer hosts there is no such interval: that between the extremes of 7 covers 98.4 %.
FEWEST = 8
#: A smaller change is none, however certain it is; one within the other figure is none where it may as well be 0.
NEGLIGIBLE, WITHIN = 0.005, LOSS / 2
#: Deviations beyond which a host changed unlike the others: of a million, as many as 1.
_UNLIKE = 4.9
#: From so many hosts on, the binomial distribution is as good as normal.
_EXACT = 1000


@dataclass(frozen=True)
class Change:
    """How a metric changed: medians over *hosts* that have it *before* and *after* (in the case's unit).

    *size* is the median relative change, between *low* and *high* with :data:`CONFIDENCE` (None: too few hosts),
    *p* that of no change (Holm's). *unlike* are hosts that changed otherwise than most, with their changes.
    """

    case: Case
    hosts: int
    before: float
    after: float
    size: float
    low: float | None
    high: float | None
    p: float
    unlike: Sequence[tuple[str, float]]
    word: Word = "undecided"


@dataclass(frozen=True)
class Host:
    """A host that is in both campaigns and changed unlike the others.

    *changes* are the metrics in which it did, the worst first; *lost* are those that others still have, and *new*
    those that it had not before.
    """

    name: str
    changes: Sequence[tuple[Case, float]]
    lost: Sequence[Case]
    new: Sequence[Case]

    @property
    def worst(self) -> tuple[float, int, int]:
        """How bad its worst change is (a lost metric: 1), and how many metrics it lost and changed in."""
        worst = max((worse(size, case.better) for case, size in self.changes), default=0.0)
        return (max(worst, float(bool(self.lost))), len(self.lost), len(self.changes))


@dataclass(frozen=True)
class Comparison:
    """All changes, what has to be looked at first, and what only one of the campaigns has.

    *changed* are the hosts that changed unlike the others, the worst first.
    """

    changes: Sequence[Change]
    hosts: int
    changed: Sequence[Host]
    only_before: Sequence[str]
    only_after: Sequence[str]
    cases_before: Sequence[str]
    cases_after: Sequence[str]


def compare(before: Passes, after: Passes) -> Comparison:
    """Compare the valid passes of two campaigns."""
    second = {_key(case): number for number, case in enumerate(after.cases)}
    names = {name: i for i, name in enumerate(after.hosts)}
    to_after = np.array([names.get(name, -1) for name in before.hosts], dtype=np.int64)
    shared = set(before.hosts) & set(after.hosts)
    lost: dict[str, list[Case]] = {}
    new: dict[str, list[Case]] = {}
    found, alone = [], []
    for number, case in enumerate(before.cases):
        other = second.pop(_key(case), None)
        if other is None:
            alone.append(case.name)
            continue
        mine, theirs = _levels(before, number), _levels(after, other)
        there = np.full(len(after.hosts) + 1, np.nan)
        there[theirs[0]] = theirs[1]
        values = there[to_after[mine[0]]]  # -1 is the last one: no such host
        both = np.isfinite(values) & (mine[1] != 0)
        if np.isfinite(values).any():
            had = {before.hosts[i] for i in mine[0]} & shared
            has = {after.hosts[i] for i in theirs[0]} & shared
            for host in had - has:
                lost.setdefault(host, []).append(case)
            for host in has - had:
                new.setdefault(host, []).append(case)
        if both.any():
            hosts = [before.hosts[i] for i in mine[0][both]]
            found.append(_change(case, hosts, mine[1][both], values[both]))
        else:
            alone.append(case.name)
    return Comparison(
        changes=sorted(_decided(found), key=lambda c: (ORDER.index(c.word), -abs(c.size), c.case.name)),
        hosts=int((to_after >= 0).sum()),
        changed=_hosts(found, lost, new),
        only_before=sorted(set(before.hosts) - set(after.hosts)),
        only_after=sorted(set(after.hosts) - set(before.hosts)),
        cases_before=alone,
        cases_after=[after.cases[number].name for number in second.values()],
    )


def _hosts(
    changes: Sequence[Change], lost: Mapping[str, Sequence[Case]], new: Mapping[str, Sequence[Case]]
) -> list[Host]:
    """Return the hosts that changed unlike the others, the worst first."""
    of: dict[str, list[tuple[Case, float]]] = {}
    for change in changes:
        for host, size in change.unlike:
            of.setdefault(host, []).append((change.case, size))
    hosts = [
        Host(
            name,
            sorted(of.get(name, ()), key=lambda c: (-worse(c[1], c[0].better), c[0].name)),
            lost.get(name, ()),
            new.get(name, ()),
        )
        for name in sorted({*of, *lost, *new}, key=natural)
    ]
    return sorted(hosts, key=lambda h: h.worst, reverse=True)


def _key(case: Case) -> str:
    return json.dumps(
        [case.system, case.check, case.metric, case.unit, case.better, case.parameters], sort_keys=True
    )


def _levels(passes: Passes, case: int) -> tuple[np.ndarray, Floats]:
    """Return the hosts of a case and the median of each one's valid passes."""
    known, hosts = passes.good([case])
    return hosts, known.medians()


def _change(case: Case, hosts: Sequence[str], before: Floats, after: Floats) -> Change:
    changes = after / before - 1
    size = float(np.median(changes))
    low, high = interval(changes)
    deviation = float(np.median(np.abs(changes - size))) / 0.6745
    far = np.abs(changes - size)
    beyond = np.flatnonzero(far > max(_UNLIKE * deviation, WITHIN)) if len(hosts) >= FEWEST else np.array([], int)
    order = beyond[np.argsort(-far[beyond], kind="stable")]
    unlike = [(hosts[i], float(changes[i])) for i in order.tolist()]
    middles = float(np.median(before)), float(np.median(after))
    return Change(case, len(hosts), *middles, size, low, high, sign_test(changes), unlike)


def interval(changes: Floats) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of the median with :data:`CONFIDENCE`, Nones where there are too few for one."""
    count = len(changes)
    if count < FEWEST:
        return None, None
    # The largest k of which as few as k - 1 or less below the median are improbable enough.
    if count <= _EXACT:
        k, tail = 0, 0
        while 2 * (tail + math.comb(count, k)) <= (1 - CONFIDENCE) * 2**count:
            tail += math.comb(count, k)
            k += 1
    else:
        k = math.floor((count - 2.5758 * math.sqrt(count)) / 2)
    ordered = np.sort(changes)
    return float(ordered[k - 1]), float(ordered[count - k])


def sign_test(changes: Floats) -> float:
    """Return the two-sided p of no change: as many hosts went up as down (those that did neither aside)."""
    up, down = int((changes > 0).sum()), int((changes < 0).sum())
    count, fewer = up + down, min(up, down)
    if not count:
        return 1.0
    if count <= _EXACT:
        tail = sum(math.comb(count, k) for k in range(fewer + 1))
        return float(min(1.0, 2 * tail / 2**count))
    return float(min(1.0, math.erfc((count / 2 - fewer - 0.5) / math.sqrt(count / 2))))


def _decided(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with their words, and p corrected for how many there are."""
    found: list[Change] = []
    most = 0.0
    for rank, one in enumerate(sorted(changes, key=lambda c: c.p)):
        most = max(most, min(1.0, one.p * (len(changes) - rank)))
        found.append(replace(one, p=most, word=_word(one, most)))
    return found


def _word(one: Change, p: float) -> Word:
    if one.low is None or one.high is None:
        return "undecided"
    reach = max(abs(one.low), abs(one.high))
    if reach <= NEGLIGIBLE or (one.low <= 0 <= one.high and reach <= WITHIN):
        return "unchanged"
    if one.low <= 0 <= one.high or p > 1 - CONFIDENCE:
        return "undecided"
    if one.case.better == "neither":
        return "changed"
    return "better" if (one.size > 0) == (one.case.better == "higher") else "worse"
