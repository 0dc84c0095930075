# SPDX-License-Identifier: Apache-2.0
"""findings.parquet: a row per host and metric with its value, what is expected, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from firsttouch.records import table_file
from firsttouch.verdict import Judged
from firsttouch.verdict.columns import Groups
from firsttouch.verdict.model import ORDER

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
        part = known.passes(where)
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
