# SPDX-License-Identifier: Apache-2.0
"""Bandwidth-latency curves: the latency of memory while others load it, and where programs are on a curve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.report.model import HostView, banks, dataset_of, pu_nodes
from firsttouch.report.text import clean, percent, quantity

CHECK = "loaded_latency"
LATENCY, BANDWIDTH = "loaded_latency", "load_bandwidth"
UNLOADED, SATURATION, PEAK = "unloaded_latency", "saturation_bandwidth", "peak_bandwidth"
#: Where the load comes from, seen from the NUMA node of the chase, in the order of figures.
LOADS = ("local", "outgoing", "incoming")
#: Events of perf that count cache lines from memory, and the bytes of a line.
_LINES = ("cache_misses", "llc_load_misses")
_LINE_BYTES = 64


@dataclass(frozen=True)
class Point:
    """A point of a curve: the latency at a bandwidth of the load (None: no load)."""

    latency: Record
    bandwidth: Record | None

    @property
    def x(self) -> float:
        """The bandwidth of the load."""
        return self.bandwidth.value if self.bandwidth else 0.0


@dataclass(frozen=True)
class LoadCurve:
    """The curve of one NUMA node's own bank under a kind of *load* on *load_bank*.

    *read_share* is the part of the traffic that are reads. *points* have rising rates. *unloaded*, *saturation*
    and *peak* are its figures of merit, None if they were not recorded.
    """

    load: str
    read_share: float
    node: int
    load_bank: int
    program: str
    points: tuple[Point, ...]
    unloaded: Record | None
    saturation: Record | None
    peak: Record | None

    @property
    def saturates(self) -> bool:
        """Whether the load doubles the latency in most repetitions; in others, the saturation is the peak."""
        if self.saturation is None or self.peak is None:
            return self.saturation is not None
        pairs = list(zip(self.saturation.samples, self.peak.samples, strict=False))
        return 2 * sum(saturation < peak for saturation, peak in pairs) > len(pairs)

    @property
    def name(self) -> str:
        """``reads 75 %``, the name of the curve within its load."""
        return f"reads {round(100 * self.read_share)} %"

    def records(self) -> list[Record]:
        """Return the records of all points, latencies first."""
        return [*(p.latency for p in self.points), *(p.bandwidth for p in self.points if p.bandwidth)]

    def latency_at(self, bandwidth: float) -> float | None:
        """Return the latency (ns) at a *bandwidth* (GB/s) by interpolation, None beyond the last point."""
        for low, high in pairwise(self.points):
            if low.x <= bandwidth <= high.x and high.x > low.x:
                part = (bandwidth - low.x) / (high.x - low.x)
                return low.latency.value + part * (high.latency.value - low.latency.value)
        return None


def load_curves(view: HostView) -> list[LoadCurve]:
    """Return the curves of a host: by load, NUMA node and bank of the load, reads alone first."""
    grouped: dict[str, list[Record]] = {}
    for record in view.of(CHECK):
        grouped.setdefault(json.dumps(Case.of(record).way, default=str), []).append(record)
    curves = [_curve(records) for records in grouped.values()]
    return sorted((c for c in curves if c is not None), key=_order)


def _order(curve: LoadCurve) -> tuple[object, ...]:
    rank = LOADS.index(curve.load) if curve.load in LOADS else len(LOADS)
    return (rank, curve.node, curve.load_bank, curve.program, -curve.read_share)


def _curve(records: Sequence[Record]) -> LoadCurve | None:
    by_metric: dict[str, dict[float, Record]] = {}
    for record in records:
        rate = record.parameters.get("rate")
        by_metric.setdefault(record.metric, {})[float(rate) if isinstance(rate, (int, float)) else -1.0] = record
    latencies, rates = by_metric.get(LATENCY, {}), by_metric.get(BANDWIDTH, {})
    whole = {metric: next(iter(of.values())) for metric, of in by_metric.items()}
    first = records[0]
    if not pu_nodes(first) or not (latencies or whole.keys() & {UNLOADED, SATURATION, PEAK}):
        return None
    points = [Point(latencies[rate], rates.get(rate)) for rate in sorted(latencies)]
    node = pu_nodes(first)[0]
    bank = first.parameters.get("load_bank")
    return LoadCurve(
        load=clean(str(first.parameters["load"])),
        read_share=float(first.parameters["read_share"]),
        node=node,
        load_bank=bank if isinstance(bank, int) else (banks(first) or (node,))[0],
        program=clean(str(first.parameters.get("program", ""))),
        # The points of a curve that turns back are in the order of their rates.
        points=tuple(points),
        unloaded=whole.get(UNLOADED),
        saturation=whole.get(SATURATION),
        peak=whole.get(PEAK),
    )


def weakest(curves: Sequence[LoadCurve], load: str) -> LoadCurve | None:
    """Return the curve of a load with reads alone that saturates first."""
    some = [c for c in curves if c.load == load and c.saturation]
    most = max((c.read_share for c in some), default=0.0)
    return min((c for c in some if c.read_share == most), key=_saturates_at, default=None)


def _saturates_at(curve: LoadCurve) -> float:
    return curve.saturation.value if curve.saturation else float("inf")


def stated(curve: LoadCurve, theory: float | None) -> str:
    """Return where a curve saturates, or its end if it does not; also as a share of *theory* (GB/s) if known."""
    record = curve.saturation
    if record is None:
        return "it was not recorded where it saturates"
    share = f", {percent(record.value / theory)} of theory" if theory else ""
    reached = quantity(record.value, record.unit)
    if not curve.saturates:
        return f"latency does not double up to {reached}{share}"
    return f"saturates at {reached}{share}"


# ----------------------------------------------------------------------
# The bandwidth of programs, from hardware counters.


@dataclass(frozen=True)
class Program:
    """The memory traffic of a program's run, per bank (GB/s), and its *name*."""

    name: str
    bandwidth: float


def programs(view: HostView) -> list[Program]:
    """Return the traffic of the runs whose counters were read: their cache lines from memory by their time.

    The traffic of a run is assumed to be even on all banks of the host. Lines that are written back are not
    counted, so this is the least that a program needs.
    """
    by_run: dict[str, dict[str, Record]] = {}
    for record in view.of("counters"):
        p = record.parameters
        name = ", ".join(clean(str(t)) for t in (p.get("aligner"), dataset_of(record), p.get("scenario")) if t)
        by_run.setdefault(name, {})[record.metric] = record
    memory = view.metric("topology", "numa_nodes")
    on = len([n for n in view.topology.numa_nodes if n.memory_bytes]) if view.topology else 0
    number = on or (round(memory.value) if memory else 1) or 1
    result = []
    for name, records in sorted(by_run.items()):
        lines = next((records[event] for event in _LINES if event in records), None)
        time = records.get("alignment_time")
        if name and lines is not None and time is not None and time.value > 0 and lines.value > 0:
            result.append(Program(name, lines.value * _LINE_BYTES / time.value / 1e9 / number))
    return result
