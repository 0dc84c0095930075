# SPDX-License-Identifier: Apache-2.0
"""Bandwidth as matrices of PU-sets by memory banks, one per kernel (thesis, figures 3.2 to 3.5)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from firsttouch.benchmarks.probe import NAME
from firsttouch.host.cpusets import format_list
from firsttouch.records.cases import Case, by_key
from firsttouch.records.parts import part_of
from firsttouch.records.schema import Record
from firsttouch.report.aspect import (
    FEWEST_DRAWN,
    Aspect,
    Chart,
    Result,
    measured,
    metric_title,
    others_text,
    spread,
    value,
    way_name,
    way_of,
)
from firsttouch.report.aspects import topology
from firsttouch.report.document import Cell, Entry, Table
from firsttouch.report.figures.drawing import draw_heatmap
from firsttouch.report.model import Absent, HostView, banks, pu_nodes
from firsttouch.report.text import nodes, span, times
from firsttouch.systems.expectation import traffic
from firsttouch.units import format_bytes, number, percent, quantity

CHECK = "bandwidth"
#: The order of STREAM; other kernels follow alphabetically.
KERNELS = ("copy", "scale", "add", "triad")
#: The order of the parameters in the name of a way of measuring; others follow.
_ORDER = ("program", "instructions", "stores", "policy")

Nodes = tuple[int, ...]
#: PU-set and bank, and the record.
Pair = tuple[tuple[Nodes, Nodes], Record]

_TITLE = "Bandwidth from PU-set to memory bank"
_HOW = (
    "A cell is the bandwidth of threads on the NUMA nodes of its row with {} of its column. Brighter is faster, "
    "and the scale starts at 0.{} Cells without a valid value are marked none."
)
#: The words to insert into _HOW.
_BOUND = ("all memory on the bank", " Accesses are local if row and column are the same NUMA node.")
_INTERLEAVED = ("pages interleaved over the banks", "")


def aspect(view: HostView) -> Aspect:
    """Return the highest local bandwidth of each kernel, and a chart per way of measuring."""
    ways = variants(view)
    if not ways:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    kernels = dict.fromkeys((*KERNELS, *(m.kernel for w in ways for m in w.matrices)))
    charts = [_chart(f"bandwidth-{position}", view, way) for position, way in enumerate(ways, start=1)]
    stands = _standing(ways)
    results = [
        _result(view, *fastest[1:], fastest[0].name, is_detail=fastest != stands)
        for kernel in kernels
        if (fastest := best_local(ways, kernel))
    ]
    return Aspect([*results, *_highest(view)], charts)


def _highest(view: HostView) -> Iterator[Result]:
    """Yield the highest bandwidth of a bank, with the lines that stores read first, as on the card."""
    cases = [(Case.from_record(r), r) for r in view.select(CHECK, "stores", "pages", "loaded_latency")]
    rates = [(traffic(c, r.value), c, r) for c, r in cases if part_of(c).name == "memory"]
    for rate, case, record in sorted((r for r in rates if r[0] > 0), key=lambda r: -r[0])[:1]:
        title, reads = f"{metric_title(record)}, the highest", rate > record.value
        compared = f"{case.title} {value(record)}, and the lines that its stores read first (write-allocate)"
        of_record = Result(title, record, case.title)
        yield Result(title, None, compared, quantity(rate, record.unit)) if reads else of_record


def _result(view: HostView, matrix: Matrix, cell: Pair, way: str = "", *, is_detail: bool = False) -> Result:
    (place, _), record = cell
    remote = matrix.worst_remote()
    worst = f"worst remote {value(remote[1])}, {_pair(remote)}{_less(record, remote[1])}" if remote else ""
    parts = (worst, _where(matrix, place), way, topology.share_of_theory(view, record), others_text(view, record))
    compared = "; ".join(filter(None, parts))
    return Result(f"{metric_title(record)}, local", record, compared, is_detail=is_detail)


def _less(record: Record, far: Record) -> str:
    return f", {times(record.value / far.value)} less" if far.value > 0 else ""


def _where(matrix: Matrix, place: Nodes) -> str:
    """Return the NUMA nodes with the highest local bandwidth, and the range of all local ones."""
    local = matrix.local()
    return nodes(place) + (f", all local ones {span(r.value for _, r in local)}" if len(local) > 1 else "")


def _pair(cell: Pair) -> str:
    (pus, bank), _ = cell
    return f"{nodes(pus)} to bank {format_list(bank)}"


# ----------------------------------------------------------------------
# The matrices of a host.


class Matrix(Struct, frozen=True):
    """The records of one kernel by (PU-set, bank)."""

    kernel: str
    cells: Mapping[tuple[Nodes, Nodes], Record]

    @property
    def rows(self) -> list[Nodes]:
        """The PU-sets: single NUMA nodes first."""
        return sorted({row for row, _ in self.cells}, key=lambda nodes: (len(nodes), nodes))

    @property
    def columns(self) -> list[Nodes]:
        """The banks."""
        return sorted({bank for _, bank in self.cells}, key=lambda nodes: (len(nodes), nodes))

    def local(self) -> list[Pair]:
        """Return the cells whose PUs and memory are on the same NUMA nodes, of the smallest PU-sets only.

        Larger PU-sets do not make a bank faster.
        """
        cells = [(place, r) for place, r in self.cells.items() if place[0] == place[1]]
        smallest = min((len(place[0]) for place, _ in cells), default=0)
        return [cell for cell in cells if len(cell[0][0]) == smallest]

    def remote(self) -> list[Pair]:
        """Return the cells whose PUs and memory share no NUMA node."""
        return [cell for cell in self.cells.items() if not set(cell[0][0]) & set(cell[0][1])]

    def best_local(self) -> Pair | None:
        """Return the local cell with the highest bandwidth."""
        return max(self.local(), key=_value, default=None)

    def worst_remote(self) -> Pair | None:
        """Return the cell with the lowest bandwidth among the remote ones."""
        return min(self.remote(), key=_value, default=None)


def _value(cell: Pair) -> float:
    return cell[1].value


class Variant(Struct, frozen=True):
    """One way of measuring (program, instructions, stores, policy, ...) and its matrices."""

    parameters: Mapping[str, Any]
    matrices: tuple[Matrix, ...]

    @property
    def name(self) -> str:
        """The way of measuring as a title: ``likwid-bench, avx512 instructions, regular stores, membind``."""
        return way_name(self.parameters) or "bandwidth"

    @property
    def by_probe(self) -> bool:
        """Whether the probe measured."""
        return self.parameters.get("program") == NAME

    def records(self) -> Iterator[Record]:
        """Yield the records of all matrices."""
        for matrix in self.matrices:
            yield from matrix.cells.values()


def variants(view: HostView) -> list[Variant]:
    """Return every way of measuring bandwidth among the valid records of a host, in a stable order."""
    result = []
    by_way = by_key(view.select(CHECK), lambda r: json.dumps(way_of(r, _ORDER), default=str))
    for key, records in sorted(by_way.items()):
        kernels: dict[str, dict[tuple[Nodes, Nodes], Record]] = {}
        for record in records:
            # The metric names the kernel (copy_bandwidth); the parameter is the name that the program uses.
            kernel = record.metric.removesuffix("_bandwidth") or str(record.parameters["kernel"])
            kernels.setdefault(kernel, {})[pu_nodes(record), banks(record)] = record
        in_order = [*(k for k in KERNELS if k in kernels), *sorted(kernels.keys() - {*KERNELS})]
        result.append(Variant(json.loads(key), tuple(Matrix(kernel, kernels[kernel]) for kernel in in_order)))
    return result


def best_local(ways: list[Variant], kernel: str) -> tuple[Variant, Matrix, Pair] | None:
    """Return the way, matrix and cell of the highest local bandwidth of *kernel*.

    Of several ways of measuring, the one with the smallest PU-sets is used, then the one with the most cells.
    """
    candidates = [
        (way, matrix, cell)
        for way in ways
        for matrix in way.matrices
        if matrix.kernel == kernel and (cell := matrix.best_local())
    ]

    # A candidate is (way, matrix, ((PU-set, bank), record)).
    def order(item: tuple[Variant, Matrix, Pair]) -> tuple[int, int, bool, float]:
        return (-len(item[2][0][0]), len(item[1].cells), item[0].by_probe, _value(item[2]))

    return max(candidates, key=order, default=None)


#: The kernels that represent the bandwidth of a host, in order of preference.
_STANDS = ("triad", "copy", "add", "scale")


def local_bandwidth(view: HostView) -> Record | None:
    """Return the record that represents the bandwidth of local memory."""
    fastest = _standing(variants(view))
    return fastest[2][1] if fastest else None


def _standing(ways: list[Variant]) -> tuple[Variant, Matrix, Pair] | None:
    """Return the way, matrix and cell that represent the bandwidth of local memory: triad, or another kernel."""
    return next(filter(None, (best_local(ways, kernel) for kernel in _STANDS)), None)


# ----------------------------------------------------------------------
# The chart.


def _chart(key: str, view: HostView, way: Variant) -> Chart:
    records = list(way.records())
    unit = records[0].unit
    threads = span(t for r in records if isinstance(t := r.parameters.get("threads"), int))
    arrays = [b for r in records if isinstance(b := r.parameters.get("array_bytes"), int)]
    details = [measured(records)]
    details += [f"Threads: {threads}."] if threads != "none" else []
    if arrays:
        details.append(f"Array: {' to '.join(dict.fromkeys(map(format_bytes, (min(arrays), max(arrays)))))}.")
    shown = min(way.matrices, key=lambda m: _STANDS.index(m.kernel) if m.kernel in _STANDS else len(_STANDS))
    cells = [[shown.cells.get((row, column)) for column in shown.columns] for row in shown.rows]
    draw = partial(
        draw_heatmap,
        [[record.value if record else None for record in row] for row in cells],
        rows=[*map(format_list, shown.rows)],
        columns=[*map(format_list, shown.columns)],
        highest=max(r.value for r in shown.cells.values()),
        axes=("PU-set (NUMA nodes)", "memory bank (NUMA node)"),
        unit=unit,
    )
    return Chart(
        key=key,
        title=f"{_TITLE}: {way.name}",
        how=_HOW.format(*(_INTERLEAVED if way.parameters.get("policy") == "interleave" else _BOUND)),
        shows=[_sentence(view, m) for m in way.matrices],
        measured=" ".join(details),
        panels={f"{shown.kernel} ({unit})": draw} if len(shown.cells) >= FEWEST_DRAWN else {},
        tables=[_table(view, way, unit)],
    )


def _sentence(view: HostView, matrix: Matrix) -> str:
    if fastest := matrix.best_local():
        return _result(view, matrix, fastest).sentence
    cell = max(matrix.cells.items(), key=_value)
    return f"{matrix.kernel}: at most {value(cell[1])}, {_pair(cell)}; none is local."


def _table(view: HostView, way: Variant, unit: str) -> Table:
    places = sorted(
        {place for m in way.matrices for place in m.cells}, key=lambda p: (len(p[0]), p[0], len(p[1]), p[1])
    )
    shares = any(topology.fraction(view, r) is not None for r in way.records())
    heads = ("of theory", "spread", "n") if shares else ("spread", "n")
    header = ("PU-set", "bank", "threads", *(head for m in way.matrices for head in (m.kernel, *heads)))
    rows = []
    for pus, bank in places:
        records = [m.cells.get((pus, bank)) for m in way.matrices]
        threads = next((r.parameters["threads"] for r in records if r and "threads" in r.parameters), "")
        cells: list[Entry] = []
        for record in records:
            of_theory = [Cell(record and topology.fraction(view, record), percent)] if shares else []
            measured_cells = (
                (Cell(record.value, number), spread(record), record.repetitions) if record else ("", "", "")
            )
            cells += [measured_cells[0], *of_theory, *measured_cells[1:]]
        rows.append((format_list(pus), format_list(bank), threads, *cells))
    return Table(f"{way.name} ({unit}, medians)", header, rows)
