# SPDX-License-Identifier: Apache-2.0
"""A pass needs a comparison that would have seen a loss: of 20 % in each check, and of a third in each metric."""

import random

import pytest
from test_verdict import system_of

from factories.host_records import built_report
from firsttouch.judge import samples_table
from firsttouch.judge.judging import MOST_REPETITIONS, judge, judged, undecided_cases
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.systems.definition import Undescribed

CHECKS = {
    "bandwidth": ("copy_bandwidth", "GB/s", "higher", {"kernel": "copy", "pu_nodes": [0]}),
    "latency": ("random_latency", "ns", "lower", {"size_bytes": 1 << 28, "pu_nodes": [0]}),
    "contention": ("total_bandwidth", "GB/s", "higher", {"threads": 4}),
}
BANKS = 8
HELP = "and a pass needs 20 %: a reference, more hosts or more repetitions would help"


def memory(loss):
    """Return the speeds of a host whose memory loses a share of its bandwidth, and half of it in latency."""
    return {"bandwidth": 1 - loss, "contention": 1 - loss, "latency": 1 + loss / 2}


def records_of(hosts, speeds, repetitions=2, *, banks=range(BANKS), checks=CHECKS, seed=0):
    """Return records of hosts that differ by 0.4 % with a noise of 0.8 %; *speeds* are by host and check."""
    records = []
    for host in range(hosts):
        for check in checks:
            metric, unit, better, parameters = CHECKS[check]
            for bank in range(BANKS):
                random_numbers = random.Random(f"{seed} {host} {check} {bank}")  # noqa: S311
                speed = speeds.get(host, {}).get(check, 1.0) if bank in banks else 1.0
                level = 100 * speed * (1 + random_numbers.gauss(0, 0.004))
                for repetition in range(repetitions):
                    records.append(
                        Record(
                            *(check, metric, unit, better),
                            (level * (1 + random_numbers.gauss(0, 0.008)),),
                            parameters={**parameters, "bank": bank},
                            host=f"n{host}",
                            system="s",
                            time=f"2026-01-01T00:{repetition:02}:{bank:02}.000+00:00",
                        )
                    )
    return records


def findings_of(records):
    return judged(samples_table.of_records(records, "s"), Undescribed("s"))


def after_campaign(hosts, speeds, **fields):
    """Return the findings when all that may be decided was measured again, as the jobs of a campaign do."""
    all_records = records_of(hosts, speeds, MOST_REPETITIONS, **fields)
    counts = dict.fromkeys({Case.of(record).key for record in all_records}, 2)
    for _ in range(MOST_REPETITIONS):
        records = [r for r in all_records if int(r.time[14:16]) < counts[Case.of(r).key]]
        findings = findings_of(records)
        again = {key for host in findings.hosts for key in undecided_cases(findings, host)}
        if not again:
            return findings
        counts.update({key: counts[key] + 1 for key in again})
    pytest.fail("the campaign does not end")


@pytest.mark.parametrize("hosts", [5, 6])
@pytest.mark.parametrize("seed", range(2))
def test_in_a_few_hosts_one_that_lost_15_percent_hides_nothing_behind_a_pass(hosts, seed):
    verdicts = {v.host: v for v in judge(records_of(hosts, {0: memory(0.15)}, seed=seed), Undescribed("s"))}
    assert verdicts.pop("n0").verdict != "pass"
    assert {v.verdict for v in verdicts.values()} == {"undecided"}
    assert all(HELP in v.line() for v in verdicts.values())


def test_two_bad_hosts_of_eight_are_undecided_until_they_fail():
    speeds = {0: memory(0.06), 1: memory(0.10)}
    early = findings_of(records_of(8, speeds))
    assert "pass" not in {early.of(host).verdict for host in early.hosts}
    assert undecided_cases(early, "n5")
    late = after_campaign(8, speeds)
    assert {late.of(host).verdict for host in ("n0", "n1")} == {"fail"}


def test_a_bank_that_is_slow_on_two_hosts_is_no_pass_though_all_other_metrics_see_enough():
    findings = findings_of(records_of(8, {0: memory(0.08), 1: memory(0.08)}, banks=[3], seed=1))
    verdict = findings.of("n5")
    assert (verdict.verdict, *verdict.blind) == ("undecided", "bandwidth", "contention")
    cases = [findings.samples.cases[n] for n in findings.samples.case[findings.groups("n5")].tolist()]
    blind = [c for c, is_blind in zip(cases, findings.blind_groups("n5").tolist(), strict=True) if is_blind]
    assert [(case.check, case.parameters["bank"]) for case in blind] == [("bandwidth", 3), ("contention", 3)]
    assert {c.key for c in blind} <= {*undecided_cases(findings, "n5")}


def test_hosts_with_a_defect_each_do_not_pass_by_the_checks_that_could_be_judged():
    """No bandwidth can be compared; latency can."""
    speeds = {host: {"bandwidth": 1 - 0.06 * host} for host in range(8)}
    verdict = next(v for v in judge(records_of(8, speeds), Undescribed("s")) if v.host == "n7")
    assert (verdict.verdict, verdict.blind) == ("undecided", {"bandwidth": 1.0})
    assert {f.verdict for f in verdict.findings} == {"pass"}
    assert f"undecided: the comparison with the fleet sees no loss in bandwidth, {HELP}" in verdict.line()
    assert verdict.why() == verdict.findings_evidence[0].text()


def test_equal_hosts_pass_after_two_repetitions():
    findings = findings_of(records_of(8, {}))
    assert {findings.of(host).verdict for host in findings.hosts} == {"pass"}
    assert not any(undecided_cases(findings, host) for host in findings.hosts)


def test_what_references_judge_needs_no_comparison(tmp_path):
    entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "100 GB/s", "source": "order"}
    system = system_of(tmp_path, {**entry, "tolerance": {"lower": "-60 %"}})
    records = records_of(8, {host: {"bandwidth": 1 - 0.06 * host} for host in range(8)}, checks=["bandwidth"])
    assert {v.verdict for v in judge(records, system)} == {"pass"}


def test_words_lines_and_exports_of_a_blind_host_agree(tmp_path):
    records = records_of(6, {0: memory(0.15), 1: memory(0.3)})
    findings = findings_of(records)
    verdict = findings.of("n4")
    assert verdict.verdict == findings.summary("n4").verdict == "undecided"
    assert HELP in findings.line("n4")
    _, page, document = built_report(tmp_path, records, verdicts=[findings.of(host) for host in findings.hosts])
    assert verdict.blind_reason in page
    assert document
