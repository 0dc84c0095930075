# SPDX-License-Identifier: Apache-2.0
"""Each cause is named by its parts, metrics and settings, and by nothing less."""

import math
import os
import re

import pytest
from msgspec.structs import replace

from factories.stored_roots import stored_root
from firsttouch import paths
from firsttouch.benchmarks import kernel_settings
from firsttouch.errors import BadInput
from firsttouch.judge.causes import Symptoms, causes, parse, rules
from firsttouch.judge.judging import judge
from firsttouch.judge.verdict import Finding, HostVerdict, PartFinding
from firsttouch.records.cases import Case
from firsttouch.records.catalogue import checks
from firsttouch.records.drift import ABSENT, Deviation
from firsttouch.records.samples_table import loss_state
from firsttouch.records.schema import Record
from firsttouch.systems.definition import Undescribed, load

#: Eight NUMA nodes and 64 PUs; and 64 PUs of two threads a core.
OPTERON, XEON = load("amd-opteron").facts, load("intel-xeon").facts
PLACES = {"memory bandwidth": 8, "memory latency": 8, "clock latency": 8, "link bandwidth": 56}


def part(series, where="", loss=0.25, word="fail"):
    """Return the finding of a part of a series (``memory bandwidth``) at *where*; "": all parts together."""
    name, _, kind = series.partition(" ")
    text = f"{name} {where}" if where else f"all {name}"
    loss = -math.log1p(-loss)
    return PartFinding(
        text, kind, word, "its siblings", loss, loss / 2, 0.1, 1, 3, series=series, is_together=not where
    )


def metric(name, word="fail", values=(1.0,), **case):
    check, _, of = name.partition(".")
    return Finding(Case("s", check, of, case, "1", "higher"), values, None, word, "")


def slow(chain, pu=3, loss=0.19):
    """Return a finding and the state of a slow PU."""
    case = {"pu": pu} | ({} if chain == "registers" else {"chain": chain})
    return metric("cores.slow_cores", **case), {loss_state(pu, chain): loss}


#: The usual modules by slot.
USUAL = {f"P{p} {channel}1": f"16 GiB, channel {p}{channel}" for p in (1, 2) for channel in "AB"}


def modules(*deviations, siblings=8, of=8):
    return [
        Deviation(f"memory.modules.{slot}", value, USUAL[slot], ("n1",), siblings, of)
        for slot, value in deviations
    ]


def symptoms(*parts, metrics=(), facts=OPTERON, **fields):
    values = fields.pop("values", {})
    return Symptoms(metrics, parts, values, facts, usual_modules=USUAL, places=PLACES, **fields)


def named(of):
    return [cause.partition(":")[0] for cause in causes(of)]


BANK = part("memory bandwidth", "0")
THP = {"pages": "thp"}
#: The symptoms of a host, the expected causes, and a part of the first one's text.
SIGNATURES = [
    (symptoms(metrics=[metric("correctness.wrong_words", bank=1)]), ["wrong answers"], "wrong words"),
    (symptoms(metrics=[metric("health.uncorrected_errors")]), ["uncorrected errors"], "uncorrected errors"),
    (
        symptoms(BANK, metrics=[metric("topology.numa_nodes")], values={"numa_nodes": 1.0}),
        ["banks interleaved by the firmware", "fewer NUMA nodes"],
        "one NUMA node instead of 8",
    ),
    (
        symptoms(metrics=[metric("topology.numa_nodes")], values={"numa_nodes": 4.0}),
        ["fewer NUMA nodes"],
        "4 NUMA nodes instead of 8",
    ),
    (
        symptoms(
            metrics=[
                metric("topology.numa_nodes"),
                *(metric("latency.x", "pass", pu_nodes=[n]) for n in range(7)),
            ],
            values={"numa_nodes": 7.0},
        ),
        ["fewer NUMA nodes"],
        "NUMA node 7 is missing: 7 NUMA nodes instead of 8",
    ),
    (
        symptoms(metrics=[metric("topology.numa_nodes")], values={"numa_nodes": 16.0}),
        ["more NUMA nodes"],
        "16 NUMA nodes instead of 8",
    ),
    (
        symptoms(metrics=[metric("topology.pus")], values={"pus": 48.0, "usable_share": 0.75}),
        ["wrong cpuset"],
        "48 of 64 PUs",
    ),
    (
        symptoms(metrics=[metric("topology.pus")], facts=XEON, values={"pus": 32.0}),
        ["hyperthreading off"],
        "32 of 64 PUs",
    ),
    (symptoms(BANK, modules=modules(("P2 A1", ABSENT))), ["memory modules missing"], "1 of 4 channels: slot P2 "),
    (
        symptoms(BANK, modules=modules(("P2 A1", "8 GiB, channel 2A"))),
        ["other memory modules", "memory channel missing"],
        "slot P2 A1: 8 GiB here, 16 GiB on 8 siblings",
    ),
    (symptoms(BANK, values={"frequency_share": 0.6}), ["frequency or power cap"], "is set to 0.6 of"),
    (symptoms(part("clock latency")), ["frequency or power cap"], "all PUs are slow in their own caches (25"),
    (symptoms(part("clock latency", "3")), ["frequency or power cap"], "clock 3 (25.0 %) slower in its own"),
    (
        symptoms(metrics=[slow("registers")[0]], values=slow("registers")[1]),
        ["slow core"],
        "PU 3 is slower than the siblings by 19.0 % when all run",
    ),
    (symptoms(metrics=[slow("l2")[0]]), ["slow caches of a core"], "PU 3 is slower"),
    (symptoms(metrics=[slow("memory")[0]]), ["slow way of a core to memory"], "PU 3 is slower"),
    (
        symptoms(part("clock clock"), metrics=[metric("cores.sustained_clock")]),
        ["clock falls under load"],
        "after minutes of load",
    ),
    (
        symptoms(part("memory latency"), values={"huge_pages": 0.0}),
        ["huge pages off"],
        "random accesses are 25.0 % slower",
    ),
    (symptoms(part("link bandwidth", "1 3")), ["slow link"], "link 1 3 (25.0 %) slower, and the memory"),
    (symptoms(part("transfers host clock")), ["slow transfers between packages"], "exchange lines 25.0 % slower"),
    (symptoms(part("link latency", "1 3")), ["slow link"], "link 1 3 (25.0 %) slower to reach"),
    (
        symptoms(part("memory bandwidth", loss=0.08)),
        ["slower memory on all NUMA nodes"],
        "8.0 % or less of the local bandwidth",
    ),
    (symptoms(BANK), ["memory channel missing"], "memory 0 (25.0 %): bandwidth is missing"),
    (symptoms(part("memory bandwidth", loss=0.25)), ["memory channel missing"], "all memory (25.0 %)"),
    (
        symptoms(BANK, part("memory latency", "0")),
        ["slow memory"],
        "less bandwidth and longer latency together",
    ),
    (
        symptoms(metrics=[metric("pages.random_latency", **THP)], values={"huge_pages_free": 0.1}),
        ["huge pages cannot be had"],
        "a bank could give only 0.1 GiB",
    ),
    (
        symptoms(part("clock latency", word="pass"), metrics=[metric("x.y")], missing=[("pages", THP)],
                 values={"huge_pages_free": 0.1}),
        ["huge pages cannot be had"],
        "and got base pages",
    ),
    (symptoms(part("memory prefetch ratio", "0")), ["prefetchers off"], "memory 0 (25.0 %)"),
    (symptoms(part("cache latency", "1")), ["slow cache"], "cache 1 (25.0 %) slower"),
    (symptoms(part("memory latency", "1")), ["slow memory timing"], "memory 1 (25.0 %) slower when idle"),
    (symptoms(part("memory slowest accesses", "1")), ["rare slow accesses"], "memory 1 (25.0 %)"),
    (symptoms(part("memory saturation", "0")), ["latency under load rises early"], "memory 0 (25.0 %)"),
    (symptoms(part("traffic saturation", "0")), ["links saturate early"], "traffic 0 (25.0 %)"),
    (symptoms(part("clock clock", "0", loss=0.1)), ["cooling or power fault"], "clock 0 (10.0 %)"),
]  # fmt: skip


@pytest.mark.parametrize(("shown", "names", "text"), SIGNATURES)
def test_a_cause_is_named_by_its_signature(shown, names, text):
    assert named(shown) == names
    assert text in causes(shown)[0]


def test_every_cause_has_a_signature_and_settings_that_exist():
    assert {rule.name for rule in rules()} == {name for _, names, _ in SIGNATURES for name in names}
    # Busy PUs explain nothing: they make repetitions invalid.
    settings = {rule.setting for rule in rules()} - {""}
    assert settings <= (checks()["topology"].data.keys() - {"busy_pus"}) | {"huge_pages_free"}


@pytest.mark.parametrize(
    "shown",
    [
        # Settings explain a slow host; they never fail one.
        symptoms(values={"huge_pages": 0.0, "frequency_share": 0.6, "usable_share": 0.5}),
        # Without a fail, only modules are evidence enough.
        symptoms(replace(BANK, word="suspect")),
        symptoms(replace(BANK, word="undecided")),
        # Modules that explain no loss of memory; and a slot that other hosts lack, too.
        symptoms(metrics=[metric("x.y")], modules=modules(("P2 A1", ABSENT))),
        symptoms(metrics=[metric("topology.pus")], values={"pus": 48.0}),
        symptoms(metrics=[metric("topology.pus")], facts=None, values={"pus": 32.0, "numa_nodes": 1.0}),
        symptoms(part("program time")),
    ],
)
def test_what_fits_no_signature_entirely_has_no_cause(shown):
    assert causes(shown) == []


def test_modules_are_evidence_enough_for_a_suspect_host():
    suspect = replace(BANK, word="suspect")
    assert named(symptoms(suspect, modules=modules(("P1 A1", ABSENT)))) == ["memory modules missing"]
    assert named(symptoms(suspect, modules=modules(("P1 A1", ABSENT), siblings=5, of=9))) == []


def rule_of(text):
    """Return the only rule of a file with these conditions."""
    (rule,) = parse(f'[[cause]]\nname = "of the site"\ntext = "{{parts}}"\n{text}\n', "causes.toml")
    return rule


@pytest.mark.parametrize(
    ("condition", "good", "bad"),
    [
        ('bad = ["memory *"]', symptoms(part("memory latency", "0")), symptoms(part("link latency", "0 1"))),
        ('bad = ["*"]\ngood = ["clock*"]', symptoms(BANK), symptoms(BANK, part("clock latency"))),
        ('bad = ["memory bandwidth"]\nall = true', symptoms(part("memory bandwidth")), symptoms(BANK)),
        ('bad = ["memory bandwidth"]\nall = false', symptoms(BANK), symptoms(part("memory bandwidth"))),
        ('bad = ["*"]\nloss = [0.2, 0.3]', symptoms(BANK), symptoms(part("memory bandwidth", "0", loss=0.4))),
        ('metrics = ["a.*"]', symptoms(metrics=[metric("a.b")]), symptoms(metrics=[metric("b.b")])),
        (
            'metrics = ["a.b"]\nwhere = {bank = 1}',
            symptoms(metrics=[metric("a.b", bank=1)]),
            symptoms(metrics=[metric("a.b", bank=2)]),
        ),
        (
            'metrics = ["a.b"]\ngood_metrics = ["a.c"]',
            symptoms(metrics=[metric("a.b"), metric("a.c", "pass")]),
            symptoms(metrics=[metric("a.b"), metric("a.c", "suspect")]),
        ),
        ('missing = "a"', symptoms(BANK, missing=[("a", {})]), symptoms(BANK)),
        (
            'bad = ["*"]\nsetting = "huge_pages"\nat_least = 1\nbelow = 2',
            symptoms(BANK, values={"huge_pages": 1.0}),
            symptoms(BANK, values={"huge_pages": 2.0}),
        ),
    ],
)
def test_each_condition(monkeypatch, condition, good, bad):
    monkeypatch.setattr("firsttouch.judge.causes.rules", lambda: [rule_of(condition)])
    bad = bad if bad.bad or bad.bad_metrics else replace(bad, findings=[metric("x.y")])
    assert (named(good), named(bad)) == (["of the site"], [])


def test_a_cause_is_not_named_beside_those_that_explain_the_same(monkeypatch):
    both = [rule_of('bad = ["*"]'), replace(rule_of('bad = ["*"]\nunless = ["of the site"]'), name="another")]
    monkeypatch.setattr("firsttouch.judge.causes.rules", lambda: both)
    assert named(symptoms(BANK)) == ["of the site"]


#: The rest of an entry of causes.toml -> the line and the fault.
WRONG = {
    'text = "{nope}"\nbad = ["*"]': ":3: unknown placeholder {nope}: there are {parts}, {loss}, ",
    'text = "{"\nbad = ["*"]': ":3: not a text with placeholders",
    'text = "{loss:d}"\nbad = ["*"]': ":3: not a text with placeholders",
    'text = ""': ":1: a cause needs a condition",
    'text = ""\nunless = ["x"]': ":1: a cause needs a condition",
    'text = ""\nby = "bank"': ":4: unknown key 'by'",
    'text = ""\ncount = "cores"': ":4: ",
    'bad = ["*"]': ":1: key 'text' is missing",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_a_wrong_file_is_refused_and_that_of_a_site_ignored_with_a_line(
    monkeypatch, tmp_path, capsys, text, message
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("FIRSTTOUCH_HOME", str(tmp_path / "home"))
    file = paths.config() / "causes.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[[cause]]\nname = "of the site"\n{text}\n')
    with pytest.raises(BadInput, match=re.escape(f"{file}{message}")):
        parse(file.read_text(), str(file))
    rules.cache_clear()
    try:
        names = [rule.name for rule in rules()]
    finally:
        rules.cache_clear()
    assert names
    assert "of the site" not in names
    assert f"this file is ignored: {file}{message}" in capsys.readouterr().err


def test_a_suspect_part_is_neither_the_evidence_nor_the_cause_of_a_fail():
    suspected, wrong = part("clock latency", word="suspect"), metric("correctness.wrong_words", bank=1)
    assert named(symptoms(suspected, metrics=[wrong])) == named(symptoms(metrics=[wrong]))
    host = HostVerdict("n1", "s", (wrong,), 0, (), parts=(suspected,), causes=("wrong answers: x", "y: z"))
    assert host.evidence[0] == f"fail: {wrong.text()}"
    for text in (host.outcome(), host.reason()):
        assert text.startswith(f"{wrong.text()}; ")
        assert "possible cause: wrong answers" in text


def test_the_cause_of_a_failing_host_follows_the_worst_finding():
    values = {f"n{i}": 40.0 + 0.1 * (i % 3) for i in range(8)} | {"bad": 20.0}
    records = [
        Record(
            *("bandwidth", "copy_bandwidth", "GB/s", "higher", (value + 0.01 * number,)),
            parameters={"pu_nodes": [0], "bank": 0, "kernel": "copy"},
            host=host,
            system="s",
            time=f"2026-01-01T00:00:{number:02d}",
        )
        for host, value in values.items()
        for number in range(3)
    ]
    verdicts = {v.host: v for v in judge(records, Undescribed("s"))}
    bad = verdicts.pop("bad")
    assert bad.evidence[1].startswith("possible cause: memory channel missing: memory of bank 0 (50")
    assert bad.reason().endswith("; possible cause: memory channel missing")
    assert {v.causes for v in verdicts.values()} == {()}


class TestSettings:
    def test_of_a_stored_host(self, tmp_path):
        files = {
            "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]",
            "proc/sys/kernel/numa_balancing": "1",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "2000000",
            "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "2500000",
        }
        settings = {r.metric: r.value for r in kernel_settings.records(stored_root(tmp_path, files))}
        # Without /proc/stat a record of 0 busy PUs is written, which replaces an earlier one.
        assert settings == {"huge_pages": 0.0, "numa_balancing": 1.0, "frequency_share": 0.8, "busy_pus": 0.0}

    def test_others_are_named_by_what_they_used(self, tmp_path):
        def spend(seconds):
            (tmp_path / "proc" / "77").mkdir(parents=True, exist_ok=True)
            ticks = seconds * os.sysconf("SC_CLK_TCK")
            (tmp_path / "proc/stat").write_text(f"cpu  {ticks} 0 0 5 5 0 0 0 0 0\ncpu0 0 0 0 0\n")
            (tmp_path / "proc/77/stat").write_text(f"77 (a (b) c) R 1{' 0' * 9} {ticks} 0 0 0 20\n")

        spend(0)
        before = kernel_settings.usage(tmp_path)
        spend(3000)
        busy = kernel_settings.busy_pus(replace(before, time=before.time - 1000), tmp_path)
        assert busy.value == pytest.approx(3, rel=0.1)
        assert busy.parameters["programs"].startswith("a (b) c ")

    def test_of_this_host(self):
        settings = {r.metric: r.value for r in kernel_settings.records()}
        assert set(settings) <= checks()["topology"].data.keys()
        assert 0 < settings["usable_share"] <= 1
        assert settings["busy_pus"] >= 0
