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

from firsttouch.judge.findings import DECIDERS, NONE, PASS, Findings
from firsttouch.judge.verdict import ORDER
from firsttouch.records.schema import table_file
from firsttouch.report.text import anchors

# ----------------------------------------------------------------------
# The order of hosts and metrics.

#: What a group's verdict adds to its loss in the rank of its case.
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

    @cached_property
    def host_keys(self) -> dict[str, str]:
        """The addresses of hosts in a page, by name."""
        return anchors("host", self.hosts, self.findings.system.name)

    @cached_property
    def metric_keys(self) -> dict[str, str]:
        """The addresses of the cases that judge some host, by title."""
        titles = (self.findings.samples.cases[case].title for case in self.cases)
        return anchors("metric", titles, self.findings.system.name)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of hosts with each verdict, from good to bad."""
        return np.bincount(list(self.words.values()), minlength=len(ORDER))


# ----------------------------------------------------------------------
# findings.parquet: the findings with names instead of numbers.

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
                yield _named(fleet, fleet.part(slice(begin, min(begin + _ROWS, len(fleet.words)))))

    with table_file(file) as out:
        register_io_source(parts, schema=_SCHEMA).sink_parquet(out, compression_level=1, row_group_size=_ROWS)


def _named(findings: Findings, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of the findings as in the file."""
    cases = findings.samples.cases
    is_unjudged = (rows["by"] == NONE) & (rows["word"] == PASS)
    texts = {
        "host": pl.Series(findings.samples.hosts, dtype=pl.String).gather(rows["host"]),
        "metric": pl.Series([case.name for case in cases], dtype=pl.String).gather(rows["case"]),
        "unit": pl.Series([case.unit for case in cases], dtype=pl.String).gather(rows["case"]),
        "by": pl.Series(DECIDERS).gather(rows["by"]),
        "verdict": pl.Series([*ORDER, "not judged"]).gather(rows["word"].set(is_unjudged, len(ORDER))),
    }
    return (
        rows.with_columns(**texts)
        .with_columns(
            pl.col(pl.Float64).fill_nan(None),
            system=pl.lit(findings.system.name),
            newest=pl.when(pl.col("newest") > 0).then("newest").cast(pl.Datetime("ms", "UTC")),
            passes=pl.col("n"),
        )
        .select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items())
    )
