# SPDX-License-Identifier: Apache-2.0
"""Runs measured programs under a placement, samples them, and states how they ended.

Several run together; if one fails, all are stopped. A single one in the foreground inherits everything that this
process inherited.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, CannotHere, ProgramFailed, TimedOut, os_reason
from firsttouch.execution import placement_check
from firsttouch.execution.child_process import (
    describe_ending,
    exit_status,
    guarded_argv,
    has_ended,
    last_lines,
    start,
)
from firsttouch.execution.threads import WorkerThread
from firsttouch.scenarios import evidence, memory_options
from firsttouch.scenarios.placement import Placement
from firsttouch.tools import defer_signals, require


class Job(Struct):
    """One program: its argv, placement (None: not bound), number of threads, and output files.

    *fds* stay open in the program (pipes that feed it). *stdin* is a descriptor for its standard input (None:
    empty). *stdout* and *stderr* are files that are overwritten; *streams* are two descriptors that replace them.
    *env*, and variables for the placement's memory options, are added to the environment. This process closes the
    descriptors *handed* once the program has them. A failure is ignored if the job is *excused* when it ends. The
    words *entering* precede the argv and become the program. Sampling looks for *index*.
    """

    argv: Sequence[str]
    stdout: Path = Path(os.devnull)
    stderr: Path = Path(os.devnull)
    placement: Placement | None = None
    threads: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    fds: tuple[int, ...] = ()
    stdin: int | None = None
    streams: tuple[int, int] | None = None
    handed: tuple[int, ...] = ()
    excused: Callable[[], bool] = lambda: False
    entering: tuple[str, ...] = ()
    index: placement_check.IndexPages | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """The memory options of its placement."""
        return self.placement.options if self.placement else ()

    @property
    def words(self) -> list[str]:
        """Its argv, preceded by numactl if its policy needs options, and by the words *entering*."""
        numactl = ["numactl", *self.placement.numactl, "--"] if self.placement and self.placement.numactl else []
        return [*numactl, *self.entering, *self.argv]

    def environment(self) -> dict[str, str]:
        """Return the environment of the program."""
        env = {**os.environ, **self.env}
        return env | memory_options.environment(self.options, env)


class Outcome(Struct):
    """How one job ended: exit status (negative: the signal), wall and CPU seconds, peak memory in bytes.

    *started* is on the monotonic clock, which the outcomes of a run share. *user_seconds* is the CPU time outside
    of the kernel.
    """

    job: Job
    status: int
    started: float
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    observed: placement_check.Observed
    user_seconds: float = 0.0

    def failure(self) -> str:
        """Return in one line how the job failed and the end of its log, or an empty string if it succeeded."""
        if self.status == 0 or self.job.excused():
            return ""
        return describe_ending(self.job.argv[0], self.status) + last_words(self.job) + full_disk(self.job)

    @property
    def misplaced(self) -> str:
        """Why the requested placement did not hold or is unknown, or an empty string."""
        if self.job.placement is None:
            return ""
        return placement_check.verify(self.job.placement, self.job.threads, self.observed)

    def is_sampled(self, *, all_threads: bool = False) -> bool:
        """Return whether memory, index and (if *all_threads*) all threads have been sampled, or cannot be read.

        Threads that bind themselves start on the PUs of their creator, so they are sampled once they are seen on
        the expected number of PUs.
        """
        observed, asked = self.observed, self.job.placement
        bound = asked is None or len(observed.held) >= placement_check.fewest_pus(asked, self.job.threads)
        enough = bool(observed.pages) and (not all_threads or (observed.together >= self.job.threads and bound))
        enough = enough and not (observed.index and observed.index.missing)
        enough = enough and not evidence.too_small(self.job.options, observed.memory)
        return enough or bool(observed.unreadable)

    @property
    def unverified(self) -> str:
        """Why the placement is unknown, or an empty string if it is known to be right or wrong."""
        unknown = placement_check.why_unverified(self.observed)
        return unknown if unknown == self.misplaced else ""

    @property
    def exit_status(self) -> int:
        """The program's exit status as a command returns it."""
        return exit_status(self.status)

    def store_usage(self, raw: int, usage: resource.struct_rusage) -> None:
        """Store the result of wait4(2) for the process."""
        self.status = os.waitstatus_to_exitcode(raw)
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.user_seconds = usage.ru_utime
        # ru_maxrss includes the time before exec, when the process was a copy of this launcher. If it is below the
        # launcher's size, the sampled peak is used; without a sample the value is an upper bound.
        peak = usage.ru_maxrss * 1024
        is_known = peak > placement_check.launcher_peak()
        self.peak_bytes = peak if is_known else self.observed.peak_bytes or peak
        if is_known:
            self.observed.largest_peak = max(self.observed.largest_peak, peak)


def last_words(job: Job) -> str:
    """Return the end of a job's log as the end of a message; an empty string if the log is not in a file."""
    if job.streams:
        return ""
    return f": {last_lines(job.stderr) or 'it printed nothing'}"


def full_disk(job: Job) -> str:
    """Return which disk that a job writes to is full, as the end of a message."""
    import tempfile  # noqa: PLC0415 - for jobs that fail

    from firsttouch.records import atomic_files  # noqa: PLC0415

    temporary = Path({**os.environ, **job.env}.get("TMPDIR") or tempfile.gettempdir(), "file")
    files = [file for file in (job.stdout, job.stderr, temporary) if file != Path(os.devnull)]
    full = atomic_files.full_disk(files)
    return f"; {full}" if full else ""


def late_message(job: Job, timeout: float) -> str:
    """Return the message that a job exceeded its time limit (s)."""
    limit = round(timeout, 1) or round(timeout, 3) or timeout
    return f"{job.argv[0]} did not end within {limit:g} s and was stopped"


def require_programs(jobs: Sequence[Job]) -> None:
    """Raise Missing for a program that does not exist, CannotHere for a memory option that this host refuses."""
    if any(j.placement and j.placement.numactl for j in jobs):
        require("numactl")
    require(*{j.argv[0] for j in jobs})
    for job in jobs:
        if reason := memory_options.unfit(job.options, job.argv[0]):
            raise CannotHere(reason)


# ----------------------------------------------------------------------
# How often running programs are sampled: often at first, then rarely enough not to slow them down

#: The largest fraction of time spent on sampling /proc, which slows the program down a little.
LOOK_SHARE = 0.02
#: Poll interval in seconds until every instance's memory has been sampled once, so that short ones are seen.
UNSEEN_PAUSE = 0.1
#: Between two samples, the programs' size is read at intervals of at least this length (s), using at most this
#: fraction of the time. A program whose memory has grown by a quarter is sampled at once.
SIZE_PAUSE, SIZE_SHARE = 0.05, 0.005
#: The longest such interval (s), even if that fraction is exceeded: on a slow host, programs would end with unseen
#: memory.
MOST_SIZE_PAUSE = 0.5
#: The first intervals (s), each longer by half, so that short programs are seen.
FIRST_PAUSE = 0.005


class Watching(NamedTuple):
    """How running programs are sampled: *look* adds a sample of a process to the earlier ones.

    Sampling takes at most *share* (a fraction) of the time. Until a job's memory has been sampled, and all its
    threads if *all_threads*, the intervals are short. *grown* returns, at a lower cost, whether a process has
    grown so much that the next sample is due.
    """

    share: float = LOOK_SHARE
    look: Callable[[int, placement_check.Observed], None] = placement_check.look
    all_threads: bool = False
    grown: Callable[[int, placement_check.Observed], bool] = placement_check.has_grown


class Pace:
    """The times of the samples, which come less often the longer a program runs."""

    def __init__(self, watching: Watching, clock: Clock = SYSTEM_CLOCK) -> None:
        self._share, self._clock = watching.share, clock
        self._pause = self._size_pause = FIRST_PAUSE

    def next(self, spent: float, *, seen: bool) -> float:
        """Return when the next sample is due after one of *spent* CPU seconds; *seen*: all jobs have samples.

        CPU time is used because on a busy host a sample also waits, which does not slow the program down.
        """
        self._pause = max(min(self._pause * 1.5, 5.0), spent / self._share)
        if not seen:
            self._pause = min(self._pause, UNSEEN_PAUSE)
        return self._clock.monotonic() + self._pause

    def next_size(self, spent: float) -> float:
        """Return when to read the programs' size next, if the last time took *spent* CPU seconds."""
        self._size_pause = min(1.5 * self._size_pause, SIZE_PAUSE)
        return self._clock.monotonic() + max(
            self._size_pause, self._pause / 50, min(spent / SIZE_SHARE, MOST_SIZE_PAUSE)
        )


# ----------------------------------------------------------------------
# Several programs together

#: Seconds between SIGTERM and SIGKILL.
_PATIENCE = 2.0


class Events:
    """Ends of jobs, and errors of their helper threads, which stop all jobs.

    The queue is a SimpleQueue: if a signal handler raises within Queue.get(), its lock stays wrong.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Running | BaseException] = queue.SimpleQueue()

    def fail(self, error: BaseException) -> None:
        """Let run_together stop all jobs and raise *error*."""
        self._queue.put(error)

    def end(self, job: _Running) -> None:
        """Report the end of a job."""
        self._queue.put(job)

    def next(self, until: float, clock: Clock) -> _Running | None:
        """Return the next job that ends before the time *until*, or None; raises a reported error."""
        try:
            event = clock.get(self._queue, until - clock.monotonic())
        except queue.Empty:
            return None
        if isinstance(event, BaseException):
            raise event
        return event


def run_together(
    jobs: Sequence[Job],
    *,
    timeout: float | None = None,
    since: float | None = None,
    watching: Watching | None = None,
    events: Events | None = None,
    on_start: Callable[[Outcome], object] = lambda _: None,
    clock: Clock = SYSTEM_CLOCK,
) -> list[Outcome]:
    """Start *jobs* together and return their outcomes, in order, when all have ended.

    *on_start* is called with the outcome of each started job, to which observations are added while it runs. Any
    exception, such as Ctrl-C or an error reported to *events*, stops all of them. Raises ProgramFailed if one
    fails, TimedOut if *timeout* (seconds) has passed since *since* (on *clock*; None: since the jobs started), and
    Missing if a program does not exist.
    """
    running: list[_Running] = []
    events = events or Events()
    open_fds = [fd for job in jobs for fd in job.handed]
    try:
        require_programs(jobs)
        # The first sample neither reads the file nor imports a codec: an interrupt during an import can be lost.
        memory_options.libraries()
        for job in jobs:
            with defer_signals():
                running.append(_Running(job, events, clock))
                on_start(running[-1].outcome)
                while open_fds and open_fds[0] in job.handed:
                    os.close(open_fds.pop(0))
        end = math.inf if timeout is None else (clock.monotonic() if since is None else since) + timeout
        _wait(running, events, timeout, end, watching or Watching(), clock=clock)
    finally:
        for fd in open_fds:
            os.close(fd)
        _stop_all(running, clock)
    return [started.outcome for started in running]


def _stop_all(running: Sequence[_Running], clock: Clock) -> None:
    """Stop the process groups of all jobs and wait for their ends; further signals are deferred until then."""
    with defer_signals():
        for number in (signal.SIGTERM, signal.SIGKILL):
            for job in running:
                job.signal(number)
            until = clock.monotonic() + _PATIENCE
            if all(clock.wait(job.done, max(0.0, until - clock.monotonic())) for job in running):
                break
    for job in running:
        job.waiter.join()


def _wait(
    running: Sequence[_Running],
    events: Events,
    timeout: float | None,
    end: float,
    watching: Watching,
    *,
    clock: Clock,
) -> None:
    pace, left, due = Pace(watching, clock), len(running), -math.inf
    while left:
        before = clock.thread_time()
        if clock.monotonic() >= due:
            for job in running:
                job.look(watching.look)
            seen = all(job.seen(all_threads=watching.all_threads) for job in running)
            due, spent = pace.next(clock.thread_time() - before, seen=seen), 0.0
        else:
            grown = [job for job in running if job.grown(watching.grown)]
            spent = clock.thread_time() - before
            for job in grown:
                job.look(watching.look)
        until = min(pace.next_size(spent), due, end)
        # Ends are handled before the time limit, so that a slow sample does not make a job late that ended in
        # time.
        while left and (last := events.next(until, clock)):
            left -= 1
            if failure := last.failure():
                raise ProgramFailed(failure, last.outcome.status)
            if timeout is not None and last.outcome.started + last.outcome.seconds > end:
                raise TimedOut(_late(running, last, timeout))
        if timeout is not None and left and clock.monotonic() >= end:
            # The event of a job that has just ended will show whether it was late.
            late = next((job for job in running if not job.done.is_set()), None)
            if late is not None:
                raise TimedOut(_late(running, late, timeout))


def _late(running: Sequence[_Running], job: _Running, timeout: float) -> str:
    """Return the message that *job* exceeded the time limit, with the end of its log."""
    which = f"instance {running.index(job)}: " if len(running) > 1 else ""
    return f"{which}{late_message(job.outcome.job, timeout)}{last_words(job.outcome.job)}"


class _Running:
    """A started job, with a thread that waits for its end."""

    def __init__(self, job: Job, events: Events, clock: Clock) -> None:
        self._clock = clock
        observed = placement_check.Observed(index=replace(job.index) if job.index else None)
        self.outcome = Outcome(job, 0, 0.0, 0.0, 0.0, 0, observed)
        self.done, self.lost = threading.Event(), False
        #: Held to send a signal and to reap the process, whose number may then belong to another process.
        self.reaping = threading.Lock()
        try:
            with contextlib.ExitStack() as stack:
                files = (stack.enter_context(file.open("wb")) for file in (job.stdout, job.stderr))
                out, err = job.streams or files
                self.outcome.started = clock.monotonic()
                stack.enter_context(memory_options.inherit_settings(job.options))
                self.process = start(
                    guarded_argv(job.words),
                    stdin=subprocess.DEVNULL if job.stdin is None else job.stdin,
                    stdout=out,
                    stderr=err,
                    env=job.environment(),
                    cwd=job.cwd,
                    fds=job.fds,
                )
        except OSError as error:
            raise BadInput(f"cannot start {job.argv[0]}: {os_reason(error)}", file=error.filename) from error
        self.waiter = WorkerThread("waiter", lambda: self._wait(events))
        try:
            self.waiter.start()
        except CannotHere:
            self._signal(signal.SIGKILL)
            self.process.wait()
            raise

    def _wait(self, events: Events) -> None:
        outcome = self.outcome
        try:
            # The process stays a zombie, and keeps its number, until its group has been stopped.
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
            outcome.seconds = self._clock.monotonic() - outcome.started
            with self.reaping:
                self._signal(signal.SIGKILL)  # children that a wrapper script left behind
                _, raw, usage = os.wait4(self.process.pid, 0)
                self.done.set()
            outcome.store_usage(raw, usage)
            self.process.returncode = outcome.status
        except ChildProcessError:  # reaped elsewhere, or by the kernel because SIGCHLD is ignored
            self.lost = True
        finally:
            self.done.set()
            events.end(self)

    def seen(self, *, all_threads: bool) -> bool:
        """Whether everything about the job's placement has been sampled, or cannot be."""
        return self.outcome.is_sampled(all_threads=all_threads) or self.done.is_set()

    def look(self, look: Callable[[int, placement_check.Observed], None]) -> None:
        if not self.done.is_set():
            look(self.process.pid, self.outcome.observed)

    def signal(self, number: int) -> None:
        """Send a signal to the job's process group, unless the job has ended."""
        with self.reaping:
            if not self.done.is_set():
                self._signal(number)

    def grown(self, grown: Callable[[int, placement_check.Observed], bool]) -> bool:
        return not self.done.is_set() and grown(self.process.pid, self.outcome.observed)

    def _signal(self, number: int) -> None:
        """Send a signal to the process group; call it with *reaping* held and the process not reaped."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def failure(self) -> str:
        """Return in one line how the job failed, or an empty string."""
        if self.lost:
            return f"{self.outcome.job.argv[0]}: its exit status is lost, because this process ignores SIGCHLD"
        return self.outcome.failure()


# ----------------------------------------------------------------------
# One program in the foreground

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
