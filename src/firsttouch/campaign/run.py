# SPDX-License-Identifier: Apache-2.0
"""Runs the missing steps of a campaign on this host, one at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from firsttouch import paths
from firsttouch.benchmarks import drawn_order, kernel_settings, profiles
from firsttouch.benchmarks.cases import aligners_of
from firsttouch.campaign import campaigns, journal, submit
from firsttouch.campaign.campaigns import Campaign, Step
from firsttouch.campaign.journal import FINISHED, Entry, Journal, Mark, State, full_disk_as_missing, is_full, now
from firsttouch.campaign.leases import BEAT, GONE, Holder, Leases
from firsttouch.campaign.state import SILENT, last_step, missing_of, unfinished_steps
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, FirstTouchError, RunFailed
from firsttouch.execution import backends, host_lock, slurm
from firsttouch.execution.child_process import child, follow, last_lines
from firsttouch.execution.progress import Steps
from firsttouch.host import topology
from firsttouch.host.emulation import HOST, host_name
from firsttouch.host.host_lists import fold
from firsttouch.records import schema, step_outcome
from firsttouch.records.cases import Case
from firsttouch.records.schema import BUSY, Record
from firsttouch.systems.definition import System, load, mismatch

Say = Callable[[str], None]
#: Seconds between checks of a busy host, before it is treated as permanently busy.
_PAUSES = (30, 60, 120, 240, 480)
_SMOKE_PAUSES = (1, 2)


class Judge(Protocol):
    """Decides which cases are undecided, because a campaign does not judge.

    *records* are the records of each host so far.
    """

    #: The most repetitions of an undecided case.
    most: int

    def next_cases(
        self, records: Mapping[str, Sequence[Record]], host: str, present: Collection[str]
    ) -> tuple[Sequence[str], bool]:
        """Return the keys of the cases that *host* measures next, and whether other *present* hosts do."""

    def left_by_fleet(self, records: Mapping[str, Sequence[Record]], host: str) -> Mapping[str, int]:
        """Return the cases that stay undecided on a *host* by the whole fleet, with their repetitions."""

    def conclude(
        self,
        records: Mapping[str, Sequence[Record]],
        *,
        missing: Mapping[str, Sequence[str]],
        host: str,
        hosts: Collection[str],
        measured_at: float,
        file: Path,
    ) -> None:
        """Judge the *hosts* of the job, and write the verdict of this *host* to *file*, too.

        *missing* are the steps without results by host, *measured_at* is the time of the host's newest records.
        """


class HostRun(Struct):
    """The result of a run on one host."""

    #: The number of steps by last state.
    ended: dict[str, int] = field(default_factory=dict)
    #: The seconds of a job that judged, and why undecided cases were not measured again (or "").
    seconds: float = 0.0
    limit: str = ""
    #: Whether this host prints the messages for all hosts of the job, and the hosts of its exit status.
    speaks: bool = True
    stands_for: Sequence[str] = ()

    @property
    def good(self) -> bool:
        """Return whether every started step succeeded, and none found a defect of the host."""
        return not set(self.ended) - (FINISHED - {"found"})


def run(
    campaign: Campaign,
    say: Say,
    judge: Judge | None = None,
    *,
    only: Sequence[str] = (),
    programs: str = "",
    image: str = "",
    clock: Clock = SYSTEM_CLOCK,
) -> HostRun:
    """Run all remaining steps of this host; raises Missing if the results' file system is full.

    If the kind of campaign gives verdicts, the *judge* judges the hosts, and undecided cases are measured again.
    *only* has patterns of step names (none: all). *programs* is the backend of the programs and *image* its image
    or view ("": the partition's); raises BadInput, Missing or CannotHere if it does not fit this host.
    """
    chosen = load(campaign.system).programs(slurm.partition(), programs, image)
    backends.start_with(*chosen, ["--version"])
    with full_disk_as_missing(campaign.folder), host_lock.hold_host(say), host_lock.no_process_left():
        runner = _Runner(campaign, say, backends.command(*chosen), only, clock)
        runner.journal.open()
        runner.journal.note_lost()
        runner.is_again = not runner.left()
        with runner.progress, runner.taking_part():
            runner.go()
            if judge is not None and campaign.judged:
                runner.decide(judge)
    return runner.outcome


class _Runner:
    """One host's part of a campaign."""

    def __init__(
        self,
        campaign: Campaign,
        say: Say,
        firsttouch: Sequence[str],
        only: Sequence[str] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.campaign, self.say, self.firsttouch, self.clock = campaign, say, firsttouch, clock
        self.began = clock.monotonic()
        self.steps = campaigns.select_steps(campaign.steps, only)
        self.host = host_name()
        self.journal = campaign.host(self.host)
        self.job = slurm.SlurmJob.here()
        self.leases = Leases(campaign.folder / "claims", Holder.here(self.host), clock)
        self.outcome = HostRun()
        self.progress = Steps()
        self.tried: set[str] = set()
        #: By folder, so that each journal is kept and reads only new lines of its file.
        self.journals = {self.journal.folder: self.journal}
        #: The seed of the round, and the steps that began in it.
        self.order, self.place = drawn_order.seed(), 0
        #: True if an earlier job ran all steps: then this job measures what the fleet leaves undecided.
        self.is_again = False
        #: Reasons of skipped steps that were printed already.
        self.skipped: set[str] = set()
        #: Writes the heartbeat of this host's lease.
        self.beat: Callable[[], None] = lambda: None
        hosts = slurm.hosts_of_step() if self.campaign.judged else []
        hosts = hosts if self.host in hosts else [self.host]
        self.meeting = Meeting(campaign, self.journal, self.leases, hosts, say=say, clock=clock)

    @contextlib.contextmanager
    def taking_part(self) -> Iterator[None]:
        """Hold the lease of this host, which covers all its steps."""
        own = self.leases.take(self.host)
        if own is None:
            raise RunFailed(f"{self.host}: another process has just begun to measure this host")
        with own:
            self.beat = own.beat_if_due
            yield

    def go(self) -> None:
        """Run the steps that are left for this host."""
        if not (steps := self.left()):
            self.say(f"{self.host}: all {len(self.steps)} steps are done")
        for step in self.draw(steps, 0):
            self.step(step)

    def draw(self, steps: Sequence[Step], number: int) -> list[Step]:
        """Return the steps of a round in a newly drawn order, after the topology, which measures nothing."""
        self.order, self.place = drawn_order.round_seed(number, self.host), 0
        ordered = drawn_order.shuffle(steps, self.order)
        if len(ordered) > 1:
            self.say(drawn_order.sentence(drawn_order.seed()))
        return sorted(ordered, key=lambda step: step.name != "topology")

    def left(self) -> list[Step]:
        """Return the steps that are left for this host."""
        done = self._finished() | self.tried
        return [s for s in self.steps if s.name not in done]

    def _finished(self) -> set[str]:
        """Return the steps that are not run again: finished, or failed in this submission."""
        return {
            entry.step
            for entry in self.journal.entries()
            if entry.state in FINISHED
            or (entry.state in {"failed", "invalid"} and self.job and entry.array == self.job.array)
        }

    def _all_journals(self) -> list[Journal]:
        return [self.journals.setdefault(j.folder, j) for j in self.campaign.hosts()]

    def step(self, step: Step) -> None:
        """Run one step and store its records and its state, or the reason why it failed."""
        self.progress.begin(step.name, len(self.left()))
        self.place += 1
        self.tried.add(step.name)
        self._note(step, "began")
        began = self.clock.monotonic()
        try:
            state, reason, records = self._measure(step)
            begin, end = self.journal.add(records) if records else (0, 0)
        except BaseException as error:
            self._note(step, "stopped" if isinstance(error, KeyboardInterrupt) else "failed", _reason(error))
            raise
        seconds = self.clock.monotonic() - began
        self._note(step, state, reason, seconds=seconds, begin=begin, end=end)
        self.outcome.ended[state] = self.outcome.ended.get(state, 0) + 1
        count = self.progress.end()
        if state != "skipped" or reason not in self.skipped:
            host = f"{self.host} " if self.job and self.job.hosts > 1 else ""
            self.say(
                f"  {host}{step.name}: {state} [{seconds:.1f} s; {count}]" + (f": {reason}" if reason else "")
            )
        if state == "skipped":
            self.skipped.add(reason)

    def _note(
        self, step: Step, state: State, reason: str = "", *, seconds: float = 0, begin: int = 0, end: int = 0
    ) -> None:
        job = (self.job.job, self.job.array) if self.job else ("", "")
        self.journal.write(Entry(step.name, state, now(), self.host, *job, reason, round(seconds, 3), begin, end))

    def _measure(self, step: Step) -> tuple[State, str, list[Record]]:
        """Run the step's command; return its outcome, the reason unless it was measured, and its records.

        A step that failed keeps the records that it wrote before.
        """
        with tempfile.TemporaryDirectory(prefix="firsttouch-") as name:
            out, log, stated = (Path(name) / file for file in ("records.jsonl", "log", "outcome.json"))
            status = self._command(step.command(out), log, stated)
            records = schema.read(out) if out.exists() else []
            last_words = last_lines(log, 1).removeprefix("firsttouch: error: ")
            outcome = step_outcome.read(stated, status, has_records=bool(records), last_words=last_words)
            reason = outcome.reason
            if outcome.word == "failed" and os.strerror(errno.ENOSPC) in reason:
                reason += f" (temporary files are in {tempfile.gettempdir()}: TMPDIR names another folder)"
            return outcome.word, reason, records

    def _command(self, argv: list[str], log: Path, stated: Path) -> int:
        env = {
            step_outcome.VARIABLE: str(stated),
            profiles.VARIABLE: self.campaign.effort,
            drawn_order.VARIABLE: str(self.order),
            drawn_order.STEP: str(self.place),
            "FIRSTTOUCH_SYSTEM": self.campaign.system,
            "FIRSTTOUCH_PARTITION": slurm.partition(),
        }
        command = [*self.firsttouch, *argv]
        with (
            log.open("wb") as err,
            child(command, stop=signal.SIGTERM, patience=5, stderr=err, env=env) as process,
        ):
            return follow(process, 1, self.beat)

    def is_quiet(self) -> bool:
        """Wait until no other program keeps this host busy; return False if it is still busy after all pauses."""
        pauses = _SMOKE_PAUSES if self.campaign.effort == "smoke" else _PAUSES
        for pause in (*pauses, None):
            busy = kernel_settings.busy_pus().value
            if busy < BUSY:
                return True
            if pause is not None:
                self.say(f"{self.host}: {busy:.1f} PUs are busy with other programs: looking again in {pause} s")
                self.clock.sleep(pause)
        return False

    def decide(self, judge: Judge) -> None:
        """Measure undecided cases again, together with the hosts of the job, and have the verdict written.

        It stops when more repetitions cannot decide, when no host measured in the last round, or when the job has
        too little time left. A host that is busy with other programs does not measure again.
        """
        most, deadline = judge.most, slurm.end_of_job()
        number, goal, is_measured, is_late, is_busy = 0, 0, True, False, False
        while self.meeting.end_round(number, is_measured=is_measured, beat=self.beat) and number < most - 1:
            if self.is_again and not goal and len(self.meeting.hosts) == 1:
                # Cases that the fleet leaves undecided get twice the number of repetitions of the earlier jobs.
                left = judge.left_by_fleet(self._records(self._all_journals()), self.host)
                goal = 2 * min(left.values(), default=0)
            if (open_steps := self._open_steps(judge, goal)) is None:
                break
            seconds = {entry.step: entry.seconds for entry in self.journal.entries() if entry.end}
            # The most suspicious steps are chosen first, but run in random order.
            total, steps = 0.0, []
            for step in open_steps:
                if fits(total + seconds.get(step.name, 0.0), deadline, self.clock):
                    total += seconds.get(step.name, 0.0)
                    steps.append(step)
            is_late |= len(steps) < len(open_steps)
            if not is_busy and any(s.name != "topology" for s in steps) and (is_busy := not self.is_quiet()):
                self.say(f"{self.host}: other programs keep it busy: undecided metrics are not measured again")
            steps = [] if is_busy else steps
            is_measured, number = bool(steps), number + 1
            if steps:
                self.say(f"{self.host}: measuring undecided steps again: {', '.join(s.name for s in steps)}")
            for step in self.draw(steps, number):
                if fits(seconds.get(step.name, 0.0), deadline, self.clock):
                    self.step(step)
                else:
                    is_late = True
        limits = {
            "other programs keep the host busy": is_busy,
            "the job has too little time left": is_late,
            f"at most {most} repetitions are made": number >= most - 1,
        }
        self._conclude(judge, next((limit for limit, holds in limits.items() if holds), ""))

    def _conclude(self, judge: Judge, limit: str) -> None:
        """Have the hosts of the job judged by all records, and this host's verdict written."""
        hosts = self.meeting.hosts
        journals = self._all_journals() if len(hosts) > 1 else [self.journal]
        missing = {j.host: missing_of(self.campaign, j) for j in journals}
        for host, why in self.meeting.absent.items():
            missing[host] = [why, *missing.get(host, ())]
        judge.conclude(
            self._records(journals),
            missing=missing,
            host=self.host,
            hosts=hosts,
            measured_at=self.journal.measured_at(),
            file=self.journal.folder / "verdict",
        )
        self.outcome.speaks = self.meeting.speaks
        absent = [host for host in hosts if host not in self.meeting.present]
        self.outcome.stands_for = [self.host, *(absent if self.meeting.speaks else ())]
        self.outcome.seconds, self.outcome.limit = self.clock.monotonic() - self.began, limit

    def _open_steps(self, judge: Judge, goal: int) -> list[Step] | None:
        """Return the steps of this host in the next round, the most suspicious first; None if no host has any."""
        journals = self._all_journals() if len(self.meeting.hosts) > 1 else [self.journal]
        records = self._records(journals, self.meeting.ended)
        open_cases, others = judge.next_cases(records, self.host, self.meeting.present)
        if goal:
            left = judge.left_by_fleet(self._records(self._all_journals()), self.host)
            open_cases = [*open_cases, *(key for key, n in left.items() if n < goal)]
        steps = self._steps_of(open_cases)
        return steps or ([] if others else None)

    def _records(self, journals: Sequence[Journal], until: Mark | None = None) -> dict[str, list[Record]]:
        """Return the records of each host."""
        return {journal.host: journal.all_records(until) for journal in journals}

    def _steps_of(self, keys: Sequence[str]) -> list[Step]:
        """Return the steps that measured the cases *keys*, in that order."""
        names: dict[str, set[str]] = defaultdict(set)
        for entry, records in self.journal.finished_steps():
            for record in records:
                names[Case.from_record(record).key].add(entry.step)
        ordered = dict.fromkeys(name for key in keys for name in sorted(names[key]))
        by_name = {step.name: step for step in self.steps}
        return [by_name[name] for name in ordered if name in by_name]


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "it was stopped (Ctrl-C, a cancelled job or its time limit)"
    if is_full(error):
        return "the file system of the results is full"
    return f"{type(error).__name__}: {error}"


# ----------------------------------------------------------------------
# Rounds of a job: its hosts measure, then wait for each other, then the records of all hosts are judged together.
# They exchange no messages: each reads the journals of the others, and makes the same plan from the same records.

#: The step name of journal lines that end a round.
ROUND = "round"
#: Seconds of the job that are reserved for verdicts and report, and the factor by which a step may take longer
#: than before.
_RESERVE, _LONGER = 120.0, 1.5
_POLL = 1.0
#: Seconds after which the first host names the hosts that it waits for.
_PATIENCE = 300.0


class Meeting:
    """Where the *hosts* of a job wait for each other at the end of each round.

    *hosts* has this process's host. It does not wait for a host that has left, is down by Slurm, or writes no
    heartbeat. *present* are the hosts that ended the last round, *absent* has the reasons why the others did not.
    *ended* is the mark of that round in the journals (None: it did not end). The next round is decided by the
    lines before the mark, because other hosts may already measure again.
    """

    def __init__(
        self,
        campaign: Campaign,
        journal: Journal,
        leases: Leases,
        hosts: Sequence[str],
        *,
        say: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.campaign = campaign
        self.journal, self.leases, self.hosts, self.say, self.clock = journal, leases, hosts, say, clock
        self.journals = {host: journal if host == journal.host else campaign.host(host) for host in hosts}
        self.present: list[str] = list(hosts)
        self.absent: dict[str, str] = {}
        self.ended: Mark | None = None

    def end_round(self, number: int, *, is_measured: bool, beat: Callable[[], None]) -> bool:
        """End a round on this host, wait until all hosts have ended it, and return whether any host measured."""
        if len(self.hosts) == 1:
            return is_measured
        holder, job = self.leases.holder, slurm.SlurmJob.here()
        ids = (job.job, job.array) if job else ("", "")
        mark = f"{holder.restarts} {number}"
        self.journal.write(Entry(ROUND, "measured" if is_measured else "skipped", now(), holder.host, *ids, mark))
        absent: dict[str, str] = {}
        began = self.clock.monotonic()
        # Hosts that did not end the last round are checked at once.
        asked = began - (BEAT if self.absent else 0.0)
        is_announced = False
        while True:
            ends = {host: self._end(host, ids[0], mark) for host in self.hosts if host not in absent}
            if not (waiting := [host for host, end in ends.items() if not end]):
                break
            absent |= {host: "it left before the others" for host in waiting if self.leases.has_left(host)}
            if (moment := self.clock.monotonic()) - asked >= BEAT:
                asked = moment
                dead = slurm.down(waiting) if ids[0] else set()
                dead |= {host for host in waiting if self.leases.silence(host, moment - began) >= GONE}
                absent |= dict.fromkeys(dead, SILENT)
            if set(waiting) <= set(absent):
                continue
            if self.speaks and not is_announced and moment - began >= _PATIENCE:
                self.say(f"{holder.host}: waiting for {fold(waiting)} to end round {number + 1}")
                is_announced = True
            beat()
            self.clock.sleep(_POLL)
        self.present = [host for host in self.hosts if host in ends]
        self.absent = {}
        for host, why in absent.items():
            entries = [e for e in self.journals[host].entries() if e.job == ids[0]]
            ended = f"{why} {last_step(self.campaign, entries)[1]}"
            self.absent[host] = ended if entries else "it measured nothing in this job"
        self.ended = (ROUND, ids[0], mark)
        return "measured" in ends.values()

    def _end(self, host: str, job: str, mark: str) -> str:
        """Return the state with which a host ended the round with this *mark*, "" if it did not."""
        lines = (e for e in self.journals[host].entries() if e.step == ROUND)
        return next((e.state for e in lines if (e.job, e.reason) == (job, mark)), "")

    @property
    def speaks(self) -> bool:
        """Return whether this host is the one that prints the messages for all hosts of the job."""
        return self.present[0] == self.journal.host


def fits(seconds: float, deadline: float | None, clock: Clock) -> bool:
    """Return whether a step that took *seconds* fits before *deadline* (seconds since 1970; None: no end)."""
    return deadline is None or clock.time() + _LONGER * seconds + _RESERVE <= deadline


# ----------------------------------------------------------------------
# The command's part: plans or continues a campaign as requested, runs it, and collects results


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
