# SPDX-License-Identifier: Apache-2.0
"""Records of a simulated fleet."""

import functools
import random

from firsttouch.records.schema import Record

CHECKS = (
    ("bandwidth", "copy_bandwidth", "GB/s", "higher", {"kernel": "copy"}),
    ("latency", "random_latency", "ns", "lower", {"size_bytes": 1 << 26}),
    ("contention", "total_bandwidth", "GB/s", "higher", {"threads": 4}),
)


def records_by_host(hosts=60, repetitions=6, day="2026-01-01", slower=0.0, seed=1):
    """Return 12 metrics of each host, by host: one of n007 is slow, one of n011 invalid, one of n005 missing.

    *slower* is the relative loss of memory latency on all hosts.
    """
    by_host = _records_by_host(hosts, repetitions, day, slower, seed)
    return {host: [*host_records] for host, host_records in by_host.items()}


@functools.cache
def _records_by_host(hosts, repetitions, day, slower, seed):
    rng = random.Random(f"{seed}{day}")  # noqa: S311
    by_host = {}
    for host in range(hosts):
        host_records = by_host.setdefault(f"n{host:03d}", [])
        for check, metric, unit, better, case in CHECKS:
            for node in range(4):
                if (host, check, node) == (5, "bandwidth", 3):
                    continue
                for repetition in range(repetitions):
                    value = 100 * (1 + rng.gauss(0, 0.005))
                    if host == 7 and node == 1 and check == "bandwidth":
                        value *= 0.75
                    if check == "latency":
                        value *= 1 + slower
                    wrong = (host, check, node) == (11, "contention", 2)
                    host_records.append(
                        Record(
                            check,
                            metric,
                            unit,
                            better,
                            (value,),
                            parameters={**case, "pu_nodes": [node], "bank": node},
                            status="invalid" if wrong else "valid",
                            reason="9 % of the pages lie elsewhere" if wrong else "",
                            host=f"n{host:03d}",
                            system="s",
                            time=f"{day}T00:00:{repetition:02d}.{node}00+00:00",
                        )
                    )
    return by_host
