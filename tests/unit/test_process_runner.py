# SPDX-License-Identifier: Apache-2.0
"""Programs started together: how they end, and that none is left, whichever process dies."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from factories.clocks import ManualClock
from factories.processes import started, wait_until
from firsttouch.clock import SYSTEM_CLOCK
from firsttouch.errors import BadInput, CannotHere, Missing, ProgramFailed, RunFailed
from firsttouch.execution import child_process, placement_check
from firsttouch.execution.process_runner import Events, Job, Watching, run_together
from firsttouch.genomics import dealing
from firsttouch.genomics.dealing import Feed
from firsttouch.genomics.pipe_writer import StopRequest
from firsttouch.scenarios.placement import Placement
from firsttouch.tools import defer_signals


@pytest.fixture
def job(tmp_path):
    """Return a function that makes the job of a shell script."""
    numbers = []

    def make(script, *arguments, **other):
        number = len(numbers)
        numbers.append(number)
        argv = ["sh", "-c", script, "sh", *arguments]
        return Job(argv, tmp_path / f"{number}.out", tmp_path / f"{number}.err", **other)

    return make


class Ends(Events):
    """Ends of jobs that a look can wait for."""

    def __init__(self):
        super().__init__()
        self._ends = threading.Semaphore(0)

    def end(self, job):
        super().end(job)
        self._ends.release()

    def wait_for_one(self):
        assert self._ends.acquire(timeout=120)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def held():
    """Return a descriptor to read, at which programs wait, and a function that lets one of them go on."""
    reading, writing = os.pipe()
    yield reading, lambda: os.write(writing, b"\n")
    os.close(reading)
    os.close(writing)


def with_marker(marker):
    """Return the living processes that have *marker* in their argv."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes():
                pids.append(int(folder.name))
        except OSError:  # it has ended; within a glob, this would not be ignored
            continue
    return [pid for pid in pids if pid != os.getpid()]


def gone(marker, seconds=120):
    deadline = time.monotonic() + seconds
    while with_marker(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not with_marker(marker)


def are_running(marker, count, seconds=120):
    """Wait until at least *count* processes have *marker* in their argv, and return whether they came.

    They are counted once per look: in the middle of execve(2) a process has no argv for a moment, and a second
    look may miss it.
    """
    deadline = time.monotonic() + seconds
    while not (enough := len(with_marker(marker)) >= count) and time.monotonic() < deadline:
        time.sleep(0.005)
    return enough


@pytest.fixture
def marker():
    mark = f"mark-{uuid.uuid4().hex}"
    yield mark
    for pid in with_marker(mark):
        os.kill(pid, signal.SIGKILL)


def test_a_program_that_ends_well(job):
    (outcome,) = run_together([job("echo out; echo err >&2; sleep 0.05")])
    assert (outcome.status, outcome.failure(), outcome.misplaced) == (0, "", "")
    assert outcome.job.stdout.read_text() == "out\n"
    assert outcome.job.stderr.read_text() == "err\n"
    assert outcome.seconds >= 0.05
    assert outcome.peak_bytes >= 0


def test_environment_folder_and_no_input(job, tmp_path):
    printing = job('cat; echo "$WHAT $(pwd)"', env={"WHAT": "that"}, cwd=tmp_path)
    run_together([printing])
    assert printing.stdout.read_text() == f"that {tmp_path}\n"


def test_descriptors_that_stay_open(job):
    out_of, into = os.pipe()
    os.write(into, b"through")
    os.close(into)
    reading = job(f"cat /dev/fd/{out_of}", fds=(out_of,))
    run_together([reading])
    os.close(out_of)
    assert reading.stdout.read_text() == "through"


def test_cpu_seconds_and_memory(tmp_path, clock, held):
    stdin, let_go_on = held

    def look(pid, observed):
        # A size below this process's is known only from samples.
        placement_check.look(pid, observed)
        if observed.peak_bytes > 300 << 20:
            let_go_on()

    argv = [sys.executable, "-c", "x = bytearray(300 << 20); sum(range(10 ** 6)); input()"]
    job = Job(argv, tmp_path / "o", tmp_path / "e", stdin=stdin)
    (outcome,) = run_together([job], watching=Watching(look=look), clock=clock)
    assert outcome.peak_bytes > 300 << 20
    assert outcome.cpu_seconds > 0.01
    assert 0 < outcome.user_seconds <= outcome.cpu_seconds


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("echo a >&2; echo >&2; echo '  b ' >&2; echo c >&2; exit 1", 1, r"sh ended with status 1: b \| c"),
        ("kill -9 $$", -9, r"signal SIGKILL \(out of memory, a limit of CPU time, or a user\): it printed"),
        ("kill -40 $$", -40, "sh ended with signal 40"),
        ("printf '\\377\\n' >&2; exit 3", 3, "status 3: \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_how_a_program_failed(job, script, status, reason):
    with pytest.raises(ProgramFailed, match=reason) as caught:
        run_together([job(script)])
    assert "\n" not in str(caught.value)
    assert caught.value.status == status


def test_when_one_fails_the_others_are_stopped(job, marker):
    with pytest.raises(RunFailed, match="status 5"):
        run_together([job("sleep 300", marker), job("exit 5"), job("sleep 300", marker)])
    assert not with_marker(marker)


def test_a_timeout(job, marker, clock):
    with pytest.raises(RunFailed, match=r"^sh .* 20 s "):
        run_together([job("sleep 300", marker)], timeout=20, clock=clock)
    # After each of two signals it has at most 2 s to end.
    assert 20 <= round(sum(clock.sleeps), 6) <= 20 + 2 * 2
    assert not with_marker(marker)


def test_a_program_that_ignores_the_signal(job, marker, clock):
    ignoring = job("trap '' TERM INT; echo ready; while :; do sleep 0.1; done", marker)

    def look(pid, observed):
        wait_until(ignoring.stdout.read_text, "the program to ignore signals")

    with pytest.raises(RunFailed, match="did not end"):
        run_together([ignoring], timeout=0.3, watching=Watching(look=look), clock=clock)
    # A child that the shell has just forked has its argv until the kernel has ended it.
    assert gone(marker)


@pytest.mark.parametrize("end", ["exit 0", "exit 1"])
def test_a_scripts_child_that_lives_on_is_stopped(job, marker, end):
    parent = job(f"sh -c 'sleep 300; :' {marker} & {end}")
    if end == "exit 0":
        run_together([parent])
    else:
        with pytest.raises(RunFailed):
            run_together([parent])
    assert gone(marker)


def test_missing_programs(tmp_path, monkeypatch, job):
    with pytest.raises(Missing, match=r"'no-such-program' is not on PATH$"):
        run_together([Job(["no-such-program"], tmp_path / "o", tmp_path / "e")])
    placed = job("exit 0", placement=Placement((0,), (0,), ("--localalloc",), "localalloc", "part"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(Missing, match="'numactl' is not on PATH"):
        run_together([placed])
    # setpriv is only a safeguard: without it the program runs, too.
    assert run_together([job("exit 0")])[0].status == 0


def test_the_second_cannot_start_and_the_first_is_stopped(job, tmp_path, marker):
    with pytest.raises(BadInput):
        run_together([job("sleep 300", marker), Job(["true"], tmp_path / "none" / "o", tmp_path / "e")])
    assert not with_marker(marker)


def test_a_job_that_ended_in_time_during_a_slow_look_is_not_late(job, clock, held):
    (stdin, let_go_on), ends = held, Ends()

    def look(pid, observed):
        let_go_on()
        ends.wait_for_one()
        clock.sleep(0.4)

    limit = {"timeout": 0.3, "watching": Watching(look=look), "events": ends, "clock": clock}
    (outcome,) = run_together([job("read line", stdin=stdin)], **limit)
    assert (outcome.status, outcome.seconds) == (0, 0)
    with pytest.raises(RunFailed, match="status 5"):
        run_together([job("read line; exit 5", stdin=stdin)], **limit)


@pytest.mark.parametrize("ends_late", [True, False])
def test_a_job_that_did_not_end_in_time_during_a_slow_look_is_late(job, marker, clock, held, ends_late):
    (stdin, let_go_on), ends = held, Ends()
    begun = []

    def look(pid, observed):
        # The job in time may have ended before the first look.
        if not begun:
            begun.append(pid)
            ends.wait_for_one()
            clock.sleep(0.4)
            if ends_late:
                let_go_on()
                ends.wait_for_one()

    jobs = [job("exit 0"), job("read line", marker, stdin=stdin)]
    with pytest.raises(RunFailed, match=r"^instance 1: sh .* 0.2 s"):
        run_together(jobs, timeout=0.2, watching=Watching(look=look), events=ends, clock=clock)
    assert not with_marker(marker)


def test_a_limit_that_has_passed_before_the_start_is_stated_as_it_was_given(job, marker):
    with pytest.raises(RunFailed, match=r"^sh .* 0.3 s "):
        run_together([job("sleep 300", marker)], timeout=0.3, since=time.monotonic() - 1)
    assert not with_marker(marker)


def test_an_error_of_another_thread_stops_all_jobs(job, marker):
    events = Events()
    failing = threading.Thread(target=events.fail, args=[BadInput("the reads end too early")])
    looks = []

    def look(pid, observed):
        looks.append(pid)
        if len(looks) == 2:
            failing.start()

    with pytest.raises(BadInput, match="the reads end too early"):
        run_together(
            [job("sleep 300", marker), job("sleep 300", marker)], events=events, watching=Watching(look=look)
        )
    failing.join()
    assert not with_marker(marker)


def test_a_failure_that_is_excused_does_not_stop_the_others(job):
    outcomes = run_together([job("exit 7", excused=lambda: True), job("sleep 0.2")])
    assert [outcome.status for outcome in outcomes] == [7, 0]


def test_a_pipe_is_handed_over(job):
    """The writer of a pipe learns that the program has ended: no other process holds the reading end."""
    reading, writing = os.pipe()
    os.write(writing, b"a")
    run_together([job("head -c 1", stdin=reading, handed=(reading,))])
    with os.fdopen(writing, "wb", 0) as pipe, pytest.raises(BrokenPipeError):
        pipe.write(b"b")


def test_a_handed_pipe_is_closed_if_no_program_starts(job):
    reading, writing = os.pipe()
    missing = Job(["no-such-program"], handed=(reading,))
    with pytest.raises(Missing):
        run_together([job("sleep 300"), missing])
    with os.fdopen(writing, "wb", 0) as pipe, pytest.raises(BrokenPipeError):
        pipe.write(b"b")


def test_a_program_may_write_into_descriptors(tmp_path, job):
    with (tmp_path / "both").open("wb") as out:
        out.write(b"before\n")
        out.flush()
        run_together([job("echo out; echo error >&2", streams=(out.fileno(), out.fileno()))])
        with pytest.raises(ProgramFailed, match=r"^sh ended with status 3$"):
            run_together([job("exit 3", streams=(out.fileno(), out.fileno()))])
    assert (tmp_path / "both").read_text() == "before\nout\nerror\n"


def test_no_signal_goes_to_a_group_that_was_reaped(job, monkeypatch):
    """After the leader of a group is reaped, another group may get its number."""
    signals = []

    def killpg(group, number):
        signals.append((group, number, Path(f"/proc/{group}").exists()))
        killpg_of_the_system(group, number)

    killpg_of_the_system = os.killpg
    monkeypatch.setattr(os, "killpg", killpg)
    run_together([job("exit 0"), job("sleep 0.3")])
    assert len(signals) == 2
    assert all(there for _, _, there in signals)


def test_where_ends_of_children_are_ignored_it_says_so_and_does_not_hang(job):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(RunFailed, match="SIGCHLD"):
            run_together([job("sleep 0.1")])
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_program_without_a_thread_that_waits_for_it_is_stopped_with_its_children(job, marker, monkeypatch):
    def refuse(*_):
        assert are_running(marker, 2)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    with pytest.raises(CannotHere, match="ulimit -v"):
        run_together([job("sh -c 'sleep 1000; true' sh $1 & wait", marker)])
    assert gone(marker)


@pytest.fixture
def interrupts():
    """Let SIGTERM raise KeyboardInterrupt, as the command line does; returns the numbers of the signals."""
    numbers = []

    def interrupt(number, _frame):
        numbers.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    yield numbers
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("fails", [False, True])
def test_a_deferred_signal_comes_after_the_block_also_if_it_fails(interrupts, fails):
    blocks = []

    def block():
        with defer_signals():
            signal.raise_signal(signal.SIGTERM)
            blocks.append("whole")
            if fails:
                raise OSError("the block fails")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert (blocks, interrupts) == (["whole"], [signal.SIGTERM])


def test_a_signal_while_the_reader_starts_leaves_no_reader(interrupts, monkeypatch):
    """Its exception leaves Thread.start() when the thread runs already."""

    class Reads:
        def __init__(self):
            self.stopped = threading.Event()

        def __iter__(self):
            self.stopped.wait()
            yield from ()

        def stop(self):
            self.stopped.set()

    threads = []
    start = threading.Thread.start

    def interrupted_start(thread):
        threads.append(thread)
        start(thread)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt), dealing.read_pieces(Reads()):
        pass
    assert [thread.is_alive() for thread in threads] == [False]


def test_a_program_that_reads_one_mate_far_ahead_is_not_fed_for_ever(monkeypatch):
    monkeypatch.setattr(dealing, "_MOST_AHEAD_BYTES", 3000)
    pipes, stop = [os.pipe() for _ in range(2)], StopRequest()
    feed = Feed([writing for _, writing in pipes], stop)
    # The writers do not run, so that the first queue is empty as if its pipe had been read.
    feed._sizes[0] = -(1 << 20)
    for _ in range(4):
        feed.put([b"", bytes(1000)])
    with pytest.raises(RunFailed, match=r"mates"):
        feed.put([b"", bytes(1000)])
    feed.join()
    stop.close()
    for reading, _ in pipes:
        os.close(reading)


def test_the_ends_of_logs(tmp_path):
    log = tmp_path / "log"
    assert child_process.last_lines(log) == ""
    log.write_text("\n\n")
    assert child_process.last_lines(log) == ""
    log.write_text("a\nb\n\nc\n\n")
    assert child_process.last_lines(log) == "b | c"
    assert child_process.last_lines(log, 1) == "c"
    with log.open("r+b") as out:  # larger than any memory
        out.truncate(1 << 40)
        out.seek(0, os.SEEK_END)
        out.write(b"\nlast words\n")
    assert child_process.last_lines(log, 1) == "last words"


LAUNCHER = """\
import sys
from pathlib import Path
from firsttouch.cli import _signals
from firsttouch.execution.process_runner import Job, run_together
folder = Path(sys.argv[1])
jobs = [Job(["sh", "-c", sys.argv[2], "sh", sys.argv[3]], folder / f"{n}.o", folder / f"{n}.e") for n in range(3)]
received = []
try:
    with _signals(received):
        run_together(jobs)
except KeyboardInterrupt:
    sys.exit(128 + received[0] if received else 130)
"""


SLEEPER = f"{sys.executable} -c 'import time; time.sleep(300)' $1"


@pytest.mark.parametrize(
    ("number", "script", "processes"),
    [
        (signal.SIGINT, f"exec {SLEEPER}", 4),
        (signal.SIGTERM, f"{SLEEPER}; :", 7),
        # The kernel kills the programs of a killed launcher, but not their children.
        (signal.SIGKILL, f"exec {SLEEPER}", 4),
    ],
)
def test_an_interrupted_launcher_leaves_none(tmp_path, marker, number, script, processes):
    argv = [sys.executable, "-c", LAUNCHER, str(tmp_path), script, marker]
    with started(argv, start_new_session=True) as launcher:
        complete = are_running(marker, processes)
        launcher.send_signal(number)
        status = launcher.wait(120)
    assert complete
    assert status == (-9 if number == signal.SIGKILL else 128 + number)
    assert gone(marker)


def test_nothing_is_imported_while_programs_run(tmp_path):
    """If a signal interrupts the end of an import, Python drops the exception."""
    hook = """\
import os
from firsttouch.execution.process_runner import _Running
is_begun = (folder / "0.o").exists
sys.addaudithook(lambda event, args: print(args[0]) if event == "import" and is_begun() else None)
look = _Running.look
_Running.look = lambda *args: (look(*args), os.close(os.open(folder / "seen", os.O_CREAT)))
"""
    launcher = LAUNCHER.replace("received = []\n", f"received = []\n{hook}")
    until_seen = 'until test -e "$1"; do :; done'
    argv = [sys.executable, "-c", launcher, str(tmp_path), until_seen, str(tmp_path / "seen")]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == ""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not on PATH")
def test_a_program_whose_launcher_died_before_it_was_guarded_does_not_start(tmp_path):
    argv = child_process.guarded_argv(["touch", str(tmp_path / "started")])
    subprocess.run(["sh", "-c", '"$@"; :', "sh", *argv], check=True)  # another parent than this process
    assert not (tmp_path / "started").exists()
    subprocess.run(argv, check=True)
    assert (tmp_path / "started").exists()


def test_a_child_and_its_group_are_stopped_when_the_block_ends(marker):
    with child_process.child(["sh", "-c", f"{SLEEPER} & {SLEEPER}; :", "sh", marker]):
        assert are_running(marker, 3)
    assert gone(marker)


class Impatient(ManualClock):
    """A clock whose first wait is interrupted by a signal, such as a second Ctrl-C."""

    def sleep(self, seconds):
        if not self.sleeps:
            signal.raise_signal(signal.SIGTERM)
        super().sleep(seconds)


def test_a_second_signal_while_a_child_is_stopped_leaves_nothing(interrupts, marker):
    words = ["sh", "-c", "trap '' TERM; echo ready; sleep 300; sleep 300", marker]
    started = []

    def run():
        how = {"stop": signal.SIGTERM, "stdout": subprocess.PIPE, "clock": Impatient()}
        with child_process.child(words, **how) as process:
            started.append(process)
            process.stdout.readline()
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        run()
    (process,) = started
    process.stdout.close()
    assert (interrupts, process.returncode) == ([signal.SIGTERM] * 2, -signal.SIGKILL)
    assert gone(marker)


def test_a_child_that_ignores_the_first_signal_is_killed():
    clock = ManualClock()
    with child_process.child(
        ["sh", "-c", "trap '' TERM; echo ready; sleep 300; sleep 300"],
        stop=signal.SIGTERM,
        patience=20,
        stdout=subprocess.PIPE,
        clock=clock,
    ) as process:
        assert process.stdout.readline() == b"ready\n"
    assert process.returncode == -signal.SIGKILL
    assert sum(clock.sleeps) == pytest.approx(20)


def test_a_child_is_followed_to_its_end():
    argv = ["sh", "-c", "read line; exit $status"]
    with child_process.child(argv, env={"status": "7"}, stdin=subprocess.PIPE) as process:
        assert child_process.follow(process, 10, process.stdin.close, clock=ManualClock()) == 7
        assert process.stdin.closed


def test_a_child_that_cannot_be_started(monkeypatch, tmp_path):
    monkeypatch.setattr(child_process, "guarded_argv", list)
    with pytest.raises(RunFailed, match=r"absent .*: No such file"), child_process.child(["absent"]):
        pass


def test_a_program_that_ends_at_once_is_unverified(tmp_path):
    asked = Placement((*os.sched_getaffinity(0),), (0,), (), "original", "whole")
    job = Job(["true"], tmp_path / "out", tmp_path / "err", asked)
    (outcome,) = run_together([job], watching=Watching(look=lambda *_: None, grown=lambda *_: False))
    assert outcome.misplaced == outcome.unverified
    assert outcome.unverified.endswith(": the instance ended before it could be sampled")


def test_the_peak_of_a_program_is_its_own_whatever_this_process_was_before():
    """A process keeps the largest resident set of the program that it was before execve(2)."""
    program = [sys.executable, "-c", "memory = bytearray(100 << 20)"]
    launcher = (
        "from firsttouch.execution.process_runner import run_in_foreground; "
        f"print(run_in_foreground({program!r}, None).peak_bytes)"
    )
    becomes = [sys.executable, "-c", launcher]
    large = f"import os; memory = bytearray(300 << 20); os.execv({sys.executable!r}, {becomes!r})"
    done = subprocess.run([sys.executable, "-c", large], capture_output=True, text=True, check=True)
    assert 100 << 20 < int(done.stdout) < 300 << 20


def test_a_signal_at_any_moment_of_waiting_raises_its_own_error_only():
    def interrupt(*_):
        raise KeyboardInterrupt

    def wait_for_the_alarm(seconds):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            Events().next(SYSTEM_CLOCK.monotonic() + 0.001, SYSTEM_CLOCK)

    before = signal.signal(signal.SIGALRM, interrupt)
    # Python drops what a handler raises within a callback of the collector, and Hypothesis has such a callback.
    gc.disable()
    try:
        for number in range(600):
            with pytest.raises(KeyboardInterrupt):
                wait_for_the_alarm(0.001 + 1e-6 * (number % 300))
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
