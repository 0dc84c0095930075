# SPDX-License-Identifier: Apache-2.0
"""Which jobs were submitted for a campaign, so that hosts that never came are missed."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from firsttouch.campaign import slurm
from firsttouch.campaign.files import once
from firsttouch.campaign.journal import now


@dataclass(frozen=True)
class Submission:
    """A *job* (or array) that was submitted for *count* hosts; *hosts* are those that were named, if any.

    Where no job was submitted, *job* is empty and *problem* says why.
    """

    job: str
    count: int
    hosts: tuple[str, ...]
    time: str
    problem: str = ""


def note(folder: Path, job: str, count: int, hosts: Sequence[str] = ()) -> bool:
    """Write down a submission; return whether we were the first to (each element of an array tries).

    Who named the hosts and the job itself write different files: the job may begin before sbatch has returned.
    """
    name = f"{job}.named.json" if hosts else f"{job}.json"
    return once(folder / "submissions" / name, asdict(Submission(job, count, tuple(hosts), now())))


def note_without_job(folder: Path, hosts: Sequence[str], problem: str) -> None:
    """Write down hosts that are to be measured and have no job (yet)."""
    name = f"{secrets.token_hex(8)}.named.json"
    once(folder / "submissions" / name, asdict(Submission("", len(hosts), tuple(hosts), now(), problem)))


def note_this(folder: Path, job: slurm.Job) -> bool:
    """Write down the job that we are part of; return whether we were the first to."""
    return note(folder, job.array, max(job.elements, job.hosts))


def submissions(folder: Path, damage: list[str] | None = None) -> list[Submission]:
    """Return all submissions, oldest first; files that are none are left out and named in *damage*."""
    by_job: dict[str, Submission] = {}
    for file in sorted((folder / "submissions").glob("[!.]*.json")):
        try:
            submission = _read(file)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            if damage is not None:
                damage.append(f"{file}: not a submission ({error}): remove it")
            continue
        key = submission.job or file.name
        if submission.hosts or key not in by_job:
            by_job[key] = submission
    return sorted(by_job.values(), key=lambda s: s.time)


def _read(file: Path) -> Submission:
    data = json.loads(file.read_bytes())
    submission = Submission(**{**data, "hosts": tuple(data["hosts"])})
    texts = (submission.job, submission.time, submission.problem, *submission.hosts)
    if not all(isinstance(text, str) for text in texts) or type(submission.count) is not int:
        raise TypeError("a value is of another type")
    if not re.fullmatch(r"\d*", submission.job):
        raise ValueError(f"job is {submission.job!r}")
    return submission
