# SPDX-License-Identifier: Apache-2.0
"""A fleet that does not exist: hosts of four NUMA nodes with a few faults, for the examples of fleet pages."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttouch.records.schema import Better, Record

HOSTS, NODES, SEED = 24, 4, 15
#: Days of the campaign before and of the one after a firmware update, with two passes of each metric.
BEFORE, AFTER = ("2026-03-02", "2026-03-09", "2026-03-16"), ("2026-04-06", "2026-04-13", "2026-04-20")
#: What should have been measured and was not, as a campaign says it.
MISSING: Mapping[str, Sequence[str]] = {"cn11": ("its job ended before a step was begun: node failure",)}
#: Hosts differ by so much, and passes of one host (relative standard deviations).
_HOST, _PASS = 0.004, 0.006


@dataclass(frozen=True)
class Metric:
    """A metric of each bank, from the PUs of its own NUMA node, and its *usual* value."""

    check: str
    name: str
    unit: str
    better: Better
    usual: float
    parameters: Mapping[str, Any]


METRICS = (
    Metric("bandwidth", "copy_bandwidth", "GB/s", "higher", 31.0, {"program": "probe", "kernel": "copy"}),
    Metric("latency", "random_latency", "ns", "lower", 92.0, {"program": "probe", "size_bytes": 1 << 28}),
    Metric("contention", "total_bandwidth", "GB/s", "higher", 36.0, {"program": "probe", "threads": 8}),
)


def records(days: Sequence[str] = BEFORE, *, updated: bool = False) -> list[Record]:
    """Return the records of some *days*, the same at each call; *updated*: after the firmware update."""
    times = [f"{day}T{hour}:00:00.000+00:00" for day in days for hour in ("02", "14")]
    return [
        _record(host, metric, bank, time, i / (len(times) - 1), updated=updated)
        for host in range(1, HOSTS + 1)
        for metric in METRICS
        for bank in range(NODES)
        for i, time in enumerate(times)
        if _name(host) not in MISSING and (host, metric.check, bank) != (5, "contention", 3)
    ]


def _name(host: int) -> str:
    return f"cn{host:02d}"


def _record(host: int, metric: Metric, bank: int, time: str, passed: float, *, updated: bool) -> Record:
    # Each draws from what names it, so that a host's values are the same whatever else is there.
    own = random.Random(f"{SEED} {host} {metric.name} {bank}").gauss(0, _HOST)  # noqa: S311 - no secret
    noise = random.Random(f"{SEED} {host} {metric.name} {bank} {time}").gauss(0, _PASS)  # noqa: S311
    gain = own + noise + sum(_faults(host, metric.check, bank, passed, updated=updated))
    value = metric.usual * (1 + gain if metric.better == "higher" else 1 - gain)
    wrong = (host, metric.check, bank) == (21, "bandwidth", 2)
    return Record(
        metric.check,
        metric.name,
        metric.unit,
        metric.better,
        (value,),
        parameters={**metric.parameters, "pu_nodes": [bank], "bank": bank},
        status="invalid" if wrong else "valid",
        reason="41 % of the pages lie on other banks" if wrong else "",
        host=_name(host),
        system="example",
        time=time,
    )


def _faults(host: int, check: str, bank: int, passed: float, *, updated: bool) -> Iterator[float]:
    """Yield what a host gains or loses; *passed* is the part of the campaign that is over."""
    if (host, bank) == (7, 1) and check != "latency":
        yield -0.25  # a memory channel less
    if host == 13:
        yield -0.07  # a lower clock rate
    if (host, bank) == (18, 3) and check != "latency" and not updated:
        yield -0.16 * passed  # a module on its way out, which was replaced before the update
    if updated:
        yield {"latency": -0.045, "contention": 0.03}.get(check, 0.0)
    if updated and (host, check, bank) == (9, "contention", 0):
        yield -0.2
