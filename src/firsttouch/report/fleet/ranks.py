# SPDX-License-Identifier: Apache-2.0
"""The hosts of a fleet in order of severity, their names in tables, and findings that name them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

from firsttouch.judge.judging import Judged
from firsttouch.judge.samples_table import Case
from firsttouch.judge.sprt import Floats, Groups
from firsttouch.judge.verdict import ORDER, case_name
from firsttouch.records.schema import table_file
from firsttouch.systems.references import Reference

# ----------------------------------------------------------------------
# Names of metrics on a page: without the parameters that are the same in all cases of a metric.


@dataclass(frozen=True)
class Names:
    """The names *of* cases, in their order, and what they leave out as it is *shared*: a line for each metric."""

    of: Sequence[str]
    shared: Sequence[str]


def names(cases: Sequence[Case]) -> Names:
    """Return the names of *cases* among each other."""
    same: dict[tuple[str, str], dict[str, Any]] = {}
    for case in cases:
        known = same.setdefault((case.check, case.metric), dict(case.parameters))
        for key in [k for k, v in known.items() if case.parameters.get(k) != v]:
            del known[key]
    found = [case_name(c.check, c.metric, _without(c.parameters, same[c.check, c.metric])) for c in cases]
    told = (case_name(*metric, shared) for metric, shared in same.items() if shared)
    plain = {case_name(*metric, {}) for metric in same}
    return Names(found, [text for text in told if text not in plain])


def _without(parameters: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in parameters.items() if k not in shared}


# ----------------------------------------------------------------------
# Which hosts and which metrics of a fleet stand out most, and how far each host is from what is expected.

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


# ----------------------------------------------------------------------
# findings.parquet: a row per host and metric with its value, what is expected, and the verdict.

#: Cases that are worked on at a time, and rows that lie together in the file.
_CASES, _ROWS = 20, 1 << 18
_SCHEMA = {
    "system": pl.String(),
    "host": pl.String(),
    "metric": pl.String(),
    "unit": pl.String(),
    "value": pl.Float64(),
    "expected": pl.Float64(),
    "change": pl.Float64(),
    "passes": pl.Int64(),
    "verdict": pl.String(),
    "evidence": pl.Float64(),
}


def write(judged: Sequence[Judged], file: Path) -> None:
    """Write the findings of fleets to *file*, a few metrics after the other."""

    def parts(*_: object) -> Iterator[pl.DataFrame]:
        for one in judged:
            yield from _parts(one)

    with table_file(file) as out:
        register_io_source(parts, schema=_SCHEMA).sink_parquet(out, compression_level=1, row_group_size=_ROWS)


def _parts(one: Judged) -> Iterator[pl.DataFrame]:
    known = one.passes
    hosts, words = pl.Series(known.hosts, dtype=pl.String), pl.Series([*ORDER, "not judged"])
    names, units = pl.Series([c.name for c in known.cases]), pl.Series([c.unit for c in known.cases])
    table = np.array([_expected(one, c) for c in range(len(known.cases))], dtype=float)
    for begin in range(0, len(known.cases), _CASES):
        cases = range(begin, min(begin + _CASES, len(known.cases)))
        where = slice(known.groups(cases[0]).start, known.groups(cases[-1]).stop)
        part = known.rows_of(where)
        numbers = known.case[where]
        word = np.where((one.by[where] == 2) & (one.words[where] == 0), len(ORDER), one.words[where])
        yield pl.DataFrame(
            {
                "system": pl.repeat(one.system.name, len(numbers), eager=True),
                "host": hosts.gather(known.host[where]),
                "metric": names.gather(numbers),
                "unit": units.gather(numbers),
                "value": _medians(one, where, part),
                "expected": table[numbers, one.by[where]],
                "change": one.change[where],
                "passes": known.counts[where],
                "verdict": words.gather(word),
                "evidence": one.evidence[where],
            },
            schema=_SCHEMA,
        ).with_columns(pl.col(pl.Float64).fill_nan(None))


def _expected(one: Judged, case: int) -> tuple[float, float, float]:
    told, fleet = one.expected[case]
    return (told.value if told else np.nan, fleet.value if fleet else np.nan, np.nan)


def _medians(one: Judged, where: slice, part: slice) -> np.ndarray:
    """Return the median of each group's passes that count, NaN where there is none."""
    known = one.passes
    valid = one.counts_now[part]
    every = Groups(known.value[part], known.counts[where])
    if valid.all():
        return every.medians()
    counts = every.sums(valid.astype(np.int64))
    found = np.full(len(every), np.nan)
    found[counts > 0] = Groups(every.values[valid], counts[counts > 0]).medians()
    return found
