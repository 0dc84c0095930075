# SPDX-License-Identifier: Apache-2.0
"""The report of the probe's records: matrices, interleaved data, contention by position, and other programs."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from factories.host_records import built_report
from firsttouch.records.schema import Record
from firsttouch.report import aspect
from firsttouch.report.aspects import bandwidth, contention, latency, topology
from firsttouch.report.model import HostView, split

PROBE = {"program": "firsttouch-probe", "pages": "base"}


def rate(value: float, nodes: tuple[int, ...], banks: tuple[int, ...], **more: Any) -> Record:
    parameters = {**PROBE, "kernel": "copy", "stores": "regular", "instructions": "avx2", "pu_nodes": list(nodes)}
    parameters |= {"threads": 8 * len(nodes), "array_bytes": 1 << 28, "policy": "membind"}
    parameters |= {"bank": banks[0]} if len(banks) == 1 else {"banks": list(banks), "policy": "interleave"}
    samples = (value, value * 1.01, value * 0.99)
    return Record("bandwidth", "copy_bandwidth", "GB/s", "higher", samples, {**parameters, **more}, host="n1")


def sweep(nodes: int = 4) -> list[Record]:
    """All PU-sets of one and two NUMA nodes, by bank and interleaved: the more banks, the faster."""
    sets = [s for size in (1, 2) for s in combinations(range(nodes), size)]
    banks = [(b,) for b in range(nodes)] + [(0, b) for b in range(1, nodes)] + [tuple(range(nodes))]
    return [rate(4.0 * len(s) * (1 + (set(b) <= set(s))) + len(b), s, b) for s in sets for b in banks]


def thread(value: float, threads: int, nodes: list[int], bank: int, metric: str = "thread_bandwidth") -> Record:
    parameters = {**PROBE, "access": "random read-modify-write", "policy": "membind", "array_bytes": 1 << 26}
    parameters |= {"threads": threads, "pu_nodes": nodes, "bank": bank}
    return Record("contention", metric, "GB/s", "higher", (value,), parameters, host="n1")


def theory(value: float = 51.2) -> list[Record]:
    parameters = {"source": "SMBIOS", "packages": 4, "banks": 8}
    return [
        Record("topology", "theoretical_bandwidth_known", "1", "higher", (1.0,), {"source": "SMBIOS"}, host="n1"),
        Record("topology", "theoretical_bandwidth", "GB/s", "neither", (value,), parameters, host="n1"),
    ]


def view(records: list[Record]) -> HostView:
    (host,) = split(records, (), None)
    return host


def test_membind_and_interleaved_are_matrices_of_their_own() -> None:
    ways = bandwidth.variants(view(sweep()))
    assert [way.parameters["policy"] for way in ways] == ["interleave", "membind"]
    interleaved, bound = ways
    assert len(bound.matrices[0].cells) == 10 * 4
    assert len(interleaved.matrices[0].cells) == 10 * 4
    assert interleaved.matrices[0].columns == [(0, 1), (0, 2), (0, 3), (0, 1, 2, 3)]


def test_the_local_bandwidth_is_that_of_one_bank() -> None:
    best = bandwidth.best_local(bandwidth.variants(view(sweep())), "copy")
    assert best is not None
    way, _, ((nodes, _), record) = best
    assert (way.parameters["policy"], len(nodes), record.value) == ("membind", 1, 9.0)


def test_the_sweep_goes_before_a_single_cell_that_is_faster() -> None:
    faster = rate(99.0, (0,), (0,), program="likwid-bench")
    ways = bandwidth.variants(view([*sweep(), faster]))
    best = bandwidth.best_local(ways, "copy")
    assert best is not None
    assert best[0].parameters["program"] == "firsttouch-probe"
    # A single cell is not drawn as a matrix: it is a line.
    charts = {chart.title: chart.panels for chart in bandwidth.aspect(view([*sweep(), faster])).charts}
    assert {bool(panels) for title, panels in charts.items() if "likwid-bench" in title} == {False}
    assert any(charts.values())


def test_other_programs_stand_beside_the_probe() -> None:
    probe, likwid = rate(10.0, (0,), (0,)), rate(8.0, (0,), (0,), program="likwid-bench", pages=None)
    stream = rate(5.0, (0,), (0,), program="stream", stores="compiler")
    elsewhere, fewer = rate(1.0, (0,), (1,), program="stream"), rate(1.0, (0,), (0,), program="x", threads=1)
    streaming = rate(7.0, (0,), (0,), program="likwid-bench", stores="streaming")
    host = view([probe, likwid, stream, elsewhere, fewer, streaming])
    assert aspect.others_text(host, probe) == "likwid-bench 8 GB/s; stream 5 GB/s"


def test_the_share_of_the_theoretical_bandwidth() -> None:
    local, both = rate(12.8, (0,), (0,)), rate(12.8, (0, 1), (0, 1))
    host = view([*theory(), local, both])
    # 4 packages of 51.2 GB/s are 25.6 GB/s for each of 8 banks.
    assert topology.fraction(host, local) == pytest.approx(0.5)
    assert topology.fraction(host, both) == pytest.approx(0.25)
    assert topology.unknown(host) == ""
    assert topology.fraction(view([local]), local) is None
    # Older records do not have the numbers of packages and banks.
    old = Record("topology", "theoretical_bandwidth", "GB/s", "neither", (51.2,), host="n1")
    assert topology.fraction(view([old, local]), local) is None


def test_the_report_says_shares_or_why_there_are_none(tmp_path: Path) -> None:
    summary, page, document = built_report(tmp_path, [*theory(), rate(12.8, (0,), (0,))])
    assert "50.0 % of theory" in " ".join(summary.table().split())
    assert "of theory" in page
    (record,) = document["hosts"][0]["checks"]["bandwidth"]
    assert record["theoretical_percent"] == pytest.approx(50)
    why = {"reason": "dmidecode is not installed"}
    unknown = Record("topology", "theoretical_bandwidth_known", "1", "higher", (0.0,), why, host="n1")
    _, page, document = built_report(tmp_path, [unknown, rate(12.8, (0,), (0,))])
    assert "theoretical bandwidth: dmidecode is not installed" in page
    assert document["hosts"][0]["checks"]["bandwidth"][0]["theoretical_percent"] is None


def test_few_threads_are_those_nearest_to_the_bank() -> None:
    """The probe measures one thread and two on every NUMA node; the curve begins with the bank's own."""
    records = [
        thread(value, threads, [node], 1)
        for threads, value in ((1, 2.0), (2, 1.5))
        for node, value in ((0, value / 2), (1, value), (2, value * 3))  # the farthest one is an outlier
    ]
    records.append(thread(0.5, 8, [1, 0, 2], 1))
    (way,) = contention.ways_of(view(records))
    ((_, points),) = way.each.items()
    assert {threads: r.value for threads, r in points.items()} == {1: 2.0, 2: 1.5, 8: 0.5}
    assert len(way.positions) == 6


def curve(program: str, nodes: int, bank: int, factor: float, **more: Any) -> list[Record]:
    return [
        Record(
            *("latency", "random_latency", "ns", "lower", (factor * ns,)),
            {"program": program, "size_bytes": size, "pu_nodes": [nodes], "bank": bank, **more},
            host="n1",
        )
        for size, ns in ((1 << 14, 2.0), (1 << 28, 100.0))
    ]


def test_curves_of_programs_and_ways_stay_apart(tmp_path: Path) -> None:
    probe = [curve("firsttouch-probe", 0, bank, 1 + bank, order="random", pages="base") for bank in (0, 1)]
    huge = curve("firsttouch-probe", 0, 0, 0.8, order="random", pages="thp")
    lmbench = curve("lmbench", 0, 0, 1.1, stride_bytes=256) + curve("lmbench", 0, 1, 9.0, stride_bytes=256)
    records = [*lmbench, *huge, *(r for bank_records in probe for r in bank_records)]
    curves = latency.curves(view(records), latency.RANDOM)
    assert len(curves) == 5
    assert (curves[0].program, curves[0].local) == ("firsttouch-probe", True)
    summary = built_report(tmp_path, records)[0]
    # The worst remote latency is by the same program and way; the other program's is next to it.
    text = " ".join(summary.table().split())
    assert "worst remote 200 ns" in text
    assert "lmbench 110 ns" in text
