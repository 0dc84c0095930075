# SPDX-License-Identifier: Apache-2.0
"""Which hosts and which metrics of a fleet stand out most, and how far each host is from what is expected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from firsttouch.report.fleet.names import Names, names
from firsttouch.systems import Reference
from firsttouch.verdict import Judged
from firsttouch.verdict.columns import Floats
from firsttouch.verdict.model import ORDER

#: A single group adds as much to a rank at most: many that are bad count more than one that is very bad.
_MOST = 20.0
#: What a group adds where no error of a pass is known, by its word.
_PLAIN = np.array([0.0, 1.0, 5.0, _MOST])


@dataclass(frozen=True)
class Ranks:
    """The order of a fleet's hosts and cases, the worst first."""

    judged: Judged

    @cached_property
    def _score(self) -> Floats:
        """What each group adds to the rank of its host and of its case."""
        plain = _PLAIN[self.judged.words]
        known = np.isfinite(self.judged.evidence) & (self.judged.words > 0)
        plain[known] = np.clip(self.judged.evidence[known], 0.0, _MOST)
        return plain

    @cached_property
    def words(self) -> dict[str, int]:
        """The number of each host's verdict."""
        return {host: self.judged.word(host) for host in self.judged.hosts}

    @cached_property
    def hosts(self) -> list[str]:
        """All hosts, the worst first."""
        return self.judged.by_severity()

    @cached_property
    def cases(self) -> list[int]:
        """The cases that some host is judged by, those with the worst hosts first."""
        known = self.judged.passes
        sums = np.bincount(known.case, weights=self._score, minlength=len(known.cases))
        worst = np.zeros(len(known.cases))
        filled = np.diff(known.of_case) > 0
        begins = known.of_case[:-1][filled]
        if len(begins):
            worst[filled] = np.maximum.reduceat(self.judged.words, begins)
        return sorted(np.flatnonzero(self.judged.judging).tolist(), key=lambda c: (-worst[c], -sums[c], c))

    def reason(self, host: str) -> list[int]:
        """Return the cases that give a host its verdict and that hosts are judged by, the largest loss first."""
        groups = self.judged.groups(host)
        mine = groups[self.judged.words[groups] == self.words[host]] if self.words[host] else groups[:0]
        order = np.argsort(-self.judged.losses[mine], kind="stable")
        cases = self.judged.passes.case[mine[order]]
        return [int(case) for case in cases[self.judged.judging[cases]]]

    @cached_property
    def names(self) -> Names:
        """What the cases are called among each other."""
        return names(self.judged.passes.cases)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many hosts there are of each word, from good to bad."""
        return np.bincount(list(self.words.values()), minlength=len(ORDER))

    def reference(self, case: int) -> Reference | None:
        """Return what hosts are compared with in a case: what the system says, or the fleet."""
        told, fleet = self.judged.expected[case]
        return told or fleet


def worse(change: float, better: str) -> float:
    """Return how much worse a relative difference from what is expected is (below 0: better)."""
    return -change if better == "higher" else change if better == "lower" else abs(change)
