# SPDX-License-Identifier: Apache-2.0
"""Run programs: start them, observe their placement, stop their process groups, and reap them.

:func:`run_together` runs measured programs (aligners and benchmarks), each under its placement.
:func:`run_in_foreground` runs one under its placement with everything that this process inherited. :func:`child`
runs one other program for the length of a block. All leave no process behind.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import MORE_THREADS, BadInput, CannotHere, ProgramFailed, RunFailed, TimedOut
from firsttouch.execution import placement_check
from firsttouch.records import atomic_files
from firsttouch.scenarios import evidence, memory_options
from firsttouch.scenarios.placement import Placement
from firsttouch.tools import defer_signals, require

#: At most this fraction of the time is spent on sampling /proc, which slows the program down a little.
LOOK_SHARE = 0.02
#: Poll interval in seconds until every instance's memory has been sampled once; short ones would end unseen.
UNSEEN_PAUSE = 0.1
#: At most so much (bytes) of the end of a log is read.
_LOG_BYTES = 1 << 16
#: Seconds between SIGTERM and SIGKILL.
_PATIENCE = 2.0
#: Between two samples, the size of the programs is read after pauses (s) of at least this length, which take at
#: most this fraction of the time. A program whose memory has grown by a quarter is sampled at once.
SIZE_PAUSE, SIZE_SHARE = 0.05, 0.005
#: The first pauses (s), which become longer by a half each: a short program must not end unseen.
_FIRST_PAUSE = 0.005


class Watching(NamedTuple):
    """How running programs are sampled: *look* adds a sample of a process to what was observed of it so far.

    Sampling takes at most *share* (a fraction) of the time. Until a job's memory has been sampled, and all its
    threads if *all_threads*, the pauses are short. *grown* tells, at a lower cost, whether a process holds so much
    more memory than was sampled that the next look is due.
    """

    share: float = LOOK_SHARE
    look: Callable[[int, placement_check.Observed], None] = placement_check.look
    all_threads: bool = False
    grown: Callable[[int, placement_check.Observed], bool] = placement_check.grown


@dataclass
class Job:
    """One program: its argv, placement (None: not bound), number of threads, and output files.

    *fds* stay open in the program (pipes that feed it). *stdin* is a descriptor for its standard input (None:
    empty). *stdout* and *stderr* are files that are overwritten; *streams* are two descriptors that replace them.
    *env*, and what the placement's memory options need, is added to the environment. This process closes the
    descriptors *handed* when the program has them. A failure counts unless the job is *excused* when it ends. The
    words *entering* precede those of the program, which they become. *index* is to be looked for.
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


@dataclass
class Outcome:
    """How one job ended: exit status (negative: the signal), wall and CPU seconds, peak memory in bytes.

    *started* is on the monotonic clock, so it can be compared between the outcomes of one run. *user_seconds* are
    the part of the CPU time outside of the kernel.
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
        return ending(self.job.argv[0], self.status) + _last_words(self.job) + _full_disk(self.job)

    @property
    def misplaced(self) -> str:
        """Why the requested placement did not hold or is unknown, or an empty string."""
        if self.job.placement is None:
            return ""
        return placement_check.verify(self.job.placement, self.job.threads, self.observed)

    def sampled(self, *, all_threads: bool = False) -> bool:
        """Return whether memory, index and, if *all_threads*, all threads were sampled, or cannot be read.

        Threads that bind themselves begin on the PUs of the thread that creates them. They count when they are
        seen on as many PUs as they should have.
        """
        observed, asked = self.observed, self.job.placement
        bound = asked is None or len(observed.held) >= placement_check.fewest_pus(asked, self.job.threads)
        enough = bool(observed.pages) and (not all_threads or (observed.together >= self.job.threads and bound))
        enough = enough and not (observed.index and observed.index.missing)
        enough = enough and not evidence.too_small(_options(self.job), observed.memory)
        return enough or bool(observed.unreadable)

    @property
    def unverified(self) -> str:
        """Why the placement is unknown, or an empty string if it held or is known to be wrong."""
        unknown = placement_check.unverified(self.observed)
        return unknown if unknown == self.misplaced else ""

    @property
    def exit_status(self) -> int:
        """The exit status with which a command passes the program's on."""
        return exit_status(self.status)

    def ended(self, raw: int, usage: resource.struct_rusage) -> None:
        """Store what wait4(2) returned for the process."""
        self.status = os.waitstatus_to_exitcode(raw)
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.user_seconds = usage.ru_utime
        # ru_maxrss includes the time before exec, when the process was a copy of this launcher. Below the
        # launcher's size the sampled peak is used; without a sample the value is an upper bound.
        peak = usage.ru_maxrss * 1024
        is_known = peak > placement_check.launcher_peak()
        self.peak_bytes = peak if is_known else self.observed.peak_bytes or peak
        if is_known:
            self.observed.largest_peak = max(self.observed.largest_peak, peak)


def exit_status(status: int) -> int:
    """Return the exit status of a shell for a program's *status* (negative: the signal)."""
    return status if status >= 0 else 128 - status


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number."""
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return str(number)


def ending(name: str, status: int) -> str:
    """Return how the program *name* ended, by its exit status (negative: the signal)."""
    if status >= 0:
        return f"{name} ended with status {status}"
    why = " (out of memory, or killed by a user)" if status == -signal.SIGKILL else ""
    return f"{name} ended with signal {signal_name(-status)}{why}"


def end_of_log(log: Path) -> str:
    """Return the end of a log, which may be larger than memory; an empty string if it cannot be read."""
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


def _last_words(job: Job) -> str:
    """Return the end of a job's log as the end of a message; nothing if the log is not in a file."""
    if job.streams:
        return ""
    return f": {last_lines(job.stderr) or 'it printed nothing'}"


def _full_disk(job: Job) -> str:
    """Return which of the disks that a job writes to is full, as the end of a message."""
    temporary = Path({**os.environ, **job.env}.get("TMPDIR") or tempfile.gettempdir(), "file")
    files = [file for file in (job.stdout, job.stderr, temporary) if file != Path(os.devnull)]
    full = atomic_files.full_disk(files)
    return f"; {full}" if full else ""


def guarded(argv: Sequence[str], *, by_this_process: bool = True) -> list[str]:
    """Return the argv of a program that the kernel kills when the process that starts it is killed.

    *by_this_process*: this process starts it, and not another program.
    """
    if shutil.which("setpriv") is None:
        return [*argv]
    checked = ["/bin/sh", "-c", placement_check.IF_PARENT_LIVES, str(os.getpid())] if by_this_process else []
    return ["setpriv", "--pdeathsig", "KILL", "--", *checked, *argv]


def argv_of(job: Job) -> list[str]:
    """Return the argv of a job: numactl, if its policy needs options, and the program."""
    return guarded(_placed(job))


def _options(job: Job) -> tuple[str, ...]:
    return job.placement.options if job.placement else ()


def _environment(job: Job) -> dict[str, str]:
    """Return the environment of a job."""
    env = {**os.environ, **job.env}
    return env | memory_options.environment(_options(job), env)


def _placed(job: Job) -> list[str]:
    numactl = ["numactl", *job.placement.numactl, "--"] if job.placement and job.placement.numactl else []
    return [*numactl, *job.entering, *job.argv]


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
    fds: Sequence[int] = (),
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program as the leader of its own process group; the group is stopped when the block ends.

    A program that still runs gets the signal *stop*, and SIGKILL after *patience* seconds. The kernel kills it if
    this process is killed. *env* is added to the environment, *fds* stay open in the program. *clock* measures the
    patience. Raises RunFailed if the program cannot be started.
    """
    process = None
    try:
        with defer_signals():
            process = _start(guarded(argv), stdin=stdin, stdout=stdout, stderr=stderr, env=env, fds=fds)
        yield process
    except OSError as error:
        if process is not None:
            raise
        raise RunFailed(f"{argv[0]} cannot be started: {error.strerror}") from error
    finally:
        if process is not None:
            _stop(process, stop, patience, clock)


def _start(
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
    """Return the exit status of a process that ends within *seconds* (None: whenever it does), otherwise None.

    It replaces Popen.poll, and Popen.wait with a timeout. If a signal handler raises within these, for example
    after Ctrl-C, they may keep the lock that each later call waits for, which never ends then.
    """
    if process.returncode is None and seconds is not None and not _ended(process.pid, seconds, clock):
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


class Events:
    """The ends of jobs, and the errors of threads that work for them, which stop all jobs."""

    def __init__(self) -> None:
        self._queue: queue.Queue[_Running | BaseException] = queue.Queue()

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

    *on_start* gets the outcome of each job when it has started; what is observed is added to it while it runs.
    Any exception, such as Ctrl-C or an error reported to *events*, stops all of them. Raises ProgramFailed if one
    fails, TimedOut if *timeout* (seconds) has passed since *since* (on *clock*; None: since the jobs
    started), and Missing if a program does not exist.
    """
    running: list[_Running] = []
    events = events or Events()
    open_fds = [fd for job in jobs for fd in job.handed]
    try:
        _require(jobs)
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
    """Stop the process groups of all jobs, and wait for their ends; a further signal comes after that."""
    with defer_signals():
        for number in (signal.SIGTERM, signal.SIGKILL):
            for job in running:
                job.signal(number)
            until = clock.monotonic() + _PATIENCE
            if all(clock.wait(job.done, max(0.0, until - clock.monotonic())) for job in running):
                break
    for job in running:
        job.waiter.join()


def _require(jobs: Sequence[Job]) -> None:
    if any(j.placement and j.placement.numactl for j in jobs):
        require("numactl")
    require(*{j.argv[0] for j in jobs})
    for job in jobs:
        if reason := memory_options.unfit(_options(job), job.argv[0]):
            raise CannotHere(reason)


def _wait(
    running: Sequence[_Running],
    events: Events,
    timeout: float | None,
    end: float,
    watching: Watching,
    *,
    clock: Clock,
) -> None:
    pace, left, due = _Pace(watching, clock), len(running), -math.inf
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
        # Ends are handled before the time limit: a slow look must not turn an end in time into a late one.
        while left and (last := events.next(until, clock)):
            left -= 1
            if failure := last.failure():
                raise ProgramFailed(failure, last.outcome.status)
            if timeout is not None and last.outcome.started + last.outcome.seconds > end:
                raise TimedOut(_late(running, last, timeout))
        if timeout is not None and left and clock.monotonic() >= end:
            # The event of a job that has ended is on its way, and tells whether it was late.
            late = next((job for job in running if not job.done.is_set()), None)
            if late is not None:
                raise TimedOut(_late(running, late, timeout))


class _Pace:
    """The times of the samples, which come less often the longer a program runs."""

    def __init__(self, watching: Watching, clock: Clock = SYSTEM_CLOCK) -> None:
        self._share, self._clock = watching.share, clock
        self._pause = self._size_pause = _FIRST_PAUSE

    def next(self, spent: float, *, seen: bool) -> float:
        """Return when the next sample is due after one that took *spent* CPU seconds; *seen*: nothing is missing.

        On a busy host a sample lasts longer than it costs, and what it waits for does not slow the program down.
        """
        self._pause = max(min(self._pause * 1.5, 5.0), spent / self._share)
        if not seen:
            self._pause = min(self._pause, UNSEEN_PAUSE)
        return self._clock.monotonic() + self._pause

    def next_size(self, spent: float) -> float:
        """Return when the programs' size is due to be read, after that took *spent* CPU seconds the last time."""
        self._size_pause = min(1.5 * self._size_pause, SIZE_PAUSE)
        return self._clock.monotonic() + max(self._size_pause, self._pause / 50, spent / SIZE_SHARE)


def _late(running: Sequence[_Running], job: _Running, timeout: float) -> str:
    """Return the message that *job* exceeded the time limit, with the end of its log."""
    which = f"instance {running.index(job)}: " if len(running) > 1 else ""
    return f"{which}{_stopped(job.outcome.job, timeout)}{_last_words(job.outcome.job)}"


#: Longest pause in seconds until a signal is handled.
_SIGNAL_PAUSE = 0.5


class WorkerThread:
    """A thread that a signal neither starts half nor hides the end of.

    The exception of a signal handler may leave Thread.start() when the thread runs, and after one in Thread.join()
    Python 3.11 takes a living thread for ended.
    """

    def __init__(self, name: str, work: Callable[[], object], *, pus: Collection[int] = ()) -> None:
        """Prepare a thread that calls *work*; it and its children run on *pus* (empty: where its creator does)."""
        self._ended = threading.Event()

        def body() -> None:
            try:
                if pus:
                    os.sched_setaffinity(0, pus)
                work()
            finally:
                self._ended.set()

        self._thread = threading.Thread(target=body, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; raises CannotHere if the host has none left."""
        try:
            with defer_signals():
                self._thread.start()
        except RuntimeError as error:
            raise CannotHere(f"{error}: {MORE_THREADS}") from error

    @property
    def is_started(self) -> bool:
        """Whether *work* was or will be called."""
        return self._thread.ident is not None

    def join(self) -> None:
        """Wait until *work* has ended, if it was started."""
        if self.is_started:
            # A signal that comes just before Python waits does not end the wait. It is handled after the pause.
            while not self._ended.wait(_SIGNAL_PAUSE):
                pass
            self._thread.join()


def _stopped(job: Job, timeout: float) -> str:
    limit = round(timeout, 1) or round(timeout, 3) or timeout
    return f"{job.argv[0]} did not end within {limit:g} s and was stopped"


class _Running:
    """A started job, with a thread that waits for its end."""

    def __init__(self, job: Job, events: Events, clock: Clock) -> None:
        self._clock = clock
        observed = placement_check.Observed(index=replace(job.index) if job.index else None)
        self.outcome = Outcome(job, 0, 0.0, 0.0, 0.0, 0, observed)
        self.done, self.lost = threading.Event(), False
        #: Held to send a signal and to reap the process: afterwards its number may belong to another process.
        self.reaping = threading.Lock()
        try:
            with contextlib.ExitStack() as stack:
                files = (stack.enter_context(file.open("wb")) for file in (job.stdout, job.stderr))
                out, err = job.streams or files
                self.outcome.started = clock.monotonic()
                stack.enter_context(memory_options.inherited(_options(job)))
                self.process = _start(
                    argv_of(job),
                    stdin=subprocess.DEVNULL if job.stdin is None else job.stdin,
                    stdout=out,
                    stderr=err,
                    env=_environment(job),
                    cwd=job.cwd,
                    fds=job.fds,
                )
        except OSError as error:
            raise BadInput(f"cannot start {job.argv[0]}: {error.strerror}", file=error.filename) from error
        self.waiter = WorkerThread("waiter", lambda: self._wait(events))
        try:
            self.waiter.start()
        except CannotHere:
            self.process.kill()
            self.process.wait()
            raise

    def _wait(self, events: Events) -> None:
        outcome = self.outcome
        try:
            # The process stays a zombie, and keeps its number, until its group has been stopped.
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
            outcome.seconds = self._clock.monotonic() - outcome.started
            with self.reaping:
                self._signal(signal.SIGKILL)  # children that a wrapper script left running
                _, raw, usage = os.wait4(self.process.pid, 0)
                self.done.set()
            outcome.ended(raw, usage)
            self.process.returncode = outcome.status
        except ChildProcessError:  # reaped elsewhere, or by the kernel because SIGCHLD is ignored
            self.lost = True
        finally:
            self.done.set()
            events.end(self)

    def seen(self, *, all_threads: bool) -> bool:
        """Whether all that the job's placement asks for has been sampled, or never will be."""
        return self.outcome.sampled(all_threads=all_threads) or self.done.is_set()

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
# One program in the foreground, with everything that this process inherited

#: Signals of the kernel about this process itself, and those that stop and continue it.
_OWN_SIGNALS = {
    *(signal.SIGKILL, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXCPU, signal.SIGXFSZ),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT),
    *(signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT),
}
#: The signals that a program in the foreground gets when this process gets them.
_FORWARDED = frozenset(signal.valid_signals() - _OWN_SIGNALS)
#: Those of timers, which a parent of this process may have set.
_TIMERS = {signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF}
_PR_SET_PDEATHSIG = 1
#: The code of a signal that the kernel sends, such as a terminal's, which goes to the whole process group.
_SI_KERNEL = 0x80


def run_in_foreground(
    argv: Sequence[str],
    placement: Placement | None,
    *,
    threads: int = 1,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Outcome:
    """Run *argv* under *placement* (None: not bound) and return its outcome, whatever its exit status is.

    The program stays in this process's group and gets its standard streams, open descriptors, folder and
    environment, to which *env* is added. It gets the signals that this process gets. Call it in the main thread,
    without other threads. Raises TimedOut if *timeout* (seconds) has passed, and Missing if the program does not
    exist.
    """
    job = Job(argv, placement=placement, threads=threads, env=env or {})
    _require([job])
    waited = {signal.SIGCHLD, *_FORWARDED}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        prepare = _becoming(os.getpid(), before)
        outcome = Outcome(job, 0, time.monotonic(), 0.0, 0.0, 0, placement_check.Observed())
        try:
            # Guarded in the child, because the shell of guarded() drops variables such as bash's functions.
            with memory_options.inherited(_options(job)):
                process = subprocess.Popen(
                    _placed(job),
                    env=_environment(job),
                    close_fds=False,
                    preexec_fn=prepare,  # noqa: PLW1509 - there are no other threads
                )
        except OSError as error:
            raise BadInput(f"cannot start {argv[0]}: {error.strerror}", file=error.filename) from error
        try:
            late = _follow(process.pid, outcome, timeout)
        finally:
            # Only a program that exceeds its time still runs here, or one whose look raised an error.
            _end_family(process.pid)
            _, raw, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(raw)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if late and timeout is not None:
        raise TimedOut(_stopped(job, timeout))
    outcome.ended(raw, usage)
    return outcome


def _becoming(parent: int, mask: set[signal.Signals | int]) -> Callable[[], None]:
    """Return what the child of *parent* does before it becomes the program: the kernel kills it with *parent*."""
    import ctypes  # noqa: PLC0415 - most runs load this module for jobs that setpriv guards

    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


def _follow(pid: int, outcome: Outcome, timeout: float | None) -> bool:
    """Sample a program and forward signals to it until it ends, but is not reaped; return whether it is late."""
    end = math.inf if timeout is None else outcome.started + timeout
    pace = _Pace(Watching())
    due = 0.0
    while not _ended(pid):
        if (now := time.monotonic()) >= end:
            return True
        before, spent = time.thread_time(), 0.0
        if now >= due:
            placement_check.look(pid, outcome.observed)
            due = pace.next(time.thread_time() - before, seen=outcome.sampled())
        else:
            grown = placement_check.grown(pid, outcome.observed)
            spent = time.thread_time() - before
            if grown:
                placement_check.look(pid, outcome.observed)
        until = min(pace.next_size(spent), due, end)
        info = signal.sigtimedwait({signal.SIGCHLD, *_FORWARDED}, max(0.0, until - time.monotonic()))
        if info is None or info.si_signo not in _FORWARDED:
            continue
        # A terminal's signals have reached the program already.
        if info.si_signo in _TIMERS or info.si_code != _SI_KERNEL:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, info.si_signo)
    outcome.seconds = time.monotonic() - outcome.started
    return False


def _ended(pid: int, patience: float = 0.0, clock: Clock = SYSTEM_CLOCK) -> bool:
    """Return whether a child has ended, after at most *patience* seconds; it is not reaped."""
    until, pause = clock.monotonic() + patience, 0.0005
    with contextlib.suppress(ChildProcessError):  # another thread has waited for it
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            left = until - clock.monotonic()
            if left <= 0:
                return False
            pause = min(2 * pause, 0.05)
            clock.sleep(min(pause, left))
    return True


def _end_family(pid: int) -> None:
    """Stop a child that still runs and all its descendants: by SIGTERM, after 2 s by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if _ended(pid):
            return
        for member in placement_check.family(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, number)
        _ended(pid, patience=2.0)
