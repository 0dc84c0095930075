# SPDX-License-Identifier: Apache-2.0
"""Judging in columns gives each host the verdict of the rules in plain_verdict."""

import json
import random
from dataclasses import asdict, replace

import numpy as np
import plain_verdict as plain
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_verdict import LIMITS, document_of, system_of

from factories.fleet_records import learn
from firsttouch import cli
from firsttouch.cli import validate
from firsttouch.judge import samples_table
from firsttouch.judge.judging import Undescribed, judge, judged
from firsttouch.judge.sprt import Groups
from firsttouch.judge.verdict import ORDER
from firsttouch.records.schema import Record, append, from_frame, to_frame

pytestmark = pytest.mark.unit

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
                            time=f"2026-01-0{1 + number % days}T00:{number:02d}:{rng.randrange(60):02d}.{bank}00Z",
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
        for t in ("2026-01-01T00:01:00+00:00", "2026-01-03T00:00:00+00:00")
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


def comparable(verdicts):
    """Return the content of each host's verdict, with its findings in no order."""
    compared = {}
    for verdict in verdicts:
        findings = {
            (f.check, f.metric, repr(f.case)): (f.verdict, f.why, f.values, f.unit, f.more)
            for f in verdict.findings
        }
        words = (verdict.verdict, verdict.unjudged, set(verdict.missing), set(verdict.causes))
        compared[verdict.host] = (words, findings)
    return compared


def weighed(verdicts):
    """Return the evidence of each finding, 0 if the error of a repetition is unknown."""
    return {(v.host, f.name): f.evidence or 0.0 for v in verdicts for f in v.findings}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
@example(349)  # a host's last repetition is invalid, and those before were disturbed
def test_columns_judge_as_the_rules_do(tmp_path_factory, seed):
    records = simulated(seed)
    missing = {"n0": ["latency-0: its host died"], "late": ["it did not take part"]}
    for system in (references(tmp_path_factory.getbasetemp(), seed), Undescribed("s")):
        plain_verdicts = plain.judge(records, system, missing=missing) if system.facts else None
        verdicts = judge(records, system, missing=missing)
        if plain_verdicts is not None:
            assert comparable(verdicts) == comparable(plain_verdicts)
            assert weighed(verdicts) == pytest.approx(weighed(plain_verdicts), rel=1e-6)
        # The columns hold the same verdicts before any host's verdict is built.
        columns = judged(samples_table.of_records(records, "s"), system, missing=missing)
        assert {h: ORDER[columns.word(h)] for h in columns.hosts} == {v.host: v.verdict for v in verdicts}
        for verdict in verdicts:
            number = columns.number.get(verdict.host)
            counted = columns.counts[number] if number is not None else np.zeros(len(ORDER) + 1)
            words = [f.verdict for f in verdict.findings]
            assert [*counted] == [*(words.count(w) for w in ORDER), verdict.unjudged]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["higher", "lower", "neither"]), st.sampled_from([0.01, 0.05]))
def test_columns_learn_the_level_of_the_rules(seed, better, loss):
    rng = random.Random(seed)  # noqa: S311
    error = rng.choice([0.001, 0.01, 0.05, 0.2])
    count = rng.choice([1, 2, 4, 0])
    repetitions = {
        f"n{host}": [
            max(0.01, 50 * (0.8 if host % 7 == 3 else 1) * (1 + rng.gauss(0, error)))
            for _ in range(count or rng.randint(1, 6))
        ]
        for host in range(rng.choice([4, 5, 12, 60]))
    }
    plain_level, level = plain.learn(repetitions, better, loss), learn(repetitions, better, loss)
    assert (plain_level is None) == (level is None)
    if plain_level is not None:
        expected, got = asdict(plain_level), asdict(level)
        assert got.pop("outliers") == pytest.approx(expected.pop("outliers"), rel=1e-9)
        assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


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


def test_ten_thousand_hosts_are_judged_as_their_metric_is():
    # The outliers of a metric do not depend on the number of other hosts.
    rng = np.random.default_rng(3)
    values = 100 * (1 + 0.01 * rng.standard_normal(10_000))
    values[17] *= 0.9
    level = learn({f"n{i}": [v] for i, v in enumerate(values.tolist())}, "higher")
    assert level.value == pytest.approx(100, rel=1e-3)
    assert "n17" in level.outliers
    assert level.hosts > 9_900


def test_a_record_read_twice_is_one_repetition_and_another_of_its_time_is_not():
    records = simulated(5, hosts=6, repetitions=3)
    once, twice = samples_table.of_records(records), samples_table.of_records([*records, *reversed(records)])
    assert np.array_equal(once.value, twice.value)
    assert np.array_equal(once.counts, twice.counts)
    measured = [r for r in records if r.metric != "busy_pus"]
    other = replace(measured[0], parameters={**measured[0].parameters, "seconds": -1.0})
    assert len(samples_table.of_records([*records, other]).value) == len(measured) + 1


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([9, 20, 50]))
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


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), min_size=1, max_size=20))
def test_groups_of_any_sizes(values):
    groups = Groups(np.concatenate([np.array(v) for v in values]), np.array([len(v) for v in values]))
    assert groups.medians() == pytest.approx([np.median(v) for v in values])
    assert groups.sums(groups.values) == pytest.approx([np.sum(v) for v in values])
