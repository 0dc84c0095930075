# SPDX-License-Identifier: Apache-2.0
"""A guest never outlives its starter, whatever happens; also tested with the command emulate.py."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from factories.processes import wait_until
from firsttouch.execution.placement_check import family

from . import emulate, machine
from .guest import Guest

EMULATE = [sys.executable, str(Path(__file__).with_name("emulate.py"))]
SMALL = [*EMULATE, "--machine", "small"]


def descendants(pid: int) -> list[int]:
    """Return all descendants of the process *pid*."""
    return family(pid)[1:]


def qemus(pid: int) -> list[int]:
    running = []
    for p in descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            if Path(f"/proc/{p}/comm").read_text().startswith("qemu"):
                running.append(p)
    return running


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_runner_that_is_stopped_leaves_no_qemu(sent: signal.Signals) -> None:
    with subprocess.Popen([*SMALL, "--", "sleep", "1000"], stderr=subprocess.DEVNULL) as runner:
        wait_until(lambda: qemus(runner.pid), "a guest")
        started = descendants(runner.pid)
        runner.send_signal(sent)
        assert runner.wait(60) == (130 if sent == signal.SIGINT else -sent)
        wait_until(lambda: gone(started), "the end of its processes")


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_emulate_runs_a_command(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    booted: list[tuple[machine.Machine, Path]] = []

    def boot(described: machine.Machine, shared: Path) -> contextlib.nullcontext[Guest]:
        booted.append((described, shared))
        return contextlib.nullcontext(guest)

    monkeypatch.setattr(emulate, "Guest", boot)
    script = "pwd; echo err >&2; echo $NAMED; exit 7"
    argv = ["--machine", "small", "--share", guest.shared, "--env", "NAMED=value", "--memory-per-node", "320MiB"]
    monkeypatch.setattr(sys, "argv", ["emulate.py", *map(str, argv), "--", "sh", "-c", script])
    assert emulate.main() == 7
    assert booted == [(machine.load("small").with_memory_per_node(320 << 20), guest.shared)]
    printed = capfd.readouterr()
    assert printed.out == f"{Path.cwd()}\nvalue\n"
    assert printed.err.endswith("err\n")
