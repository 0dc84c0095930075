# SPDX-License-Identifier: Apache-2.0
"""Records of one simulated host of two NUMA nodes, with all aspects, for the example page in reports/.

The values look like real results, but no processor has them.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from firsttouch import paths
from firsttouch.records.schema import Record

NAME, SYSTEM, DAY = "cn01", "simulated", "2026-03-02"
#: Bytes of each level of the memory hierarchy, and ns of a random load from it.
_LEVELS = ((32 << 10, 1.3), (1 << 20, 4.5), (16 << 20, 21.0), (1 << 30, 95.0))
#: How much slower the memory of the other NUMA node is: latency and bandwidth.
_FAR_LATENCY, _FAR_BANDWIDTH = 1.6, 0.6
#: The rates of STREAM's kernels (GB/s) by the PUs of a NUMA node.
_RATES = {"copy": 28.5, "scale": 28.0, "add": 30.5, "triad": 31.0}
#: What lowers the rates of the tests' simulated host, so that reads before stores stay below the theoretical rate.
_LOWER = 0.75


def records() -> tuple[list[Record], str]:
    """Return the records, and the topology as hwloc's XML, the same at each call."""
    sys.path.insert(0, str(paths.ROOT / "tests"))
    try:
        from factories import host_records, memory_records  # noqa: PLC0415 - the tests are not on the path
    finally:
        sys.path.pop(0)
    machine = host_records.Machine(2, 8, host=NAME)
    host = memory_records.Host(NAME, at_once=True, noise=0.006)
    listed = [
        *machine.topology()[:3],
        *host.topology(),
        *_latency(host),
        *_bandwidth(host),
        *(record for threads in (1, 2, 4, 8, 12, 16) for record in _contention(host, threads)),
        *host.loaded(),
        *host.cores(),
        *host.tails(),
        *host.pairs(),
        *map(_lower, (*host.pages(), *host.stores())),
        *machine.scaling(),
        *machine.placement(),
    ]
    time = f"{DAY}T10:00:00.000+00:00"
    changes = {"host": NAME, "system": SYSTEM, "partition": "default", "time": time, "software": {}}
    return [replace(record, **changes) for record in listed], str(machine.xml())


def _lower(record: Record) -> Record:
    factor = _LOWER if record.unit == "GB/s" else 1.0
    return replace(record, samples=tuple(factor * sample for sample in record.samples))


def _latency(host: Any) -> Iterator[Record]:
    for (node, bank), half in itertools.product(((0, 0), (0, 1), (1, 1), (1, 0)), range(24, 61)):
        size = round(2 ** (half / 2))
        # Of a level that is too small for the data, the part that fits is still as fast as before.
        levels = [(0, 0.0), *_LEVELS]
        (below, fast), (_, slow) = next(pair for pair in itertools.pairwise(levels) if size <= pair[1][0])
        slow *= _FAR_LATENCY if node != bank and slow == _LEVELS[-1][1] else 1
        ns = slow - (slow - fast) * min(1, below / size) ** 2 if below else slow
        case = {**host.place(node, bank), "size_bytes": size, "order": "random", "stride_bytes": 64}
        yield from host.add("latency", "random_latency", "ns", "lower", ns, **case)


def _bandwidth(host: Any) -> Iterator[Record]:
    for node, bank, (kernel, rate) in itertools.product(range(2), range(2), _RATES.items()):
        case = {**host.place(node, bank), "kernel": kernel, "instructions": "avx2", "stores": "regular"}
        case |= {"threads": 8, "array_bytes": 256 << 20}
        far = _FAR_BANDWIDTH if node != bank else 1
        yield from host.add("bandwidth", f"{kernel}_bandwidth", "GB/s", "higher", far * rate, **case)


def _contention(host: Any, threads: int) -> Iterator[Record]:
    place = {"program": "firsttouch-probe", "kernel": "random", "threads": threads, "bank": 0}
    total = 14 * threads / (threads + 3.0)
    yield from host.add("contention", "thread_bandwidth", "GB/s", "higher", total / threads, **place)
    yield from host.add("contention", "total_bandwidth", "GB/s", "higher", total, **place)
