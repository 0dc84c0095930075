# SPDX-License-Identifier: Apache-2.0
"""A loss that most hosts of a system share: an update or references that are out of date, and no bad hosts.

Only losses against the system's references count. A fleet that is compared with itself cannot lose as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from firsttouch.judge.judging import Judged

#: Fewer hosts that lose alike may be a coincidence.
FEWEST_ALIKE = 3
#: A loss is similar to the median of its metric if it differs by less than this part of it.
_SIMILAR = 0.5


@dataclass(frozen=True)
class CommonLoss:
    """*hosts* of *count* hosts lost about the same *loss* (a fraction) of the same *metrics* (a number)."""

    hosts: Sequence[str]
    count: int
    metrics: int
    loss: float

    @property
    def text(self) -> str:
        """The loss as one sentence, the same one everywhere."""
        percent = f"{100 * self.loss:.0f} %" if self.loss >= 0.01 else "1 % or less"
        return (
            f"{len(self.hosts)} of {self.count} hosts lost about {percent} of the same metrics: "
            "an update, or references that are out of date; no host is held"
        )


def common_loss(judged: Judged, *, worse_than: int, reference: int) -> CommonLoss | None:
    """Return the loss that most hosts share, None if there is none.

    A metric is common if more than half of the hosts that have it are bad in it. A host loses alike if at least
    half of its bad metrics are common ones with a similar loss: within half of the median of that metric. A
    verdict whose number is larger than *worse_than* is bad; *reference* is the number of the system's references.
    """
    table = judged.samples
    hosts = len(table.hosts)
    bad = (judged.by == reference) & (judged.words > worse_than) & (judged.losses > 0)
    if not bad.any():
        return None
    groups = np.flatnonzero(bad)
    cases, losses = table.case[groups], judged.losses[groups]
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
