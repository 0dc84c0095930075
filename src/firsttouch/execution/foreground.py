# SPDX-License-Identifier: Apache-2.0
"""Runs one program in the foreground under a placement. It inherits everything that this process inherited."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from firsttouch.errors import BadInput, TimedOut, os_reason
from firsttouch.execution import placement_check
from firsttouch.execution.child_process import has_ended
from firsttouch.execution.jobs import Job, Outcome, late_message, require_programs
from firsttouch.execution.sampling import Pace, Watching
from firsttouch.scenarios import memory_options
from firsttouch.scenarios.placement import Placement

#: Signals that the kernel sends about this process itself, and those that stop and continue it.
_OWN_SIGNALS = {
    *(signal.SIGKILL, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXCPU, signal.SIGXFSZ),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT),
    *(signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT),
}
#: The signals that are forwarded to the program in the foreground.
_FORWARDED = frozenset(signal.valid_signals() - _OWN_SIGNALS)
#: The signals of timers, which a parent of this process may have set.
_TIMERS = {signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF}
_PR_SET_PDEATHSIG = 1
#: The code of a signal from the kernel, such as a terminal's, which the whole process group gets.
_SI_KERNEL = 0x80


def run_in_foreground(
    argv: Sequence[str],
    placement: Placement | None,
    *,
    threads: int = 1,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    watching: Watching | None = None,
) -> Outcome:
    """Run *argv* under *placement* (None: not bound) and return its outcome, also if it fails.

    The program stays in this process's group and gets its standard streams, open descriptors, folder and
    environment, to which *env* is added. Signals to this process are forwarded to it. If this process is a child
    subreaper, the processes that the program leaves behind are reaped. Call it in the main thread, without other
    threads. Raises TimedOut if *timeout* (seconds) has passed, and Missing if the program does not exist.
    """
    job = Job(argv, placement=placement, threads=threads, env=env or {})
    require_programs([job])
    waited = {signal.SIGCHLD, *_FORWARDED}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    others = frozenset(placement_check.family(os.getpid()))
    try:
        prepare = _becoming(os.getpid(), before)
        outcome = Outcome(job, 0, time.monotonic(), 0.0, 0.0, 0, placement_check.Observed())
        try:
            # The child guards itself, because the shell of guarded_argv() drops variables such as bash's
            # functions.
            with memory_options.inherit_settings(job.options):
                process = subprocess.Popen(
                    job.words,
                    env=job.environment(),
                    close_fds=False,
                    preexec_fn=prepare,  # noqa: PLW1509 - there are no other threads
                )
        except OSError as error:
            raise BadInput(f"cannot start {argv[0]}: {os_reason(error)}", file=error.filename) from error
        try:
            late = _follow(process.pid, outcome, timeout, watching or Watching(), others)
        finally:
            # The program still runs here only if it exceeded its time, or if sampling it raised an error.
            _end_family(process.pid)
            _, raw, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(raw)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if late and timeout is not None:
        raise TimedOut(late_message(job, timeout))
    outcome.store_usage(raw, usage)
    return outcome


def _becoming(parent: int, mask: set[signal.Signals | int]) -> Callable[[], None]:
    """Return a function for the child of *parent* to run before the program, so that it dies with *parent*."""
    import ctypes  # noqa: PLC0415 - most runs load this module for jobs that setpriv guards

    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


def _follow(pid: int, outcome: Outcome, timeout: float | None, watching: Watching, others: frozenset[int]) -> bool:
    """Sample a program and forward signals until it ends, without reaping it; return whether it is late.

    *others* are earlier children of this process.
    """
    end = math.inf if timeout is None else outcome.started + timeout
    pace = Pace(watching)
    due = 0.0
    while not _has_ended(pid, others):
        if (now := time.monotonic()) >= end:
            return True
        before, spent = time.thread_time(), 0.0
        if now >= due:
            watching.look(pid, outcome.observed)
            due = pace.next(time.thread_time() - before, seen=outcome.is_sampled())
        else:
            grown = watching.grown(pid, outcome.observed)
            spent = time.thread_time() - before
            if grown:
                watching.look(pid, outcome.observed)
        until = min(pace.next_size(spent), due, end)
        info = signal.sigtimedwait({signal.SIGCHLD, *_FORWARDED}, max(0.0, until - time.monotonic()))
        if info is None or info.si_signo not in _FORWARDED:
            continue
        # The program has already received a terminal's signals.
        if info.si_signo in _TIMERS or info.si_code != _SI_KERNEL:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, info.si_signo)
    outcome.seconds = time.monotonic() - outcome.started
    return False


def _has_ended(pid: int, others: frozenset[int]) -> bool:
    """Return whether a program has ended. It is not reaped, but children that it left behind are."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            if ended.si_pid == pid or ended.si_pid in others:
                break
            os.waitpid(ended.si_pid, os.WNOHANG)
    return has_ended(pid)


def _end_family(pid: int) -> None:
    """Stop a child that still runs and all its descendants: by SIGTERM, after 2 s by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if has_ended(pid):
            return
        for member in placement_check.family(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, number)
        has_ended(pid, patience=2.0)
