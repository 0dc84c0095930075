# SPDX-License-Identifier: Apache-2.0
"""Records of a simulated fleet: hosts of four NUMA nodes with a few faults, for the examples in the manual.

``python docs/extensions/simulated.py FILE`` writes the records of the first eight hosts as JSON lines.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttouch.records import schema
from firsttouch.records.schema import Better, Record

HOSTS, NODES, SEED = 24, 4, 15
#: The days of the campaigns before and after a firmware update, with two repetitions of each metric a day.
BEFORE, AFTER = ("2026-03-02", "2026-03-09", "2026-03-16"), ("2026-04-06", "2026-04-13", "2026-04-20")
#: Hosts without records, with the reason that a campaign gives.
MISSING: Mapping[str, Sequence[str]] = {"cn11": ("its job ended before a step was begun: node failure",)}
#: Relative standard deviations between hosts, and between the repetitions of one host.
_HOST, _REPETITION = 0.004, 0.006


@dataclass(frozen=True)
class Metric:
    """A metric of each bank, measured from the PUs of the same NUMA node, with its *usual* value."""

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


def _record(host: int, metric: Metric, bank: int, time: str, elapsed: float, *, updated: bool) -> Record:
    # Seeded by what identifies the value, so that it does not depend on the other hosts, metrics and days.
    offset = random.Random(f"{SEED} {host} {metric.name} {bank}").gauss(0, _HOST)  # noqa: S311 - not a secret
    noise = random.Random(f"{SEED} {host} {metric.name} {bank} {time}").gauss(0, _REPETITION)  # noqa: S311
    gain = offset + noise + sum(_faults(host, metric.check, bank, elapsed, updated=updated))
    value = metric.usual * (1 + gain if metric.better == "higher" else 1 - gain)
    misplaced = (host, metric.check, bank) == (21, "bandwidth", 2)
    return Record(
        metric.check,
        metric.name,
        metric.unit,
        metric.better,
        (value,),
        parameters={**metric.parameters, "pu_nodes": [bank], "bank": bank},
        status="invalid" if misplaced else "valid",
        reason="41 % of the pages lie on other banks" if misplaced else "",
        host=_name(host),
        system="rome",
        time=time,
    )


def _faults(host: int, check: str, bank: int, elapsed: float, *, updated: bool) -> Iterator[float]:
    """Yield the relative gains and losses of a host; *elapsed* is the part of the campaign so far, from 0 to 1."""
    if (host, bank) == (7, 1) and check != "latency":
        yield -0.25  # one memory channel missing
    if host == 13:
        yield -0.07  # a lower clock rate
    if (host, bank) == (18, 3) and check != "latency" and not updated:
        yield -0.16 * elapsed  # a failing memory module, replaced before the update
    if updated:
        yield {"latency": -0.045, "contention": 0.03}.get(check, 0.0)
    if updated and (host, check, bank) == (9, "contention", 0):
        yield -0.2


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    schema.append(file, [record for record in records() if record.host <= _name(8)])
