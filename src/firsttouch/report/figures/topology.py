# SPDX-License-Identifier: Apache-2.0
"""The topology drawn: NUMA nodes with memory, caches and PUs, and their distances (thesis, figure 2.6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import NumaNode, Topology
from firsttouch.report.figures import drawing
from firsttouch.report.model import Figure, HostView, Panel
from firsttouch.report.text import clean, count, listed
from firsttouch.units import format_bytes

_TITLE = "The host as hwloc sees it"
_HOW = (
    "A box is a NUMA node: its memory, its PUs by number, and below them the caches; a cache is as wide as the "
    "PUs that share it. A dashed PU may not be used. A PU reaches the memory of its own box fastest."
)
_DISTANCES = (
    " In the matrix a PU of the row's NUMA node reaches the memory of the column's: brighter is farther, and 10 "
    "is local. The firmware tells these distances; how far it really is, latency and bandwidth show."
)
#: Sizes in px: a PU, a row of caches, the names beside the rows, the gaps, and how wide a drawing may be.
_PU, _CACHE, _NAMES, _GAP, _WIDEST = 26, 20, 92, 14, 940
#: PUs beside one another; more of one NUMA node go below.
_ACROSS = 16
_HEAD = 44


def figures(view: HostView) -> list[Figure]:
    """Return the drawing of the host's topology; nothing where none is known."""
    known = view.topology
    if known is None:
        return []
    name = f"{view.key}-topology"
    matrix = _matrix(f"{name}-distances", known)
    return [
        Figure(
            name=name,
            title=_TITLE,
            how=_HOW + (_DISTANCES if matrix else ""),
            shows=_shows(known),
            measured="From the firmware's tables by way of the kernel and hwloc: nothing here was measured.",
            panels=(_drawing(f"{name}-drawing", known), *([matrix] if matrix else [])),
            tables=(),
        )
    ]


def _shows(known: Topology) -> tuple[str, ...]:
    packages = {pu.package for pu in known.pus}
    cores = {pu.core for pu in known.pus}
    found = [
        f"{count(len(known.numa_nodes), 'NUMA node')} in {count(len(packages), 'package')}, "
        f"{count(len(cores), 'core')}, {count(len(known.pus), 'PU')}, "
        f"{format_bytes(sum(n.memory_bytes for n in known.numa_nodes))} of memory."
    ]
    sizes = sorted({(c.level, c.size_bytes) for c in known.caches})
    if sizes:
        found.append(f"Caches: {listed((_cache_name(*size) for size in sizes), most=9)}.")
    unusable = {pu.index for pu in known.pus} - known.allowed_pus
    if unusable:
        found.append(f"PUs that may not be used: {format_list(unusable)}.")
    empty = [n.index for n in known.numa_nodes if not n.memory_bytes]
    if empty:
        found.append(f"Without memory: NUMA nodes {format_list(empty)}.")
    spread = {d for pair, d in known.distances.items() if pair[0] != pair[1]}
    if len(spread) > 1:
        found.append(f"Distances to other NUMA nodes: {min(spread)} to {max(spread)}, where 10 is local.")
    return tuple(found)


def _cache_name(level: int, size: int) -> str:
    return f"L{level}{'d' if level == 1 else ''} {format_bytes(size)}"


def _matrix(name: str, known: Topology) -> Panel | None:
    order = [n.index for n in known.numa_nodes]
    if not known.distances or len(order) == 1:
        return None
    values = [[float(known.distance(a, b)) for b in order] for a in order]
    return drawing.draw_heatmap(
        values,
        rows=[str(n) for n in order],
        columns=[str(n) for n in order],
        highest=max(map(max, values)),
        axes=("PUs of NUMA node" if len(order) > 4 else "PUs of", "memory of NUMA node"),
        unit="",
        name=name,
        title="Distances that the firmware tells",
        description=" ".join(
            f"From NUMA node {a}: {listed((f'{d:g} to {b}' for b, d in zip(order, row, strict=True)), most=99)}."
            for a, row in zip(order, values, strict=True)
        ),
    )


@dataclass(frozen=True)
class _Segment:
    """A cache over neighbouring PUs of a row: where it starts, how many it covers, its size in bytes."""

    start: int
    pus: int
    size: int


def _drawing(name: str, known: Topology) -> Panel:
    nodes = _by_package(known)
    across = max(1, min(_ACROSS, max((len(n.pus) for n in nodes), default=1)))
    box = _NAMES + max(across * _PU, 190) + 2 * 10
    columns = max(1, min(len(nodes), (_WIDEST + _GAP) // (box + _GAP)))
    parts: list[Markup] = []
    top = 0.0
    for at in range(0, len(nodes), columns):
        drawn = [_box(known, node, across, box) for node in nodes[at : at + columns]]
        tallest = max(height for _, height in drawn)
        for column, (inside, _) in enumerate(drawn):
            place = Markup('<g transform="translate({:g} {:g})">').format(1 + column * (box + _GAP), top + 1)
            frame = Markup('<rect class="box" width="{:g}" height="{:g}" rx="6"/>').format(box, tallest)
            parts += [place, frame, inside, Markup("</g>")]
        top += tallest + _GAP
    size = (round(columns * (box + _GAP) - _GAP + 2), round(top - _GAP + 2))
    head = Markup(
        '<svg class="topology" role="img" aria-labelledby="{0}-title {0}-desc" viewBox="0 0 {1} {2}" width="{1}" '
        'height="{2}"><title id="{0}-title">{3}</title><desc id="{0}-desc">{4}</desc>'
    ).format(name, *size, _TITLE, clean(" ".join((*_shows(known), *map(_said, nodes)))))
    return Panel(head + Markup("").join(parts) + Markup("</svg>"), size[0])


def _by_package(known: Topology) -> list[NumaNode]:
    """Return the NUMA nodes, those of one package beside each other, those without PUs last."""
    package = {pu.index: pu.package for pu in known.pus}
    return sorted(
        known.numa_nodes, key=lambda n: (not n.pus, min((package[p] for p in n.pus), default=0), n.index)
    )


def _memory(node: NumaNode) -> str:
    kind = f" {node.subtype}" if node.subtype else ""
    return f"{format_bytes(node.memory_bytes)}{kind}" if node.memory_bytes else "no memory"


def _said(node: NumaNode) -> str:
    pus = f"PUs {format_list(node.pus)}" if node.pus else "no PUs"
    return f"NUMA node {node.index}: {_memory(node)}, {pus}."


def _box(known: Topology, node: NumaNode, across: int, width: float) -> tuple[Markup, float]:
    """Return what is in a NUMA node's box, and how high that is."""
    core = {pu.index: pu.core for pu in known.pus}
    packages = {p: i for i, p in enumerate(dict.fromkeys(pu.package for pu in known.pus))}
    mine = sorted({packages[pu.package] for pu in known.pus if pu.index in node.pus})
    where = f"package {format_list(mine)}" if mine else "no package"
    heading = Markup('<text class="heading" x="10" y="19">{}</text>').format(f"NUMA node {node.index}")
    beside = Markup('<text class="end" x="{:g}" y="19">{}</text>').format(width - 10, where)
    memory = Markup('<text x="10" y="37">{}</text>').format(clean(_memory(node)))
    parts, y = [heading, beside, memory], float(_HEAD)
    pus = sorted(node.pus, key=lambda pu: (core[pu], pu))
    if not pus:
        parts.append(Markup('<text x="10" y="{:g}">no PUs</text>').format(y + 16))
        return Markup("").join(parts), y + 28
    for at in range(0, len(pus), across):
        row = pus[at : at + across]
        parts.append(_label("PUs", y + _PU / 2))
        parts += [_pu(pu, _NAMES + 10 + i * _PU, y, pu in known.allowed_pus) for i, pu in enumerate(row)]
        y += _PU + 3
        for level, segments in _levels(known, row):
            sizes = {s.size for s in segments}
            level_name = f"L{level}{'d' if level == 1 else ''}"
            parts.append(
                _label(_cache_name(level, sizes.pop()) if len(sizes) == 1 else level_name, y + _CACHE / 2)
            )
            parts += [_cache(segment, y) for segment in segments]
            y += _CACHE + 3
        y += 5
    return Markup("").join(parts), y


def _label(text: str, middle: float) -> Markup:
    return Markup('<text class="name" x="10" y="{:g}">{}</text>').format(middle + 4.5, text)


def _pu(index: int, x: float, y: float, usable: bool) -> Markup:
    return Markup(
        '<rect class="{}" x="{:g}" y="{:g}" width="{:g}" height="{:g}" rx="3"/>'
        '<text class="middle{}" x="{:g}" y="{:g}">{}</text>'
    ).format(
        "pu" if usable else "pu barred",
        x + 1,
        y,
        _PU - 2,
        _PU,
        "" if usable else " muted",
        x + _PU / 2,
        y + _PU / 2 + 4,
        index,
    )


def _cache(segment: _Segment, y: float) -> Markup:
    x = _NAMES + 10 + segment.start * _PU
    return Markup('<rect class="cache" x="{:g}" y="{:g}" width="{:g}" height="{:g}" rx="3"/>').format(
        x + 1, y, segment.pus * _PU - 2, _CACHE
    )


def _levels(known: Topology, row: Sequence[int]) -> Iterable[tuple[int, list[_Segment]]]:
    """Yield the caches of each level over a row of PUs, the nearest level first."""
    for level in sorted({c.level for c in known.caches}):
        of = {pu: i for i, c in enumerate(known.caches) if c.level == level for pu in c.pus}
        segments, start = [], 0
        for which, members in groupby(row, key=of.get):
            length = len(list(members))
            if which is not None:
                segments.append(_Segment(start, length, known.caches[which].size_bytes))
            start += length
        if segments:
            yield level, segments
