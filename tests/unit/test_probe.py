# SPDX-License-Identifier: Apache-2.0
"""Reading the native probe's JSON lines, and the command around it."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories.host_records import measured
from factories.processes import write_program
from firsttouch.benchmarks import probe
from firsttouch.errors import BadInput, CannotHere, RunFailed
from firsttouch.host.topology import probe_program


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
