# SPDX-License-Identifier: Apache-2.0
"""A guest never outlives its starter, whatever happens; also tested with the command emulate.py."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from firsttouch.execution.placement_check import family

from . import emulate, machine
from .guest import Guest

EMULATE = [sys.executable, str(Path(__file__).with_name("emulate.py"))]
SMALL = [*EMULATE, "--machine", "small"]


def descendants(pid: int) -> list[int]:
    """Return all descendants of the process *pid*."""
    return family(pid)[1:]


def wait_for(what: Callable[[], bool], seconds: float) -> bool:
    """Return whether *what* became true within *seconds*."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


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
        assert wait_for(lambda: bool(qemus(runner.pid)), 120)
        started = descendants(runner.pid)
        runner.send_signal(sent)
        assert runner.wait(60) == (130 if sent == signal.SIGINT else -sent)
        assert wait_for(lambda: gone(started), 60)


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


def shell(guest: Guest) -> NoReturn:
    """Be emulate.py on the terminal of the standard streams, with a machine that has booted already."""
    status = 1
    try:
        for number, (stream, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
            setattr(sys, stream, os.fdopen(number, mode, closefd=False))
        emulate.Guest = lambda *_: contextlib.nullcontext(guest)  # type: ignore[assignment, misc]
        os.environ["SHELL"] = "/bin/sh"
        sys.argv = ["emulate.py", "--machine", "small", "--share", str(guest.shared)]
        status = emulate.main()
        sys.stdout.flush()
    finally:
        os._exit(status)


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_emulate_gives_a_shell_on_a_terminal(guest: Guest) -> None:
    runner, keyboard = pty.fork()
    if runner == 0:
        shell(guest)
    shown = b""

    def until(text: bytes, seconds: float) -> bool:
        nonlocal shown
        deadline = time.monotonic() + seconds
        while text not in shown and time.monotonic() < deadline:
            if select.select([keyboard], [], [], 0.5)[0]:
                shown += os.read(keyboard, 4096)
        return text in shown

    assert until(b"booted in", 120)
    os.write(keyboard, b"stty -echo; echo $(hostname) $(tty)\n")
    assert until(b"small /dev/pts/0", 120), shown
    os.write(keyboard, b"sh -c 'echo beg''un; exec sleep 600'\n")
    assert until(b"begun", 120), shown
    os.write(keyboard, b"\x03")
    os.write(keyboard, b"echo interrupted $?\n")
    assert until(b"interrupted 130", 120), shown
    os.write(keyboard, f"echo kept > {guest.shared}/kept; exit 5\n".encode())
    assert os.waitstatus_to_exitcode(os.waitpid(runner, 0)[1]) == 5
    os.close(keyboard)
    assert (guest.shared / "kept").read_text() == "kept\n"
