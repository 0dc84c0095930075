# SPDX-License-Identifier: Apache-2.0
"""Verdicts on memory errors, machine checks and throttling by the limits of metrics.toml."""

from msgspec.structs import replace

from firsttouch.fleet.measuring import undecided_by_references as undecided
from firsttouch.judge.judging import judge, judged, undecided_cases
from firsttouch.records import catalogue, samples_table
from firsttouch.records.schema import Record
from firsttouch.systems.definition import Undescribed


def health(host, metric, count, module=None, *, day=1, minute=0, **fields):
    parameters = {"seconds": 9.5} | ({"module": module} if module else {})
    when = f"2026-01-{day:02}T12:{minute:02}:00+00:00"
    return Record("health", metric, "1", "lower", (count,), parameters, host=host, system="s", time=when, **fields)


def quiet(host, **when):
    """The records of each measurement of a host without events."""
    metrics = ("corrected_errors", "uncorrected_errors", "machine_checks", "throttle_events")
    return [health(host, metric, 0, **when) for metric in metrics]


def verdicts(records):
    return {verdict.host: verdict for verdict in judge(records, Undescribed("s"))}


def test_errors_blame_their_host_and_name_the_module():
    records = [r for n in range(1, 9) for minute in (0, 5) for r in quiet(f"n{n}", minute=minute)]
    records += [
        health("n2", "uncorrected_errors", 1, "DIMM_A1", minute=2),
        health("n3", "corrected_errors", 6, "DIMM_B1", minute=2),
        health("n3", "corrected_errors", 6, "DIMM_B1", minute=4),
        health("n4", "corrected_errors", 6, "DIMM_C1", minute=2),
        health("n5", "machine_checks", 1, "exceptions"),
        health("n6", "throttle_events", 61, "package 0"),
        health("n7", "throttle_events", 59, "package 0"),
    ]
    of = verdicts(records)
    words = {host: verdict.verdict for host, verdict in of.items()}
    bad = {"n2": "fail", "n3": "suspect", "n5": "suspect", "n6": "suspect"}
    assert words == {f"n{n}": bad.get(f"n{n}", "undecided") for n in range(1, 9)}
    assert of["n2"].reason().startswith("uncorrected errors, DIMM_A1: 1 while it was measured, at most 0")
    assert "corrected errors, DIMM_B1: 12 while it was measured, at most 10 per hour" in of["n3"].reason()
    # Hosts without events lack nothing, and no repetition of a measurement decides.
    assert not any(verdict.missing for verdict in of.values())
    assert undecided([r for r in records if r.host == "n3"], Undescribed("s")) == {}
    table = judged(samples_table.of_records(records), Undescribed("s"))
    assert undecided_cases(table, "n3") == {}


def errors_of_site(host, count, metric="errors", **fields):
    return Record("linkerrors", metric, "1", "lower", (0, count), {}, host=host, system="s", **fields)


def test_errors_that_a_check_of_the_site_counts_fail_their_host():
    bandwidth = [
        Record("bandwidth", "copy_bandwidth", "GB/s", "higher", (10.0,), {"bank": 0}, host=f"n{n}", system="s")
        for n in range(1, 9)
    ]
    records = [errors_of_site(f"n{n}", 40 * (n == 2)) for n in range(1, 9)]
    of = verdicts([*records, *bandwidth])
    assert {host: v.verdict for host, v in of.items()} == {
        f"n{n}": "fail" if n == 2 else "pass" for n in range(1, 9)
    }
    assert of["n2"].reason().startswith("linkerrors errors: 40 while it was measured, at most 0;")
    assert [record.is_proof for record in records[:2]] == [False, True]
    # A ratio counts nothing, even where it is whole.
    ratios = [replace(r, samples=(1.0 if r.host == "n1" else 1.5,)) for r in records]
    assert {v.verdict for v in verdicts([*ratios, *bandwidth]).values()}.isdisjoint({"fail", "suspect"})
    # Performance logs may lack the unit of a time.
    assert verdicts([replace(r, check="log.linkerrors") for r in records])["n2"].verdict != "fail"


#: A check of the site with a limit for errors, and a ratio without one.
LINKS = """[linkerrors]
parameters = []
metrics = {errors = {unit = "1", better = "lower"}, imbalance = {unit = "1", better = "lower"}}
limits = {errors = {verdict = "suspect", most = 10}}
"""


def test_a_site_states_how_many_errors_are_allowed(monkeypatch):
    with_links = catalogue._merged(catalogue.catalogue(), catalogue.parse(LINKS, "metrics.toml"))
    monkeypatch.setattr(catalogue, "catalogue", lambda: with_links)
    for count, word in ((10, "undecided"), (11, "suspect")):
        assert verdicts([errors_of_site("n1", count)])["n1"].verdict == word
    assert errors_of_site("n1", 2, "imbalance").limit is None
    assert errors_of_site("n1", 1.5).limit is not None


def test_rates_are_those_of_the_newest_session():
    early = [health("n1", "uncorrected_errors", 3, "DIMM_A1", day=1), *quiet("n1", day=1)]
    assert verdicts(early)["n1"].verdict == "fail"
    # The module was replaced.
    assert verdicts([*early, *quiet("n1", day=3)])["n1"].verdict == "undecided"
    # 36 events in three and a half hours are 10.3 per hour, 34 are 9.7.
    for count, word in ((6, "suspect"), (4, "undecided")):
        counts = [5, 5, 5, 5, 5, 5, count]
        times = [f"2026-01-01T1{i // 2}:{30 * (i % 2):02}:00+00:00" for i in range(8)]
        spaced = [
            replace(health("n1", "corrected_errors", n, "A"), time=when)
            for n, when in zip([*counts, 0], times, strict=True)
        ]
        assert verdicts(spaced)["n1"].verdict == word


def test_emulated_and_invalid_counts_do_not_judge():
    records = [
        health("n1", "uncorrected_errors", 3, "A", software={"emulator": "QEMU"}),
        health("n2", "uncorrected_errors", 3, "A", status="invalid", reason="wrong"),
        *quiet("n2"),
    ]
    assert {host: v.verdict for host, v in verdicts(records).items()}["n2"] != "fail"
    assert verdicts(records)["n1"].findings == ()


def test_wrong_answers_of_an_invalid_record_are_named_until_their_check_is_repeated():
    def answers(count, day, **fields):
        parameters = {"work": "integer", "units": 9} | ({"pu": 3} if count else {})
        when = f"2026-01-{day:02}T12:00:00+00:00"
        case = ("correctness", "wrong_answers", "1", "lower", (count,), parameters)
        return Record(*case, host="n1", system="s", time=when, **fields)

    invalid = answers(2, day=1, status="invalid", reason="PU 3 was not held")
    # Later sessions of other checks show no answers.
    records = [answers(0, day=1), invalid, *quiet("n1", day=3)]
    verdict = verdicts(records)["n1"]
    assert verdict.verdict == "invalid"
    assert verdict.reason().endswith(": 2, in a record that is invalid: PU 3 was not held")
    # Another repetition decides nothing about what was wrong once.
    assert undecided(records, Undescribed("s")) == {}
    assert undecided([*records, replace(invalid, status="valid", reason="", samples=(0,))], Undescribed("s")) == {}
    assert verdicts([*records, answers(0, day=4)])["n1"].verdict == "undecided"
    assert verdicts([*records, answers(1, day=1)])["n1"].verdict == "fail"
    assert verdicts([replace(invalid, samples=(0,))])["n1"].verdict == "undecided"
