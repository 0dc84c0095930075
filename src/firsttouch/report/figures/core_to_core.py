# SPDX-License-Identifier: Apache-2.0
"""Core-to-core latency: a heat map of the pairs of PUs, and the medians by what the two share."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from firsttouch.records.schema import Record
from firsttouch.report.aspect import measured, value_table
from firsttouch.report.figures import drawing
from firsttouch.report.metrics import near_first, shared
from firsttouch.report.model import Absent, Figure, HostView, Panel
from firsttouch.report.text import clean, count, number, quantity, span

CHECK = "core_to_core"
PAIR, TRANSFER, AGREE = "pair_latency", "transfer_latency", "clusters_agree"
_TITLE = "Latency of a cache line between two PUs"
_HOW = (
    "A cell is the time that a cache line takes from one PU to another, one way. Darker is faster. Blocks on the "
    "diagonal are PUs that share a core, a cache or a NUMA node. Pairs that were not measured are empty."
)
#: With more PUs, the matrix is of NUMA nodes.
_MOST_PUS = 24

_ARTICLES = {"core": "a core", "NUMA node": "a NUMA node", "package": "a package", "host": "the host only"}

_Pair = tuple[int, int]


def figures(view: HostView) -> list[Figure | Absent]:
    """Return the figure of the pairs, or why there is none."""
    of_pair: dict[_Pair, Record] = {}
    for record in view.of(CHECK, metric=PAIR):
        # With lines on several banks, the nearest counts.
        if (pair := _pair(record)) and (pair not in of_pair or record.value < of_pair[pair].value):
            of_pair[pair] = record
    judged = sorted(view.of(CHECK, metric=TRANSFER), key=near_first)
    if not of_pair and not judged:
        return [Absent(_TITLE, view.why_absent(CHECK))]
    if not of_pair:
        return [Absent(_TITLE, "only medians were recorded, no pairs")]
    name = f"{view.key}-core-to-core"
    shows = [*_shows(of_pair, judged), *map(_groups, view.of(CHECK, metric=AGREE))]
    labels = (
        ("what both share", "line"),
        [((shared(r), clean(str(r.parameters.get("line", "")))), r) for r in judged],
    )
    pairs = [((f"{a} and {b}", shared(r)), r) for (a, b), r in sorted(of_pair.items())]
    unit = next(iter(of_pair.values())).unit
    return [
        Figure(
            name=name,
            title=_TITLE,
            how=_HOW,
            shows=tuple(shows),
            measured=measured([*of_pair.values(), *judged], "the table has the spread of each pair"),
            panels=(_panel(name, view, of_pair, " ".join(shows)),),
            tables=(
                *([value_table(f"Medians over pairs ({unit})", *labels)] if judged else []),
                value_table(f"Pairs ({unit})", ("PUs", "what both share"), pairs),
            ),
        )
    ]


def _pair(record: Record) -> _Pair | None:
    pus = record.parameters.get("pus")
    whole = isinstance(pus, (list, tuple)) and len(pus) == 2 and all(isinstance(p, int) for p in pus)
    return (min(pus), max(pus)) if whole and pus is not None else None


def _shows(of_pair: dict[_Pair, Record], judged: Sequence[Record]) -> list[str]:
    by_shared: dict[str, list[Record]] = {}
    for record in sorted(of_pair.values(), key=near_first):
        by_shared.setdefault(shared(record), []).append(record)
    texts = []
    for name, records in by_shared.items():
        median = quantity(statistics.median(r.value for r in records), records[0].unit)
        what, values = _ARTICLES.get(name, f"an {name}"), span(r.value for r in records)
        over = f" ({values}) over {len(records)} pairs" if len(records) > 1 else ""
        texts.append(f"PUs that share {what}: {median}{over}.")
    for record in judged:
        measured_pairs, of = record.parameters.get("pairs"), record.parameters.get("pairs_of")
        if isinstance(measured_pairs, int) and isinstance(of, int) and measured_pairs < of:
            texts.append(f"{measured_pairs} of {of} pairs with the same {shared(record)} were measured.")
    return texts


def _groups(record: Record) -> str:
    """Return whether the groups of PUs that latencies show are those of hwloc."""
    if record.value >= 1:
        return "The latencies show the groups of PUs that hwloc reports."
    number = record.parameters.get("contradictions")
    listed_pairs = record.parameters.get("contradicting")
    pairs = listed_pairs if isinstance(listed_pairs, (list, tuple)) else []
    named = ", ".join(" and ".join(map(str, p)) for p in pairs[:3] if isinstance(p, (list, tuple)))
    where = f" at {count(number, 'pair')}" if isinstance(number, int) else ""
    where += f", such as {named}" if named else ""
    return f"The latencies contradict hwloc{where}: its tables are wrong, or virtual CPUs move between cores."


def _panel(name: str, view: HostView, of_pair: dict[_Pair, Record], shows: str) -> Panel:
    unit = next(iter(of_pair.values())).unit
    pus = sorted({pu for pair in of_pair for pu in pair})
    groups = {pu: pu for pu in pus}
    axes = ("PU", "PU")
    if len(pus) > _MOST_PUS and view.topology is not None:
        groups = {pu: node.index for node in view.topology.numa_nodes for pu in node.pus}
        axes = ("PU of NUMA node", "PU of NUMA node")
    cells: dict[_Pair, list[float]] = {}
    for (a, b), record in of_pair.items():
        for pair in {(a, b), (b, a)}:
            cells.setdefault((groups.get(pair[0], -1), groups.get(pair[1], -1)), []).append(record.value)
    order = sorted({row for row, _ in cells})
    values = [[statistics.median(cells[a, b]) if (a, b) in cells else None for b in order] for a in order]
    return drawing.draw_heatmap(
        values,
        rows=[number(row) for row in order],
        columns=[number(row) for row in order],
        highest=max(v for row in values for v in row if v is not None),
        axes=axes,
        unit=unit,
        name=name,
        title=f"pair latency ({unit})",
        description=shows,
        empty="",
    )
