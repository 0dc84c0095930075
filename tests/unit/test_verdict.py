# SPDX-License-Identifier: Apache-2.0
"""The verdict of records by references."""

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from factories.systems import system_file
from firsttouch.fleet import verdict_log
from firsttouch.fleet.measuring import status, undecided_note
from firsttouch.fleet.measuring import undecided_by_references as undecided
from firsttouch.judge.judging import judge
from firsttouch.judge.verdict import HostVerdict, worst
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record, append
from firsttouch.systems import definition
from firsttouch.units import number

WORDS = ("pass", "undecided", "suspect", "invalid", "fail")
COPIES = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "10 GB/s", "source": "order"}
LIMITS = {"higher": {"lower": "-10 %"}, "lower": {"upper": "10 %"}}


def system_of(tmp_path, *entries):
    """Return a system of one NUMA node with these references."""
    return definition.load(system_file(tmp_path, references=entries))


def of_copies(folder):
    """Write the file of a system with a reference of 10 GB/s for copy, at least 9, and return the system."""
    return system_of(folder, {**COPIES, "tolerance": LIMITS["higher"]})


@pytest.fixture
def bandwidth(tmp_path):
    return of_copies(tmp_path)


@pytest.fixture
def latency(tmp_path):
    """A system with a reference of 100 ns for latency, at most 110."""
    entry = {"check": "latency", "metric": "random_latency", "value": "100 ns", "source": "order"}
    return system_of(tmp_path, {**entry, "tolerance": LIMITS["lower"]})


def rates(*values, host="n1", day="2026-01-01", **more):
    """Return a record per value: repetitions of one case."""
    times = (f"{day}T00:00:{number:02d}" for number in itertools.count())
    fields = {"check": "bandwidth", "metric": "copy_bandwidth", "unit": "GB/s", "better": "higher", "system": "s"}
    fields |= {"parameters": {"bank": 0, "pu_nodes": [0]}, "host": host} | more
    return [Record(samples=(v,), time=t, **fields) for v, t in zip(values, times, strict=False)]


def word(records, system):
    (verdict,) = judge(records, system)
    return verdict.verdict


@pytest.mark.parametrize(
    ("repetitions", "expected"),
    [
        ((10.0,), "pass"),
        ((9.0,), "pass"),
        ((8.9,), "undecided"),
        ((8.9, 8.9), "fail"),
        ((8.0, 8.0), "fail"),
        ((8.9, 10.0), "pass"),
        ((8.9, 10.0, 10.0), "pass"),
        ((8.9, 10.0, 8.9), "undecided"),
        ((8.9, 8.9, 8.9, 8.9, 8.9), "fail"),
        ((20.0,), "pass"),
    ],
)
def test_a_single_repetition_never_fails_a_host(bandwidth, repetitions, expected):
    assert word(rates(*repetitions), bandwidth) == expected


def test_validate_ends_with_the_word_about_undecided_hosts(tmp_path, monkeypatch, run_cli):
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(tmp_path))
    append(tmp_path / "r.jsonl", [r for host in ("n1", "n2") for r in rates(10.0, host=host)])
    done = run_cli("validate", "--system", "local", "--json", tmp_path / "r.jsonl")
    assert done.status == 2  # these are of system s
    records = [structs.replace(r, system="local") for r in rates(10.0)]
    append(tmp_path / "local.jsonl", records)
    done = run_cli("validate", "--system", "local", tmp_path / "local.jsonl")
    assert (done.status, done.err) == (0, f"firsttouch: {undecided_note(['undecided'])}\n")
    done = run_cli("validate", "--system", "local", "--strict", tmp_path / "local.jsonl")
    assert (done.status, done.err) == (4, "")


@pytest.mark.parametrize(
    ("metric", "unit", "value", "expected"),
    [
        ("numa_nodes", "1", 1.0, "undecided"),
        ("numa_nodes", "1", 0.5, "fail"),
        ("pus", "1", 1.0, "fail"),
        ("pus", "1", 4.0, "undecided"),
        ("memory", "GiB", 4.0, "undecided"),
        ("memory", "GiB", 3.85, "undecided"),  # the kernel keeps some
        ("memory", "GiB", 3.5, "fail"),
    ],
)
def test_facts_fail_a_host_that_lacks_what_they_state_and_make_none_good(tmp_path, metric, unit, value, expected):
    """The system has one NUMA node, two PUs, 4 GiB and no reference."""
    fields = {"check": "topology", "metric": metric, "unit": unit, "better": "neither", "parameters": {}}
    system = system_of(tmp_path)
    (verdict,) = judge(rates(value, **fields), system)
    assert verdict.verdict == expected
    if expected == "fail":
        has, states = number(value), {"numa_nodes": "1", "pus": "2", "memory": "4 GiB"}[metric]
        of_unit = "" if unit == "1" else f" {unit}"
        assert verdict.evidence[0].endswith(f"this host has {has}{of_unit}, s has {states}")
    # A reference for the metric replaces the fact.
    entry = {"check": "topology", "metric": metric, "value": value if unit == "1" else f"{value} {unit}"}
    system = system_of(tmp_path, {**entry, "source": "order", "tolerance": {"lower": "-1 %"}})
    assert word(rates(value, **fields), system) == "pass"
    # Facts that were drafted from this host say nothing about others.
    drafted = structs.replace(system_of(tmp_path), path=None)
    assert word(rates(value, **fields), drafted) == "undecided"


def test_lower_is_better_for_latency(latency):
    fields = {"check": "latency", "metric": "random_latency", "unit": "ns", "better": "lower"}
    assert word(rates(50.0, **fields), latency) == "pass"
    assert word(rates(130.0, 131.0, 132.0, **fields), latency) == "fail"


def test_a_count_has_two_bad_directions_and_a_rate_one(tmp_path):
    both = {"lower": "-10 %", "upper": "10 %"}
    entry = {"check": "topology", "metric": "pus", "value": 64, "tolerance": both, "source": "order"}
    system = system_of(tmp_path, entry, {**COPIES, "tolerance": both})
    fields = {"check": "topology", "metric": "pus", "unit": "1", "better": "neither", "parameters": {}}
    (verdict,) = judge(rates(32.0, 32.0, **fields), system)
    assert verdict.verdict == "fail"
    assert "pus: 32, 50.0 % below the reference of s (64), " in verdict.line()
    assert word(rates(128.0, 128.0, **fields), system) == "fail"
    # Better than possible is neither a fail nor a pass.
    assert word(rates(12.0, 12.0, 12.0), system) == "suspect"


def test_invalid_is_never_slow(bandwidth):
    bad = rates(1.0, 1.0, status="invalid", reason="pages elsewhere")
    assert word(bad, bandwidth) == "invalid"
    # A valid repetition counts whatever the others are.
    assert word([*bad, *rates(10.0)], bandwidth) == "pass"


def test_nothing_judged_is_no_pass(bandwidth):
    other = rates(1.0, check="contention", metric="total_bandwidth")
    (verdict,) = judge(other, bandwidth)
    assert (verdict.verdict, verdict.unjudged) == ("undecided", 1)
    assert "no reference for any of the 1 measured metrics" in verdict.line()


def test_missing_results_are_named_and_keep_a_host_from_passing(bandwidth):
    (verdict,) = judge(rates(10.0), bandwidth, missing={"n1": ["latency-0: its host died"]})
    assert verdict.verdict == "suspect"
    assert "missing: latency-0: its host died" in verdict.line()
    fails, never = judge(rates(1.0, 1.0), bandwidth, missing={"n1": ["x: y"], "n9": ["it did not take part"]})
    assert (fails.verdict, never.host, never.verdict) == ("fail", "n9", "suspect")


def test_a_metric_that_most_hosts_have_is_missing_on_the_others(bandwidth):
    elsewhere = {"bank": 1, "pu_nodes": [0]}
    hosts = ("n1", "n2", "n3")
    records = [r for host in hosts for r in rates(10.0, host=host)]
    records += [r for host in hosts[:2] for r in rates(10.0, host=host, parameters=elsewhere)]
    *complete, partial = judge(records, bandwidth)
    assert [v.verdict for v in [*complete, partial]] == ["pass", "pass", "suspect"]
    assert partial.missing == ("copy, NUMA 0 to bank 1: other hosts were judged by it",)


def test_a_metric_that_some_hosts_measured_is_not_missing_on_the_others(bandwidth):
    """A host that fails in it says nothing about hosts that never measured it."""
    hosts = [f"n{number}" for number in range(16)]
    records = [r for host in hosts for r in rates(10.0, host=host)]
    elsewhere = {"bank": 1, "pu_nodes": [0]}
    for host in hosts[:4]:
        records += rates(*[7.0 if host == "n0" else 10.0] * 2, host=host, parameters=elsewhere)
    words = {v.host: (v.verdict, v.missing) for v in judge(records, bandwidth)}
    assert words.pop("n0") == ("fail", ())
    assert set(words.values()) == {("pass", ())}


def test_records_of_another_system_are_left_out(bandwidth):
    assert judge(rates(1.0, 1.0, system="other"), bandwidth) == []


def test_another_repetition_is_only_requested_if_it_may_decide(bandwidth):
    assert undecided(rates(1.0), bandwidth)
    assert undecided(rates(1.0, 10.0), bandwidth)
    assert not undecided(rates(1.0, 1.0), bandwidth)
    assert undecided(rates(1.0, 10.0, 1.0), bandwidth)
    assert not undecided(rates(1.0, 10.0, 1.0), bandwidth, most=3)
    assert not undecided(rates(10.0), bandwidth)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=5), st.randoms())
def test_the_order_of_records_does_not_matter(tmp_path_factory, values, random):
    system = of_copies(tmp_path_factory.getbasetemp())
    records = rates(*values)
    mixed = list(records)
    random.shuffle(mixed)
    assert judge(mixed, system) == judge(records, system)
    # A host with one good repetition never fails.
    if max(values) >= 9:
        assert word(records, system) != "fail"


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS)))
def test_the_worst_word_counts(words):
    assert worst(words) == (max(words, key=WORDS.index) if words else "undecided")
    assert status(words, strict=True) == (4 if worst(words) == "undecided" else status(words))


def test_exit_status(bandwidth):
    expected = {"pass": 0, "undecided": 0, "suspect": 4, "invalid": 1, "fail": 1}
    of = {"pass": rates(10.0), "undecided": rates(1.0), "fail": rates(1.0, 1.0)}
    of["invalid"] = rates(1.0, status="invalid")
    for name, records in of.items():
        assert status(v.verdict for v in judge(records, bandwidth)) == expected[name]
    (incomplete,) = judge(rates(10.0), bandwidth, missing={"n1": ["x: y"]})
    assert status([incomplete.verdict]) == expected["suspect"]
    both = [*rates(1.0, 1.0, host="n2"), *rates(10.0)]
    assert status(v.verdict for v in judge(both, bandwidth)) == 1


@settings(deadline=None)
@given(st.text())
def test_a_verdict_file_is_one_line_without_shell_syntax(tmp_path_factory, reason):
    system = of_copies(tmp_path_factory.getbasetemp())
    (verdict,) = judge(rates(1.0, status="invalid", reason=reason), system)
    text = verdict_log.line(verdict, measured=1.0)
    assert text.startswith("invalid 1 n1 s ")
    assert re.fullmatch(r"[A-Za-z0-9 .,:;%/()=+_-]+", text)


@given(st.text(), st.text())
def test_a_verdict_file_has_its_words_in_their_places_whatever_the_names_are(host, system):
    text = verdict_log.line(HostVerdict(host, system, (), 0, ()), measured=1.0)
    assert re.fullmatch(r"\w+ 1 [A-Za-z0-9.,:;%/()=+_-]* [A-Za-z0-9.,:;%/()=+_-]* [A-Za-z0-9 .,:;%/()=+_-]*", text)


def test_a_verdict_is_written_at_once(bandwidth, tmp_path):
    (verdict,) = judge(rates(1.0, 1.0), bandwidth)
    verdict_log.write(verdict, 1.0, tmp_path / "a" / "n1", tmp_path / "n1")
    assert (tmp_path / "n1").read_text() == (tmp_path / "a" / "n1").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "n1", "s.yaml"]


def test_the_command_says_what_the_function_does(tmp_path, run_here):
    of_copies(tmp_path)
    records = tmp_path / "records.jsonl"
    append(records, rates(1.0, 1.0))
    done = run_here("validate", "--system", "s", records, "--json", FIRSTTOUCH_SYSTEMS=str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["verdict"] == "fail"
    append(records, [structs.replace(r, system="t") for r in rates(1.0)])
    done = run_here("validate", "--system", "s", records, FIRSTTOUCH_SYSTEMS=str(tmp_path))
    assert (done.returncode, "left out: 1 records of t:" in done.stderr) == (1, True)
    done = run_here("validate", "--system", "local", records)
    assert (done.returncode, "no record of system local: these are 3 records of s, t" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("check", "metric", "case", "name"),
    [
        ("bandwidth", "copy_bandwidth", {"pu_nodes": [1], "bank": 1, "kernel": "copy"}, "copy, NUMA 1 to bank 1"),
        (
            "latency",
            "random_latency",
            {"pu_nodes": [0], "bank": 2, "size_bytes": 1 << 27},
            "random latency, NUMA 0 to bank 2, 128 MiB",
        ),
        (
            "contention",
            "total_bandwidth",
            {"pu_nodes": [0, 1], "bank": 0, "threads": 8},
            "total bandwidth, NUMA 0,1 to bank 0, 8 threads",
        ),
        ("bandwidth", "copy_bandwidth", {"bank": 0, "program": "stream"}, "copy, bank 0, stream"),
        ("bandwidth", "copy_bandwidth", {"bank": 0, "threads": 1}, "copy, bank 0, 1 thread"),
        ("topology", "pus", {}, "pus"),
    ],
)
def test_short_names_say_where(check, metric, case, name):
    assert Case("s", check, metric, case, "1", "higher").title == name
