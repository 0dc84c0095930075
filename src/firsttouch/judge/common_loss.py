# SPDX-License-Identifier: Apache-2.0
"""Losses that hosts share: an update, references that are out of date, or one cause for several hosts.

A loss of most hosts counts against the system's references only. A fleet that is compared with itself cannot lose
as a whole. Bad hosts may have changed at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from firsttouch.host.host_lists import folded
from firsttouch.judge.groups import Floats, Ints
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.units import percent

#: Fewer hosts that lose alike may be a coincidence.
FEWEST_ALIKE = 3
#: A loss is similar to the median of its metric if it differs by less than this part of it.
_SIMILAR = 0.5
#: Fewer hosts of a fleet (a share) that got worse at the same time, or are alike, are not worth a line.
_SHARE = 0.1
#: Bad hosts are alike if the middle half of them is within this part of their distance from the others.
_ALIKE = 0.25


class CommonLoss(Struct, frozen=True):
    """*hosts* of *count* hosts lost about the same *loss* (a fraction) of the same *metrics* (a number)."""

    hosts: Sequence[str]
    count: int
    metrics: int
    loss: float

    @property
    def text(self) -> str:
        """The loss as one sentence, the same one everywhere."""
        share = f"{100 * self.loss:.0f} %" if self.loss >= 0.01 else "1 % or less"
        return (
            f"{len(self.hosts)} of {self.count} hosts lost about {share} of the same metrics: "
            "an update, or references that are out of date; no host is held"
        )


def common_loss(table: SamplesTable, groups: NDArray[np.intp], losses: Floats) -> CommonLoss | None:
    """Return the loss that most hosts share in some bad *groups* of the *table*, None if there is none.

    A metric is common if more than half of the hosts that have it are bad in it. A host loses alike if at least
    half of its bad metrics are common ones with a similar loss: within half of the median of that metric.
    """
    hosts = len(table.hosts)
    if not len(groups):
        return None
    cases = table.case[groups]
    having = np.bincount(table.case, minlength=len(table.cases))
    losing = np.bincount(cases, minlength=len(table.cases))
    common = (losing >= FEWEST_ALIKE) & (2 * losing > having)
    medians = np.zeros(len(table.cases))
    for case in np.flatnonzero(common):
        medians[case] = np.median(losses[cases == case])
    is_similar = common[cases] & (np.abs(losses - medians[cases]) <= _SIMILAR * medians[cases])
    numbers = table.host[groups]
    total = np.bincount(numbers, minlength=len(table.hosts))
    similar = np.bincount(numbers[is_similar], minlength=len(table.hosts))
    chosen = np.flatnonzero((similar > 0) & (2 * similar >= total))
    if len(chosen) < FEWEST_ALIKE or 2 * len(chosen) <= hosts:
        return None
    shared = is_similar & np.isin(numbers, chosen)
    return CommonLoss(
        [table.hosts[number] for number in chosen.tolist()],
        hosts,
        len(np.unique(cases[shared])),
        float(np.median(losses[shared])),
    )


def _are_few(hosts: int, table: SamplesTable) -> bool:
    """Return whether so many hosts are not worth a line."""
    return hosts < max(FEWEST_ALIKE, _SHARE * len(table.hosts))


def changed_together(table: SamplesTable, groups: NDArray[np.intp], since: Ints, before: Ints) -> str | None:
    """Return a line about hosts with bad *groups* that changed at the same time, None if there are few.

    A host changed between the last session *before* its present stretch and the first one of it, *since*.
    """
    hosts = table.host[groups]
    if len(np.unique(hosts)) < FEWEST_ALIKE:
        return None
    is_together = max(((before < time) & (since >= time) for time in np.unique(since)), key=np.count_nonzero)
    names = sorted({table.hosts[number] for number in hosts[is_together].tolist()})
    if _are_few(len(names), table):
        return None
    case = table.cases[int(np.bincount(table.case[groups[is_together]]).argmax())]
    begin, end = (
        datetime.fromtimestamp(ms / 1000, UTC) for ms in (before[is_together].max(), since[is_together].min())
    )
    return (
        f"{len(names)} of {len(table.hosts)} hosts got worse together, between {begin:%Y-%m-%d %H:%M} and "
        f"{end:%Y-%m-%d %H:%M} UTC ({folded(names)}; {case.title}): look for what they share, such as an update, "
        "a rack, cooling or power"
    )


def alike_hosts(table: SamplesTable, groups: NDArray[np.intp], losses: Floats) -> str | None:
    """Return a line about hosts with bad *groups* that are worse by the same amount, None if there are few.

    Many hosts that lack the same have other parts or another setting, rather than a fault each.
    """
    if not len(groups):
        return None
    counts = np.bincount(table.case[groups])
    number = int(counts.argmax())
    if _are_few(int(counts[number]), table):
        return None
    is_of_case = table.case[groups] == number
    chosen, losses = groups[is_of_case], losses[is_of_case]
    low, middle, high = np.quantile(losses, (0.25, 0.5, 0.75))
    # A host that loses more than twice as much has another fault.
    chosen = chosen[losses <= 2 * middle]
    if high - low > _ALIKE * middle or _are_few(len(chosen), table):
        return None
    names = sorted(table.hosts[host] for host in table.host[chosen].tolist())
    return (
        f"{len(names)} of {len(table.hosts)} hosts are about {percent(middle)} worse than the others "
        f"({folded(names)}; {table.cases[number].title}): look for what they share, such as parts of another "
        "maker, fewer memory modules or another setting"
    )
