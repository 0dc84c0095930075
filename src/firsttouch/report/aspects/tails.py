# SPDX-License-Identifier: Apache-2.0
"""The slowest accesses to memory: percentiles of single accesses, idle and under load."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from msgspec import Struct

from firsttouch.benchmarks.tails import CHECK, PERCENTILES
from firsttouch.records.cases import grouped
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Chart, Result, measured, value
from firsttouch.report.document import Cell, Panel, Table
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, HostView, banks, pu_nodes
from firsttouch.report.text import clean
from firsttouch.units import number

_TITLE = "The slowest accesses to memory"
_HOW = (
    "The further right and up a curve goes, the more accesses are slow: at the height 1 in 1,000 it shows the "
    "time that one access of a thousand exceeds. What interrupts delayed is subtracted. A good curve falls "
    "steeply and has no shoulder at the bottom right."
)
_MEDIAN, _P99, _P999, _P9999 = PERCENTILES
#: Curves in the drawing; the table has all of them.
_MOST_CURVES = 6
#: The share of accesses at the lower end of the axis.
_LOWEST = 1e-6


class Tail(Struct, frozen=True):
    """The percentiles of one NUMA node's accesses to one *bank*; *load* is none or where it comes from."""

    node: int
    bank: int
    load: str
    records: dict[str, Record]

    @property
    def name(self) -> str:
        """``bank 0, idle``, with the NUMA node of the PU if that is another one."""
        where = f"bank {self.bank}" if self.node == self.bank else f"NUMA node {self.node} to bank {self.bank}"
        return f"{where}, {'idle' if self.load == 'none' else f'{self.load} load'}"

    @property
    def slowness(self) -> float:
        """What 1 of 1,000 accesses exceeds (ns), 0 if it is unknown."""
        return self.records[_P999].value if _P999 in self.records else 0.0

    def curve(self) -> list[tuple[float, float]]:
        """Return points (ns, share of the accesses that take longer), those that interrupts delayed left out.

        The curve ends where so few accesses are left that they may be delayed ones: two standard errors.
        """
        record = next((r for r in self.records.values() if "histogram_ns" in r.parameters), None)
        parameters = record.parameters if record else {}
        lists = [_numbers(parameters.get(f"histogram_{what}")) for what in ("ns", "accesses", "interrupted")]
        if not lists[0] or len({len(of_bins) for of_bins in lists}) > 1:
            return []
        bins = list(zip(*lists, strict=False))
        with_delayed = sum(accesses for _, accesses, _ in bins)
        total = above = with_delayed - sum(delayed for *_, delayed in bins)
        points = []
        for (_, accesses, delayed), (end, *_) in pairwise(bins):
            above -= accesses - delayed
            with_delayed -= accesses
            if end > 0 and total > 0 and above / total >= _LOWEST and above >= 2 * with_delayed**0.5:
                points.append((end, above / total))
        return points


def _numbers(values: object) -> list[float]:
    """Return a list of numbers of at least 0; an empty one for anything else."""
    if not isinstance(values, list) or not all(isinstance(v, (int, float)) and v >= 0 for v in values):
        return []
    return [float(value) for value in values]


def tails(view: HostView) -> list[Tail]:
    """Return the tails of a host: idle and local ones first."""
    of_case = grouped(view.of(CHECK), lambda r: (pu_nodes(r), banks(r), clean(str(r.parameters.get("load", "")))))
    of_host = [
        Tail(nodes[0], targets[0], load, {r.metric: r for r in records})
        for (nodes, targets, load), records in of_case.items()
        if nodes and targets
    ]
    return sorted(of_host, key=lambda t: (t.load != "none", t.node != t.bank, t.node, t.bank))


def aspect(view: HostView) -> Aspect:
    """Return the bank whose slowest accesses take longest, idle and under load, and the chart."""
    measured_tails = tails(view)
    if not measured_tails:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    worst = [
        max(of_load, key=lambda t: t.slowness) for of_load in grouped(measured_tails, lambda t: t.load).values()
    ]
    results = [_result(tail, measured_tails) for tail in worst if _P999 in tail.records]
    others = [tail for tail in measured_tails if not any(tail is slowest for slowest in worst)]
    curves = [tail for tail in [*worst, *others] if tail.curve()][:_MOST_CURVES]
    table = _table(measured_tails)
    if not curves:
        return Aspect(results, tables=[table])
    chart = Chart(
        key=CHECK,
        title=_TITLE,
        how=_HOW,
        shows=[_sentence(tail) for tail in worst],
        measured=measured((r for t in curves for r in t.records.values()), "the table has all of them"),
        panels={"": partial(_panel, curves)},
        tables=[table],
    )
    return Aspect(results, [chart])


def _result(tail: Tail, measured_tails: Sequence[Tail]) -> Result:
    record, median = tail.records[_P999], tail.records.get(_MEDIAN)
    pairs = sum(other.load == tail.load and _P999 in other.records for other in measured_tails)
    compared = f"{tail.name}, the slowest of {pairs} pairs" if pairs > 1 else tail.name
    compared += f"; the median takes {value(median)}" if median else ""
    return Result("slowest 1 in 1,000 accesses", record, compared)


def _sentence(tail: Tail) -> str:
    texts = {_MEDIAN: "half of the accesses take", _P999: "1 in 1,000 more than", _P9999: "1 in 10,000 more than"}
    parts = [f"{text} {value(tail.records[m])}" for m, text in texts.items() if m in tail.records]
    return f"{tail.name[0].upper()}{tail.name[1:]}: {', '.join(parts)}."


def _panel(curves: Sequence[Tail], *, name: str, title: str, heading: str, description: str) -> Panel:
    looks = {tail.name: drawing.series(position, radius=0) for position, tail in enumerate(curves)}
    ticks = [(10.0**-power, "1 in " + f"{10**power:,}") for power in range(6, 0, -1)]
    axes = drawing.Chart(
        name,
        (
            drawing.logarithmic_scale(ns for tail in curves for ns, _ in tail.curve()),
            drawing.Scale(_LOWEST, 1.0, [*ticks, (1.0, "all")], logarithmic=True),
        ),
        ("time of an access (ns)", "accesses that take longer"),
        looks,
        heading=heading,
    )
    for tail, look in zip(curves, looks.values(), strict=True):
        points = tail.curve()
        axes.draw_series(
            look, points, [f"{tail.name}: {share:.2g} take more than {number(ns)} ns" for ns, share in points]
        )
    return axes.canvas.panel(title, description)


def _table(measured_tails: Sequence[Tail]) -> Table:
    rows = []
    for tail in measured_tails:
        interruptions = next(iter(tail.records.values())).parameters.get("interruptions_per_s")
        cells = [Cell(r.value, number) if (r := tail.records.get(m)) else "" for m in PERCENTILES]
        shown = Cell(interruptions, number) if isinstance(interruptions, (int, float)) else ""
        rows.append((tail.node, tail.bank, "idle" if tail.load == "none" else tail.load, *cells, shown))
    header = ("NUMA node", "bank", "load", "median (ns)", "99 %", "99.9 %", "99.99 %", "interruptions per s")
    return Table("Percentiles of single accesses", header, rows)
