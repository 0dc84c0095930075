# SPDX-License-Identifier: Apache-2.0
"""One host's part of a campaign: plans or continues it as requested, runs it, and collects results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from firsttouch import paths
from firsttouch.benchmarks import profiles
from firsttouch.benchmarks.cases import aligners_of
from firsttouch.campaign import campaigns, journal, submit
from firsttouch.campaign.campaigns import Campaign, Step
from firsttouch.campaign.run import HostRun, Judge, run
from firsttouch.campaign.state import unfinished_steps
from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.execution import slurm
from firsttouch.host import topology
from firsttouch.host.emulation import HOST, host_name
from firsttouch.systems.definition import System, load, mismatch

Say = Callable[[str], None]


class CampaignRequest(Struct, frozen=True):
    """The requested campaign; None and empty values mean the existing campaign's, or a new one's defaults."""

    kind: str
    #: Its name or folder (None: a new campaign).
    campaign: str | None = None
    system: str | None = None
    dataset: str | None = None
    aligners: Sequence[str] = ()
    repetitions: int | None = None
    #: Patterns of the names of its steps.
    steps: Sequence[str] = ()

    def folder(self, job: slurm.SlurmJob | None = None) -> Path:
        """Return the folder of the campaign; a new one is named after its kind and the *job*, or else the time."""
        if self.campaign is not None:
            return campaigns.folder_of(self.campaign)
        unique = job.array if job else datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S")
        return paths.results() / "campaigns" / f"{self.kind}-{unique}"

    def prepare(self, job: slurm.SlurmJob | None = None, *, dry_run: bool = False) -> Campaign:
        """Return the campaign; a new one is written to its folder, unless *dry_run*."""
        folder = self.folder(job)
        effort = profiles.chosen_effort()
        names = tuple(aligners_of(effort.with_aligners(self.aligners))) if self.aligners else None
        wanted = {"system": self.system, "dataset": self.dataset}
        if campaign := self.reopen(folder, wanted | {"aligners": names, "repetitions": self.repetitions}):
            return campaign
        planned = campaigns.plan(
            self.kind,
            folder,
            system=self.system or paths.LOCAL,
            dataset=self.dataset or profiles.default("dataset"),
            aligners=self.aligners,
            repetitions=self.repetitions or 3,
            only=self.steps,
        )
        return planned if dry_run else campaigns.create(planned)

    def reopen(self, folder: Path, wanted: Mapping[str, Any]) -> Campaign | None:
        """Return the campaign in *folder*, None without one; raises BadInput if it differs from *wanted*.

        Values of *wanted* that are None are taken from the campaign.
        """
        if not (folder / "campaign.json").exists():
            return None
        campaign = campaigns.read(folder)
        given = {k: v for k, v in {"kind": self.kind, **wanted}.items() if v is not None}
        if "repetitions" in given:
            given["repetitions"] = profiles.chosen_effort(campaign.effort).limit(given["repetitions"])
        campaigns.check(campaign, given)
        campaigns.select_steps(campaign.steps, self.steps)
        return campaign


def check_host_name() -> None:
    """Raise BadInput if this host's name cannot be the name of a folder."""
    if not HOST.fullmatch(host_name()):
        raise BadInput(
            f"this host is called {host_name()!r} (SLURMD_NODENAME or hostname), which cannot name a folder"
        )


def carry_out(
    campaign: Campaign,
    job: slurm.SlurmJob | None,
    judge: Judge | None = None,
    *,
    steps: Sequence[str] = (),
    backend: str = "",
    image: str = "",
    collects: bool = True,
    collecting: Sequence[str] = (),
    hint: str = "",
    say: Say = print,
) -> HostRun:
    """Run the missing steps of *campaign* on this host, in *job* if there is one.

    If there are several hosts or array elements, the first submits the collecting job with the arguments
    *collecting*, unless *collects* is false. *hint* follows the system's name in the first message.
    """
    # Only the first job of an array prints it.
    if job and journal.note(campaign.folder, job.array, max(job.elements, job.hosts)):
        say(f"campaign {campaign.name}: {len(campaign.steps)} steps, results in {campaign.folder}")
    if job and not job.alone and collects:
        _collect_later(campaign, job, collecting, say)
    say(f"{campaign.kind} on {host_name()}, system {campaign.system}{hint}")
    system = load(campaign.system)
    for contradiction in contradictions(system, job):
        say(f"firsttouch: {contradiction}")
    if difference := mismatch(system, topology.read_host()):
        if not campaign.judged or all(step.name != "topology" for step in campaign.steps):
            raise BadInput(f"{difference}: --system names another one")
        say(f"{difference}: only its topology is measured, and its verdict follows from that")
        steps = ("topology",)
    try:
        return run(campaign, say, judge, only=steps, programs=backend, image=image)
    finally:
        say(f"results: {campaign.folder}")


def contradictions(system: System, job: slurm.SlurmJob | None) -> Iterator[str]:
    """Yield the contradictions of this host's name and the job's partition to the system's file."""
    if strangers := system.strangers([host_name()]):
        yield strangers
    wanted, actual = submit.partition_of(system), slurm.partition()
    if job and wanted and actual not in wanted.split(","):
        yield f"this job is in the partition {actual}; the hosts of the system {system.name} are in {wanted}"


def _collect_later(campaign: Campaign, job: slurm.SlurmJob, collecting: Sequence[str], say: Say) -> None:
    try:
        if number := submit.collect_later(campaign, job, collecting):
            say(f"job {number} will collect the results when all of job {job.array} has ended")
    except FirstTouchError as error:
        say(f"firsttouch: {error}; collect by hand: firsttouch campaign collect {campaign.folder}")


def missing_steps(campaign: Campaign, patterns: Sequence[str] = ()) -> list[Step]:
    """Return the steps, of those that match *patterns*, that this host would run now."""
    left = unfinished_steps(campaign, campaign.host(host_name()))
    return [step for step in campaigns.select_steps(campaign.steps, patterns) if step.name in left]
