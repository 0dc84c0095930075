# SPDX-License-Identifier: Apache-2.0
"""The expected levels of a host by its modules, its processor and its inner ratios; the files of processors."""

import importlib
import itertools
import math
import random
import statistics
import sys

import pytest
from msgspec.structs import replace
from test_verdict import system_of

from firsttouch import paths
from firsttouch.benchmarks import measure
from firsttouch.cli import main
from firsttouch.fleet.measuring import CheckJudge
from firsttouch.host import topology
from firsttouch.judge.comparison import compare
from firsttouch.judge.judging import explain, judged
from firsttouch.records import samples_table, schema
from firsttouch.records.drift import latest
from firsttouch.records.schema import BUSY, Record
from firsttouch.report.writing import write_report
from firsttouch.systems import definition, processors
from firsttouch.systems.definition import Theoretical, Undescribed, available, load
from firsttouch.systems.expectation import answer, deciding

MILAN = "AMD EPYC 7R13 Processor"
SLOT = "P{package} DIMM {slot}"
MODULE = "32 GiB DDR4-3200, configured 3200 MT/s, 2 ranks, Samsung"


def reads(rate, bank=0, **given):
    """Return the record of reads (GB/s) of a bank by all PUs of its NUMA node."""
    case = {"program": "firsttouch-probe", "pu_nodes": [bank], "bank": bank, "load": "local", "read_share": 1}
    return record("loaded_latency", "peak_bandwidth", "GB/s", rate, **case, threads=16, **given)


def stores(rate):
    """Return the record of ordinary copies (GB/s) of bank 0 by all PUs of its NUMA node."""
    case = {"program": "firsttouch-probe", "pu_nodes": [0], "bank": 0, "kernel": "copy", "stores": "ordinary"}
    return record("bandwidth", "copy_bandwidth", "GB/s", rate, **case, threads=16)


def record(check, metric, unit, value, better="higher", **parameters):
    time = "2026-01-01T00:00:01+00:00"
    return Record(check, metric, unit, better, (float(value),), parameters, host="n1", system="s", time=time)


def configuration(model=MILAN, modules=(), slots=(), **settings):
    """Return the record of a host's settings; *modules* are the numbers of modules of its packages, or *slots*."""
    slots = [*slots] + [SLOT.format(package=p, slot=s) for p, count in enumerate(modules) for s in range(count)]
    settings = {k.replace("_", ".", 1): v for k, v in settings.items()}
    settings |= {"cpu.model": model, **{f"memory.modules.{slot}": MODULE for slot in slots}}
    return record("configuration", "settings", "1", 1, "neither", settings=settings)


def theory(rate, packages=1, banks=1):
    """Return the record of the theoretical bandwidth (GB/s) of a package."""
    where = {"source": "SMBIOS", "packages": packages, "banks": banks}
    return record("topology", "theoretical_bandwidth", "GB/s", rate, "neither", **where)


def findings_of(records, system=Undescribed("s")):  # noqa: B008
    return judged(samples_table.of_records(records, "s"), system, configurations=lambda: latest(records))


def verdict(*records):
    return findings_of(records).verdict("n1")


MODULES_8 = configuration(modules=[8])
EIGHT_PUS = record("topology", "pus", "1", 8, "neither")
ONE_CORE_LESS = record("topology", "usable_share", "1", 0.5, "neither")


@pytest.mark.parametrize(
    ("records", "word", "text"),
    [
        pytest.param([theory(204.8), reads(150)], "as expected", "reads reach 86 % (of 125 hosts)", id="any"),
        pytest.param([theory(204.8), reads(120)], "low", "limit 132", id="any-low"),
        pytest.param([MODULES_8, theory(204.8), reads(150)], "as expected", "reads reach 74 %", id="own-model"),
        pytest.param([MODULES_8, theory(204.8), reads(113)], "low", "limit 128", id="three-quarters"),
        pytest.param([MODULES_8, reads(150)], "as expected", "of 205 GB/s", id="modules-without-channels"),
        pytest.param(
            [configuration(modules=[4]), reads(75)], "as expected", "of 102 GB/s", id="half-of-the-channels"
        ),
        pytest.param(
            [configuration(modules=[2]), reads(37)], "low", "the processor has 8 channels", id="a-quarter"
        ),
        pytest.param(
            [configuration(modules=[8, 7]), reads(150), reads(131, 1)], "low", "limit 8", id="one-absent"
        ),
        pytest.param(
            [configuration(slots=["DIMM A1", "DIMM B1"]), reads(37)], "low", "modules of package 0", id="no-socket"
        ),
        pytest.param(
            [configuration(modules=[8, 8], numa_nodes_per_package="1 or 2"), reads(75)],
            *("as expected", "of 102 GB/s"),
            id="packages-differ",
        ),
        pytest.param(
            [configuration(), reads(150)], "as expected", "with the fastest modules", id="processor-alone"
        ),
        pytest.param([MODULES_8, theory(204.8), reads(208)], "as expected", "of 205 GB/s", id="rounded"),
        pytest.param([MODULES_8, theory(204.8), reads(210)], "impossible", "a wrong measurement", id="too-fast"),
        pytest.param(
            [MODULES_8, theory(204.8), stores(150)],
            *("as expected", "of 205 GB/s, write-allocate included"),
            id="stores-without-reads",
        ),
        pytest.param([configuration(), reads(100)], "unknown", "as root once", id="perhaps-few-modules"),
        pytest.param(
            [configuration("new"), reads(100)], "unknown", "no file of systems/processors", id="new-model"
        ),
        pytest.param(
            [configuration("MIDR 0x00000000410fd4f0", board_vendor="NVIDIA"), reads(330)],
            *("unknown", "give it references"),
            id="lpddr",
        ),
        pytest.param(
            [configuration("Intel(R) Xeon(R) CPU Max 9480", modules=[8]), theory(307), reads(620)],
            *("unknown", "no rate follows from the channels of HBM2e"),
            id="memory-that-no-module-is",
        ),
        pytest.param(
            [configuration("AMD EPYC 7763 64-Core Processor", modules=[8]), EIGHT_PUS, theory(204.8), reads(20)],
            *("unknown", "a part of a host"),
            id="few-pus-of-many-cores",
        ),
        pytest.param(
            [configuration(modules=[8, 2]), theory(128, 2, 2), reads(150), reads(38, 1)],
            *("low", "modules of package 1"),
            id="banks-of-unlike-packages",
        ),
        pytest.param([MODULES_8, theory(204.8)], "unknown", "", id="nothing-measured"),
        pytest.param(
            [configuration(modules=[8], machine_virtual="yes"), theory(204.8), reads(20)],
            *("unknown", "a part of a host, such as a virtual machine, whose bandwidth others share"),
            id="virtual-machine",
        ),
        pytest.param(
            [ONE_CORE_LESS, MODULES_8, theory(204.8), reads(20)], "unknown", "part of a host", id="part-of-a-host"
        ),
    ],
)
def test_the_bandwidth_of_one_host_is_as_expected_low_or_unknown(records, word, text):
    host = verdict(*records)
    assert answer(host.expected) == word
    assert text in " ".join(e.text() for e in host.expected)
    assert host.verdict == ("suspect" if word in {"low", "impossible"} else "undecided")


@pytest.mark.parametrize(
    ("metric", "word"), [("peak_bandwidth", []), ("saturation_bandwidth", ["memory of bank 0"])]
)
def test_a_reference_of_the_system_stands_in_place_of_the_processor(tmp_path, metric, word):
    reference = {"check": "loaded_latency", "metric": metric, "value": "110 GB/s", "source": "order"}
    system = system_of(tmp_path, {**reference, "tolerance": {"lower": "-5 %"}})
    findings = findings_of([MODULES_8, theory(204.8), reads(110)], system)
    assert [part.part for part in findings.verdict("n1").parts] == word


@pytest.mark.parametrize("rate", [60, 150])
def test_a_host_that_others_used_is_neither_low_nor_as_expected(rate):
    busy = record("topology", "busy_pus", "1", 3 * BUSY, "neither")
    host = verdict(busy, MODULES_8, theory(204.8), reads(rate))
    assert [e.answer for e in host.expected if e.kind == "bandwidth"] == ["unknown"]
    assert "when the host is idle" in host.expected[-1].text()


@pytest.mark.parametrize(
    ("rates", "low"), [((170, 168), ""), ((170, 120), "memory of bank 1"), ((100, 170), "memory of bank 0")]
)
def test_equal_banks_are_compared_with_each_other(rates, low):
    host = verdict(*(reads(rate, bank) for bank, rate in enumerate(rates)))
    assert [part.part for part in host.parts] == ([low] if low else [])


def test_a_fleet_of_low_hosts_is_one_line():
    records = [replace(r, host=f"n{n}") for n in range(5) for r in (MODULES_8, theory(204.8), reads(113 + n / 10))]
    findings = findings_of(records)
    assert {findings.verdict(host).verdict for host in findings.hosts} == {"suspect"}
    assert [note.partition(":")[0] for note in findings.notes()] == [
        "5 of 5 hosts are low in memory of bank 0, bandwidth"
    ]


def test_what_is_missing_comes_before_what_is_as_expected():
    samples = samples_table.of_records([MODULES_8, theory(204.8), reads(150)], "s")
    host = judged(samples, Undescribed("s"), missing={"n1": ["latency: it hung"]}).verdict("n1")
    assert (host.verdict, host.findings_evidence[0]) == ("suspect", "missing: latency: it hung")
    assert host.findings_evidence[1].startswith("undecided: without references: memory of bank 0")


@pytest.mark.parametrize(
    ("rate", "card", "sentence"),
    [
        (
            150,
            "n1: as expected",
            "bandwidth 150 GB/s, as expected (a loss of 15 % would be low): reads reach 74 %",
        ),
        (110, "n1: low", "low (limit 128 GB/s): reads reach 74 %"),
        (
            None,
            "n1: unknown",
            "Memory of bank 0: bandwidth, unknown: not measured.",
        ),
    ],
)
def test_the_first_page_answers(tmp_path, rate, card, sentence):
    memory = [reads(rate)] if rate else [latency(1 << 30, 100)]
    schema.append(tmp_path / "records.jsonl", [MODULES_8, theory(204.8), *memory])
    written = write_report([tmp_path / "records.jsonl"], tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert f">Memory speed of {card}</h2>" in page
    assert sentence in page
    assert "Verdicts:" not in page
    of_terminal = " ".join(written.summary.table().replace("\N{NO-BREAK SPACE}", " ").split())
    assert f"{card} (system s, partition default) Why: " in of_terminal
    assert sentence in of_terminal


@pytest.mark.parametrize(
    ("check", "metric", "case", "text"),
    [
        ("correctness", "wrong_answers", {"work": "integer"}, "wrong answers, work integer, pu 5"),
        ("cores", "slow_cores", {"measured_pus": "0-15"}, "slow cores, pu 5"),
    ],
)
def test_a_count_beyond_its_limit_fails_one_host_whatever_its_parts_reach(tmp_path, check, metric, case, text):
    for count, card in ((3, "Verdict of n1: fail"), (0, "n1: as expected")):
        counted = record(check, metric, "1", count, "lower", pu=5, **case)
        schema.append(tmp_path / card, [MODULES_8, theory(204.8), reads(150), counted])
        table = write_report([tmp_path / card], tmp_path / f"{card} page").summary.table()
        assert f"{card} (system s, partition default) Why: " in " ".join(
            table.replace("\N{NO-BREAK SPACE}", " ").split()
        )
        assert (f"{text.capitalize()}: 3 while it was measured" in " ".join(table.split())) == (count > 0)


def latency(size, ns, nodes=0, bank=0):
    case = {"program": "firsttouch-probe", "pu_nodes": [nodes], "bank": bank, "size_bytes": size, "threads": 1}
    return record("latency", "random_latency", "ns", ns, "lower", **case)


@pytest.mark.parametrize(("back", "low"), [(152, ""), (230, "link from NUMA 1 to bank 0")])
def test_both_directions_of_a_link_are_compared(back, low):
    host = verdict(latency(1 << 30, 150, 0, 1), latency(1 << 30, back, 1, 0))
    assert [part.part for part in host.parts] == ([low] if low else [])


def links(slow, per_package, packages, distance):
    """Return the records of a host whose links take 150 ns, in a package 90 ns, and *slow* ones 1.3 times that."""
    pairs = list(itertools.combinations(range(packages * per_package), 2))
    rows = [f"{a}: {b}={distance(a, b)}; {b}: {a}={distance(a, b)}" for a, b in pairs]
    times = {(a, b): (90 if a // per_package == b // per_package else 150) for a, b in pairs}
    measured = [
        latency(1 << 30, times[pair] * 1.3 ** (pair in slow), *way) for pair in pairs for way in (pair, pair[::-1])
    ]
    return [configuration(numa_distances="; ".join(rows), numa_nodes_per_package=str(per_package)), *measured]


@pytest.mark.parametrize(
    ("slow", "shape", "low"),
    [
        pytest.param([], (1, 4, lambda *_: 21), [], id="equal"),
        pytest.param([(1, 3)], (1, 4, lambda *_: 21), ["links between NUMA 1 and 3"], id="one-of-six"),
        pytest.param([(0, 3), (1, 2)], (1, 4, lambda *_: 21), [], id="diagonals"),
        pytest.param([(0, 2)], (1, 4, lambda a, b: 10 + b - a), ["links between NUMA 0 and 2"], id="one-of-two"),
        pytest.param([(0, 3)], (1, 4, lambda a, b: 10 + b - a), [], id="alone-of-its-distance"),
        pytest.param([(0, 1)], (2, 1, lambda *_: 21), [], id="one-link"),
        pytest.param([], (2, 2, lambda *_: 20), [], id="packages-of-two"),
        pytest.param(
            [(0, 4), (0, 5), (1, 4), (1, 5)],
            (2, 3, lambda *_: 21),
            ["links between packages 0 and 2"],
            id="packages",
        ),
    ],
)
def test_a_link_that_is_slow_in_both_directions_is_compared_with_equal_ones(slow, shape, low):
    assert [part.part for part in verdict(*links(slow, *shape)).parts] == low


def test_one_slow_direction_is_named_by_its_loss():
    """The mean of both directions would halve it."""
    settings, *times = links([], 1, 4, lambda *_: 21)
    slow = [
        replace(r, samples=(300.0,)) if r.parameters["pu_nodes"] == [0] == [r.parameters["bank"] - 1] else r
        for r in times
    ]
    (part,) = verdict(settings, *slow).parts
    assert (part.part, 1 - math.exp(-part.loss)) == ("link from NUMA 0 to bank 1", pytest.approx(0.5))


def test_links_that_end_at_slow_memory_are_not_named():
    times = {(0, 0): 90, (0, 1): 210, (1, 0): 150, (1, 1): 130}
    host = verdict(MODULES_8, *(latency(1 << 30, ns, *way) for way, ns in times.items()))
    assert [(part.part, part.kind) for part in host.parts] == [("memory of bank 1", "latency")]


def test_a_rate_states_the_answer_of_a_good_host():
    both_ways = [latency(1 << 30, 150, 0, 1), latency(1 << 30, 150, 1, 0)]
    assert deciding(verdict(MODULES_8, theory(204.8), reads(152), *both_ways).expected).unit == "GB/s"


CACHES = {"cpu_caches": "L2 512 KiB, L3 32 MiB"}


@pytest.mark.parametrize(
    ("l3", "settings", "word", "text"),
    [
        (25, CACHES, "as expected", "L3 25 ns, memory 100 ns"),
        (78, CACHES, "low", "L3 78 ns, memory 100 ns"),
        pytest.param(90, None, "unknown", "their sizes are not recorded", id="unknown-sizes"),
        pytest.param(155, None, "low", "16 MiB 155 ns, 1 GiB 100 ns", id="unknown-sizes-out-of-order"),
        (25, {}, "as expected", "L3 25 ns, memory 100 ns"),
        (90, {}, "low", "L3 90 ns, memory 100 ns"),
        (90, {"machine_virtual": "yes"}, "unknown", "the caches are not this guest's own"),
    ],
)
def test_the_last_cache_is_clearly_faster_than_memory(l3, settings, word, text):
    system = load("amd-milan") if settings is not None and settings != CACHES else Undescribed("s")
    records = [configuration(**settings or {}), latency(16 << 20, l3), latency(1 << 30, 100)]
    findings = findings_of(records, system)
    (caches,) = [e for e in findings.verdict("n1").expected if e.part == "caches of NUMA 0"]
    explained = {f.part: f.word for f in explain(findings, 0)}
    assert explained.get(caches.part) == {"as expected": "pass", "low": "suspect"}.get(word)
    assert (caches.answer, text in caches.basis) == (word, True)


def test_memory_of_a_numa_node_has_its_share_of_the_last_cache():
    """16 MiB fit in half of 48 MiB, and not in half of a third of them."""
    settings = {"cpu_caches": "L2 2 MiB, L3 48 MiB", "numa_nodes_per_package": "3"}
    host = verdict(configuration(**settings), latency(4 << 20, 30), latency(16 << 20, 95), latency(1 << 30, 100))
    assert "L3 30 ns, memory 100 ns" in [e.basis for e in host.expected]


def test_a_page_and_a_verdict_give_one_answer(tmp_path, capsys):
    """The caches of the host that reads the records are not the measured host's."""
    vm = paths.ROOT / "docs" / "examples" / "vm.jsonl"
    pages = [write_report([vm], tmp_path / str(name), system=name).summary for name in (None, paths.LOCAL)]
    (stated,) = {page.cards[0].lines["Why"] for page in pages}
    assert main(["validate", "--system", paths.LOCAL, str(vm)]) == 0
    assert stated.split(". ")[0][1:] in capsys.readouterr().out


def test_memory_without_pus_shares_no_channel(monkeypatch):
    """Otherwise the banks of modules were faster than they can be."""
    of_modules = Theoretical(409.6e9, 16, 3.2e9, "SMBIOS")
    monkeypatch.setattr(definition, "theoretical_of_host", lambda *_: of_modules)
    host = topology.load(xml=paths.ROOT / "tests" / "golden" / "lstopo_attached.xml")
    rates = {r.metric: r for r in measure.topology(host, say=lambda _: None)}
    stated = rates["theoretical_bandwidth"].parameters
    assert (len(host.numa_nodes), stated["packages"], stated["banks"]) == (4, 2, 2)


# ----------------------------------------------------------------------
# Earlier records of the host, or of others of its type


def session(host, day, rate):
    """Return the records of one session of a host: the reads of a bank (GB/s), which differ by 1 % at most."""
    draw = random.Random(f"{host} {day}")  # noqa: S311
    values = [reads(rate * draw.uniform(0.995, 1.005)) for _ in range(3)]
    return [replace(r, host=host, time=f"2026-01-{day:02d}T00:0{i}:00+00:00") for i, r in enumerate(values)]


@pytest.mark.parametrize("limits", [(), ({"lower": "-5 %"},)])
def test_hosts_that_agree_in_impossible_values_do_not_pass(tmp_path, limits):
    """Neither siblings nor a reference make them good, and no module is missing."""
    where = {"check": "loaded_latency", "metric": "peak_bandwidth", "value": "150 GB/s", "source": "order"}
    system = system_of(tmp_path, *({**where, "tolerance": tolerance} for tolerance in limits))
    hosts = [replace(r, host=f"n{n}") for n in range(4) for r in (MODULES_8, theory(204.8), *session("", 1, 400))]
    findings = findings_of(hosts, system)
    for host in map(findings.verdict, findings.hosts):
        assert (host.verdict, host.causes, answer(host.expected)) == ("suspect", (), "impossible")
        assert "% better than expected, faster than its modules" in host.line()


@pytest.mark.parametrize(
    ("good", "bad", "word"), [(7, 3, "fail"), (6, 2, "fail"), (7, 1, "fail"), (8, 0, "undecided")]
)
def test_a_loss_of_the_only_host_is_seen_after_few_good_sessions(good, bad, word):
    """Its only change is not noise."""
    records = [r for day in range(1, good + bad + 1) for r in session("n1", day, 150 if day <= good else 120)]
    assert verdict(*records).verdict == word


@pytest.mark.parametrize("day", [8, 4])
@pytest.mark.parametrize(
    "changed",
    [
        "memory.huge_pages always -> never",
        "memory.huge_pages_sizes inherit: 64, 2048 kB -> never: 64 kB; inherit: 2048 kB",
        "memory.numa_balancing 0 -> 2",
        "memory.demotion false -> true",
        "memory.interleave_weights 0: 1, 1: 1 -> 0: 4, 1: 1",
        "kernel.sched_ext disabled -> scx_rusty",
        "cgroup.cpu.max max -> 200000 100000",
    ],
)
def test_a_setting_that_changed_with_the_loss_is_a_possible_cause(tmp_path, run_cli, changed, day):
    """The loss begins on the eighth day; a change on another day is not its cause."""
    setting, _, text = changed.partition(" ")
    values = text.split(" -> ")
    records = [r for d in range(1, 11) for r in session("n1", d, 150 if d < 8 else 120)]
    for d in range(1, 11):
        now = configuration(**{setting.replace(".", "_", 1): values[d >= day]})
        records.append(replace(now, time=f"2026-01-{d:02d}T00:00:00+00:00"))
    schema.append(tmp_path / "records.jsonl", [replace(r, system="amd-milan") for r in records])
    validated = run_cli("validate", "--system", "amd-milan", tmp_path / "records.jsonl")
    assert validated.status == 1
    page = write_report([tmp_path / "records.jsonl"], tmp_path / "out").summary.table()
    for text in (validated.out, " ".join(page.split())):
        assert (f"changed setting: {changed}, when the loss began" in text) == (day == 8)


@pytest.mark.parametrize(
    ("past", "rate", "word"),
    [
        ([("n1", day) for day in range(1, 21)], 150, "pass"),
        ([("n1", day) for day in range(1, 21)], 120, "fail"),
        ([(f"n{n}", 1) for n in range(2, 10)], 120, "fail"),
        ([(f"n{n}", 1) for n in range(2, 10)], 150, "pass"),
    ],
)
def test_the_past_judges_a_check(past, rate, word):
    earlier = [r for host, day in past for r in session(host, day, 150)]
    document, _ = CheckJudge(load("amd-milan"), strict=False, past=earlier).verdict(session("n1", 25, rate))
    assert document["verdict"] in {word, "undecided" if word == "pass" else word}


@pytest.mark.parametrize("strict", [False, True])
def test_a_loss_beside_other_processes_is_not_measured(strict):
    """The past would fail the host, but other processes used it."""
    earlier = [r for day in range(1, 21) for r in session("n1", day, 150)]
    slow = session("n1", 25, 120)
    busy = replace(record("topology", "busy_pus", "1", 2 * BUSY, "neither"), time=slow[0].time)
    judge = CheckJudge(load("amd-milan"), strict=strict, past=earlier)
    document, status = judge.verdict([busy, *slow])
    assert (document["verdict"], status) == ("invalid", 3)
    assert [bool(judge.undecided([busy, *slow * rounds])) for rounds in (3, 4)] == [True, False]


SIBLINGS = [(f"n{n}", 20) for n in range(2, 8)]
NEW_BOARD = replace(record("configuration", "replaced", "1", 1, "neither"), time="2026-01-10T00:00:00+00:00")


@pytest.mark.parametrize(
    ("past", "repetitions"), [([("n1", day) for day in range(1, 9)], 3), (SIBLINGS, 3), (SIBLINGS, 1)]
)
@pytest.mark.parametrize("rate", [90, 150])
def test_a_check_repeats_what_its_past_leaves_undecided(past, repetitions, rate):
    """Repetitions of earlier sessions are not repetitions of now."""
    earlier = [r for host, day in past for r in session(host, day, 150)[:repetitions]]
    judge, now = CheckJudge(load("amd-milan"), strict=False, past=earlier), session("n1", 25, rate)
    count = 1
    while count < len(now) and judge.undecided(now[:count]):
        count += 1
    assert (judge.verdict(now[:count])[0]["verdict"] == "fail", count > 1) == (rate == 90, rate == 90)


def test_a_wrong_answer_of_the_past_fails_a_check():
    answers = record("correctness", "wrong_answers", "1", 0, "lower", work="integer")
    wrong = replace(answers, samples=(2.0,), parameters={"work": "integer", "pu": 3, "bits": "0x1"})
    now = replace(answers, time="2026-01-25T00:00:00+00:00")
    judge = CheckJudge(load("amd-milan"), strict=False, past=[wrong])
    document, status = judge.verdict([now])
    assert (document["verdict"], status) == ("fail", 1)
    assert "wrong answers" in document["reason"]
    of_another = CheckJudge(load("amd-milan"), strict=False, past=[replace(wrong, host="n2")])
    assert of_another.verdict([now])[1] == 0


def test_sessions_before_a_replacement_do_not_judge_a_check():
    earlier = [r for day in range(1, 9) for r in session("n1", day, 150)]
    words = [
        CheckJudge(load("amd-milan"), strict=False, past=past).verdict(session("n1", 25, 90))[0]["verdict"]
        for past in (earlier, [*earlier, NEW_BOARD])
    ]
    assert words == ["fail", "undecided"]


@pytest.mark.parametrize(
    ("past", "is_advised"),
    [([], True), (session("n1", 25, 150), True), (session("n1", 1, 150), False), ([NEW_BOARD], False)],
)
def test_a_slice_is_advised_to_compare_with_its_past_unless_it_is(past, is_advised):
    now = [ONE_CORE_LESS, *session("n1", 25, 150)]
    document, _ = CheckJudge(load("amd-milan"), strict=False, past=past).verdict(now)
    assert ("check --against" in str(document["expected"])) == is_advised


@pytest.mark.parametrize("repetitions", [3, 12])
def test_a_comparison_of_one_host_states_what_it_would_have_seen(repetitions):
    def changed(seed, change):
        draw = random.Random(seed)  # noqa: S311
        sides = [
            [
                replace(reads(150 * scale * draw.gauss(1, 0.01)), time=f"2026-0{month}-01T00:00:{i:02d}+00:00")
                for i in range(repetitions)
            ]
            for month, scale in ((1, 1.0), (2, 1 - change))
        ]
        return compare(*map(samples_table.of_records, sides)).changes[0]

    floors = [changed(seed, 0.0).floor for seed in range(40)]
    floor = statistics.median(floors)
    assert 0.025 < floor < (0.06 if repetitions == 12 else 0.2)
    assert sum(changed(seed, 1.1 * floor).word == "worse" for seed in range(40)) >= 34
    assert sum(changed(seed, floor / 4).word == "worse" for seed in range(40)) <= 1


def test_the_benchmark_leaves_out_what_is_known_of_a_hosts_own_model(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(paths.ROOT / "bench"))
    bench = importlib.import_module("one_host")
    rows = [
        "a,AMD EPYC 9354,1,460.8,358",
        "b,AMD EPYC 9254,1,460.8,304",
        "c,AMD EPYC 9254,1,460.8,150",
        "d,new,1,100,86",
    ]
    header = "instance,cpu_model,sockets,theory_gbs,bwmem_read_gbs_all"
    (tmp_path / "some.csv").write_text("\n".join([header, *rows]) + "\n")
    monkeypatch.setattr(sys, "argv", ["one_host.py", str(tmp_path / "some.csv")])
    assert bench.main() == 0
    modules, unread = (line.split()[-5:] for line in capsys.readouterr().out.splitlines()[-2:])
    # Nothing is blamed without modules: fewer or slower ones explain any loss.
    assert (modules, unread) == (["4", "1", "4", "4", "3"], ["4", "0", "2", "4", "0"])


# ----------------------------------------------------------------------
# The levels of the site's hosts become the expectation for others


@pytest.fixture
def learn(tmp_path, monkeypatch, run_cli):
    """Return a function that learns the processors of hosts, each the records of one, and the user's folder."""
    monkeypatch.setenv("FIRSTTOUCH_HOME", str(tmp_path / "home"))
    processors.families.cache_clear()

    def of_hosts(*hosts, options=()):
        named = [replace(r, host=f"n{n}") for n, records in enumerate(hosts) for r in records]
        (tmp_path / "r.jsonl").unlink(missing_ok=True)
        schema.append(tmp_path / "r.jsonl", named)
        done = run_cli("baseline", "--processor", *options, tmp_path / "r.jsonl")
        processors.families.cache_clear()
        return done

    yield of_hosts, tmp_path / "home" / "processors"
    monkeypatch.undo()
    processors.families.cache_clear()


@pytest.mark.parametrize(("count", "limit"), [(1, 106), (8, 120)])
def test_what_hosts_of_a_site_reach_is_expected_of_the_next_one(learn, count, limit):
    """Good hosts of a model that reach 61 % by the probe, where bw_mem reached 74 % elsewhere."""
    of_hosts, folder = learn
    slow = [MODULES_8, theory(204.8), reads(126)]
    assert answer(verdict(*slow).expected) == "low"
    done = of_hosts(*([MODULES_8, theory(204.8), reads(125 + n / 4)] for n in range(count)))
    assert done.status == 0
    assert "74.0 % before (SpareCores/sc-inspector-data" in done.out
    assert "less, look for what slows all these hosts" in done.out
    assert [file.name for file in folder.iterdir()] == ["amd-epyc-7r13-processor.toml"]
    assert answer(verdict(*slow).expected) == "as expected"
    low = verdict(MODULES_8, theory(204.8), reads(limit - 2))
    assert low.verdict == "suspect"
    assert f"limit {limit} GB/s): reads reach 6" in deciding(low.expected).text()
    kin = [configuration("AMD EPYC 7763 64-Core Processor", [8]), theory(204.8), reads(120)]
    assert "3 models of Zen 3" in deciding(verdict(*kin).expected).text()


def test_a_processor_that_no_file_describes_is_learnt(learn):
    of_hosts, folder = learn
    new = [configuration('new "x" (R) 7'), theory(100), reads(60)]
    assert answer(verdict(*new).expected) == "low"
    assert of_hosts(new, options=["-o", folder / "x.toml"]).status == 0
    assert answer(verdict(*new).expected) == "as expected"
    other = verdict(configuration('new "x" (R) 71'), theory(100), reads(60))
    assert answer(other.expected) == "low"


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([configuration(modules=[8, 7]), reads(150), reads(131, 1)], "limit 8"),
        ([configuration(), reads(150)], "modules"),
        ([configuration(modules=[8], machine_virtual="yes"), theory(204.8), reads(150)], "a part of a host"),
        ([theory(204.8), reads(150)], "its processor"),
    ],
)
def test_a_host_that_shows_no_share_teaches_nothing(learn, records, reason):
    of_hosts, folder = learn
    done = of_hosts(records)
    assert (done.status, folder.exists()) == (2, False)
    assert reason in done.err
    both = of_hosts(records, [MODULES_8, theory(204.8), reads(150)])
    assert both.status == 0
    assert "left out: n0" in both.out
    assert "(1 host of this site" in both.out


def test_hosts_unlike_the_others_teach_nothing(learn):
    of_hosts, folder = learn
    hosts = [[MODULES_8, theory(204.8), reads(rate)] for rate in (150, 151, 149, 150, 151, 120)]
    assert "left out: n5: its reads reach 58.6 %" in of_hosts(*hosts).out
    (family,) = [f for f in processors.families() if f.name == next(folder.iterdir()).stem]
    assert family.models[0].read_share == pytest.approx(150 / 204.8, rel=0.005)


def test_one_file_is_not_that_of_two_processors(learn):
    of_hosts, folder = learn
    two = ([configuration(name, [8]), theory(204.8), reads(150)] for name in (MILAN, "new"))
    done = of_hosts(*two, options=["-o", folder / "x.toml"])
    assert (done.status, f"--hosts: {MILAN}; new" in done.err) == (2, True)
    assert not folder.exists()


# ----------------------------------------------------------------------
# The files of processors


def test_system_files_agree_with_their_processors():
    described = 0
    for name in available():
        facts = load(name).facts
        processor = processors.find(facts.processor)
        if name == "local" or processor is None:
            continue
        described += 1
        model, nodes = processor.model, facts.numa_nodes / facts.packages
        assert model.cores in {None, facts.cores / facts.packages}, name
        assert nodes in (model.numa_nodes or (nodes,)), name
        for cache in facts.caches if model.last_level_caches else ():
            if cache.level == 3 and cache.pus:
                assert model.last_level_caches == facts.pus / facts.packages / cache.pus, name
    assert described >= 11


#: Names of processors by their family.
NAMES = {
    "sandybridge-en": ["Intel(R) Xeon(R) CPU E5-2470 0 @ 2.30GHz", "Intel(R) Xeon(R) CPU E5-2450L v2 @ 1.70GHz"],
    "sandybridge": ["Intel(R) Xeon(R) CPU E5-2650 0 @ 2.00GHz", "Intel(R) Xeon(R) CPU E5-2650L 0 @ 1.80GHz"],
    "ivybridge": ["Intel(R) Xeon(R) CPU E5-2697 v2 @ 2.70GHz", "Intel(R) Xeon(R) CPU E5-4657L v2 @ 2.40GHz"],
    "haswell": ["Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz", "Intel(R) Xeon(R) CPU E5-1650 v3 @ 3.50GHz"],
    "broadwell": ["Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "Intel(R) Xeon(R) CPU E5-2697A v4 @ 2.60GHz"],
    "xeon-e3": ["Intel(R) Xeon(R) CPU E31230 @ 3.20GHz", "Intel(R) Xeon(R) CPU E3-1230 V2 @ 3.30GHz"],
    "xeon-e7": ["Intel(R) Xeon(R) CPU E7-8890 v4 @ 2.20GHz"],
    "xeon-d-1500": ["Intel(R) Xeon(R) CPU D-1541 @ 2.10GHz"],
    "xeon-d-2100": ["Intel(R) Xeon(R) D-2146NT CPU @ 2.30GHz"],
    "knightslanding": ["Intel(R) Xeon Phi(TM) CPU 7250 @ 1.40GHz"],
    "skylake": ["Intel(R) Xeon(R) Platinum 8124M CPU @ 3.00GHz", "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz"],
    "cascadelake": ["Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"],
    "cascadelake-ap": ["Intel(R) Xeon(R) Platinum 9242 CPU @ 2.30GHz"],
    "cooperlake": ["Intel(R) Xeon(R) Platinum 8380HL CPU @ 2.90GHz", "Intel(R) Xeon(R) Gold 6328H CPU @ 2.80GHz"],
    "icelake": ["Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "Intel(R) Xeon(R) Gold 6338N CPU @ 2.20GHz"],
    "sapphire": ["Intel(R) Xeon(R) Platinum 8488C", "Intel(R) Xeon(R) w9-3495X"],
    "sapphire-hbm": ["Intel(R) Xeon(R) CPU Max 9480", "Intel(R) Xeon(R) CPU Max 9462"],
    "emerald": ["Intel(R) Xeon(R) Platinum 8592+", "INTEL(R) XEON(R) GOLD 6548Y+"],
    "granite": ["Intel(R) Xeon(R) 6985P-C", "Intel(R) Xeon(R) 6980P"],
    "granite-sp": ["Intel(R) Xeon(R) 6787P", "Intel(R) Xeon(R) 6530P"],
    "sierra": ["Intel(R) Xeon(R) 6780E", "Intel(R) Xeon(R) 6740E"],
    "coffeelake": ["Intel(R) Xeon(R) E-2288G CPU @ 3.70GHz", "Intel(R) Xeon(R) CPU E3-1270 v6 @ 3.80GHz"],
    "rocketlake": ["Intel(R) Xeon(R) E-2388G CPU @ 3.20GHz"],
    "raptorlake": ["Intel(R) Xeon(R) E-2488", "Intel(R) Xeon(R) 6369P"],
    "bulldozer": ["AMD Opteron(tm) Processor 6376"],
    "opteron-4000": ["AMD Opteron(tm) Processor 4386"],
    "zen1": ["AMD EPYC 7601 32-Core Processor", "AMD EPYC 7551P 32-Core Processor", "AMD EPYC 7571"],
    "zen2": ["AMD EPYC 7742 64-Core Processor", "AMD EPYC 7R32", "AMD EPYC 7H12 64-Core Processor"],
    "zen3": ["AMD EPYC 7443P 24-Core Processor", "AMD EPYC 7773X 64-Core Processor", "AMD EPYC 7V73X"],
    "zen4": ["AMD EPYC 9R14", "AMD EPYC 9754 128-Core Processor", "AMD EPYC 9684X 96-Core Processor"],
    "zen4-sp6": ["AMD EPYC 8534P 64-Core Processor", "AMD EPYC 8024PN 8-Core Processor"],
    "zen5": ["AMD EPYC 9755 128-Core Processor", "AMD EPYC 9575F 64-Core Processor"],
    "zen5-am5": ["AMD EPYC 4345P 8-Core Processor", "AMD EPYC 4584PX 16-Core Processor"],
    "mi300a": ["AMD Instinct MI300A Accelerator"],
    "graviton2": ["MIDR 0x00000000413fd0c1, Amazon EC2", "MIDR 0x00000000413fd0c1, Ampere"],
    "graviton3": ["MIDR 0x00000000411fd401, Amazon EC2"],
    "graviton4": ["MIDR 0x00000000410fd4f1, Amazon EC2"],
    "grace": ["MIDR 0x00000000410fd4f0, NVIDIA"],
    "a64fx": ["MIDR 0x00000000461f0010, FUJITSU"],
    "thunderx2": ["MIDR 0x00000000431f0af1, Cray"],
    "kunpeng920": ["MIDR 0x00000000481fd010, Huawei"],
    # A processor with HBM3 whose name looks like Genoa's, and names without a model.
    None: ["AMD EPYC 9V64H 88-Core Processor", "AMD EPYC", "Intel(R) Xeon(R) Processor", "unknown: fill in"],
}


def test_the_names_of_processors():
    """A name belongs to one family, and the memory of each has channels or a source that says why not."""
    for family, names in NAMES.items():
        for shown in (shown for name in names for shown in (name, name.upper())):
            matching = {f.name for f in processors.families() for m in f.models if m.describes(shown)}
            assert matching == ({family} if family else set()), shown
    assert {f.name for f in processors.families()} == NAMES.keys() - {None}
    for family in processors.families():
        has_rate = family.memory.channels and family.memory.transfer_rate
        assert has_rate or "no rate follows" in family.memory.source, family.name


def test_a_wrong_file_of_a_site_is_named_with_its_line_and_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FIRSTTOUCH_SITE", str(tmp_path))
    (tmp_path / "processors").mkdir()
    text = 'description = "x"\nmicroarchitecture = "x"\n[memory]\ntype = "DDR5"\nchanels = 12\nsource = "x"\n'
    (tmp_path / "processors" / "x.toml").write_text(text)
    (tmp_path / "processors" / "y.toml").write_text(
        text.replace("chanels", "channels") + "[[models]]\npattern = 'Y9'\n"
    )
    processors.families.cache_clear()
    try:
        assert processors.find("Y9").family.memory.channels == 12
        assert "x.toml:5: unknown key 'chanels'" in (message := capsys.readouterr().err)
        assert "did you mean 'channels'" in message.lower()
    finally:
        processors.families.cache_clear()
