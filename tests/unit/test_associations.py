# SPDX-License-Identifier: Apache-2.0
"""Deviations of configurations that go with a loss of performance, and what divides a fleet."""

import random
import re

import pytest

from firsttouch.judge import associations, drift, samples_table
from firsttouch.judge.case_judge import PASS, SUSPECT
from firsttouch.judge.drift import Configuration
from firsttouch.judge.judging import judged
from firsttouch.records.schema import Record
from firsttouch.systems.definition import System, Undescribed
from firsttouch.systems.facts import Facts
from firsttouch.systems.references import Reference

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


def test_the_deviation_that_goes_with_a_loss_comes_first():
    slow = ["n1", "n2", "n7", "n9"]
    fleet = judged_fleet(dict.fromkeys(slow, 0.92))
    changed = {"n20": {"kernel.release": "6.1"}, **{host: {"kernel.release": "5.14"} for host in slow}}
    first, second = associations.groups(drift.drift(configurations(changed)), fleet)
    assert first.hosts == tuple(slow)
    assert first.settings() == ["kernel.release 5.14 (most: 5.15)"]
    (loss,) = first.losses
    assert loss.share == pytest.approx(0.08, abs=0.01)
    assert re.fullmatch(r"copy [\d.]+ % lower \(certain\)", loss.text())
    assert (second.hosts, list(second.losses)) == (("n20",), [])


def test_a_loss_is_a_share_of_the_same_value_for_hosts_that_different_references_judge():
    lax = Reference("bandwidth", "copy_bandwidth", {}, 80.0, -0.2, None, "GB/s", "the order", 7)
    facts = Facts("x", 2, 1, (0, 1), (0, 1), (4, 4), 1, 4, (2**34, 2**34), None, None, None, ())
    slow = ["n1", "n2", "n7", "n9"]
    fleet = judged_fleet(
        dict.fromkeys(slow, 0.85), 40, 0.004, system=System("s", "", (".*",), facts, (), (lax,), None)
    )
    assert {fleet.word("n1"), fleet.word("n3")} == {SUSPECT, PASS}  # by the fleet's reference, and by the lax one
    changed = {host: {"kernel.release": "5.14"} for host in slow}
    (group,) = associations.groups(drift.drift(configurations(changed, 40)), fleet)
    assert group.losses[0].share == pytest.approx(0.15, abs=0.01)


def test_one_slow_host_may_be_chance_and_good_hosts_are_not_named():
    fleet = judged_fleet({"n4": 0.85})
    (group,) = associations.groups(drift.drift(configurations({"n4": {"kernel.release": "6.1"}})), fleet)
    assert [loss.text() for loss in group.losses] == [group.losses[0].text()]
    assert group.losses[0].certainty == "may be chance"
    # Hosts of any deviation in a healthy fleet: a likely loss in at most about 5 % of the fleets.
    false = 0
    healthy, rng = judged_fleet({}), random.Random(2)  # noqa: S311
    for number in range(40):
        changed = {f"n{i}": {"kernel.release": "6.1"} for i in rng.sample(range(30), number % 7 + 2)}
        (group,) = associations.groups(drift.drift(configurations(changed)), healthy)
        false += any(loss.certainty != "may be chance" for loss in group.losses)
    assert false <= 5


def test_what_divides_a_fleet():
    worse = [f"n{i}" for i in range(0, 30, 2)]
    fleet = judged_fleet(dict.fromkeys(worse, 0.85), spread=0.002)
    changed = {host: {"firmware.version": "2.3"} for host in worse}
    changed["n3"] = {"kernel.release": "6.1"}
    (division, *_) = associations.divisions(configurations(changed), fleet)
    assert sorted(division.worse) == sorted(worse)
    assert division.settings == [
        "firmware.version: 2.3 on 15 of 15 of the worse hosts, 2.4 on 15 of 15 of the better ones"
    ]
    assert associations.divisions(configurations({}), judged_fleet({})) == []
    assert associations.divisions({}, fleet)[0].settings == []
