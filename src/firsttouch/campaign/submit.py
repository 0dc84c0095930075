# SPDX-License-Identifier: Apache-2.0
"""Submits a template for many hosts at once, and the job that collects when all of them have ended."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from firsttouch import folders
from firsttouch.campaign import slurm
from firsttouch.campaign.files import once
from firsttouch.campaign.model import Campaign
from firsttouch.campaign.submissions import note
from firsttouch.errors import BadInput

#: As many sbatch are under way at once: a controller serves some, and does not like many.
_AT_ONCE = 8
TEMPLATES = folders.ROOT / "slurm"


def template(kind: str) -> Path:
    """Return the sbatch template of a kind of campaign; raises BadInput where it is not there."""
    file = TEMPLATES / f"{kind}.sbatch"
    if not file.is_file():
        raise BadInput("the template is not there: firsttouch has to be run from its checkout", file=file)
    return file


def submit(campaign: Campaign, hosts: Sequence[str], options: Sequence[str], argv: Sequence[str]) -> list[str]:
    """Submit one job for each of *hosts*, and one that collects after all; return the jobs' numbers.

    *options* are sbatch's, *argv* the template's. Every job that Slurm took is written down, also where it
    refuses one of the later ones.
    """
    file = template(campaign.kind)
    out = campaign.folder / "log"
    out.mkdir(parents=True, exist_ok=True)
    given = [*argv, "--campaign", str(campaign.folder), "--no-collect"]

    def one(host: str) -> str:
        own = [f"--nodelist={host}", f"--output={out}/%x-{host}-%j.out"]
        job = slurm.submit([*own, *options, str(file), *given], cwd=folders.ROOT)
        note(campaign.folder, job, 1, [host])
        return job

    # sbatch waits for the controller most of its time.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        jobs = list(pool.map(one, hosts))
    jobs.append(_collector(campaign, ":".join(jobs), options))
    return jobs


def collect_later(campaign: Campaign, job: slurm.Job) -> str:
    """Submit the job that collects when all of *job*'s array or hosts have ended, once; return its number.

    An empty number: another element of the array did it.
    """
    mark = campaign.folder / "submissions" / f".collector-{job.array}"
    if not once(mark, {"by": job.job}):
        return ""
    return _collector(campaign, job.array, [])


def _collector(campaign: Campaign, after: str, options: Sequence[str]) -> str:
    out = campaign.folder / "log"
    out.mkdir(parents=True, exist_ok=True)
    mine = [f"--dependency=afterany:{after}", f"--output={out}/collect-%j.out"]
    kept = [o for o in options if o.startswith(("--partition", "--account", "--qos", "--reservation"))]
    return slurm.submit([*kept, *mine, str(template("collect")), str(campaign.folder)], cwd=folders.ROOT)
