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
                            *(check, metric, unit, better, (value,)),
                            parameters={**case, "pu_nodes": [node], "bank": node},
                            status="invalid" if wrong else "valid",
                            reason="9 % of the pages lie elsewhere" if wrong else "",
                            host=f"n{host:03d}",
                            system="s",
                            time=f"{day}T00:00:{repetition:02d}.{node}00+00:00",
                        )
                    )
    return by_host


#: Limits, and the side of them on which a value is bad.
SIDES = {"lower": "-10 %", "upper": "10 %"}
BAD_SIDE = {"higher": "lower", "lower": "upper"}
NOISY = (
    ("bandwidth", "copy_bandwidth", "GB/s", "higher"),
    ("latency", "random_latency", "ns", "lower"),
    ("topology", "pus", "1", "neither"),
    ("contention", "total_bandwidth", "GB/s", "higher"),
)


def simulated(seed, hosts=None, repetitions=None):
    """Return the records of a fleet with noise, slow hosts, invalid and emulated repetitions, and gaps."""
    rng = random.Random(seed)  # noqa: S311
    hosts = hosts or rng.choice([1, 3, 5, 9, 20, 20])
    most = repetitions or rng.choice([1, 2, 3, 5])
    records = []
    for check, metric, unit, better in NOISY:
        for bank in range(2):
            error, slow = rng.choice([0.0, 0.004, 0.02, 0.1]), rng.randrange(hosts)
            half = rng.choice([0, 0, 2])  # every other host is of another kind
            for host in range(hosts):
                if rng.random() < 0.03:
                    continue
                level = 100 * (rng.choice([0.7, 0.95, 1.3]) if host == slow else 1 + rng.gauss(0, 0.003))
                level *= 0.9 if half and host % half else 1
                days = rng.choice([1, 1, 3])
                for number in range(rng.randint(1, most) * days):
                    invalid = rng.random() < 0.04
                    # A host that was slow may be repaired, and a good one may go bad.
                    now = level if days == 1 or number % days else 100 * rng.choice([0.6, 1])
                    value = 64.0 - (now < 90) if metric == "pus" else max(0.1, now * (1 + rng.gauss(0, error)))
                    records.append(
                        Record(
                            *(check, metric, unit, better, (value,)),
                            parameters={"bank": bank, "pu_nodes": [0], "effort": "full", "seconds": value},
                            status="invalid" if invalid else "valid",
                            reason=rng.choice(["", "pages elsewhere"]) if invalid else "",
                            software={"emulator": "QEMU"} if rng.random() < 0.02 else {"linux": "6"},
                            host=f"n{host}",
                            system="s",
                            time=f"2026-01-0{1 + number % days}T00:{number:02d}:"
                            f"{rng.randrange(60):02d}.{bank}00+00:00",
                        )
                    )
    records += [
        Record(
            *("topology", "busy_pus", "1", "neither", (rng.choice([0.0, 0.1, 2.0]),)),
            **{"host": f"n{host}", "system": "s", "time": t},
        )
        for host in range(0, hosts, 4)
        for t in ("2026-01-01T00:01:00.000+00:00", "2026-01-03T00:00:00.000+00:00")
    ]
    rng.shuffle(records)
    return records


def references(seed):
    """Return some references: from an order, and learnt ones with the error of a repetition."""
    rng = random.Random(seed)  # noqa: S311
    entries = []
    for check, metric, unit, better in NOISY:
        sides = {side: end for side, end in SIDES.items() if better == "neither" or side == BAD_SIDE[better]}
        if rng.random() < 0.4:
            sides = {"lower": "-2.5 %", "upper": "2.5 %"}
        entry = {"check": check, "metric": metric, "source": "order", "tolerance": sides}
        entry["value"] = 64 if metric == "pus" else f"100 {unit}"
        if rng.random() < 0.5 and metric != "pus":
            entry["error"] = "2 %"
        if rng.random() < 0.7:
            entries.append(entry)
    return entries
