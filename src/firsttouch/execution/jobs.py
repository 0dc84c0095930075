# SPDX-License-Identifier: Apache-2.0
"""Programs that run under a placement, and how they ended."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from firsttouch.errors import CannotHere
from firsttouch.execution import placement_check
from firsttouch.execution.child_process import describe_ending, exit_status, last_lines
from firsttouch.scenarios import evidence, memory_options
from firsttouch.scenarios.placement import Placement
from firsttouch.tools import require


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
