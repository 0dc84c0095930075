# SPDX-License-Identifier: Apache-2.0
"""Reading the native probe's JSON lines, the command around it, and what records of its aspects state.

The aspects are locks, latencies between two PUs, latencies under load, and correctness: one wrong answer fails a
host for good reason.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import struct
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import force_setattr, replace

from factories.host_records import measured
from factories.processes import write_program
from factories.topologies import host_of
from firsttouch import paths
from firsttouch.benchmarks import core_to_core, correctness, loaded_latency, locks, probe, profiles
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.profiles import efforts
from firsttouch.errors import BadInput, CannotHere, RunFailed
from firsttouch.host.topology import Cache, probe_program
from firsttouch.judge.judging import judge, judged
from firsttouch.records import samples_table
from firsttouch.records.schema import Record
from firsttouch.systems.definition import Undescribed


@pytest.fixture
def lines(golden):
    """Return the objects of a stored report."""
    return [json.loads(line) for line in golden("probe_bandwidth.jsonl").splitlines()]


def text(objects):
    return "".join(json.dumps(o) + "\n" for o in objects)


def parsed(text):
    """Return the report of a text, and its records."""
    report = probe.Report()
    return report, report.take(text.encode())


@pytest.mark.parametrize(
    ("aspect", "metrics", "parameters"),
    [
        ("bandwidth", ["copy_bandwidth", "triad_bandwidth"], {"stores": "regular", "array_bytes": 1 << 20}),
        ("latency", ["random_latency"] * 2, {"order": "random", "stride_bytes": 64}),
        (
            "contention",
            ["total_bandwidth", "thread_bandwidth"] * 2,
            {"access": "random read-modify-write", "array_bytes": 1 << 20},
        ),
    ],
)
def test_records_of_every_aspect(golden, aspect, metrics, parameters):
    _, records = parsed(golden(f"probe_{aspect}.jsonl"))
    assert [r.metric for r in records] == metrics
    for record in records:
        shared = {"program": "firsttouch-probe", "pu_nodes": [0], "bank": 0, "policy": "membind", "pages": "base"}
        assert (shared | parameters).items() <= record.parameters.items()
        assert set(record.parameters) - {"size_bytes", "kernel", "instructions"} == {
            *shared,
            *parameters,
            "threads",
        }
        (asked,), (seen,) = record.placement_asked, record.placement_found
        assert seen["pus"] == seen["held"] == asked["pus"]
        assert seen["threads"] == record.parameters["threads"] == len(asked["pus"])
        assert (seen["policy"], seen["verified"]) == ("bind:0", True)


def test_records_come_while_the_probe_is_at_work(fake, tmp_path):
    """Each batch is returned before the probe goes on; the stand-in waits for it."""
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.01; done"
    fake(f"report | head -n 2; echo one >&2; {wait}; report | tail -n 2; echo two >&2")
    lines = []
    running = probe.follow("bandwidth", say=lines.append)
    assert [r.metric for r in next(running)] == ["copy_bandwidth"]
    assert lines == ["one"]
    go.touch()
    assert [r.metric for r in next(running)] == ["triad_bandwidth"]
    assert [*running] == []
    assert lines == ["one", "two"]


def test_a_probe_is_not_left_behind(fake, tmp_path):
    fake(f"echo $$ > {tmp_path}/pid; report | head -n 2; echo one >&2; exec sleep 600")
    running = probe.follow("bandwidth", say=lambda _: None)
    next(running)
    pid = int((tmp_path / "pid").read_text())
    running.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_silent_probe_is_stopped(fake, monkeypatch):
    monkeypatch.setattr(probe, "SILENCE", 0.2)
    fake("exec sleep 600")
    with pytest.raises(RunFailed, match=r"firsttouch-probe .* 0 s "):
        list(probe.follow("bandwidth", say=lambda _: None))


def test_interleaved_and_pruned_results_say_so(lines):
    lines[1] |= {"policy": "interleave", "banks": [0, 1], "stands_for": [{"pu_nodes": [1], "banks": [1, 0]}]}
    record = parsed(text(lines))[1][0]
    assert record.parameters["policy"] == "interleave"
    assert record.parameters["banks"] == [0, 1]
    assert record.parameters["stands_for"] == [{"pu_nodes": [1], "banks": [1, 0]}]
    assert "bank" not in record.parameters


def test_a_probe_that_was_killed_leaves_a_partial_report(lines):
    report, records = parsed(text(lines[:-1]))
    assert (report.status, len(records)) == ("partial", 2)
    # The last line is half-written.
    report, records = parsed(text(lines[:2]) + json.dumps(lines[2])[:50])
    assert (report.status, len(records)) == ("partial", 1)
    with pytest.raises(KeyboardInterrupt):
        report.finish(0)


def test_results_that_were_cut_short_are_no_records(lines):
    lines[1]["partial"] = True
    assert [r.metric for r in parsed(text(lines))[1]] == ["triad_bandwidth"]


@pytest.mark.parametrize(
    ("at", "change"),
    [
        (0, {"schema": 2}),
        (1, {"samples": []}),
        (1, {"samples": [1.0, -1.0]}),
        (1, {"status": "fine"}),
        (1, {"type": "begin"}),
        (1, {"pus": [0, "1"]}),
        (1, {"pages": None}),
        (1, {"policy": "preferred"}),
        (1, {"threads": 7}),
        (3, {"count": 1}),
    ],
)
def test_what_is_no_report(lines, at, change):
    lines[at] |= change
    with pytest.raises(RunFailed, match="firsttouch-probe"):
        parsed(text(lines))


@pytest.mark.parametrize(
    "key", ["metric", "unit", "samples", "pus", "pus_found", "banks", "pages", "status", "reason"]
)
def test_a_result_without(lines, key):
    del lines[1][key]
    with pytest.raises(RunFailed, match="line 2: not a result"):
        parsed(text(lines))


@given(st.text())
def test_any_text_is_a_report_or_refused(text):
    with pytest.raises(RunFailed):
        parsed(text + "\n")


@pytest.fixture
def fake(monkeypatch, tmp_path, golden):
    """Return a function that replaces the probe by a script, in which `report` prints the stored report."""
    (tmp_path / "report").write_text(golden("probe_bandwidth.jsonl"))
    file = tmp_path / "probe"

    def make(script):
        write_program(file, f"report() {{ cat {tmp_path / 'report'}; }}\n{script}")
        monkeypatch.setenv("FIRSTTOUCH_PROBE", str(file))

    return make


def test_run_hands_on_progress_and_options(fake, tmp_path):
    fake(f'echo "$@" > {tmp_path}/argv; echo one >&2; report; echo two >&2')
    lines = []
    assert sum(map(len, probe.follow("bandwidth", ["--banks", "0"], say=lines.append))) == 2
    assert lines == ["one", "two"]
    assert (tmp_path / "argv").read_text() == "bandwidth --jsonl --banks 0\n"


FAILED = json.dumps({"type": "end", "status": "failed", "reason": "x y", "count": 2})


@pytest.mark.parametrize(
    ("script", "error", "reason"),
    [
        ("echo 'firsttouch-probe: error: bad size' >&2; exit 2", BadInput, "bad size"),
        ("echo 'firsttouch-probe: error: no huge page' >&2; exit 3", CannotHere, "no huge page"),
        ("kill -SEGV $$", RunFailed, "SIGSEGV"),
        ("echo nonsense", RunFailed, "line 1: not JSON"),
        (f"report | head -n 3; echo '{FAILED}'; exit 1", RunFailed, "x y"),
        ("report; exit 1", RunFailed, "status 1, but its last line states a complete report"),
        ('report | sed \'s/"partial": false/"partial": true/\'', RunFailed, "states a complete report"),
    ],
)
def test_run_that_fails(fake, script, error, reason):
    fake(script)
    with pytest.raises(error, match=reason):
        list(probe.follow("bandwidth", say=lambda _: None))


def test_invalid_results_are_status_1_and_records(fake, firsttouch, tmp_path, lines):
    lines[1] |= {"status": "invalid", "reason": "3 of 4 pages are on NUMA node 1"}
    lines[-1] |= {"status": "invalid", "reason": "3 of 4 pages are on NUMA node 1"}
    fake(f'[ "$1" = topology ] && exec "{probe_program()}" "$@"; report; exit 1')
    (tmp_path / "report").write_text(text(lines))
    done = firsttouch("measure", "bandwidth", "--json", "--records", tmp_path / "r.jsonl")
    assert done.returncode == 1
    assert "records are invalid: 3 of 4 pages" in done.stderr
    assert json.loads(done.stdout)[0]["status"] == "invalid"
    assert [r.status for r in measured(tmp_path / "r.jsonl")] == ["invalid", "valid"]


@pytest.mark.parametrize(
    ("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (128, [1, 2, 4, 8, 16, 32, 64, 128])]
)
def test_threads_and_the_runs_that_measure_them(most: int, counts: list[int]) -> None:
    assert locks.thread_counts(most) == counts
    *fewer, widest = locks.runs(counts, profiles.efforts()["full"])
    assert widest[:2] == [f"--threads={most}", "--batch=1,2,4,8,16,32,64,128,256"]
    assert len(fewer) == (most > 1)
    assert all("--batch=32" in options for options in fewer)


def test_rates_and_waiting_from_the_output_of_the_probe(golden: Any) -> None:
    records = probe.Report().take(golden("probe_locks.jsonl").encode())
    assert {r.metric for r in records} == {"lock_records", "lock_waiting"}
    assert {(r.check, r.status) for r in records} == {("locks", "valid")}
    waiting = {r.parameters["lock"] for r in records if r.metric == "lock_waiting"}
    assert waiting == {"spin", "queue"}


#: Latencies (ns) by what two PUs share.
TIMES = {"core": 9.0, "cache": 23.0, "host": 210.0}


def machine():
    """Return a host of two packages with a NUMA node and a cache each: two cores of two threads."""
    caches = tuple(Cache(3, 32 << 20, frozenset(range(first, first + 4))) for first in (0, 4))
    pus = ((index // 2, index // 4, index // 4) for index in range(8))
    return host_of(pus, {0: 16 << 30, 1: 16 << 30}, caches=caches)


def closeness(host, a, b):
    if host.pus[a].core == host.pus[b].core:
        return "core"
    return "cache" if host.pus[a].numa_node == host.pus[b].numa_node else "host"


def records(host, *, bank=0, samples=3):
    """Return records of all pairs of PUs; the first PU's have another repetition."""
    measured = []
    for a, b in itertools.combinations(range(len(host.pus)), 2):
        kind = closeness(host, a, b)
        nodes = sorted({host.pus[pu].numa_node for pu in (a, b)})
        parameters = {"program": "firsttouch-probe", "pus": [a, b], "pu_nodes": nodes, "bank": bank, "threads": 2}
        parameters |= {"shared": kind, "policy": "membind", "pairs": 3, "pairs_of": 4}
        parameters |= {"cache_level": 3} if kind == "cache" else {}
        times = tuple(TIMES[kind] + k for k in range(samples + (a == 0)))
        measured.append(Record("core_to_core", "pair_latency", "ns", "lower", times, parameters))
    return measured


def test_summary():
    host = machine()
    measured = records(host)
    broken = replace(measured[0], samples=(1e6,), status="invalid", reason="moved")
    transfers = list(core_to_core.summary([broken, *measured], host))
    assert {r.parameters["shared"]: r.samples for r in transfers if r.parameters["line"] == "near"} == {
        "core": (9.0, 10.0, 11.0),
        "cache": (23.0, 24.0, 25.0),
        "host": (210.0, 211.0, 212.0),
    }
    assert {r.parameters["shared"] for r in transfers if r.parameters["line"] == "far"} == {"core", "cache"}
    assert "L3 cache: 24.0 ns (3 of 4 pairs)" in core_to_core.describe(transfers[1])


RATES = (0, 0.5, 1)


def points(loads, latencies, **parameters):
    """Return the records of a curve; *loads* and *latencies* have the samples of each rate."""
    return [
        Record(
            "loaded_latency", metric, unit, better, tuple(samples), {"rate": rate, "load": "local", **parameters}
        )
        for rate, load, latency in zip(RATES, loads, latencies, strict=True)
        for metric, unit, better, samples in (
            ("loaded_latency", "ns", "lower", latency),
            ("load_bandwidth", "GB/s", "higher", load),
        )
    ]


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([(1, 100), (10, 120), (20, 150)], 20),  # never doubles: the largest load
        ([(1, 100), (10, 200), (20, 400)], 10),  # exactly at a point
        ([(1, 100), (20, 150), (18, 350)], 20),  # a saturated memory moves less
        ([(1, 100), (10, 300), (20, 100)], 20),  # one slow point on a busy host
        ([(5, 100)], 5),
    ],
)
def test_saturation(curve, expected):
    assert loaded_latency.saturation(curve) == pytest.approx(expected)


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(1, 1e5)), min_size=1, max_size=12))
def test_saturation_lies_between_the_unloaded_point_and_the_peak(curve):
    loads = [load for load, _ in curve]
    assert loads[0] <= loaded_latency.saturation(curve) <= max(loads) * (1 + 1e-12)


def test_each_repetition_of_a_curve_is_a_sample():
    curve = points([(1, 2), (10, 12), (20, 18)], [(100, 110), (150, 150), (250, 400)], read_share=1)
    unloaded, saturated, peak = loaded_latency.curve_records(curve)
    assert unloaded.samples == (100, 110)
    assert saturated.samples == pytest.approx((15, 12 + 6 * 70 / 250))
    assert peak.samples == (20, 18)
    assert {tuple(r.parameters.items()) for r in (unloaded, saturated, peak)} == {
        (("load", "local"), ("read_share", 1))
    }
    assert [(r.unit, r.better) for r in (unloaded, peak)] == [("ns", "lower"), ("GB/s", "higher")]


def test_curves_end_where_the_next_begins():
    curves = [points([(1,), (5,), (9,)], [(90,), (95,), (99,)], read_share=share) for share in (1, 0.5)]
    records = [r for batch in loaded_latency.curves([curves[0][:3], curves[0][3:] + curves[1]]) for r in batch]
    assert [r.parameters["read_share"] for r in records if "rate" not in r.parameters] == [1] * 3 + [0.5] * 3
    assert len(records) == 18


def test_a_curve_without_all_points_has_no_figures():
    curve = points([(1,), (5,), (9,)], [(90,), (95,), (99,)])
    assert loaded_latency.curve_records(curve[2:]) == []
    assert loaded_latency.curve_records(curve[:-1]) == []
    assert loaded_latency.curve_records([]) == []


def test_an_interrupted_run_keeps_its_last_curve():
    def stopped():
        yield points([(1,), (5,), (9,)], [(90,), (95,), (99,)])
        raise KeyboardInterrupt

    curves = loaded_latency.curves(stopped())
    next(curves)
    assert [r.metric for r in next(curves)] == ["unloaded_latency", "saturation_bandwidth", "peak_bandwidth"]
    with pytest.raises(KeyboardInterrupt):
        next(curves)


def test_an_invalid_point_makes_the_curve_invalid():
    curve = points([(1,), (5,), (9,)], [(90,), (95,), (99,)])
    force_setattr(curve[3], "status", "invalid")
    force_setattr(curve[3], "reason", "a page is on NUMA node 1")
    assert {(r.status, r.reason) for r in loaded_latency.curve_records(curve)} == {
        ("invalid", "a page is on NUMA node 1")
    }


@pytest.mark.parametrize(
    ("pus", "banks", "expected"),
    [
        ((1,), (0,), []),
        ((2,), (0,), ["local"]),
        ((2,), (0, 1), ["local", "outgoing"]),  # the second one has memory only
        ((1, 1), (0, 1), ["incoming"]),
        ((2, 2), (0, 1), ["local", "outgoing", "incoming"]),
    ],
)
def test_loads_of_a_host(pus, banks, expected):
    nodes = [node for node, count in enumerate(pus) for _ in range(count)]
    host = host_of(((core, 0, node) for core, node in enumerate(nodes)), dict.fromkeys(banks, 1 << 30))
    assert Cases(host, efforts()["full"]).loads(0) == expected


SOURCE = paths.ROOT / "probe" / "src" / "correctness.c"
MASK = (1 << 64) - 1
FACTOR, TERM = 6364136223846793005, 1442695040888963407
LANES, STEPS, BYTES, TEXT = 8, 16, 1 << 12, 1 << 10


def rotated(value, bits):
    return (value << bits | value >> (64 - bits)) & MASK


def bits_of(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def logistic(y):
    y = 3.99 * (y - y * y)
    return 1 / (1 / y)


def exact(y):
    """One rounding of y - y * y, as a fused multiply-add has it."""
    return 3.99 * float(Fraction(y) - Fraction(y) * Fraction(y))


def of_lanes(answer):
    """Return the exclusive or of the answers of all lanes."""
    digest = 0
    for lane in range(LANES):
        digest ^= rotated(answer(lane), lane)
    return digest


def integers(lane):
    x = (lane + 1) * TERM & MASK
    for _ in range(STEPS):
        x = x * FACTOR + TERM & MASK
        x ^= x >> 29
        x = x + x // (1000003 + lane) & MASK
        x ^= x.bit_count() << 17
    return x


def reals(lane):
    y = 0.1 + lane / 16
    for _ in range(STEPS):
        y = logistic(y)
        y = math.sqrt(y * y)
    return bits_of(y)


def fused(lane):
    y = 0.1 + lane / 16
    for _ in range(STEPS):
        y = exact(y)
    return bits_of(y)


def vectors(lane):
    x, y = (lane + 1) * TERM & MASK, 0.1 + lane / 16
    for _ in range(STEPS):
        x = x * FACTOR + TERM & MASK
        x ^= x >> 29
        x ^= x << 13 & MASK
        y = logistic(y)
    return x ^ rotated(bits_of(y), 31)


def words(count):
    state, listed = TERM, []
    for _ in range(count):
        state = state * FACTOR + TERM & MASK
        listed.append(state)
    return listed


def checksum():
    crc = 0
    for word in words(BYTES // 8):
        crc ^= word
        for _ in range(64):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def digest(data):
    value = TERM
    for (word,) in struct.iter_unpack("<Q", data):
        value = (value ^ word) * FACTOR & MASK
        value ^= value >> 32
    return value


def copy():
    return digest(struct.pack(f"<{BYTES // 8}Q", *words(BYTES // 8)))


def compression():
    """Longest matches at the last place of three equal bytes, and literals."""
    states = words(TEXT // 8)
    text = bytes(97 + (states[i // 8] >> (40 + i % 8 % 3)) % 5 for i in range(TEXT))
    latest, packed, i = [0] * 256, bytearray(), 0
    while i < TEXT:
        length = at = 0
        if i + 3 < TEXT:
            key = text[i] * 31 + text[i + 1] * 7 + text[i + 2] & 255
            at, latest[key] = latest[key], i
            while at < i and length < 255 and i + length < TEXT and text[at + length] == text[i + length]:
                length += 1
        packed += bytes([length, i - at >> 8, i - at & 255] if length > 3 else [0, text[i]])
        i += length if length > 3 else 1
    return digest(bytes(packed) + bytes(-len(packed) % 8)) ^ digest(text)


ANSWERS = {
    "integer": of_lanes(integers),
    "floating point": of_lanes(reals),
    "fused multiply-add": of_lanes(fused),
    **dict.fromkeys(("sse2 vectors", "avx2 vectors", "avx512 vectors", "neon vectors"), of_lanes(vectors)),
    "crc32c": checksum(),
    **dict.fromkeys(("copy", "streaming stores"), copy()),
    "compression": compression(),
}


def test_the_probe_knows_the_answers_of_another_program():
    listed = re.findall(r'\{"([^"]+)", \w+, \w+, UINT64_C\((0x\w+)\)\}', SOURCE.read_text())
    assert {name for name, _ in listed} == ANSWERS.keys()
    assert {name: int(answer, 16) for name, answer in listed} == ANSWERS


# ----------------------------------------------------------------------
# Verdicts


def answers(host, wrong=0.0, pu=None, day=1, work="integer"):
    """Return a record of a work on a host."""
    of_pu = {} if pu is None else {"pu": pu, "bits": "0x0000000000020000"}
    parameters = {"program": "firsttouch-probe", "work": work, "units": 10**6, **of_pu}
    time = f"2026-01-{day:02d}T00:00:00Z"
    case = (correctness.CHECK, correctness.ANSWERS, "1", "lower")
    return Record(*case, (wrong,), parameters, system="s", host=host, time=time)


def test_one_wrong_answer_of_a_million_fails_the_host_and_names_the_pu():
    records = [answers(f"n{number}", work=work) for number in range(20) for work in ("integer", "copy")]
    records.append(answers("n7", wrong=1.0, pu=37))
    verdicts = {verdict.host: verdict for verdict in judge(records, Undescribed("s"))}
    assert [host for host, verdict in verdicts.items() if verdict.verdict == "fail"] == ["n7"]
    assert not any(verdict.missing for verdict in verdicts.values())
    assert "37" in verdicts["n7"].reason()
    assert "integer" in verdicts["n7"].reason()
    assert "0x0000000000020000" in verdicts["n7"].reason()


@pytest.mark.parametrize("others", [1, 50])
def test_right_answers_never_outweigh_a_wrong_one(others):
    records = [answers("n1", work=f"w{number}") for number in range(others)]
    records = [replace(r, samples=(0.0,) * 9) for r in records]
    (verdict,) = judge([*records, answers("n1", wrong=1.0, pu=0)], Undescribed("s"))
    assert verdict.verdict == "fail"


def replacement(time, system="s"):
    stated = {"parameters": {"reason": "x"}, "system": system, "host": "n1", "time": time}
    return Record("configuration", "replaced", "1", "neither", (1.0,), **stated)


@pytest.mark.parametrize(
    ("stated", "verdict"),
    [
        (replacement("2026-01-01T00:01:00Z"), "undecided"),  # in the session of the wrong answer
        (replacement("2025-12-31T23:59:00Z"), "fail"),  # before it
        (replacement("2026-01-01T00:01:00Z", system="other"), "fail"),
    ],
)
def test_a_replacement_clears_what_was_wrong_before_it_in_its_system(stated, verdict):
    records = [answers("n1", wrong=5.0, pu=3), stated, *(answers("n1", day=day) for day in (2, 3))]
    assert [v.verdict for v in judge(records, Undescribed("s"))] == [verdict]
    table = samples_table.of_records(records)
    assert [judged(part, Undescribed("s")).verdict("n1").verdict for part in table.by_system("s").values()][
        :1
    ] == [verdict]


def test_one_wrong_sample_of_a_record_is_no_noise():
    record = replace(answers("n1", pu=3), samples=(*[0.0] * 9, 1.0))
    (verdict,) = judge([record, answers("n2")], Undescribed("s"))[:1]
    assert (record.value, verdict.verdict) == (1.0, "fail")
