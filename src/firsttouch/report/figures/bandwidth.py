# SPDX-License-Identifier: Apache-2.0
"""Bandwidth matrices: PU-sets by memory banks, one per kernel (thesis, figures 3.2 to 3.5)."""

from __future__ import annotations

from firsttouch.host.cpusets import format_list
from firsttouch.records.schema import Record
from firsttouch.report import metrics
from firsttouch.report.aspect import measured
from firsttouch.report.figures import drawing
from firsttouch.report.metrics import Matrix, Variant
from firsttouch.report.model import Absent, Figure, HostView, Panel, Table
from firsttouch.report.text import nodes, number, percent, quantity, span, times
from firsttouch.units import format_bytes

_TITLE = "Bandwidth from PU-set to memory bank"
_HOW = (
    "A cell is the bandwidth of threads on the NUMA nodes of its row with all memory on the bank of its column. "
    "Brighter is faster, and the scale starts at 0. Accesses are local if row and column are the same NUMA node. "
    "Cells without a valid value are marked none."
)

_HOW_INTERLEAVED = (
    "A cell is the bandwidth of threads on the NUMA nodes of its row with pages interleaved over the banks of its "
    "column. Brighter is faster, and the scale starts at 0. Cells without a valid value are marked none."
)


def figures(view: HostView) -> list[Figure | Absent]:
    """Return a figure for each way of measuring bandwidth, or why there is none."""
    ways = metrics.variants(view)
    if not ways:
        return [Absent(_TITLE, view.why_absent("bandwidth"))]
    shown = metrics.drawn(ways)
    return [_figure(f"{view.key}-bandwidth-{i}", view, way) for i, way in enumerate(shown, start=1)]


def _figure(name: str, view: HostView, way: Variant) -> Figure:
    records = list(way.records())
    unit = records[0].unit
    highest = max(r.value for r in records)
    threads = span(t for r in records if isinstance(t := r.parameters.get("threads"), int))
    arrays = [b for r in records if isinstance(b := r.parameters.get("array_bytes"), int)]
    details = [] if threads == "none" else [f"Threads: {threads}."]
    if arrays:
        low, high = format_bytes(min(arrays)), format_bytes(max(arrays))
        details.append(f"Array: {low if low == high else f'{low} to {high}'}.")
    spread = measured(records, "the table has the spread of each cell")
    return Figure(
        name=name,
        title=f"{_TITLE}: {way.name}",
        how=_HOW_INTERLEAVED if way.parameters.get("policy") == "interleave" else _HOW,
        shows=tuple(_shows(matrix) for matrix in way.matrices),
        measured=" ".join([spread, *details]),
        panels=tuple(
            _panel(f"{name}-{i}", matrix, unit=unit, highest=highest)
            for i, matrix in enumerate(way.matrices, start=1)
        ),
        tables=tuple(filter(None, (metrics.table(view, records), _table(view, way, unit)))),
    )


def _shows(matrix: Matrix) -> str:
    best, worst = matrix.best_local(), matrix.worst_remote()
    if best is None:
        (row, bank), record = max(matrix.remote() or matrix.cells.items(), key=lambda cell: cell[1].value)
        value = quantity(record.value, record.unit)
        return f"{matrix.kernel}: at most {value}, {nodes(row)} to bank {format_list(bank)}; none is local."
    (row, _), record = best
    text = f"{matrix.kernel}: local {quantity(record.value, record.unit)} ({nodes(row)})"
    if len(local := matrix.local()) > 1:
        text += f", all local ones {span(r.value for _, r in local)}"
    if worst is None:
        return f"{text}; no remote pair was measured."
    (row, bank), far = worst
    text += f"; the slowest remote pair, {nodes(row)} to bank {format_list(bank)}, has "
    text += quantity(far.value, far.unit)
    return text + (f", {times(record.value / far.value)} less." if far.value > 0 else ".")


def _panel(name: str, matrix: Matrix, *, unit: str, highest: float) -> Panel:
    values = [
        [record.value if (record := matrix.cells.get((row, column))) else None for column in matrix.columns]
        for row in matrix.rows
    ]
    return drawing.draw_heatmap(
        values,
        rows=[format_list(row) for row in matrix.rows],
        columns=[format_list(column) for column in matrix.columns],
        highest=highest,
        axes=("PU-set (NUMA nodes)", "memory bank (NUMA node)"),
        unit=unit,
        name=name,
        title=f"{_TITLE}: {matrix.kernel} ({unit})",
        heading=f"{matrix.kernel} ({unit})",
        description=_shows(matrix),
    )


def _table(view: HostView, way: Variant, unit: str) -> Table:
    places = sorted(
        {place for m in way.matrices for place in m.cells}, key=lambda p: (len(p[0]), p[0], len(p[1]), p[1])
    )
    kernels = [m.kernel for m in way.matrices]
    shares = any(metrics.fraction(view, r) is not None for r in way.records())
    heads = ("of theoretical", "spread", "n") if shares else ("spread", "n")
    header = ("PU-set", "bank", "threads", *(h for k in kernels for h in (k, *heads)))
    rows = []
    for place in places:
        records = [m.cells.get(place) for m in way.matrices]
        threads = next((str(r.parameters["threads"]) for r in records if r and "threads" in r.parameters), "")
        cells = [cell for r in records for cell in _cell(view, r, shares=shares)]
        rows.append((format_list(place[0]), format_list(place[1]), threads, *cells))
    return Table(f"{way.name} ({unit}, medians)", header, rows, frozenset(range(2, len(header))))


def _cell(view: HostView, record: Record | None, *, shares: bool) -> tuple[str, ...]:
    if record is None:
        return ("",) * (4 if shares else 3)
    spread = percent(record.spread) if record.repetitions > 1 else ""
    share = metrics.fraction(view, record)
    of = (percent(share) if share is not None else "",) if shares else ()
    return (number(record.value), *of, spread, str(record.repetitions))
