# SPDX-License-Identifier: Apache-2.0
"""Summarizes a curve of latency under load: unloaded latency, saturation and peak.

A curve is all points with the same parameters but the rate. Each repetition of a curve gives one sample of each of
its points, so the k-th samples of its points are the k-th measurement of the curve. Saturation is the load at
which the latency is twice the unloaded one, as defined by Esmaili-Dokht et al. (A Mess of Memory System
Benchmarking, Simulation and Application Profiling, MICRO 2024).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from firsttouch.benchmarks import probe, profiles, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.measure import AspectRequest, Benchmark, ReframeTest, run
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record
from firsttouch.units import Better

CHECK = "loaded_latency"
#: The metrics of a point, and the metrics of a curve with their units.
LATENCY, LOAD = "loaded_latency", "load_bandwidth"
UNLOADED, SATURATION, PEAK = "unloaded_latency", "saturation_bandwidth", "peak_bandwidth"
#: Memory is saturated when its latency is this multiple of the unloaded one.
SATURATED = 2.0
Point = tuple[float, float]


def saturation(points: Sequence[Point]) -> float:
    """Return the largest load (GB/s) with a latency of at most SATURATED times the latency of the first point.

    *points* are (load, latency) by ascending rate; the first one has no load. Latency is interpolated linearly. If
    the latency never rises that far, the result is the largest load.
    """
    limit = SATURATED * points[0][1]
    loads = [load for load, latency in points if latency <= limit]
    for (load, latency), (next_load, next_latency) in pairwise(points):
        if (latency <= limit) != (next_latency <= limit):
            loads.append(load + (next_load - load) * (limit - latency) / (next_latency - latency))
    return max(loads)


def curves(batches: Iterable[Sequence[Record]]) -> Iterator[list[Record]]:
    """Yield each batch of points, and the records of a curve when its last point has arrived.

    The probe prints the points of a curve together, so a curve is complete when another one begins, or at the end.
    An interrupted run still yields the last complete curve.
    """
    points: list[Record] = []
    try:
        for batch in batches:
            records: list[Record] = []
            for record in batch:
                if points and _curve(record) != _curve(points[0]):
                    records += curve_records(points)
                    points = []
                points.append(record)
                records.append(record)
            yield records
    except KeyboardInterrupt:
        yield curve_records(points)
        raise
    yield curve_records(points)


def curve_records(points: Sequence[Record]) -> list[Record]:
    """Return the records of one curve of these points; none if points are missing."""
    latency = {r.parameters["rate"]: r for r in points if r.metric == LATENCY}
    load = {r.parameters["rate"]: r for r in points if r.metric == LOAD}
    if latency.keys() != load.keys() or not {0, 1} <= latency.keys():
        return []
    rates = sorted(latency)
    # Each repetition of the curve as its points.
    repetitions = [
        list(zip(loads, latencies, strict=True))
        for loads, latencies in zip(
            zip(*(load[rate].samples for rate in rates), strict=True),
            zip(*(latency[rate].samples for rate in rates), strict=True),
            strict=True,
        )
    ]
    metrics: list[tuple[str, str, Better, list[float]]] = [
        (UNLOADED, "ns", "lower", [curve[0][1] for curve in repetitions]),
        (SATURATION, "GB/s", "higher", [saturation(curve) for curve in repetitions]),
        (PEAK, "GB/s", "higher", [max(load for load, _ in curve) for curve in repetitions]),
    ]
    first = next((r for r in points if r.status != "valid"), points[0])
    parameters = {name: value for name, value in first.parameters.items() if name != "rate"}
    return [
        replace(first, metric=metric, unit=unit, better=better, samples=tuple(samples), parameters=parameters)
        for metric, unit, better, samples in metrics
    ]


def _curve(record: Record) -> str:
    return json.dumps({name: value for name, value in record.parameters.items() if name != "rate"}, sort_keys=True)


def _loaded(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Measure all curves in one run of the probe, which allocates the memory of all banks once."""
    cases = Cases(host, profiles.chosen_effort())
    nodes = list(asked.pu_nodes or cases.pu_nodes())
    banks = list(asked.banks or host.memory_nodes)
    if not asked.banks and not asked.pu_nodes and len(nodes) < len(host.cpu_nodes):
        banks = sorted({programs.nearest(host, (node,)) for node in nodes})  # none of the other NUMA nodes'
    where = programs.place(host, nodes, banks)
    shares = ",".join(f"{share:g}" for share in profiles.chosen_effort().read_shares)
    yield from run(asked, [*where, f"--read-shares={shares}"], say)


def _steps(cases: Cases) -> list[list[str]]:
    return [[]] if any(cases.loads(node) for node in cases.pu_nodes()) else []


#: Records of a curve at least: latency and load of its first and its last point, and three of the whole curve.
_LEAST_RECORDS = 7


def _least_records(cases: Cases) -> int:
    loads = sum(len(cases.loads(node)) for node in cases.pu_nodes())
    return _LEAST_RECORDS * len(cases.effort.read_shares) * loads


def _label(record: Record, _cases: Cases) -> str | None:
    """Name the metrics of each curve; its points are in the records only."""
    p = record.parameters
    if "rate" in p:
        return None
    return f"{record.metric}_from{p['pu_nodes'][0]}_bank{p['bank']}_{p['load']}_reads{100 * p['read_share']:.0f}"


_TEST = ReframeTest(
    "loaded_latency",
    lambda cases: (
        f"latency under load with {', '.join(f'{share:.0%}' for share in cases.effort.read_shares)} reads"
    ),
    least_records=_least_records,
    label=_label,
)
BENCHMARK = Benchmark(
    lambda *given: curves(_loaded(*given)),
    steps=_steps,
    small=("--sizes=1MiB", "--array-bytes=4MiB"),
    tests=(_TEST,),
)
