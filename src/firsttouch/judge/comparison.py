# SPDX-License-Identifier: Apache-2.0
"""Compares two campaigns of the same hosts: direction, size and certainty of each change.

Each host is compared with itself, so differences between hosts do not matter. The size is the median of the
relative changes, its interval lies between two order statistics, and p is that of the sign test. Both are exact
for any distribution. p is corrected for the number of metrics by Holm's method.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.judge.constants import DOUBTFUL_LOSS as LOSS
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.judge.groups import Floats
from firsttouch.judge.statistics import holm, median_interval, robust_deviation, sign_test
from firsttouch.judge.verdict import natural, worse
from firsttouch.records.cases import Case

Word = Literal["worse", "better", "changed", "undecided", "unchanged"]
#: In order of urgency.
ORDER: Sequence[Word] = ("worse", "changed", "better", "undecided", "unchanged")
CONFIDENCE = 0.99
#: Fewer hosts have no such interval: even the extremes of 7 cover only 98.4 %.
FEWEST = 8
#: A change below the first limit is none, however certain. One below the second is none if its interval holds 0.
NEGLIGIBLE, WITHIN = 0.005, LOSS / 2
#: Deviations from the median beyond which a host changed unlike the others: one in a million by chance.
_UNLIKE = 4.9
#: The same of fewer than FEWEST hosts, whose own spread is hardly known: of 4 to 7 hosts with equal normal changes
#: one lies beyond in at most 1 of 65 cases. Of fewer hosts none can be told to be the odd one.
_UNLIKE_FEW, FEWEST_UNLIKE = 15.0, 4
#: More times the repetitions are not named as what decides a change.
_MOST_TIMES = 100


class Change(Struct, frozen=True):
    """The change of a metric: its medians *before* and *after* (in the unit of the case) on a number of *hosts*.

    *size* is the median relative change (1: from 0), between *low* and *high* with :data:`CONFIDENCE` (None: too
    few hosts). *p* is corrected. *unlike* are the hosts that changed unlike most, with their changes. *needs* says
    what would decide an undecided change.
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
    needs: str = ""


class Host(Struct, frozen=True):
    """A host of both campaigns that changed unlike the others.

    *changes* are its unusual changes, the worst first, *lost* the metrics that only this host lost, *new* those
    that it gained.
    """

    name: str
    changes: Sequence[tuple[Case, float]]
    lost: Sequence[Case]
    new: Sequence[Case]

    @property
    def worst(self) -> tuple[float, int, int]:
        """The size of its worst change (1 for a lost metric), and its numbers of lost and of changed metrics."""
        worst = max((worse(size, case.better) for case, size in self.changes), default=0.0)
        return (max(worst, float(bool(self.lost))), len(self.lost), len(self.changes))


class Comparison(Struct, frozen=True):
    """All changes in order of urgency, and what only one of the campaigns has.

    *changed* are the hosts that changed unlike the others, the worst first.
    """

    changes: Sequence[Change]
    hosts: int
    changed: Sequence[Host]
    only_before: Sequence[str]
    only_after: Sequence[str]
    cases_before: Sequence[str]
    cases_after: Sequence[str]


def compare(before: SamplesTable, after: SamplesTable) -> Comparison:
    """Compare the valid samples of two campaigns."""
    shared = sorted({*before.hosts} & {*after.hosts})
    first, second = (np.searchsorted(samples.hosts, shared) for samples in (before, after))
    numbers = {(case.system, case.key): number for number, case in enumerate(after.cases)}
    lost: dict[str, list[Case]] = {}
    new: dict[str, list[Case]] = {}
    changes, alone = [], []
    for number, case in enumerate(before.cases):
        other = numbers.pop((case.system, case.key), None)
        if other is None:
            alone.append(case.title)
            continue
        old, values = _levels(before, number)[first], _levels(after, other)[second]
        had, has = np.isfinite(old), np.isfinite(values)
        if (had & has).any():
            for by_host, changed in ((lost, had & ~has), (new, has & ~had)):
                for host in np.flatnonzero(changed).tolist():
                    by_host.setdefault(shared[host], []).append(case)
        both = had & has
        if both.any():
            hosts = [shared[host] for host in np.flatnonzero(both).tolist()]
            changes.append(_change(case, hosts, old[both], values[both]))
        else:
            alone.append(case.title)
    return Comparison(
        changes=sorted(_decided(changes), key=lambda c: (ORDER.index(c.word), -abs(c.size), c.case.name)),
        hosts=len(shared),
        changed=_hosts(changes, lost, new),
        only_before=sorted({*before.hosts} - {*shared}),
        only_after=sorted({*after.hosts} - {*shared}),
        cases_before=alone,
        cases_after=[after.cases[number].title for number in numbers.values()],
    )


def _levels(samples: SamplesTable, case: int) -> Floats:
    """Return the median of the valid samples of each host in a case, NaN for a host without any."""
    groups, hosts, _, _ = samples.good([case])
    levels = np.full(len(samples.hosts), np.nan)
    levels[hosts] = groups.medians
    return levels


def _hosts(
    changes: Sequence[Change], lost: Mapping[str, Sequence[Case]], new: Mapping[str, Sequence[Case]]
) -> list[Host]:
    """Return the hosts that changed unlike the others, the worst first."""
    of: dict[str, list[tuple[Case, float]]] = {}
    for change in changes:
        for host, size in change.unlike:
            of.setdefault(host, []).append((change.case, size))
    hosts = []
    for name in sorted({*of, *lost, *new}, key=natural):
        worst_first = sorted(of.get(name, ()), key=lambda c: (-worse(c[1], c[0].better), c[0].name))
        hosts.append(Host(name, worst_first, lost.get(name, ()), new.get(name, ())))
    return sorted(hosts, key=lambda h: h.worst, reverse=True)


def _relative(before: Floats, after: Floats) -> Floats:
    """Return the relative changes; one from 0 is relative to the value after it (1: up)."""
    base = np.where(before == 0, np.abs(after), before)
    changes: Floats = np.divide(after - before, base, out=np.zeros_like(base), where=base != 0)
    return changes


def _change(case: Case, hosts: Sequence[str], before: Floats, after: Floats) -> Change:
    changes = _relative(before, after)
    size = float(np.median(changes))
    low, high = median_interval(changes, CONFIDENCE) or (None, None)
    far = np.abs(changes - size)
    most, least = (_UNLIKE, WITHIN) if len(hosts) >= FEWEST else (_UNLIKE_FEW, LOSS)
    limit = max(most * robust_deviation(far), least)
    beyond = np.flatnonzero(far > limit).tolist() if len(hosts) >= FEWEST_UNLIKE else []
    unlike = [(hosts[i], float(changes[i])) for i in sorted(beyond, key=lambda i: -far[i])]
    medians = float(np.median(before)), float(np.median(after))
    return Change(case, len(hosts), *medians, size, low, high, sign_test(changes), unlike)


def _decided(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with their words and with p corrected by Holm's method."""
    ordered = sorted(changes, key=lambda c: c.p)
    corrected = holm(np.array([c.p for c in ordered])).tolist()
    # So many hosts that change alike are sure in as many metrics; the sign test gives fewer hosts no smaller p.
    fewest = next(n for n in itertools.count(FEWEST) if len(ordered) * 2.0 ** (1 - n) <= 1 - CONFIDENCE)
    decided = [replace(c, p=p, word=_word(c, p)) for c, p in zip(ordered, corrected, strict=True)]
    return [replace(c, needs=_needs(c, fewest)) if c.word == "undecided" else c for c in decided]


def _word(change: Change, p: float) -> Word:
    if change.low is None or change.high is None:
        return "undecided"
    reach = max(abs(change.low), abs(change.high))
    holds_zero = change.low <= 0 <= change.high
    if reach <= NEGLIGIBLE or (holds_zero and reach <= WITHIN):
        return "unchanged"
    if holds_zero or p > 1 - CONFIDENCE:
        return "undecided"
    if change.case.better == "neither":
        return "changed"
    return "better" if (change.size > 0) == (change.case.better == "higher") else "worse"


def _needs(change: Change, fewest: int) -> str:
    """Return what would decide an undecided change: *fewest* hosts, or so many times the repetitions at least.

    The interval narrows by the root of the number of repetitions at best: hosts also differ by nature.
    """
    hosts = f"{fewest} hosts"
    if change.low is None or change.high is None:
        return hosts
    if not change.low <= 0 <= change.high:
        return hosts if change.hosts < fewest else "more repetitions"
    # The interval excludes 0, which proves a change only of enough hosts, or is within the second limit.
    distances = [WITHIN - abs(change.size), abs(change.size) if change.hosts >= fewest else 0.0]
    if (distance := max(distances)) <= 0:
        return hosts
    times = math.ceil((max(change.high - change.size, change.size - change.low) / distance) ** 2)
    return f"at least {times} times the repetitions" if times <= _MOST_TIMES else "far more repetitions"
