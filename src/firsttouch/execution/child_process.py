# SPDX-License-Identifier: Apache-2.0
"""Runs other programs for the length of a block, and reports how they ended. None is left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import RunFailed, os_reason
from firsttouch.execution import placement_check
from firsttouch.tools import defer_signals

#: The most bytes of the end of a log that are read.
_LOG_BYTES = 1 << 16
#: Why the kernel sends signals about limits.
_CAUSES: Mapping[int, str] = {
    signal.SIGKILL: " (out of memory, a limit of CPU time, or a user)",
    signal.SIGXCPU: " (its limit of CPU time is used up: ulimit -t)",
    signal.SIGXFSZ: " (a file reached its limit of size: ulimit -f)",
}


def guarded_argv(argv: Sequence[str], *, by_this_process: bool = True) -> list[str]:
    """Return the argv with which the kernel kills a program when the process that started it is killed.

    *by_this_process*: this process starts it, not another program.
    """
    if shutil.which("setpriv") is None:
        return [*argv]
    checked = ["/bin/sh", "-c", placement_check.IF_PARENT_LIVES, str(os.getpid())] if by_this_process else []
    return ["setpriv", "--pdeathsig", "KILL", "--", *checked, *argv]


@contextlib.contextmanager
def child(
    argv: Sequence[str],
    *,
    stop: signal.Signals = signal.SIGKILL,
    patience: float = 2.0,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program as the leader of its own process group; the group is stopped when the block ends.

    A program that still runs gets the signal *stop*, and SIGKILL after *patience* seconds. The kernel kills it if
    this process is killed. *env* is added to the environment. *clock* measures the patience. Raises RunFailed if
    the program cannot be started.
    """
    process = None
    try:
        with defer_signals():
            process = start(guarded_argv(argv), stdin=stdin, stdout=stdout, stderr=stderr, env=env, fds=())
        yield process
    except OSError as error:
        if process is not None:
            raise
        raise RunFailed(f"{argv[0]} cannot be started: {os_reason(error)}") from error
    finally:
        if process is not None:
            # Also after a further signal, such as a second Ctrl-C, none may be left.
            with defer_signals():
                _stop(process, stop, patience, clock)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    fds: Sequence[int],
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start a program in its own process group, which also holds the children of a wrapper script."""
    return subprocess.Popen(argv, env={**os.environ, **(env or {})}, pass_fds=fds, process_group=0, **options)


def _stop(process: subprocess.Popen[bytes], first: signal.Signals, patience: float, clock: Clock) -> None:
    """Stop a process and its group: by the signal *first*, after *patience* seconds by SIGKILL."""
    for number, seconds in ((first, patience), (signal.SIGKILL, None)):
        if wait(process, 0) is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        wait(process, seconds, clock=clock)


def wait(
    process: subprocess.Popen[bytes], seconds: float | None = None, *, clock: Clock = SYSTEM_CLOCK
) -> int | None:
    """Return the exit status of a process that ends within *seconds* (None: no limit), otherwise None.

    It replaces Popen.poll, and Popen.wait with a timeout: if a signal handler raises within these, for example
    after Ctrl-C, they may keep a lock, and each later call waits for ever.
    """
    if process.returncode is None and seconds is not None and not has_ended(process.pid, seconds, clock):
        return None
    return process.wait()


def follow(
    process: subprocess.Popen[bytes],
    interval: float,
    meanwhile: Callable[[], object],
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Call *meanwhile* every *interval* seconds until a process ends; return its exit status."""
    while True:
        status = wait(process, interval, clock=clock)
        if status is not None:
            return status
        meanwhile()


def has_ended(pid: int, patience: float = 0.0, clock: Clock = SYSTEM_CLOCK) -> bool:
    """Return whether a child has ended, after at most *patience* seconds; it is not reaped."""
    until, pause = clock.monotonic() + patience, 0.0005
    with contextlib.suppress(ChildProcessError):  # another thread has reaped it
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            left = until - clock.monotonic()
            if left <= 0:
                return False
            pause = min(2 * pause, 0.05)
            clock.sleep(min(pause, left))
    return True


def names_of_living(pids: Iterable[int]) -> dict[int, str]:
    """Return the names of the processes that are alive; children that have ended are reaped."""
    names: dict[int, str] = {}
    for pid in sorted(pids):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                continue
        with contextlib.suppress(OSError):
            names[pid] = name_of(pid)
    return names


def name_of(pid: int) -> str:
    """Return the name of a process's program, at most 15 characters; raises OSError if it has ended."""
    return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()


def exit_status(status: int) -> int:
    """Return a program's *status* (negative: the signal) as the exit status of a shell."""
    return status if status >= 0 else 128 - status


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number."""
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals are unnamed
        return str(number)


def signal_text(number: int) -> str:
    """Return the name of a signal that ended a program, with its cause if the kernel enforced a limit."""
    return signal_name(number) + _CAUSES.get(number, "")


def describe_ending(name: str, status: int) -> str:
    """Return how the program *name* ended, by its exit status (negative: the signal)."""
    if status >= 0:
        return f"{name} ended with status {status}"
    return f"{name} ended with signal {signal_text(-status)}"


def end_of_log(log: Path) -> str:
    """Return the end of a log of any size; an empty string if it cannot be read."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LOG_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def last_lines(log: Path, count: int = 2) -> str:
    """Return the last *count* non-empty lines of a log as one line."""
    lines = [line.strip() for line in end_of_log(log).splitlines()]
    return " | ".join([line for line in lines if line][-count:])
