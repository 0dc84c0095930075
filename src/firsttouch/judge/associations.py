# SPDX-License-Identifier: Apache-2.0
"""Which deviations of hosts' configurations go with a loss of performance, and what divides a fleet.

The hosts that share deviations are compared with all others of their system, metric by metric, by a rank sum test
with Holm's correction for the number of comparisons. An association does not prove a cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from firsttouch.judge.drift import Configuration, Deviation, Drift, comparable, described
from firsttouch.judge.findings import Findings
from firsttouch.judge.sprt import Floats
from firsttouch.judge.statistics import holm, rank_sum_test, ranks_of
from firsttouch.records.cases import Case
from firsttouch.units import percent

#: Probabilities of a chance difference, after correction, below which an association is certain, or likely.
_CERTAIN, _LIKELY = 1e-3, 0.05
#: The least difference that is shown, and the least one that is shown though it may be chance.
_LEAST, _LEAST_OF_CHANCE = 0.01, 0.05
#: Groups of hosts that are compared, the largest first, and losses that are shown of each.
_MOST_GROUPS, _MOST_LOSSES = 200, 3
#: The least share of either group of a divided fleet that a setting must tell apart.
_TELLS = 0.8


class Loss(Struct, frozen=True):
    """How much worse the hosts of a group are in the metric of a *case* than the others: *share* of the value.

    *chance* is the probability of such a difference between hosts that are all alike, after correction for the
    number of comparisons.
    """

    case: Case
    share: float
    chance: float

    @property
    def certainty(self) -> str:
        """How sure it is that this is no chance."""
        return "certain" if self.chance < _CERTAIN else "likely" if self.chance < _LIKELY else "may be chance"

    def text(self) -> str:
        """Return the loss in words: ``copy 8.1 % lower (certain)``."""
        direction = "lower" if self.case.better == "higher" else "higher"
        return f"{self.case.title_of_metric} {percent(self.share)} {direction} ({self.certainty})"


class Group(Struct, frozen=True):
    """Hosts that share *deviations*, and the *losses* that go with them, the largest sure one first."""

    hosts: tuple[str, ...]
    deviations: Sequence[Deviation]
    losses: Sequence[Loss]

    def settings(self) -> list[str]:
        """Return the deviations as texts."""
        return described(self.deviations)


class Division(Struct, frozen=True):
    """Two groups of hosts that are apart in some *metrics*, and the *settings* that differ between them."""

    better: Sequence[str]
    worse: Sequence[str]
    metrics: int
    settings: Sequence[str]


def groups(drift: Drift, findings: Findings) -> list[Group]:
    """Return the hosts that share deviations: first those with a sure loss, then others by their losses."""
    by_hosts = drift.by_hosts()
    losses = _losses(list(by_hosts), findings)
    listed = [Group(hosts, apart, losses.get(hosts, ())) for hosts, apart in by_hosts.items()]

    def rank(group: Group) -> tuple[bool, float]:
        first = next(iter(group.losses), None)
        return (first is None or first.chance >= _LIKELY, -first.share if first else 0.0)

    return sorted(listed, key=rank)


def _losses(all_hosts: Sequence[tuple[str, ...]], findings: Findings) -> dict[tuple[str, ...], list[Loss]]:
    metrics, levels = _levels(findings)
    compared = sorted(all_hosts, key=len, reverse=True)[:_MOST_GROUPS]
    numbers = [[findings.number[host] for host in hosts if host in findings.number] for hosts in compared]
    shares = np.full((len(compared), len(metrics)), np.nan)
    chances = np.ones_like(shares)
    for column, values in enumerate(levels.T):
        valid = ~np.isnan(values)
        ranks = np.zeros(len(values))
        ranks[valid] = ranks_of(values[valid])
        for row, members in enumerate(numbers):
            member = np.zeros(len(values), dtype=np.bool_)
            member[members] = True
            ours, others = values[member & valid], values[~member & valid]
            if len(ours) and len(others):
                shares[row, column] = np.median(others) - np.median(ours)
                chances[row, column] = rank_sum_test(ranks[valid], member[valid])
    tested = ~np.isnan(shares)
    chances[tested] = holm(chances[tested])
    losses: dict[tuple[str, ...], list[Loss]] = {}
    for row, hosts in enumerate(compared):
        least = np.where(chances[row] < _LIKELY, _LEAST, _LEAST_OF_CHANCE)
        shown = [
            Loss(metrics[column], float(shares[row, column]), float(chances[row, column]))
            for column in np.flatnonzero(tested[row] & (shares[row] >= least)).tolist()
        ]
        shown.sort(key=lambda loss: (loss.chance >= _LIKELY, -loss.share))
        sure = [loss for loss in shown if loss.chance < _LIKELY]
        # One that may be chance is shown only if there is nothing better.
        losses[hosts] = sure[:_MOST_LOSSES] or shown[:1]
    return losses


def _levels(findings: Findings) -> tuple[list[Case], Floats]:
    """Return a case of each metric, and how good each host is in the metric: the median of its cases of it.

    Each case is a share of the median of all hosts: one base, whichever reference judged a host. Higher is better,
    and NaN is unknown or not judged.
    """
    metrics: dict[tuple[str, str], int] = {}
    first: list[Case] = []
    columns = np.full(len(findings.samples.cases), -1)
    signs = np.ones(len(columns))
    for number, case in enumerate(findings.samples.cases):
        if case.better != "neither" and not case.exact:
            columns[number] = metrics.setdefault((case.check, case.metric), len(first))
            if len(first) < len(metrics):
                first.append(case)
            signs[number] = 1 if case.better == "higher" else -1
    levels = np.full((len(findings.samples.hosts), len(metrics)), np.nan)
    column = columns[findings.samples.case]
    shares = findings.value / _medians(findings) * signs[findings.samples.case]
    kept = (column >= 0) & ~np.isnan(findings.change) & ~np.isnan(shares)
    key = findings.samples.host[kept].astype(np.int64) * max(1, len(metrics)) + column[kept]
    values = shares[kept]
    order = np.lexsort((values, key))
    key, values = key[order], values[order]
    keys, begins, counts = np.unique(key, return_index=True, return_counts=True)
    if len(keys):
        # The median of each run of sorted values.
        low, high = values[begins + (counts - 1) // 2], values[begins + counts // 2]
        levels[keys // len(metrics), keys % len(metrics)] = (low + high) / 2
    return first, levels


def _medians(findings: Findings) -> Floats:
    """Return, for each group, the median over the hosts of the values of its case; NaN if it is not above 0."""
    medians = np.full(len(findings.samples.cases), np.nan)
    for case in range(len(medians)):
        values = findings.value[findings.samples.groups(case)]
        if (valid := values[~np.isnan(values)]).size and (median := float(np.median(valid))) > 0:
            medians[case] = median
    of_groups: Floats = medians[findings.samples.case]
    return of_groups


# ----------------------------------------------------------------------
# Fleets of two groups


def divisions(configurations: Mapping[str, Configuration], findings: Findings) -> list[Division]:
    """Return the pairs of groups that hosts form in some metrics, those of most metrics first."""
    pairs: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = Counter(
        (tuple(two.better), tuple(two.worse)) for two in findings.divided.values()
    )
    texts = {
        host: comparable(host, configurations[host].settings)
        for host in {h for pair in pairs for group in pair for h in group} & configurations.keys()
    }
    return [
        Division(better, worse, metrics, _telling(texts, better, worse))
        for (better, worse), metrics in sorted(pairs.items(), key=lambda item: -item[1])
    ]


def _telling(texts: Mapping[str, Mapping[str, str]], better: Sequence[str], worse: Sequence[str]) -> list[str]:
    """Return the settings that tell two groups of hosts apart, those without an exception first."""
    values: dict[str, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for side, hosts in enumerate((better, worse)):
        for host in hosts:
            for name, text in texts.get(host, {}).items():
                values[name][side][text] += 1
    telling = []
    for name, (of_better, of_worse) in values.items():
        if not of_better or not of_worse:
            continue
        good, bad = (max(sorted(count), key=count.__getitem__) for count in (of_better, of_worse))
        shares = (of_better[good] / of_better.total(), of_worse[bad] / of_worse.total())
        if good != bad and min(shares) >= _TELLS:
            text = (
                f"{name}: {bad} on {of_worse[bad]} of {of_worse.total()} of the worse hosts, "
                f"{good} on {of_better[good]} of {of_better.total()} of the better ones"
            )
            telling.append((-min(shares), name, text))
    return [text for *_, text in sorted(telling)]
