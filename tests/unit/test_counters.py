# SPDX-License-Identifier: Apache-2.0
"""perf stat's counts: counted events, uncountable events, and other output."""

import pytest

from firsttouch.errors import CannotHere, Missing, RunFailed
from firsttouch.execution import counters
from firsttouch.execution.counters import EVENTS, parse


def output(**counts):
    lines = [f"{counts.get(e.replace('-', '_'), '<not supported>')};;{e};100;100.00;;" for e in EVENTS]
    return "# started on Sat Nov 21 00:06:15 2026\n\n" + "\n".join(lines) + "\n"


def test_wrap(stand_in, tmp_path):
    stand_in("perf", "exit 0")
    argv = counters.wrap(["bwa", "mem"], tmp_path / "log")
    assert argv[:6] == ["perf", "stat", "-x", ";", "-o", str(tmp_path / "log")]
    assert argv[-3:] == ["--", "bwa", "mem"]
    assert argv[7].split(",") == list(EVENTS)


def test_perf_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="perf"):
        counters.wrap(["bwa"], tmp_path / "log")


def test_what_is_not_counted_is_left_out():
    assert parse(output(page_faults=162, cycles=0)) == {"page-faults": 162, "cycles": 0}


def test_kinds_of_cores_are_added():
    text = output(page_faults=1).replace(
        "<not supported>;;cycles;", "70;;cpu_core/cycles/;1;50.00;;\n30;;cpu_atom/cycles/u;"
    )
    text = text.replace(
        "<not supported>;;instructions;",
        "<not counted>;;cpu_atom/instructions/;0;0.00;;\n5;;cpu_core/instructions/:u;",
    )
    assert parse(text) == {"page-faults": 1, "cycles": 100, "instructions": 5}


@pytest.mark.parametrize("why", ["<not supported>", "<not counted>"])
def test_nothing_may_be_counted(why):
    with pytest.raises(CannotHere, match="perf_event_paranoid"):
        parse(output().replace("<not supported>", why))


@pytest.mark.parametrize(
    "text",
    ["", "\n", "Error: no permission\n", "nan;;cycles;1;1;;\n", "-5;;cycles;1;1;;\n", "1.5;;cycles;1;1;;\n"],
)
def test_what_is_no_output(text):
    with pytest.raises(RunFailed, match="perf stat"):
        parse(text)


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_is_missing(event):
    text = "".join(li for li in output(cycles=3).splitlines(keepends=True) if f";{event};" not in li)
    with pytest.raises(RunFailed, match=f"no count of {event}"):
        parse(text)
