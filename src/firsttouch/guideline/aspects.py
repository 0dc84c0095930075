# SPDX-License-Identifier: Apache-2.0
"""The host's measured aspects, as the prior takes them: from records, or from the firmware's distances."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable

from firsttouch.guideline.prior import Aspects
from firsttouch.records import Record
from firsttouch.topology import Topology


def aspects(host: Topology, records: Iterable[Record] = ()) -> Aspects:
    """Return the aspects of *host*: of its *records*, or (the latencies' ratio only) of its firmware's table."""
    valid = [r for r in records if r.status == "valid"]
    return Aspects(_latency_ratio(valid) or _firmware(host), _contention(valid))


def _latency_ratio(records: Iterable[Record]) -> float | None:
    """Return the median remote over the median local latency, of the largest arrays.

    Only what one program measured in one way compares: of several, those are taken that have most remote pairs.
    """
    found: dict[tuple[str, ...], dict[tuple[int, int], tuple[int, float]]] = defaultdict(dict)
    for r in records:
        nodes, bank = r.parameters.get("pu_nodes"), r.parameters.get("bank")
        size = r.parameters.get("size_bytes")
        if r.metric != "random_latency" or not isinstance(nodes, list) or len(nodes) != 1:
            continue
        way = found[tuple(str(r.parameters.get(name)) for name in ("program", "stride_bytes", "order", "pages"))]
        if isinstance(bank, int) and isinstance(size, int) and size >= way.get((nodes[0], bank), (0, 0))[0]:
            way[nodes[0], bank] = (size, r.value)
    pairs = max(found.values(), key=lambda way: sum(node != bank for node, bank in way), default={})
    local = [value for (node, bank), (_, value) in pairs.items() if node == bank]
    remote = [value for (node, bank), (_, value) in pairs.items() if node != bank]
    return statistics.median(remote) / statistics.median(local) if local and remote else None


def _firmware(host: Topology) -> float | None:
    if not host.distances:
        return None
    nodes = host.data_nodes
    remote = [host.distance(a, b) / host.distance(a, a) for a, b in itertools.permutations(nodes, 2)]
    return statistics.mean(remote) if remote else None


def _contention(records: Iterable[Record]) -> float | None:
    """Return by how much a thread's bandwidth falls per doubling of threads, from half of them to all."""
    series: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for r in records:
        threads = r.parameters.get("threads")
        if r.metric == "thread_bandwidth" and isinstance(threads, int):
            rest = (
                f"{k}={v}"
                for k, v in sorted(r.parameters.items())
                if k not in {"threads", "pus", "pu_nodes", "array_bytes"}
            )
            series[tuple(rest)][threads] = r.value
    falls = []
    for one in series.values():
        most = max(one)
        fewer = min((t for t in one if 2 * t >= most and t < most), default=0)
        if fewer and min(one[fewer], one[most]) > 0:
            falls.append(math.log(one[fewer] / one[most]) / math.log2(most / fewer))
    return statistics.median(falls) if falls else None
