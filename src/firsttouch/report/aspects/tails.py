# SPDX-License-Identifier: Apache-2.0
"""The slowest accesses to memory: percentiles of single accesses, idle and under load."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from firsttouch.benchmarks.tails import CHECK, PERCENTILES
from firsttouch.records.cases import grouped
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Result, value
from firsttouch.report.document import Cell, Table
from firsttouch.report.model import Absent, HostView, banks, pu_nodes
from firsttouch.report.text import clean
from firsttouch.units import number

_TITLE = "The slowest accesses to memory"
_HOW = "A percentile of 99.9 % is the time that one access of a thousand exceeds, without what interrupts delayed."
_MEDIAN, _P99, _P999, _P9999 = PERCENTILES


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
    """Return the bank whose slowest accesses take longest, idle and under load, and the table of all."""
    measured_tails = tails(view)
    if not measured_tails:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    worst = [
        max(of_load, key=lambda t: t.slowness) for of_load in grouped(measured_tails, lambda t: t.load).values()
    ]
    results = [_result(tail, measured_tails) for tail in worst if _P999 in tail.records]
    return Aspect(results, tables=[_table(measured_tails)], note=" ".join([*map(_sentence, worst), _HOW]))


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


def _table(measured_tails: Sequence[Tail]) -> Table:
    rows = []
    for tail in measured_tails:
        interruptions = next(iter(tail.records.values())).parameters.get("interruptions_per_s")
        cells = [Cell(r.value, number) if (r := tail.records.get(m)) else "" for m in PERCENTILES]
        shown = Cell(interruptions, number) if isinstance(interruptions, (int, float)) else ""
        rows.append((tail.node, tail.bank, "idle" if tail.load == "none" else tail.load, *cells, shown))
    header = ("NUMA node", "bank", "load", "median (ns)", "99 %", "99.9 %", "99.99 %", "interruptions per s")
    return Table(_TITLE, header, rows)
