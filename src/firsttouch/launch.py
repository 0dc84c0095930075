# SPDX-License-Identifier: Apache-2.0
"""Runs a scenario for real: instances started at once, each with its placement and its share of the reads.

The output equals that of the single-instance run: same alignments, in input order, one header.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firsttouch import counters, sam
from firsttouch import reads as fastq
from firsttouch.aligners import Aligner
from firsttouch.errors import BadInput, RunFailed
from firsttouch.placement import Scenario
from firsttouch.supervise import Job, Outcome, run_together

#: Below this part of mapped reads the index is most likely another genome's.
HARDLY_ANY = 0.01


@dataclass(frozen=True)
class Work:
    """What is aligned: the aligner, its index (prefix), one or two read files, and the batches found in them.

    *counted*: every instance runs under perf stat.
    """

    aligner: Aligner
    index: Path
    reads: tuple[Path, ...]
    batch_bases: int
    batches: fastq.Batches
    counted: bool = False


@dataclass(frozen=True)
class Result:
    """One run of a scenario: *seconds* from the first start to the last end, and every instance's outcome.

    *counts* are the sums over all instances by perf's event names, empty where nothing was counted.
    """

    seconds: float
    outcomes: tuple[Outcome, ...]
    alignments: sam.Alignments
    counts: Mapping[str, int]

    @property
    def misplaced(self) -> str:
        """Why the placement did not hold, of the first instance where it did not, or an empty string."""
        reasons = ((number, o.misplaced()) for number, o in enumerate(self.outcomes))
        return next((f"instance {number}: {reason}" for number, reason in reasons if reason), "")


def prepare(aligner: Aligner, index: Path, reads: Sequence[Path], batch_bases: int | None = None) -> Work:
    """Check everything that a run needs, before it starts, and return it; raises BadInput or Missing."""
    aligner.version()
    aligner.index_bytes(index)
    if len(reads) not in {1, 2}:
        raise BadInput(f"{len(reads)} read files: one (single-end) or two (paired-end) are needed")
    size = aligner.batch_bases if batch_bases is None else batch_bases
    return Work(aligner, index, tuple(reads), size, fastq.scan(reads, size))


def run(work: Work, scenario: Scenario, output: Path | None, *, timeout: float | None = None) -> Result:
    """Run *scenario* once; the SAM output appears at *output* when all of it is there (None: it is not kept).

    Raises RunFailed where an instance fails or the output is not whole, BadInput for too few reads or an index
    that maps hardly any; whatever goes wrong, no half-written *output* is left.
    """
    beside = output.parent if output is not None else None
    if beside is not None and not beside.is_dir():
        raise BadInput("the folder of the output does not exist", file=output)
    with _scratch(beside) as folder:
        outcomes = _align(work, scenario, folder, timeout)
        parts = [o.job.stdout for o in outcomes]
        counts = Counter[str]()
        for log in folder.glob("*.counts"):
            counts.update(counters.parse(log.read_text()))
        if output is None:
            alignments = sam.join(parts, None)
            _check(work, alignments)
        else:
            whole = folder / "whole.sam"
            with whole.open("wb") as out:
                alignments = sam.join(parts, out)
                out.flush()
                os.fsync(out.fileno())
            _check(work, alignments)
            whole.replace(output)
    return Result(_span(outcomes), tuple(outcomes), alignments, counts)


def _check(work: Work, alignments: sam.Alignments) -> None:
    """Raise RunFailed where reads are missing in the output, BadInput where hardly any maps."""
    expected = work.batches.records * len(work.reads)
    if alignments.primary != expected:
        raise RunFailed(f"{work.aligner.name} aligned {alignments.primary} of {expected} reads")
    if alignments.mapped_fraction < HARDLY_ANY:
        raise BadInput(
            f"{alignments.mapped} of {expected} reads map: is this the index of another genome?", file=work.index
        )


@contextlib.contextmanager
def _scratch(beside: Path | None) -> Iterator[Path]:
    """Make a folder for the parts (beside the output, so that a rename suffices) and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(dir=beside, prefix=".firsttouch-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _align(work: Work, scenario: Scenario, folder: Path, timeout: float | None) -> list[Outcome]:
    if scenario.instances == 1:
        # The program as its users run it: it reads the files itself.
        return run_together([_job(work, scenario, 0, folder, reads=[str(r) for r in work.reads])], timeout=timeout)
    shares = fastq.divide(work.batches, scenario.instances)
    jobs, feeders = [], []
    inner: list[int] = []
    for number, (first, end) in enumerate(shares):
        names = []
        fds = []
        for file in work.reads:
            out_of, into = os.pipe()
            inner.append(out_of)
            fds.append(out_of)
            names.append(f"/dev/fd/{out_of}")
            sink = os.fdopen(into, "wb", buffering=1 << 16)
            feeders.append(threading.Thread(target=fastq.feed, args=(file, first, end, sink), daemon=True))
        jobs.append(_job(work, scenario, number, folder, reads=names, fds=tuple(fds)))
    try:
        for feeder in feeders:
            feeder.start()
        outcomes = run_together(jobs, timeout=timeout)
    finally:
        # With the reading ends gone a feeder that is still at work meets a broken pipe and ends.
        for fd in inner:
            os.close(fd)
        for feeder in feeders:
            feeder.join()
    return outcomes


def _job(
    work: Work, scenario: Scenario, number: int, folder: Path, *, reads: list[str], fds: tuple[int, ...] = ()
) -> Job:
    threads = scenario.threads
    argv = work.aligner.align_argv(index=work.index, reads=reads, threads=threads, batch_bases=work.batch_bases)
    if work.counted:
        argv = counters.wrap(argv, folder / f"{number}.counts")
    out, err = folder / f"{number}.sam", folder / f"{number}.log"
    return Job(argv, out, err, scenario.placements[number], threads, fds=fds)


def _span(outcomes: Sequence[Outcome]) -> float:
    """Return the wall seconds from the first instance's start to the last one's end."""
    return max(o.started + o.seconds for o in outcomes) - min(o.started for o in outcomes)
