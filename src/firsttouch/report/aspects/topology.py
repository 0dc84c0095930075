# SPDX-License-Identifier: Apache-2.0
"""The topology: NUMA nodes with memory, caches and PUs, distances (thesis, figure 2.6), theoretical bandwidth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import NumaNode, Topology
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Chart, Result, value
from firsttouch.report.document import Cell, Entry, Panel, Table
from firsttouch.report.figures.svg import INK, MUTED, PAPER, RAISED, Canvas
from firsttouch.report.model import Absent, HostView, banks
from firsttouch.report.text import count, listed
from firsttouch.units import format_bytes, percent

CHECK = "topology"
_TITLE = "The host as hwloc sees it"
_HOW = (
    "A box is a NUMA node with its memory, its PUs (hardware threads) by number, and its caches below them. "
    "A cache is as wide as the PUs that share it. A dashed PU may not be used. A PU reaches the memory of its own "
    "box fastest."
)
#: Sizes (px): a PU, a row of caches, the names beside the rows, the gaps, the widest drawing.
_PU, _CACHE, _NAMES, _GAP, _WIDEST = 26, 20, 92, 14, 940
#: PUs in a row; a NUMA node with more has several rows.
_ACROSS = 16
#: Height (px) of the head of a box, and of a box without PUs.
_HEAD, _NO_PUS = 44, 72


def aspect(view: HostView) -> Aspect:
    """Return the size of the host, its theoretical bandwidth, and the chart of its topology if it is known."""
    results = [Result("topology", text=", ".join(sizes))] if (sizes := size_texts(view)) else []
    if record := theoretical(view):
        source = record.parameters.get("source")
        compared = f"per package, from {source}" if source else ""
        results.append(Result("theoretical bandwidth", compared=compared, text=value(record)))
    elif why := unknown(view):
        results.append(Result("theoretical bandwidth", compared=why, text="unknown"))
    host = view.topology
    absent = [] if results else [Absent("the metrics of the topology check", view.why_absent(CHECK))]
    if host is None:
        return Aspect(results, absent=absent, note="No topology (hwloc XML) of this host was given.")
    tables = [*filter(None, (_numa_nodes(host), _caches(host), _distances(host)))]
    return Aspect(results, [_chart(host)], absent, tables=tables)


def size_texts(view: HostView) -> list[str]:
    """Return the numbers of NUMA nodes and PUs, and the memory, as far as they were recorded."""
    records = {r.metric: r for r in view.of(CHECK)}
    nouns = (("numa_nodes", "NUMA node"), ("pus", "PU"))
    texts = [count(round(records[metric].value), noun) for metric, noun in nouns if metric in records]
    return [*texts, value(records["memory"])] if "memory" in records else texts


# ----------------------------------------------------------------------
# Measured bandwidth as a fraction of the theoretical one (thesis, section 3.2, formula 3.1).

METRIC = "theoretical_bandwidth"
KNOWN = "theoretical_bandwidth_known"


def fraction(view: HostView, record: Record) -> float | None:
    """Return the record's rate over the theoretical bandwidth of its banks, None if that is unknown.

    Formula 3.1 gives the theoretical bandwidth of a package, and all banks are assumed to be alike.
    """
    bank = bank_bandwidth(view)
    if bank is None or record.unit != "GB/s" or not banks(record):
        return None
    return record.value / (bank * len(banks(record)))


def of_theory(view: HostView, record: Record) -> str:
    """Return the record's rate as a share of the theoretical one, an empty text if that is unknown."""
    share = fraction(view, record)
    return "" if share is None else f"{percent(share)} of theory"


def bank_bandwidth(view: HostView) -> float | None:
    """Return the theoretical bandwidth of one bank (GB/s), None if it is unknown; all are assumed to be alike."""
    theory = theoretical(view)
    if theory is None or theory.unit != "GB/s":
        return None
    packages, all_banks = theory.parameters.get("packages"), theory.parameters.get("banks")
    if not isinstance(packages, int) or not isinstance(all_banks, int) or not all_banks or theory.value <= 0:
        return None
    return theory.value * packages / all_banks


def theoretical(view: HostView) -> Record | None:
    """Return the newest record of the theoretical bandwidth, whatever its source: verdicts take the same one."""
    return max(view.of(CHECK, metric=METRIC), key=lambda r: (r.time, r.value), default=None)


def unknown(view: HostView) -> str:
    """Return why the theoretical bandwidth of the host is unknown, an empty text if any record has it."""
    if theoretical(view) is not None:
        return ""
    record = max(view.of(CHECK, metric=KNOWN), key=lambda r: r.time, default=None)
    return str(record.parameters.get("reason", "")) if record is not None and not record.value else ""


# ----------------------------------------------------------------------
# Tables.


def _numa_nodes(topology: Topology) -> Table:
    """Return the NUMA nodes with their PUs and memory."""
    rows = [
        (
            str(node.index),
            format_list(node.pus),
            len(topology.usable_pus(node.index)),
            Cell(node.memory_bytes, format_bytes) if node.memory_bytes else "memoryless",
            node.subtype or ("DRAM" if node.memory_bytes else ""),
        )
        for node in topology.numa_nodes
    ]
    header = ("NUMA node", "PUs", "PUs that may be used", "memory", "kind")
    return Table("NUMA nodes", header, rows)


def _caches(topology: Topology) -> Table:
    """Return the sizes of the data caches, their number, and the number of PUs that share one."""
    groups = Counter((cache.level, cache.size_bytes, len(cache.pus)) for cache in topology.caches)
    rows = [
        (level_name(level), Cell(size, format_bytes), how_many, sharing)
        for (level, size, sharing), how_many in sorted(groups.items())
    ]
    return Table("Data caches", ("level", "size", "how many", "PUs that share one"), rows)


def _distances(topology: Topology) -> Table | None:
    """Return the firmware's distances between NUMA nodes, None if it states none."""
    order = [n.index for n in topology.numa_nodes]
    if not topology.distances or len(order) == 1:
        return None
    rows: list[tuple[Entry, ...]] = [(f"from {a}", *(topology.distance(a, b) for b in order)) for a in order]
    caption = "Distances according to the firmware (10 is local; not measured)"
    header = ("NUMA node", *(f"to {b}" for b in order))
    return Table(caption, header, rows)


# ----------------------------------------------------------------------
# The chart.


def _chart(host: Topology) -> Chart:
    return Chart(
        key=CHECK,
        title=_TITLE,
        how=_HOW,
        shows=_sentences(host),
        measured="From the firmware's tables, as the kernel and hwloc report them. Nothing here was measured.",
        panels={"": partial(_drawing, host)},
    )


def _sentences(host: Topology) -> list[str]:
    packages = {pu.package for pu in host.pus}
    cores = {pu.core for pu in host.pus}
    sentences = [
        f"{count(len(host.numa_nodes), 'NUMA node')} in {count(len(packages), 'package')}, "
        f"{count(len(cores), 'core')}, {count(len(host.pus), 'PU')}, "
        f"{format_bytes(sum(n.memory_bytes for n in host.numa_nodes))} of memory."
    ]
    sizes = sorted({(c.level, c.size_bytes) for c in host.caches})
    if sizes:
        sentences.append(f"Caches: {listed((_cache_name(*size) for size in sizes), most=9)}.")
    unusable = {pu.index for pu in host.pus} - host.allowed_pus
    if unusable:
        sentences.append(f"PUs that may not be used: {format_list(unusable)}.")
    empty = [n.index for n in host.numa_nodes if not n.memory_bytes]
    if empty:
        sentences.append(f"Without memory: NUMA nodes {format_list(empty)}.")
    spread = {d for pair, d in host.distances.items() if pair[0] != pair[1]}
    if len(spread) > 1:
        sentences.append(f"Distances to other NUMA nodes: {min(spread)} to {max(spread)}, where 10 is local.")
    return sentences


def level_name(level: int) -> str:
    """Return the name of a level of data caches."""
    return f"L{level}{'d' if level == 1 else ''}"


def _cache_name(level: int, size: int) -> str:
    return f"{level_name(level)} {format_bytes(size)}"


def _drawing(host: Topology, *, name: str, title: str, heading: str, description: str) -> Panel:  # noqa: ARG001
    """Return the drawing of the NUMA nodes by package, those without PUs last; each has its own heading."""
    package = {pu.index: pu.package for pu in host.pus}
    nodes = sorted(
        host.numa_nodes, key=lambda n: (not n.pus, min((package[p] for p in n.pus), default=0), n.index)
    )
    across = max(1, min(_ACROSS, max((len(n.pus) for n in nodes), default=1)))
    width = _NAMES + max(across * _PU, 190) + 2 * 10
    columns = max(1, min(len(nodes), (_WIDEST + _GAP) // (width + _GAP)))
    rows = [nodes[at : at + columns] for at in range(0, len(nodes), columns)]
    heights = [max(_height(host, node, across) for node in row) for row in rows]
    canvas = Canvas(columns * (width + _GAP) - _GAP + 2, sum(heights) + _GAP * (len(rows) - 1) + 2, name)
    top = 1.0
    for row, height in zip(rows, heights, strict=True):
        for column, node in enumerate(row):
            left = 1.0 + column * (width + _GAP)
            canvas.rectangle((left, top), (width, height), "none", stroke=MUTED, rx=6, class_="box")
            _draw_node(canvas, host, node, (left, top), width=width, across=across)
        top += height + _GAP
    for node in nodes:
        pus = f"PUs {format_list(node.pus)}" if node.pus else "no PUs"
        description += f" NUMA node {node.index}: {_memory(node)}, {pus}."
    return canvas.panel(title, description, "topology")


def _memory(node: NumaNode) -> str:
    kind = f" {node.subtype}" if node.subtype else ""
    return f"{format_bytes(node.memory_bytes)}{kind}" if node.memory_bytes else "no memory"


def _rows(host: Topology, node: NumaNode, across: int) -> list[list[int]]:
    """Return the PUs of a NUMA node in rows, those of a core beside each other."""
    core = {pu.index: pu.core for pu in host.pus}
    pus = sorted(node.pus, key=lambda pu: (core[pu], pu))
    return [pus[at : at + across] for at in range(0, len(pus), across)]


def _height(host: Topology, node: NumaNode, across: int) -> float:
    rows = _rows(host, node, across)
    return _HEAD + sum(_PU + 8 + (_CACHE + 3) * len(list(_levels(host, row))) for row in rows) if rows else _NO_PUS


def _draw_node(
    canvas: Canvas, host: Topology, node: NumaNode, corner: tuple[float, float], *, width: float, across: int
) -> None:
    """Draw what is in the box of a NUMA node, whose upper left *corner* is given."""
    left, y = corner[0] + 10, corner[1]
    packages = {p: i for i, p in enumerate(dict.fromkeys(pu.package for pu in host.pus))}
    own = {packages[pu.package] for pu in host.pus if pu.index in node.pus}
    canvas.text((left, y + 19), f"NUMA node {node.index}", font_weight=600, class_="heading")
    canvas.text((left + width - 20, y + 19), f"package {format_list(own)}" if own else "no package", "end")
    canvas.text((left, y + 37), _memory(node))
    y += _HEAD
    if not node.pus:
        canvas.text((left, y + 16), "no PUs")
    for row in _rows(host, node, across):
        canvas.text((left, y + _PU / 2 + 4.5), "PUs", fill=MUTED)
        for column, pu in enumerate(row):
            _draw_pu(canvas, pu, (left + _NAMES + column * _PU, y), usable=pu in host.allowed_pus)
        y += _PU + 3
        for level, caches in _levels(host, row):
            sizes = {size for _, _, size in caches}
            label = _cache_name(level, sizes.pop()) if len(sizes) == 1 else level_name(level)
            canvas.text((left, y + _CACHE / 2 + 4.5), label, fill=MUTED)
            for start, pus, bytes_ in caches:
                place, size = (left + _NAMES + start * _PU + 1, y), (pus * _PU - 2, _CACHE)
                tip = f"{_cache_name(level, bytes_)} of {count(pus, 'PU')}"
                canvas.rectangle(place, size, RAISED, stroke=MUTED, rx=3, class_="cache", tip=tip)
            y += _CACHE + 3
        y += 5


def _draw_pu(canvas: Canvas, pu: int, corner: tuple[float, float], *, usable: bool) -> None:
    x, y = corner
    colour = INK if usable else MUTED
    tip, kind, dashes = (f"PU {pu}", "pu", "") if usable else (f"PU {pu}, may not be used", "pu barred", "3 2")
    outline = {"stroke": colour, "stroke_dasharray": dashes}
    canvas.rectangle((x + 1, y), (_PU - 2, _PU), PAPER, **outline, rx=3, class_=kind, tip=tip)
    canvas.text((x + _PU / 2, y + _PU / 2 + 4), str(pu), "middle", fill=colour, size=12)


def _levels(host: Topology, row: Sequence[int]) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """Yield each cache level of a row of PUs, the nearest first, with its caches.

    A cache is the position of its first PU in the row, how many PUs of the row share it, and its size in bytes.
    """
    for level in sorted({c.level for c in host.caches}):
        cache_of = {pu: c for c in host.caches if c.level == level for pu in c.pus}
        caches, start = [], 0
        for cache, members in groupby(row, key=cache_of.get):
            pus = len(list(members))
            if cache is not None:
                caches.append((start, pus, cache.size_bytes))
            start += pus
        if caches:
            yield level, caches
