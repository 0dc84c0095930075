# SPDX-License-Identifier: Apache-2.0
"""The loss that most hosts share against the references: an update, or references that are out of date."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from firsttouch.records.groups import Floats
from firsttouch.records.samples_table import SamplesTable

#: The fewest hosts with a similar loss; fewer may be a coincidence.
FEWEST_ALIKE = 3
#: A loss is similar to the median of its metric if it differs by less than this part of it.
_SIMILAR = 0.5


class CommonLoss(Struct, frozen=True):
    """*hosts*, out of *count*, lost about the same share (*loss*) of the same number of *metrics*."""

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
    """Return the loss that most hosts share in some bad *groups* of the *table*, None without one.

    A metric is common if it is bad on more than half of the hosts that have it. A host shares a loss if at least
    half of its bad metrics are common, with a loss within half of the metric's median.
    """
    hosts = len(table.hosts)
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
