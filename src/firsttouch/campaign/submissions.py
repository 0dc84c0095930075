# SPDX-License-Identifier: Apache-2.0
"""Which jobs were submitted for a campaign, so that hosts that never came are missed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from firsttouch.campaign import slurm
from firsttouch.campaign.files import once
from firsttouch.campaign.journal import now
from firsttouch.errors import BadInput


@dataclass(frozen=True)
class Submission:
    """A *job* (or array) that was submitted for *count* hosts; *hosts* are those that were named, if any."""

    job: str
    count: int
    hosts: tuple[str, ...]
    time: str


def note(folder: Path, job: str, count: int, hosts: Sequence[str] = ()) -> bool:
    """Write down a submission; return whether we were the first to (each element of an array tries).

    Who named the hosts and the job itself write different files: the job may begin before sbatch has returned.
    """
    name = f"{job}.named.json" if hosts else f"{job}.json"
    return once(folder / "submissions" / name, asdict(Submission(job, count, tuple(hosts), now())))


def note_this(folder: Path, job: slurm.Job) -> bool:
    """Write down the job that we are part of; return whether we were the first to."""
    return note(folder, job.array, max(job.elements, job.hosts))


def submissions(folder: Path) -> list[Submission]:
    """Return all submissions, oldest first."""
    found: dict[str, Submission] = {}
    for file in (folder / "submissions").glob("[!.]*.json"):
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            one = Submission(**{**data, "hosts": tuple(data["hosts"])})
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"not a submission: {error}", file=file) from error
        if one.hosts or one.job not in found:
            found[one.job] = one
    return sorted(found.values(), key=lambda s: s.time)
