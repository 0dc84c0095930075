# SPDX-License-Identifier: Apache-2.0
"""Bandwidth as matrices: PU-sets by memory banks, one matrix per kernel of each way of measuring."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from firsttouch.probe_program import NAME
from firsttouch.records import Record
from firsttouch.report.hosts import HostView, banks, pu_nodes
from firsttouch.report.text import plain

#: STREAM's order; other kernels follow in alphabetical order.
KERNELS = ("copy", "scale", "add", "triad")
#: Parameters that vary within a matrix (or with the size of the PU-set), so do not tell two matrices apart.
_WITHIN = ("kernel", "pu_nodes", "bank", "banks", "threads", "array_bytes", "pus", "stands_for")

Nodes = tuple[int, ...]


@dataclass(frozen=True)
class Matrix:
    """The records of one kernel by (PU-set, bank); *rows* by size of the PU-set, then number."""

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

    def local(self) -> list[tuple[tuple[Nodes, Nodes], Record]]:
        """Return the cells whose memory is on the very NUMA nodes of the PUs."""
        return [(place, r) for place, r in self.cells.items() if place[0] == place[1]]

    def remote(self) -> list[tuple[tuple[Nodes, Nodes], Record]]:
        """Return the cells whose memory is on none of the NUMA nodes of the PUs."""
        return [(place, r) for place, r in self.cells.items() if not set(place[0]) & set(place[1])]


@dataclass(frozen=True)
class Variant:
    """One way of measuring (program, instructions, stores, policy, ...) and its matrices."""

    parameters: Mapping[str, Any]
    matrices: tuple[Matrix, ...]

    @property
    def name(self) -> str:
        """The way of measuring as a title: ``likwid-bench, avx512 instructions, regular stores, membind``."""
        words = []
        for key, value in self.parameters.items():
            if key in {"program", "policy"}:
                words.append(plain(value))
            elif key in {"instructions", "stores", "pages"}:
                # "compiler": what it made of the loops is not known from outside.
                words.append(f"{key} by the compiler" if value == "compiler" else f"{plain(value)} {key}")
            else:
                words.append(f"{key.replace('_', ' ')} {plain(value)}")
        return ", ".join(filter(None, words)) or "bandwidth"

    @property
    def by_probe(self) -> bool:
        """Whether the probe measured."""
        return self.parameters.get("program") == NAME

    def records(self) -> Iterator[Record]:
        """Yield the records of all matrices."""
        for matrix in self.matrices:
            yield from matrix.cells.values()


def _rank(kernel: str) -> tuple[int, str]:
    return (KERNELS.index(kernel) if kernel in KERNELS else len(KERNELS), kernel)


def variants(view: HostView) -> list[Variant]:
    """Return every way of measuring bandwidth among the host's valid records, in a stable order."""
    grouped: dict[str, list[Record]] = {}
    for record in view.of("bandwidth"):
        way = {k: v for k, v in record.parameters.items() if k not in _WITHIN}
        order = ("program", "instructions", "stores", "policy")
        ordered = {k: way[k] for k in (*order, *sorted(set(way) - set(order))) if k in way}
        grouped.setdefault(json.dumps(ordered, default=str), []).append(record)
    found = []
    for key, records in sorted(grouped.items()):
        kernels: dict[str, dict[tuple[Nodes, Nodes], Record]] = {}
        for record in records:
            # The metric names the kernel as well (copy_bandwidth); the parameter is what the program calls it.
            kernel = record.metric.removesuffix("_bandwidth") or str(record.parameters["kernel"])
            kernels.setdefault(kernel, {})[pu_nodes(record), banks(record)] = record
        matrices = tuple(Matrix(k, kernels[k]) for k in sorted(kernels, key=_rank))
        found.append(Variant(json.loads(key), matrices))
    return found


def drawn(ways: list[Variant]) -> list[Variant]:
    """Return the ways that are worth matrices of their own: others hold the probe's local cells up to theirs."""
    probe = [way for way in ways if way.by_probe]
    rest = [way for way in ways if way not in probe]
    return [
        *probe,
        *(way for way in rest if not probe or any(m.cells.keys() - dict(m.local()) for m in way.matrices)),
    ]


def best_local(known: list[Variant], kernel: str) -> tuple[Variant, Nodes, Record] | None:
    """Return the way, NUMA nodes and record of the highest local bandwidth of *kernel*.

    The PU-sets compared are the smallest ones that were measured: more PUs are not a better bank. Of several ways
    of measuring it is the one with most of its cells.
    """
    found = [
        (variant, place[0], record, len(matrix.cells))
        for variant in known
        for matrix in variant.matrices
        if matrix.kernel == kernel
        for place, record in matrix.local()
    ]
    smallest = min((len(nodes) for _, nodes, _, _ in found), default=0)
    found = [item for item in found if len(item[1]) == smallest]
    best = max(found, key=lambda item: (item[3], item[0].by_probe, item[2].value), default=None)
    return best[:3] if best else None


def worst_remote(variant: Variant, kernel: str) -> tuple[Nodes, Nodes, Record] | None:
    """Return PU-set, bank and record of the lowest remote bandwidth of *kernel*, measured the same way."""
    found = [
        (*place, record)
        for matrix in variant.matrices
        if matrix.kernel == kernel
        for place, record in matrix.remote()
    ]
    return min(found, key=lambda item: item[2].value, default=None)
