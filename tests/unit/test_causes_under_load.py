# SPDX-License-Identifier: Apache-2.0
"""Memory under load, page sizes and prefetchers: what is judged, how it is stated, and which causes are named."""

import re

import pytest
from msgspec import structs

from factories.memory_records import FAULTS, PEAK, SATURATION, THEORY, Host
from firsttouch.judge import samples_table
from firsttouch.judge.baseline import learnt, put
from firsttouch.judge.judging import judge
from firsttouch.systems.definition import Undescribed, load


def records(name, **more):
    host = Host(name, **more)
    return [
        *host.topology(),
        *host.memory(),
        *host.loaded((1.0, 0.5), points=False),
        *host.cores(),
        *host.tails(),
        *host.pages(),
        *(r for r in host.pairs(4) if r.metric != "pair_latency"),
    ]


def replaced(record, factor):
    return structs.replace(record, samples=tuple(v * factor for v in record.samples))


@pytest.fixture(scope="module")
def fleet():
    return [r for number in range(16) for r in records(f"n{number}")]


@pytest.fixture(scope="module")
def verdicts(fleet):
    """The verdicts of a fleet of which more than half of the hosts have no fault."""
    faulty = [
        r
        for cause, faults in FAULTS.items()
        for number, fault in enumerate(faults)
        for r in records(f"{cause}-{number}", fault=fault)
    ]
    return {v.host: v for v in judge([*fleet, *faulty], Undescribed("amd-opteron"))}


def named(verdict):
    return [cause.split(": ")[0] for cause in verdict.causes]


def test_precision_and_recall_of_the_causes_on_a_simulated_fleet(verdicts):
    shown = {(host, cause) for host, v in verdicts.items() for cause in named(v)}
    expected = {(host, host.rsplit("-", 1)[0]) for host in verdicts if "-" in host}
    assert shown == expected
    assert {v.verdict for host, v in verdicts.items() if "-" in host} == {"fail"}
    assert {v.verdict for host, v in verdicts.items() if "-" not in host} == {"pass"}


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("slow core-0", r"PU 3 is slower than the siblings by 1[89][.\d]* % when all run"),
        ("slow caches of a core-0", r"PU 3 is slower than the siblings by [34]\d[.\d]* % in its own caches"),
        ("slow way of a core to memory-0", r"PU 3 is slower than the siblings by 5\d[.\d]* % in memory"),
    ],
)
def test_a_slow_pu_is_named_with_its_loss_and_the_part_that_is_slow(verdicts, host, text):
    (cause,) = verdicts[host].causes
    assert re.search(text, cause)


def test_a_pu_that_is_slower_by_another_share_later_is_one_case_with_its_last_loss(fleet):
    sessions = [
        structs.replace(r, time=r.time.replace("-01-01T", f"-01-0{day}T"), parameters=parameters)
        for r in Host("bad", fault=FAULTS["slow core"][0]).cores()
        for day, loss in ((1, 0.18), (2, 0.19), (2, 0.19))
        for parameters in [{**r.parameters, "loss": loss} if r.metric == "slow_cores" else r.parameters]
    ]
    verdict = next(v for v in judge([*fleet, *sessions], Undescribed("amd-opteron")) if v.host == "bad")
    cases = [f for f in verdict.findings if f.metric == "slow_cores"]
    assert [f.case.get("chain", "registers") for f in cases] == ["registers", "l1", "l2"]
    assert not any("loss" in f.case for f in cases)
    assert "by 19.0 % when all run" in verdict.causes[0]


def test_a_verdict_states_the_share_of_the_theoretical_bandwidth(verdicts):
    bad = verdicts["memory saturates early-0"]
    (line,) = [
        f.why
        for f in bad.findings
        if f.metric == "saturation_bandwidth"
        and f.case["bank"] == 1
        and (f.case["load"], f.case["read_share"]) == ("local", 1.0)
    ]
    share = SATURATION["local"] / THEORY
    stated = re.match(
        r"saturates at ([\d.]+) % of theory; this fleet's reference is ([\d.]+) % to ([\d.]+) %; ", line
    )
    at, low, high = map(float, stated.groups())
    assert at == pytest.approx(75 * share, abs=0.5)
    assert low < 100 * share < high < low + 8
    assert "% below" in line


def test_without_a_theoretical_bandwidth_a_verdict_states_gb_per_second(fleet):
    slow = [r for r in records("bad", fault=FAULTS["memory saturates early"][0]) if r.check == "loaded_latency"]
    some = [r for r in [*fleet, *slow] if r.check == "loaded_latency"]
    bad = {v.host: v for v in judge(some, Undescribed("amd-opteron"))}["bad"]
    assert bad.verdict == "fail"
    peaks = [f.why for f in bad.findings if f.metric == "peak_bandwidth" and f.verdict == "fail"]
    assert any(
        why.startswith("reaches its peak at 34") and " GB/s; this fleet's reference is " in why for why in peaks
    )
    assert round(0.8 * PEAK) == 34


def test_a_host_that_got_no_huge_pages_lacks_a_page_size(fleet):
    without = [
        r
        for r in records("bad", fault=FAULTS["huge pages cannot be had"][0])
        if r.parameters.get("pages") != "thp" or r.check != "pages"
    ]
    some = [r for r in [*fleet, *without] if r.check in {"pages", "latency"}]
    bad = {v.host: v for v in judge(some, Undescribed("amd-opteron"))}["bad"]
    assert (bad.verdict, named(bad)) == ("suspect", [])
    assert any("thp pages: other hosts were judged by it" in missing for missing in bad.missing)
    # A cause is named for a fail only.
    slow = [replaced(r, 1.5) if (r.host, r.check) == ("bad", "latency") else r for r in some]
    bad = {v.host: v for v in judge(slow, Undescribed("amd-opteron"))}["bad"]
    assert (bad.verdict, "huge pages cannot be had" in named(bad)) == ("fail", True)


def test_points_and_states_are_not_judged_and_states_are_the_smallest_of_all_banks():
    host = Host(
        "n1", fault=lambda metric, case: 0.5 if (metric, case.get("bank")) == ("huge_pages_free", 1) else 1.0
    )
    table = samples_table.of_records([*host.topology(), *host.loaded((1.0,)), *host.pages(), *host.pairs(4)])
    assert {case.metric for case in table.cases if case.check == "loaded_latency"} == {
        "unloaded_latency",
        "saturation_bandwidth",
        "peak_bandwidth",
    }
    assert {case.metric for case in table.cases if case.check == "core_to_core"} == {"transfer_latency"}
    assert table.settings["n1"]["huge_pages_free"] == pytest.approx(6.25, rel=0.02)
    assert table.settings["n1"][samples_table.BANK_BANDWIDTH] == pytest.approx(THEORY)


def test_a_baseline_learns_references_that_judge(fleet, tmp_path):
    opteron = structs.replace(load("amd-opteron"), references=())
    baseline = learnt(samples_table.of_records(fleet), opteron)
    checks = {r.case.check for r in baseline.learnt}
    assert {"loaded_latency", "pages"} <= checks
    file = tmp_path / "amd-opteron.yaml"
    file.write_text(
        put((load("amd-opteron").path).read_text().split("references:")[0] + "references: []\n", baseline)
    )
    system = load(str(file))
    slow = records("bad", fault=FAULTS["latency under load rises early"][0])
    (bad,) = judge(slow, system)
    assert named(bad) == ["latency under load rises early"]
    assert "of theory; this system's reference is" in bad.evidence[1]
    (good,) = judge(records("good"), system)
    assert good.verdict == "pass"


def test_the_ratios_of_an_emulated_host_are_not_judged():
    emulated = [structs.replace(r, software={"emulator": "QEMU"}) for n in range(6) for r in Host(f"n{n}").pages()]
    assert {v.findings for v in judge(emulated, Undescribed("amd-opteron"))} == {()}
