# SPDX-License-Identifier: Apache-2.0
"""Submits a campaign's template to Slurm for many hosts, and a job that collects after all of them."""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from firsttouch import paths
from firsttouch.campaign.campaigns import Campaign
from firsttouch.campaign.journal import create_exclusive, note, note_without_job, submissions
from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution import slurm
from firsttouch.systems.definition import System, load

#: Concurrent sbatch processes; more would burden the controller.
_AT_ONCE = 8
TEMPLATES = paths.TEMPLATES
#: The most further jobs of a host with undecided metrics; each doubles the repetitions, from 1 beyond
#: MOST_REPETITIONS.
_ROUNDS = 4
#: The problem of hosts until their job is submitted.
NOT_YET = "its job was not submitted"
#: sbatch's options that the collecting job needs, too, because without them it may not run.
_COLLECTOR_OPTIONS = (
    ("--partition", "-p"),
    ("--account", "-A"),
    ("--qos", "-q"),
    ("--clusters", "-M"),
    ("--reservation",),
    ("--wckey",),
)


class Submitted(Struct, frozen=True):
    """The numbers of the *jobs* and of the *collector* ("": none); *refused* has reasons by host without a job."""

    jobs: Sequence[str]
    collector: str
    refused: Mapping[str, str]


class Again(Struct, frozen=True):
    """How jobs are submitted, and submitted again for undecided hosts.

    With *resubmit*, the collecting job submits undecided hosts again, up to *resubmit* repetitions of the *steps*
    (patterns). *options* are sbatch's; *drains*: jobs drain the hosts that fail.
    """

    resubmit: int | None = None
    steps: Sequence[str] = ()
    options: Sequence[str] = ()
    drains: bool = False

    def submit(self, campaign: Campaign, hosts: Sequence[str], *, wait: bool = False) -> Submitted:
        """Submit a job for each of *hosts*, and one that collects after all of them.

        All hosts are stored first, so that hosts without a job are reported as missing. Hosts that are down,
        drained or reserved get a job only with *wait*. If Slurm refuses a job, the others are still collected.
        """
        away = {} if wait else unavailable(campaign, hosts, self.options)
        options = _with_access(campaign, self.options)
        of_collector = collector_options(options)
        of_jobs = [*options, *_given(campaign, self._measuring())]
        jobs: list[str] = []
        refused: dict[str, str] = {}
        note_without_job(campaign.folder, hosts, NOT_YET)

        def refuse(host: str, why: str) -> None:
            refused[host] = why
            note_without_job(campaign.folder, [host], why)

        def submit_to(host: str) -> None:
            try:
                jobs.append(_submit_to(campaign, host, of_jobs))
            except RunFailed as error:
                refuse(host, str(error))

        for host, why in away.items():
            refuse(host, why)
        collector = ""
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(submit_to, [h for h in hosts if h not in refused]))
        finally:
            if jobs:
                try:
                    collector = _collector(campaign, ":".join(jobs), of_collector, self._collecting())
                except RunFailed as error:
                    refused["the job that collects"] = str(error)
        return Submitted(sorted(jobs, key=int), collector, refused)

    def commands(self, campaign: Campaign, hosts: Sequence[str]) -> list[list[str]]:
        """Return the commands of :meth:`submit` for *hosts*; JOBS stands for the numbers of the jobs."""
        options = _with_access(campaign, self.options)
        of_jobs = [*options, *_given(campaign, self._measuring())]
        collector = _of_collector(campaign, "JOBS", collector_options(options), self._collecting())
        return [["sbatch", *argv] for argv in (*(_of_host(campaign, host, of_jobs) for host in hosts), collector)]

    def _measuring(self) -> list[str]:
        """Return the arguments of the jobs that measure."""
        drain = ["--drain"] if self.drains else []
        again = [f"--max-repetitions={self.resubmit}"] if self.resubmit else []
        return [*drain, *again, *(f"--step={pattern}" for pattern in self.steps)]

    def _collecting(self) -> list[str]:
        """Return the arguments of the job that collects."""
        drain = ["--drain"] if self.drains else []
        if not self.resubmit:
            return drain
        steps = [f"--step={pattern}" for pattern in self.steps]
        return [*drain, f"--resubmit={self.resubmit}", *steps, *(f"--sbatch={o}" for o in self.options)]

    def submit_undecided(self, campaign: Campaign, undecided: Sequence[str], say: Callable[[str], None]) -> None:
        """Submit another job for each *undecided* host, up to _ROUNDS times."""
        rounds = Counter(host for s in submissions(campaign.folder) if s.job for host in s.hosts)
        if hosts := [host for host in undecided if rounds[host] <= _ROUNDS]:
            submitted = self.submit(campaign, hosts)
            say(
                f"{len(submitted.jobs)} jobs measure undecided metrics again, {submitted.collector} collects: "
                f"{', '.join(hosts)}"
            )


def template(kind: str) -> Path:
    """Return the sbatch template of a kind of campaign; raises BadInput if it does not exist."""
    file = TEMPLATES / f"{kind}.sbatch"
    if not file.is_file():
        raise BadInput("there is no such template", file=file)
    return file


def split_options(options: Sequence[str]) -> list[str]:
    """Return sbatch's options as separate words: ``-p all``, given as one argument, becomes two."""
    split = (re.fullmatch(r"(--?[A-Za-z-]+)\s+(.+)", option) for option in options)
    return [w for option, two in zip(options, split, strict=True) for w in (two.groups() if two else (option,))]


def collector_options(options: Sequence[str]) -> list[str]:
    """Return the *options* of sbatch that the collecting job needs, too; raises BadInput for a bad one."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for names in _COLLECTOR_OPTIONS:
        parser.add_argument(*names)
    try:
        chosen, _ = parser.parse_known_args(list(options))
    except argparse.ArgumentError as error:
        raise BadInput(f"--sbatch: {error}") from error
    return [f"--{name}={value}" for name, value in vars(chosen).items() if value is not None]


def unavailable(campaign: Campaign, hosts: Sequence[str], options: Sequence[str]) -> Mapping[str, str]:
    """Return why jobs with sbatch's *options* would not start on some of *hosts*."""
    given = collector_options(_with_access(campaign, options))
    names = [option.partition("=")[2] for option in given if option.startswith("--reservation=")]
    reasons = slurm.unavailable(hosts, *(names or [os.environ.get("SBATCH_RESERVATION", "")]))
    return {host: f"Slurm has it {why}; --wait submits a job that waits for it" for host, why in reasons.items()}


def submit_alone(campaign: Campaign, host: str, options: Sequence[str], *, fds: Sequence[int] = ()) -> str:
    """Submit a job of a campaign of one host, which also collects; return its number. Raises RunFailed.

    *options* are sbatch's and follow the options of the system, *fds* stay open in it.
    """
    given = [str(template(campaign.kind)), "--campaign", str(campaign.folder)]
    return _submit_to(campaign, host, [*_with_access(campaign, options), *given], fds=fds)


def _submit_to(campaign: Campaign, host: str, argv: Sequence[str], *, fds: Sequence[int] = ()) -> str:
    """Submit a job for a host by sbatch's *argv*, note it, and return its number; raises RunFailed."""
    _log(campaign).mkdir(parents=True, exist_ok=True)
    job = slurm.submit(_of_host(campaign, host, argv), cwd=paths.ROOT, fds=fds)
    note(campaign.folder, job, 1, [host])
    return job


def _given(campaign: Campaign, argv: Sequence[str]) -> list[str]:
    """Return the template of a job that measures, with its arguments."""
    return [str(template(campaign.kind)), *argv, "--campaign", str(campaign.folder), "--no-collect"]


def _of_host(campaign: Campaign, host: str, argv: Sequence[str]) -> list[str]:
    return [f"--nodelist={host}", f"--output={_log(campaign)}/%x-{host}-%j.out", *argv]


def _of_collector(campaign: Campaign, after: str, options: Sequence[str], argv: Sequence[str]) -> list[str]:
    job = [f"--dependency=afterany:{after}", f"--output={_log(campaign)}/collect-%j.out"]
    return [*options, *job, str(template("collect")), str(campaign.folder), *argv]


def _log(campaign: Campaign) -> Path:
    """Return the folder of the jobs' output, which sbatch does not create."""
    return campaign.folder / "log"


def _with_access(campaign: Campaign, options: Sequence[str]) -> list[str]:
    """Return the options of the system's file, followed by sbatch's: of two values, sbatch uses the last one."""
    return [*split_options(load(campaign.system).access), *options]


def partition_of(system: System) -> str:
    """Return the partition of Slurm that a system's file names, "" if it names none."""
    names = [o for o in collector_options(split_options(system.access)) if o.startswith("--partition=")]
    return names[0].removeprefix("--partition=") if names else ""


def collect_later(campaign: Campaign, job: slurm.SlurmJob, collecting: Sequence[str] = ()) -> str:
    """Submit the job that collects when all elements and hosts of *job* have ended; return its number.

    *collecting* are its arguments. Only the first element of an array submits it, the others return "".
    """
    mark = campaign.folder / "submissions" / f".collector-{job.array}"
    if not create_exclusive(mark, {"by": job.job}):
        return ""
    names = ("partition", "account", "qos", "reservation")
    own = {name: os.environ.get(f"SLURM_JOB_{name.upper()}") for name in names}
    given = [f"--{name}={value}" for name, value in own.items() if value]
    try:
        return _collector(campaign, job.array, given, collecting)
    except RunFailed:
        # This job's partition may refuse a job of another size, which the default partition may accept.
        return _collector(campaign, job.array, [], collecting)


def _collector(campaign: Campaign, after: str, options: Sequence[str], argv: Sequence[str]) -> str:
    _log(campaign).mkdir(parents=True, exist_ok=True)
    return slurm.submit(_of_collector(campaign, after, options, argv), cwd=paths.ROOT)
