# SPDX-License-Identifier: Apache-2.0
"""Judging in columns: each host gets the verdict of the rules in plain_verdict, and levels keep their promises."""

import json
import math
import random
import statistics

import numpy as np
import plain_verdict as plain
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace
from test_verdict import LIMITS, document_of, rates, system_of

from factories.fleet_records import learn
from firsttouch import cli
from firsttouch.cli import validate
from firsttouch.judge import judging, samples_table, sprt
from firsttouch.judge.judging import judge, judged
from firsttouch.judge.sprt import Groups
from firsttouch.judge.statistics import beyond_chance
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


def is_apart(finding):
    """Return whether a host is suspect as one of the worse group of two, however few these are."""
    return "two groups of hosts" in finding.why or "apart from the others" in finding.why


def check_findings(verdict, host, system):
    """The findings of a host are those of the rules, each by the reference that decided."""
    by_case = {(f.check, f.metric, f.case.get("bank")): f for f in verdict.findings}
    assert len(by_case) == len(verdict.findings)
    assert set(by_case) <= host.cases()
    assert verdict.unjudged == len(host.cases()) - len(by_case)
    by_reference = {
        case: host.verdict(case, finding.reference, len(finding.values))
        for case, finding in by_case.items()
        if finding.reference
    }
    for case, rule in by_reference.items():
        finding = by_case[case]
        # A host that is within the fleet's limit may be unusual: test_host_level.py tests the narrower limit.
        if rule.word == "pass" and finding.reference.line == 0 and finding.verdict in {"undecided", "suspect"}:
            state = {"word": "undecided", "evidence": finding.evidence, "more": finding.more}
            by_reference[case] = rule._replace(**state)
        elif is_apart(finding):
            by_reference[case] = rule._replace(more=0)
    expected = plain.with_bad_together(plain.with_suspects(by_reference))
    for case, finding in by_case.items():
        if finding.reference is None:
            assert finding.verdict == "invalid"
            continue
        if "most hosts have made since" in finding.reference.source:
            continue  # test_host_level.py tests hosts that were not measured since an update
        word, values, evidence, more = expected[case]
        assert finding.values == values
        assert not values or host.begins_a_session(case, len(values))
        if "own level" in finding.why or "by nature" in finding.why:
            continue  # these have tests of their own
        assert finding.evidence == (None if evidence is None else pytest.approx(evidence, rel=1e-6, abs=1e-7))
        if is_apart(finding):
            assert (finding.verdict, finding.more) == ("suspect", 0)
            assert word in {"undecided", "suspect", "fail"}
            continue
        assert finding.verdict == word, (case, finding)
        assert finding.more == (pytest.approx(more, rel=0.05, abs=1) if evidence is not None else more)
        # The fleet may be stricter than the system's reference, and never more lenient. Of a busy host other
        # repetitions count for each of them.
        if host.was_busy():
            continue
        if finding.reference.line == 0 and (stated := system.reference(*case[:2], {"bank": case[2]})):
            # Values before a change of a bad level count for the fleet only.
            possible = [host.verdict(case, stated, count).word for count in range(1, max(len(values), 1) + 1)]
            assert ORDER.index(finding.verdict) >= min(map(ORDER.index, possible)) or host.is_emulated(case)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6))
@example(285)  # a few hosts are apart from the others
@example(349)  # a host's last repetition is invalid, and those before were disturbed
def test_columns_judge_as_the_rules_do(tmp_path_factory, seed):
    records = simulated(seed)
    hosts = {name: plain.Host([r for r in records if r.host == name]) for name in {r.host for r in records}}
    missing = {"n0": ["latency-0: its host died"], "late": ["it did not take part"]}
    for system in (references(tmp_path_factory.getbasetemp(), seed), Undescribed("s")):
        columns = judged(samples_table.of_records(records, "s"), system, missing=missing)
        assert set(columns.hosts) == {*hosts, "late"}
        for name in columns.hosts:
            verdict = columns.of(name)
            assert set(missing.get(name, ())) <= set(verdict.missing)
            if name in hosts:
                check_findings(verdict, hosts[name], system)
            # The columns hold the same verdicts before any host's verdict is built.
            assert ORDER[columns.word(name)] == verdict.verdict
            number = columns.number.get(name)
            counted = columns.counts[number] if number is not None else np.zeros(len(ORDER) + 1)
            words = [f.verdict for f in verdict.findings]
            assert [*counted] == [*(words.count(w) for w in ORDER), verdict.unjudged]


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


@pytest.mark.parametrize("seed", range(20))
def test_a_level_is_the_centre_of_the_good_hosts(seed):
    """Simulated hosts show the level, within five standard errors, the error of a repetition, and outliers.

    One of 40 good hosts is called an outlier in a fleet of 200 (8 of 1,500 seeds), so the seeds are fixed.
    """
    rng = np.random.default_rng(seed)
    error, count = rng.choice([0.002, 0.01, 0.03]), int(rng.integers(4, 8))
    slow = [f"n{i}" for i in range(rng.integers(0, 12))]
    fleet = {
        f"n{i}": (80 if f"n{i}" in slow else 100) * (1 + error * rng.standard_normal(count)) for i in range(40)
    }
    level = learn({host: values.tolist() for host, values in fleet.items()}, "higher")
    assert set(slow) <= set(level.outliers)
    assert len(level.outliers) <= len(slow) + 1
    assert level.hosts == 40 - len(level.outliers)
    assert abs(level.value / 100 - 1) < 5 * error / math.sqrt(count * level.hosts) + 1e-4
    # The error may be larger, because skewed samples carry less information, and is never far below the true one.
    assert level.error > 0.6 * error


NORMAL = statistics.NormalDist()


@pytest.mark.parametrize("limit", [0.01, 0.025, 0.1])
@pytest.mark.parametrize("ratio", [0.01, 0.2, 1.0, 4.0])
class TestSequentialTest:
    """Wald's conditions, by numerical integration over the density of a repetition."""

    @staticmethod
    def mean(function, centre, deviation):
        """Return the mean of a function of normally distributed values."""
        z = np.linspace(-9, 9, 20001)
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        return float((function(centre + deviation * z) * density).sum() * (z[1] - z[0]))

    def test_evidence_is_an_e_value_for_each_hypothesis(self, limit, ratio):
        error = ratio * limit
        good = self.mean(lambda x: np.exp(sprt.weights(x, limit, error)), 0.0, error)
        bad = self.mean(lambda x: np.exp(-sprt.weights(x, limit, error)), 2 * limit, error)
        # The bounds on the evidence of one repetition can only lower the first mean.
        assert good <= 1 + 1e-3
        assert bad <= 1 + 2 * plain.FALSE_ALARM + math.exp(-plain.FAIL / plain.FEWEST)

    def test_evidence_is_the_ratio_of_densities(self, limit, ratio):
        losses = np.linspace(-3 * limit, 6 * limit, 50)
        expected = [plain.evidence_of(loss, limit, ratio * limit) for loss in losses.tolist()]
        assert sprt.weights(losses, limit, ratio * limit) == pytest.approx(expected, rel=1e-6, abs=1e-9)

    def test_no_more_evidence_is_added_beyond_the_reach(self, limit, ratio):
        reach = sprt.reach(limit, ratio * limit)
        below, at, above = sprt.weights(np.array([reach - 1e-4 * limit, reach, 10 * reach]), limit, ratio * limit)
        assert below < at == pytest.approx(above)

    def test_repetitions_to_fail(self, limit, ratio):
        each = self.mean(lambda x: sprt.weights(x, limit, ratio * limit), 2 * limit, ratio * limit)
        (count,) = sprt.repetitions_to_fail(np.array([0.0]), limit, ratio * limit)
        assert count == pytest.approx(plain.FAIL / each, rel=0.05, abs=1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.002, 0.01, 0.03, 0.1]), st.sampled_from([0.02, 0.05]))
def test_the_fitted_error_is_the_smallest_that_keeps_the_error_rates(seed, error, loss):
    """By enumeration of the sample: a more sensitive test would break one of Wald's conditions."""
    rng = np.random.default_rng(seed)
    losses = error * rng.standard_normal(rng.integers(1, 40)) + rng.choice([0, 0, 10 * error], 1)
    fitted = sprt.fitted(losses, error, loss)
    deviation = max(error, loss / 40)
    sample = [*losses.tolist(), *(deviation * NORMAL.inv_cdf((i + 0.5) / 32) for i in range(32))]

    def holds(gain):
        def bounded(evidence):
            return max(plain.PASS, min(evidence, plain.FAIL / plain.FEWEST))

        good = statistics.fmean(math.exp(bounded(gain * (x - loss / 2))) for x in sample)
        bad = statistics.fmean(math.exp(-bounded(gain * (x + loss / 2))) for x in sample)
        return good <= 1 and bad <= 1

    most = loss / deviation**2
    gain = 0.0 if fitted is None else loss / fitted**2
    assert gain <= most * (1 + 1e-9)
    if gain:
        assert holds(gain * (1 - 1e-9))
    if gain < most * (1 - 1e-9):
        assert any(not holds(gain + most * step / 1024) for step in range(1, 5))


@given(st.lists(st.floats(-6, 20), min_size=1, max_size=30))
def test_what_is_beyond_chance(evidence):
    findings = {i: plain.Expected("undecided", (), e) for i, e in enumerate(evidence)}
    expected = [f.word == "suspect" for f in plain.with_suspects(findings).values()]
    assert (
        beyond_chance(np.array(evidence), np.zeros(len(evidence), dtype=np.int64), sprt.CHANCE).tolist()
        == expected
    )


@given(st.floats(-40, 40))
def test_certainty_is_the_posterior_of_the_likelier_hypothesis(evidence):
    likelihoods = 1.0, math.exp(evidence)
    assert sprt.certainty(evidence) == pytest.approx(max(likelihoods) / sum(likelihoods))


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


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), min_size=1, max_size=20),
    st.sampled_from([1, 5, 1 << 14]),
)
def test_groups_of_any_sizes(values, block):
    groups = Groups(np.concatenate([np.array(v) for v in values]), np.array([len(v) for v in values]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sprt, "_BLOCK", block)
        assert groups.medians == pytest.approx([np.median(v) for v in values])
    assert groups.sums(groups.values) == pytest.approx([np.sum(v) for v in values])


@pytest.mark.parametrize("size", [1, 2, 3, 12, 64, 65, 66, 1001])
def test_medians_and_quantiles_of_short_and_long_rows_are_those_of_numpy(size):
    rows = np.random.default_rng(size).standard_normal((7, size)).round(1)
    assert np.array_equal(sprt.medians(rows), np.median(rows, axis=1))
    for share in (0.25, 0.9):
        assert np.array_equal(sprt.quantiles(rows, share), np.quantile(rows, share, axis=1))


@pytest.mark.parametrize("size", [sprt._HUGE, sprt._HUGE + 1])
def test_the_median_of_a_huge_row_is_that_of_numpy(size):
    values = np.random.default_rng(size).standard_normal(size)
    assert sprt.medians(values) == np.median(values)
    assert np.array_equal(sprt.medians(values[None, :]), np.median(values[None, :], axis=1))


@pytest.mark.parametrize("seed", range(2))
def test_several_threads_judge_as_one_does(seed, monkeypatch):
    samples = samples_table.of_records(simulated(seed, hosts=20, repetitions=5))
    alone = judged(samples, Undescribed("s"))
    monkeypatch.setattr(judging, "_LARGE", 1)
    monkeypatch.setattr(judging.os, "sched_getaffinity", lambda _: range(4))
    together = judged(samples, Undescribed("s"))
    assert [together.of(h).to_dict() for h in together.hosts] == [alone.of(h).to_dict() for h in alone.hosts]
    assert np.array_equal(together.counts_now, alone.counts_now)
