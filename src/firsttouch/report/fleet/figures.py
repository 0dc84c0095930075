# SPDX-License-Identifier: Apache-2.0
"""The hosts and metrics of a fleet in order of severity, findings.parquet, and the heat map."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

from firsttouch.host.host_lists import natural
from firsttouch.judge.constants import FEWEST_HOSTS
from firsttouch.judge.findings import FLEET, NONE, PASS, SYSTEM, Findings
from firsttouch.judge.verdict import ORDER
from firsttouch.records import catalogue
from firsttouch.records.groups import Floats
from firsttouch.records.schema import table_file
from firsttouch.report.document import (
    Block,
    Cell,
    Fold,
    Listing,
    Span,
    Table,
    how_to_read,
    not_shown,
    word_span,
)
from firsttouch.report.text import NOT_MEASURED, SIGNS, anchors, count
from firsttouch.systems.definition import Undescribed
from firsttouch.systems.references import Reference
from firsttouch.units import number, quantity, signed_percent

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

    def from_reference(self, rows: NDArray[np.intp]) -> Floats:
        """Return the relative difference of the values of *rows* from the :meth:`reference` of their cases.

        All hosts are compared with the same value, so the results can be drawn and counted together. NaN: not
        judged.
        """
        findings = self.findings
        expected = np.where(findings.by[rows] == NONE, np.nan, self._case_values[findings.samples.case[rows]])
        differences: Floats = findings.medians(rows) / expected - 1
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
    newest = findings.samples.newest(rows)
    value, n, sessions = findings.used(np.arange(rows.start, rows.stop))
    columns = {
        "system": pl.repeat(findings.system.name, len(words), eager=True),
        "host": pl.Series(samples.hosts, dtype=pl.String).gather(samples.host[rows]),
        "metric": pl.Series([case.name for case in samples.cases], dtype=pl.String).gather(samples.case[rows]),
        "unit": pl.Series([case.unit for case in samples.cases], dtype=pl.String).gather(samples.case[rows]),
        "value": value,
        **{name: findings.of_decider(name, rows) for name in ("minimum", "maximum")},
        "expected": findings.of_decider("value", rows),
        "change": findings.relative(value, rows),
        "loss": findings.losses[rows],
        "by": pl.Series(DECIDERS).gather(by),
        "passes": n,
        "sessions": sessions,
        "newest": pl.Series(newest).set(pl.Series(newest == 0), None),
        "verdict": pl.Series([*ORDER, "not judged"]).gather(verdicts),
    }
    return pl.DataFrame(columns).select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items()).fill_nan(None)


# ----------------------------------------------------------------------
# Heat map of hosts by metrics; only the worst hosts and metrics have rows and columns.

#: The most rows (hosts) and columns (metrics).
MOST_HOSTS, MOST_METRICS = 60, 30
#: The number of passing hosts that are shown for comparison, if not all hosts have a row.
_PASSING = 8
#: The most columns with larger letters.
_FEW = 15
#: Relative differences at which a cell's colour changes.
STEPS = (0.01, 0.025, 0.05, 0.1, 0.2)


#: Sign in a cell -> its meaning. A pass has no sign, so that the others stand out.
MARKS = {sign: word for word, sign in SIGNS.items() if word != "pass"} | {NOT_MEASURED: "not measured"}


def heat(ranks: Ranks, detailed: Collection[str] | None = None) -> list[Block]:
    """Return the map of a fleet with its key, or the reason for its absence.

    Columns are in the order of their checks. Hosts link to their places in a page; *detailed* are those with a
    line of their own. Without *detailed*, there are no links.
    """
    findings = ranks.findings
    samples = findings.samples
    hosts = [h for h in ranks.hosts if h in findings.number]
    if len(hosts) > MOST_HOSTS:
        hosts = hosts[: min(MOST_HOSTS, sum(ranks.words[h] > 0 for h in hosts) + _PASSING)]
    cases = _columns(ranks, hosts)
    if not cases or not hosts:
        why = [f"system {findings.system.name} has no reference for these metrics"]
        if isinstance(findings.system, Undescribed):
            use = Span("--system S", "code")
            why = [f"no file describes system {findings.system.name} (use ", use, " for another one)"]
        return [
            not_shown(
                ["nothing is judged: ", *why, f", and a comparison of the hosts needs {FEWEST_HOSTS} of them."]
            )
        ]
    better = [samples.cases[c].better for c in cases]
    column = {c: i for i, c in enumerate(cases)}
    map_rows: list[Sequence[Cell]] = []
    for host in hosts:
        cells = [_empty(NOT_MEASURED)] * len(cases)
        rows = findings.groups(host)
        differences, (values, used, _) = ranks.from_reference(rows).tolist(), findings.used(rows)
        changes = findings.relative(values, rows).tolist()
        for place, group in enumerate(rows.tolist()):
            case = int(samples.case[group])
            if case not in column:
                continue
            word = ORDER[findings.words[group]]
            # A cell and its tooltip use the same expected value: the column's, or the one that decided.
            change = differences[place] if word == "pass" else changes[place]
            sign = "" if word == "pass" else SIGNS[word]
            measured = values[place], int(used[place])
            tip = _tip(ranks, host, group, measured) if math.isfinite(changes[place]) else host
            cells[column[case]] = _cell(change, better[column[case]], sign, tip)
        word = ORDER[ranks.words[host]]
        name = Cell(host, tone=f"word-{word}", sign=SIGNS[word])
        if detailed is not None:
            key = ranks.host_keys[host]
            name = name._replace(link=f"#{key}", key="" if host in detailed else key)
        map_rows.append([name, *cells])
    of_checks = [(check, len(list(columns))) for check, columns in groupby(samples.cases[c].check for c in cases)]
    catalogued = catalogue.checks()
    headings = [(catalogued[c].title if c in catalogued else c, columns) for c, columns in of_checks]
    names = [samples.cases[c].title for c in cases]
    table = Table(
        "Difference from the expected value, %",
        ["host", *(Cell(n, tip=name) for n, name in enumerate(names, start=1))],
        map_rows,
        [[("", 1), *headings]],
        "heat few" if len(names) <= _FEW else "heat",
    )
    return [
        table,
        Listing(names, "key", numbered=True),
        _explained(len(samples.hosts) - len(hosts), len(ranks.cases) - len(cases)),
    ]


def _explained(hosts: int, metrics: int) -> Fold:
    """Return how to read the map; *hosts* and *metrics* are the numbers of those that it omits."""
    marks: list[str] = []
    for word in (*(w for w in SIGNS if w != "pass"), "not measured"):
        mark = word_span(word) if word in SIGNS else Span(word, sign=NOT_MEASURED)
        marks += [", " if marks else "", mark]
    left_out = [count(number, what) for number, what in ((hosts, "host"), (metrics, "metric")) if number]
    rest = (
        " The map has the worst hosts and the metrics with the worst hosts; findings.parquet has "
        f"{' and '.join(left_out)} more."
    )
    return how_to_read(
        [
            "A row is a host, a column a metric (see the key below; a cell's tooltip has its values). A cell is "
            "the difference from the expected value in percent. Red is worse, blue is better, and a stronger "
            f"colour is more (from {100 * STEPS[0]:g} % on). ",
            *marks,
            f".{rest if left_out else ''}",
        ]
    )


def _empty(sign: str = "") -> Cell:
    return Cell(sign=sign, meaning=MARKS[sign]) if sign else Cell()


def _tip(ranks: Ranks, host: str, group: int, measured: tuple[float, int]) -> str:
    """Return the tooltip of a cell; the header of its column names the metric.

    *measured* are the value and the number of used repetitions. The reference is the column's, or the one by which
    this host does not pass.
    """
    findings = ranks.findings
    number_of_case = int(findings.samples.case[group])
    case = findings.samples.cases[number_of_case]
    # Nothing judged a metric whose decider is NONE, the last one.
    deciders = (*findings.references[number_of_case], None)
    reference = deciders[findings.by[group]] if findings.words[group] else ranks.reference(number_of_case)
    if reference is None:
        return host
    value = quantity(float(measured[0]), case.unit)
    expected = f"expected {number(reference.value)}{_limit_text(reference, case.better)}"
    return f"{host}: {value}, {expected}, n {measured[1]}"


def _columns(ranks: Ranks, hosts: Sequence[str]) -> list[int]:
    """Return the cases with a column: one or more reasons per host, then the cases with the worst hosts.

    They are in the order of their checks, so that faults of one kind form a block of the map.
    """
    chosen: set[int] = set()
    for host in hosts:
        reasons = ranks.reason(host)
        if reasons and len(chosen) < MOST_METRICS and chosen.isdisjoint(reasons):
            chosen.add(reasons[0])
    for case in ranks.cases:
        if len(chosen) == MOST_METRICS:
            break
        chosen.add(case)
    cases = ranks.findings.samples.cases
    return sorted(chosen, key=lambda case: (catalogue.order(cases[case].check), natural(cases[case].name)))


def _cell(change: float, better: str, sign: str, tip: str = "") -> Cell:
    """Return the cell of a change: in percent, with the *sign* of its verdict and the colour of its size."""
    if not np.isfinite(change):
        return _empty(sign or NOT_MEASURED)._replace(tip=tip)
    step = sum(abs(change) >= s for s in STEPS)
    good = change > 0 if better == "higher" else change < 0
    tone = f"{'g' if good and better != 'neither' else 'b'}{step}" if step else ""
    return Cell(change, _percent, tone, sign, MARKS[sign] if sign else "", tip)


def _percent(change: float) -> str:
    return signed_percent(change).removesuffix(" %").replace("-", "\N{MINUS SIGN}")


def _limit_text(reference: Reference, better: str) -> str:
    """Return the limits of a reference on the worse sides, after a comma; "" if it has none."""
    ends = {"higher": (reference.minimum,), "lower": (reference.maximum,)}
    limits = ends.get(better, (reference.minimum, reference.maximum))
    text = " to ".join(number(end) for end in limits if end is not None)
    return f", limit {text}" if text else ""
