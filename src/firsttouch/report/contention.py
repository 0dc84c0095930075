# SPDX-License-Identifier: Apache-2.0
"""Contention: what each thread gets of a bank, and all of them together, over the number of threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from firsttouch.probe_program import NAME
from firsttouch.records import Record
from firsttouch.report.hosts import HostView, banks, pu_nodes, varying, whole
from firsttouch.report.text import case, clean, plain

EACH = "thread_bandwidth"
TOTAL = "total_bandwidth"
#: Parameters that tell one way of measuring from another, in the order in which its name has them.
_WAY = ("program", "access", "kernel", "instructions", "stores", "pages", "policy", "effort")
#: Parameters that follow from the number of threads, so do not tell two series apart.
_FOLLOWING = (*_WAY, "threads", "array_bytes", "pus", "pu_nodes")

#: Records by what tells the series apart, then by threads, ascending.
Series = dict[str, dict[int, Record]]


@dataclass(frozen=True)
class Way:
    """One way of measuring (program, kind of accesses, ...): bandwidth per thread, and of all together.

    *positions* are the records per thread of few threads, measured on several NUMA nodes by themselves.
    """

    name: str
    each: Series
    total: Series
    positions: tuple[Record, ...]


def ways(view: HostView) -> list[Way]:
    """Return every way of measuring contention among the host's valid records, the probe's first."""
    grouped: dict[tuple[str, ...], list[Record]] = {}
    for record in view.of("contention"):
        key = tuple(clean(plain(record.parameters.get(name))) for name in _WAY)
        grouped.setdefault(key, []).append(record)
    found = []
    for key, records in sorted(grouped.items(), key=lambda item: (item[0][0] != NAME, item[0])):
        words = (
            f"{text} {name}" if name in {"instructions", "stores", "pages"} else text
            for name, text in zip(_WAY, key, strict=True)
            if text
        )
        each = [r for r in records if r.metric == EACH]
        total = [r for r in records if r.metric == TOTAL]
        found.append(Way(", ".join(words), _series(view, each), _series(view, total), _positions(each)))
    return [way for way in found if way.each or way.total]


def _series(view: HostView, records: Iterable[Record]) -> Series:
    """Return the series; of few threads on several NUMA nodes, those that are nearest to the bank."""
    known = sorted(records, key=lambda r: (whole(r, "threads"), _distance(view, r), pu_nodes(r)))
    names = varying(known, ignore=_FOLLOWING)
    found: Series = {}
    for record in known:
        key = case({n: record.parameters.get(n) for n in names})
        found.setdefault(key, {}).setdefault(whole(record, "threads"), record)
    return dict(sorted(found.items()))


def _distance(view: HostView, record: Record) -> float:
    """Return the firmware's mean distance from the PUs to the memory; without it, 0 where it is local, else 1."""
    pairs = [(node, bank) for node in pu_nodes(record) for bank in banks(record)]
    if not pairs:
        return 0.0
    if view.topology is None or not view.topology.distances:
        return sum(node != bank for node, bank in pairs) / len(pairs)
    return sum(view.topology.distance(node, bank) for node, bank in pairs) / len(pairs)


def _positions(records: Iterable[Record]) -> tuple[Record, ...]:
    """Return the records of as many threads on one bank that were measured on several NUMA nodes."""
    grouped: dict[tuple[int, tuple[int, ...]], list[Record]] = {}
    for record in records:
        grouped.setdefault((whole(record, "threads"), banks(record)), []).append(record)
    return tuple(r for members in grouped.values() if len(members) > 1 for r in members)
