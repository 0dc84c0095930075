# SPDX-License-Identifier: Apache-2.0
"""Submits campaigns to Slurm, and drains hosts that failed."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from firsttouch import paths
from firsttouch.errors import BadInput, FirstTouchError, RunFailed
from firsttouch.fleet import slurm
from firsttouch.fleet.campaigns import Campaign
from firsttouch.fleet.journal import note, note_without_job, once
from firsttouch.host.emulation import HOST, short_name
from firsttouch.judge.verdict import HostVerdict

# ----------------------------------------------------------------------
# Takes a host that failed out of Slurm's service, and never one that somebody else has a hand on.
#
# Host names come from records, which others may have written. Slurm takes ``ALL`` and expressions such as
# ``n[1-100]`` for many hosts, so a name reaches scontrol only if it can be nothing but one host.

#: How a reason of ours begins.
OURS = "firsttouch: "
#: Characters of a reason: what slurmdbd keeps of one.
_LONGEST = 250
#: States in which a host is somebody's business already.
_TAKEN = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "MAINT", "ERROR", "RESERVED", "FUTURE"}
)
_RESERVED = frozenset({"RESERVED", "MAINT"})
#: Slurm's words to a user who may not.
_FORBIDDEN = re.compile("invalid user id|permission denied|access", re.IGNORECASE)


@dataclass(frozen=True)
class Drain:
    """What is to be done about a host: a command, or *why_not*."""

    argv: tuple[str, ...]
    why_not: str = ""

    @property
    def command(self) -> str:
        """The command as a person would type it."""
        return shlex.join(self.argv)


def plan(found: HostVerdict, source: str, reservation: str = "") -> Drain:
    """Return how to drain a host that failed; one in the admin's own *reservation* is nobody else's.

    The reason names the *source* of the verdict: its campaign or records.

    Raises BadInput for a name that is not one host's, RunFailed or Missing where Slurm cannot be asked.
    """
    if found.verdict != "fail":
        return Drain((), f"{found.host} is not drained: its verdict is {found.verdict}")
    node, facts = _node(found.host)
    states = set(re.split(r"[+*~#!%$@^-]", facts.get("State", "")))
    if reservation and states & _RESERVED and node in slurm.reserved(reservation):
        states -= _RESERVED
    reason = facts.get("Reason", "")
    if reason.startswith(OURS):
        return Drain((), f"{node} is drained already: {reason}")
    if taken := sorted(states & _TAKEN):
        why = f": {reason}" if reason else ""
        hint = "; --reservation names one of yours" if set(taken) <= _RESERVED and not reservation else ""
        return Drain((), f"{node} is left alone: somebody else has it {'+'.join(taken)}{why}{hint}")
    whose = f"; {source}"[: _LONGEST // 2]
    text = f"{OURS}{found.reason()}"[: _LONGEST - len(whose)] + whose
    text = re.sub(r"[^A-Za-z0-9 .,:;%/()=+_-]", "_", text)
    return Drain(("scontrol", "update", f"nodename={node}", "state=drain", f"reason={text}"))


def _node(host: str) -> tuple[str, Mapping[str, str]]:
    """Return Slurm's name of a host, which records may name with its domain, and what Slurm says of it."""
    if not HOST.fullmatch(host) or host.upper() == "ALL":
        raise BadInput(f"{host!r} is not the name of one host: Slurm would not be asked to drain one")
    try:
        return host, slurm.node(host)
    except RunFailed:
        if short_name(host) == host:
            raise
        return short_name(host), slurm.node(short_name(host))


def apply(found: HostVerdict, source: str, *, dry_run: bool, reservation: str = "") -> str:
    """Drain a host that failed (or only say how) and return what was done, as a line."""
    wanted = plan(found, source, reservation)
    if wanted.why_not:
        return wanted.why_not
    if dry_run:
        return f"would run: {wanted.command}"
    try:
        slurm.run(wanted.argv)
    except RunFailed as error:
        if _FORBIDDEN.search(str(error)):
            raise RunFailed(f"only an administrator of Slurm may drain a host ({error})") from error
        raise
    return f"{found.host} is drained: {wanted.command}"


def apply_all(
    verdicts: Sequence[HostVerdict], source: str, *, dry_run: bool, reservation: str = ""
) -> Iterator[tuple[str, int]]:
    """Drain every host that failed; yield a line for each and the exit status that it asks for.

    A host that cannot be drained does not keep the others in service.
    """
    for found in verdicts:
        if found.verdict == "fail":
            try:
                yield apply(found, source, dry_run=dry_run, reservation=reservation), 0
            except FirstTouchError as error:
                # Slurm that is not here is no verdict that is not decided.
                yield f"{found.host} is not drained: {error}", 2 if isinstance(error, BadInput) else 1


# ----------------------------------------------------------------------
# Submits a template for many hosts at once, and the job that collects when all of them have ended.

#: As many sbatch are under way at once: a controller serves some, and does not like many.
_AT_ONCE = 8
TEMPLATES = paths.ROOT / "slurm"
#: sbatch's options that say who may run where: the job that collects needs them as well.
_WHERE = (
    ("--partition", "-p"),
    ("--account", "-A"),
    ("--qos", "-q"),
    ("--clusters", "-M"),
    ("--reservation",),
    ("--wckey",),
)


@dataclass(frozen=True)
class Submitted:
    """The numbers of the *jobs* and of the *collector* (empty: none), and why hosts have no job (*refused*)."""

    jobs: Sequence[str]
    collector: str
    refused: Mapping[str, str]


def template(kind: str) -> Path:
    """Return the sbatch template of a kind of campaign; raises BadInput where it is not there."""
    file = TEMPLATES / f"{kind}.sbatch"
    if not file.is_file():
        raise BadInput("the template is not there: firsttouch has to be run from its checkout", file=file)
    return file


def words(options: Sequence[str]) -> list[str]:
    """Return sbatch's options as it takes them: ``-p all``, given as one word, are two."""
    split = (re.fullmatch(r"(--?[A-Za-z-]+)\s+(.+)", option) for option in options)
    return [w for option, two in zip(options, split, strict=True) for w in (two.groups() if two else (option,))]


def where(options: Sequence[str]) -> list[str]:
    """Return those of sbatch's *options* that the job that collects needs too; raises BadInput for a bad one."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for names in _WHERE:
        parser.add_argument(*names)
    try:
        chosen, _ = parser.parse_known_args(list(options))
    except argparse.ArgumentError as error:
        raise BadInput(f"--sbatch: {error}") from error
    return [f"--{name}={value}" for name, value in vars(chosen).items() if value is not None]


def submit(
    campaign: Campaign,
    hosts: Sequence[str],
    options: Sequence[str],
    argv: Sequence[str],
    *,
    collecting: Sequence[str] = (),
    wait: bool = False,
) -> Submitted:
    """Submit one job for each of *hosts*, and one that collects after all.

    *options* are sbatch's, *argv* the template's and *collecting* those of the job that collects. All hosts are
    written down first, so that one without a job is missed. Hosts that are down or drained get none unless the
    jobs shall *wait* for them. Where Slurm refuses some of the jobs, the others are collected all the same.
    """
    file = template(campaign.kind)
    where(options)
    out = campaign.folder / "log"
    out.mkdir(parents=True, exist_ok=True)
    given = [*argv, "--campaign", str(campaign.folder), "--no-collect"]
    jobs: list[str] = []
    refused: dict[str, str] = {}
    note_without_job(campaign.folder, hosts, "its job was not submitted")

    def refuse(host: str, why: str) -> None:
        refused[host] = why
        note_without_job(campaign.folder, [host], why)

    def one(host: str) -> None:
        own = [f"--nodelist={host}", f"--output={out}/%x-{host}-%j.out"]
        try:
            job = slurm.submit([*own, *options, str(file), *given], cwd=paths.ROOT)
        except RunFailed as error:
            refuse(host, str(error))
        else:
            jobs.append(job)
            note(campaign.folder, job, 1, [host])

    for host, why in ({} if wait else slurm.unavailable(hosts)).items():
        refuse(host, f"Slurm has it {why}; --wait submits a job that waits for it")
    collector = ""
    try:
        # sbatch waits for the controller most of its time.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(one, [h for h in hosts if h not in refused]))
    finally:
        if jobs:
            try:
                collector = _collector(campaign, ":".join(jobs), where(options), collecting)
            except RunFailed as error:
                refused["the job that collects"] = str(error)
    return Submitted(sorted(jobs, key=int), collector, refused)


def collect_later(campaign: Campaign, job: slurm.Job, collecting: Sequence[str] = ()) -> str:
    """Submit the job that collects when all of *job*'s array or hosts have ended, once; return its number.

    *collecting* are its arguments. An empty number: another element of the array did it.
    """
    mark = campaign.folder / "submissions" / f".collector-{job.array}"
    if not once(mark, {"by": job.job}):
        return ""
    names = ("partition", "account", "qos", "reservation")
    own = {name: os.environ.get(f"SLURM_JOB_{name.upper()}") for name in names}
    given = [f"--{name}={value}" for name, value in own.items() if value]
    try:
        return _collector(campaign, job.array, given, collecting)
    except RunFailed:
        # Where this job runs, one of another size may not be welcome: the site's default may do.
        return _collector(campaign, job.array, [], collecting)


def _collector(campaign: Campaign, after: str, options: Sequence[str], argv: Sequence[str]) -> str:
    out = campaign.folder / "log"
    out.mkdir(parents=True, exist_ok=True)
    own = [f"--dependency=afterany:{after}", f"--output={out}/collect-%j.out"]
    file = str(template("collect"))
    return slurm.submit([*options, *own, file, str(campaign.folder), *argv], cwd=paths.ROOT)
