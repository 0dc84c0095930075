# SPDX-License-Identifier: Apache-2.0
"""What divides a fleet."""

import random

from firsttouch.judge import drift, samples_table
from firsttouch.judge.drift import Configuration
from firsttouch.judge.judging import judged
from firsttouch.records.schema import Record
from firsttouch.systems.definition import Undescribed

METRICS = (("bandwidth", "copy_bandwidth", "GB/s", "higher"), ("latency", "random_latency", "ns", "lower"))
UNDESCRIBED = Undescribed("s")


def judged_fleet(slower, hosts=30, spread=0.01, seed=1, system=UNDESCRIBED):
    """A judged fleet of n0, n1, ...; *slower* maps hosts to their factor of the copy bandwidth."""
    rng = random.Random(seed)  # noqa: S311
    records = [
        Record(
            *(check, metric, unit, better),
            (100 * rng.gauss(1, spread) * (slower.get(f"n{host}", 1.0) if check == "bandwidth" else 1.0),),
            parameters={"pu_nodes": [node], "bank": node},
            host=f"n{host}",
            system="s",
            time=f"2026-01-01T00:00:{repetition:02}+00:00",
        )
        for host in range(hosts)
        for check, metric, unit, better in METRICS
        for node in range(2)
        for repetition in range(2)
    ]
    return judged(samples_table.of_records(records), system)


def configurations(changed, hosts=30):
    usual = {"firmware.version": "2.4", "kernel.release": "5.15"}
    return {f"n{i}": Configuration(0, {**usual, **changed.get(f"n{i}", {})}) for i in range(hosts)}


def test_what_divides_a_fleet():
    worse = [f"n{i}" for i in range(0, 30, 2)]
    fleet = judged_fleet(dict.fromkeys(worse, 0.85), spread=0.002)
    changed = {host: {"firmware.version": "2.3"} for host in worse}
    changed["n3"] = {"kernel.release": "6.1"}
    (division, *_) = drift.divisions(configurations(changed), fleet.divided.values())
    assert sorted(division.worse) == sorted(worse)
    assert division.settings == [
        "firmware.version: 2.3 on 15 of 15 of the worse hosts, 2.4 on 15 of 15 of the better ones"
    ]
    assert drift.divisions(configurations({}), judged_fleet({}).divided.values()) == []
    assert drift.divisions({}, fleet.divided.values())[0].settings == []
