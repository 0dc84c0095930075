# SPDX-License-Identifier: Apache-2.0
"""Judging in columns: neither order, unit nor number of threads changes a verdict."""

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace
from test_verdict import LIMITS, document_of, rates, system_of

from factories.fleet_records import learn
from firsttouch import cli
from firsttouch.cli import validate
from firsttouch.judge import judging, samples_table
from firsttouch.judge.judging import judge, judged
from firsttouch.judge.verdict import ORDER
from firsttouch.records.schema import Record, append, from_frame, to_frame
from firsttouch.systems.definition import Undescribed

METRICS = (
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
    for check, metric, unit, better in METRICS:
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
                            check,
                            metric,
                            unit,
                            better,
                            (value,),
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
            "topology",
            "busy_pus",
            "1",
            "neither",
            (rng.choice([0.0, 0.1, 2.0]),),
            host=f"n{host}",
            system="s",
            time=t,
        )
        for host in range(0, hosts, 4)
        for t in ("2026-01-01T00:01:00.000+00:00", "2026-01-03T00:00:00.000+00:00")
    ]
    rng.shuffle(records)
    return records


def references(tmp_path, seed):
    """Return a system with some references: from an order, and learnt ones with the error of a repetition."""
    rng = random.Random(seed)  # noqa: S311
    entries = []
    for check, metric, unit, better in METRICS:
        sides = LIMITS.get(better, {"lower": "-10 %", "upper": "10 %"})
        if rng.random() < 0.4:
            sides = {"lower": "-2.5 %", "upper": "2.5 %"}
        entry = {"check": check, "metric": metric, "source": "order", "tolerance": sides}
        entry["value"] = 64 if metric == "pus" else f"100 {unit}"
        if rng.random() < 0.5 and metric != "pus":
            entry["error"] = "2 %"
        if rng.random() < 0.7:
            entries.append(entry)
    return system_of(tmp_path, *entries)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(80, 110), min_size=1, max_size=12), st.sampled_from([None, "1 %", "5 %"]))
def test_a_good_repetition_makes_no_host_worse(tmp_path_factory, values, error):
    entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "100 GB/s", "source": "order"}
    entry |= {"tolerance": {"lower": "-5 %"}} | ({"error": error} if error else {})
    system = system_of(tmp_path_factory.getbasetemp(), entry)
    (before,), (after,) = judge(rates(*values), system), judge(rates(*values, 100.0), system)
    assert ORDER.index(after.verdict) <= ORDER.index(before.verdict)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["higher", "lower", "neither"]), st.floats(1e-3, 1e3))
def test_a_level_depends_on_neither_unit_nor_order(seed, better, unit):
    rng = random.Random(seed)  # noqa: S311
    error, slow = rng.choice([0.001, 0.01, 0.05]), {3, 10}
    count = rng.choice([1, 3, 0])
    fleet = {
        f"n{host}": [
            50 * (0.8 if host in slow else 1) * (1 + rng.gauss(0, error))
            for _ in range(count or rng.randint(1, 6))
        ]
        for host in range(rng.choice([5, 12, 40]))
    }
    hosts = rng.sample(list(fleet), len(fleet))
    level = learn(fleet, better)
    other = asdict(learn({host: [unit * v for v in fleet[host]] for host in hosts}, better))
    assert other.pop("value") == pytest.approx(unit * level.value, rel=1e-6)
    assert other.pop("outliers") == pytest.approx(level.outliers, rel=1e-6)
    assert other == pytest.approx({name: getattr(level, name) for name in other}, rel=1e-6, abs=1e-9)


def test_the_short_output_of_a_large_fleet_has_the_same_verdicts(tmp_path, monkeypatch, capsys):
    document_of(tmp_path)
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(tmp_path))
    append(tmp_path / "r.jsonl", simulated(11, hosts=20, repetitions=5))
    printed, statuses = [], []
    for most in (200_000, 10):
        monkeypatch.setattr(validate, "MOST_RESULTS", most)
        args = cli.parser(["validate"]).parse_args(["validate", "--system", "s", str(tmp_path / "r.jsonl")])
        statuses.append(args.run(args))
        lines = capsys.readouterr().out.splitlines()
        printed.append({" ".join(line.split()[:3]) for line in lines if line.startswith("verdict")})
    assert printed[0] == printed[1]
    assert len(printed[0]) == 20
    assert statuses[0] == statuses[1]


def test_a_record_read_twice_is_one_repetition_and_another_of_its_time_is_not():
    records = simulated(5, hosts=6, repetitions=3)
    once, twice = samples_table.of_records(records), samples_table.of_records([*records, *reversed(records)])
    assert np.array_equal(once.value, twice.value)
    assert np.array_equal(once.counts, twice.counts)
    measured = [r for r in records if r.metric != "busy_pus"]
    other = replace(measured[0], parameters={**measured[0].parameters, "seconds": -1.0})
    assert len(samples_table.of_records([*records, other]).value) == len(measured) + 1


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([20, 50]))
def test_tables_may_come_in_any_parts(seed, size):
    records = simulated(seed, hosts=5)
    whole = samples_table.of_records(records)
    frames = [to_frame(records[i : i + size]) for i in range(0, len(records), size)]
    parts = samples_table.of_frames(frames)
    assert whole.hosts == parts.hosts
    assert whole.cases == parts.cases
    for name in ("value", "time", "valid", "judged", "case", "host", "counts"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name)), name
    # Each group is sorted by time, whatever the order of the records.
    for begin, count in zip(whole.begins, whole.counts, strict=True):
        assert (np.diff(whole.time[begin : begin + count]) >= 0).all()
    assert lines(from_frame(frames[0])) == lines(records[:size])


def lines(records):
    """Return the records as lines of a file."""
    return [json.dumps(r.to_dict(), sort_keys=True) for r in records]


@pytest.mark.parametrize("seed", range(2))
def test_several_threads_judge_as_one_does(seed, monkeypatch):
    samples = samples_table.of_records(simulated(seed, hosts=20, repetitions=5))
    alone = judged(samples, Undescribed("s"))
    monkeypatch.setattr(judging, "_LARGE", 1)
    monkeypatch.setattr(judging.os, "sched_getaffinity", lambda _: range(4))
    together = judged(samples, Undescribed("s"))
    assert [together.of(h).to_dict() for h in together.hosts] == [alone.of(h).to_dict() for h in alone.hosts]
    assert np.array_equal(together.counts_now, alone.counts_now)
