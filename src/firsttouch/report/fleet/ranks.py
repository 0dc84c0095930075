# SPDX-License-Identifier: Apache-2.0
"""The hosts and metrics of a fleet in order of severity, and findings.parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

from firsttouch.judge.findings import FLEET, NONE, PASS, SYSTEM, Findings
from firsttouch.judge.verdict import ORDER
from firsttouch.records.groups import Floats
from firsttouch.records.schema import table_file
from firsttouch.report.text import anchors
from firsttouch.systems.references import Reference

# ----------------------------------------------------------------------
# The order of hosts and metrics.

#: The addition of a group's verdict to its loss in the rank of its case.
_PLAIN = np.array(
    [{"pass": 0.0, "undecided": 0.5, "suspect": 1.0, "invalid": 5.0, "fail": 20.0}[w] for w in ORDER]
)


class Ranks(Struct, frozen=True, dict=True):
    """The hosts and cases of a fleet, the worst first."""

    findings: Findings

    @cached_property
    def words(self) -> dict[str, int]:
        """The verdict of each host, as a number."""
        return {host: self.findings.word(host) for host in self.findings.hosts}

    @cached_property
    def hosts(self) -> list[str]:
        """All hosts, the worst first."""
        return [*self.findings.by_severity]

    @cached_property
    def cases(self) -> list[int]:
        """The cases that judge some host, those with the worst hosts first."""
        samples = self.findings.samples
        score = _PLAIN[self.findings.words] + self.findings.losses
        sums = np.bincount(samples.case, weights=score, minlength=len(samples.cases))
        worst = np.zeros(len(samples.cases))
        filled = np.diff(samples.of_case) > 0
        begins = samples.of_case[:-1][filled]
        if len(begins):
            worst[filled] = np.maximum.reduceat(self.findings.words, begins)
        return sorted(
            np.flatnonzero(self.findings.deciding_cases).tolist(), key=lambda c: (-worst[c], -sums[c], c)
        )

    def reason(self, host: str) -> list[int]:
        """Return the judging cases that decide the verdict of a host, the largest loss first."""
        groups = self.findings.groups(host)
        deciding = groups[self.findings.words[groups] == self.words[host]] if self.words[host] else groups[:0]
        order = np.argsort(-self.findings.losses[deciding], kind="stable")
        cases = self.findings.samples.case[deciding[order]]
        return [int(case) for case in cases[self.findings.deciding_cases[cases]]]

    def reference(self, case: int) -> Reference | None:
        """Return the reference that pages compare all hosts with: the one that decided the worst verdict."""
        findings = self.findings
        system, fleet = findings.references[case]
        if system is None or fleet is None:
            return system or fleet
        groups = findings.samples.groups(case)
        worst = [
            int(findings.words[groups][findings.by[groups] == by].max(initial=PASS)) for by in (SYSTEM, FLEET)
        ]
        return fleet if worst[FLEET] > worst[SYSTEM] else system

    @cached_property
    def _case_values(self) -> Floats:
        """The level that the :meth:`reference` of each case expects; NaN if it is unknown or states no changes."""
        references = map(self.reference, range(len(self.findings.samples.cases)))
        values = np.array([reference.value if reference else np.nan for reference in references], dtype=float)
        return np.where((values > 0) & ~self.findings.of_events, values, np.nan)

    def from_reference(self, rows: slice | NDArray[np.intp]) -> Floats:
        """Return the relative difference of the values of *rows* from the :meth:`reference` of their cases.

        All hosts are compared with the same value, so the results can be drawn and counted together. NaN: not
        judged.
        """
        findings = self.findings
        expected = np.where(findings.by[rows] == NONE, np.nan, self._case_values[findings.samples.case[rows]])
        differences: Floats = findings.value[rows] / expected - 1
        return differences

    @cached_property
    def host_keys(self) -> dict[str, str]:
        """The addresses of hosts in a page, by name."""
        return anchors("host", self.hosts, self.findings.system.name)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of hosts with each verdict, from good to bad."""
        return np.bincount(list(self.words.values()), minlength=len(ORDER))


# ----------------------------------------------------------------------
# findings.parquet: the findings with names instead of numbers.

#: The texts of what decided, by its number.
DECIDERS = ("system", "fleet", "none")
#: Rows per row group of the file.
_ROWS = 1 << 18
_SCHEMA = {
    "system": pl.String(),
    "host": pl.String(),
    "metric": pl.String(),
    "unit": pl.String(),
    "value": pl.Float64(),
    "expected": pl.Float64(),
    "minimum": pl.Float64(),
    "maximum": pl.Float64(),
    "change": pl.Float64(),
    "loss": pl.Float64(),
    "by": pl.String(),
    "passes": pl.Int64(),
    "sessions": pl.Int64(),
    "newest": pl.Datetime("ms", "UTC"),
    "verdict": pl.String(),
}


def write(findings: Sequence[Findings], file: Path) -> None:
    """Write the findings of fleets to *file*, some rows at a time."""

    def parts(*_: object) -> Iterator[pl.DataFrame]:
        for fleet in findings:
            for begin in range(0, len(fleet.words), _ROWS):
                yield _named(fleet, slice(begin, min(begin + _ROWS, len(fleet.words))))

    with table_file(file) as out:
        register_io_source(parts, schema=_SCHEMA).sink_parquet(out, compression_level=1, row_group_size=_ROWS)


def _named(findings: Findings, rows: slice) -> pl.DataFrame:
    """Return some consecutive *rows* of the findings as in the file."""
    samples, words, by = findings.samples, findings.words[rows], findings.by[rows]
    is_unjudged = (by == NONE) & (words == PASS)
    verdicts = np.where(is_unjudged, len(ORDER), words)
    newest = findings.samples.newest[rows]
    columns = {
        "system": pl.repeat(findings.system.name, len(words), eager=True),
        "host": pl.Series(samples.hosts, dtype=pl.String).gather(samples.host[rows]),
        "metric": pl.Series([case.name for case in samples.cases], dtype=pl.String).gather(samples.case[rows]),
        "unit": pl.Series([case.unit for case in samples.cases], dtype=pl.String).gather(samples.case[rows]),
        "value": findings.value[rows],
        **{name: findings.of_decider(name, rows) for name in ("minimum", "maximum")},
        "expected": findings.of_decider("value", rows),
        "change": findings.change[rows],
        "loss": findings.losses[rows],
        "by": pl.Series(DECIDERS).gather(by),
        "passes": findings.n[rows],
        "sessions": findings.sessions[rows],
        "newest": pl.Series(newest).set(pl.Series(newest == 0), None),
        "verdict": pl.Series([*ORDER, "not judged"]).gather(verdicts),
    }
    return pl.DataFrame(columns).select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items()).fill_nan(None)
