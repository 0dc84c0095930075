# SPDX-License-Identifier: Apache-2.0
"""Runs what is missing of a campaign on this host, one step at a time, until nothing is left to do here."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from firsttouch.benchmarks import kernel_settings, profiles
from firsttouch.errors import CANNOT_HERE, NOT_INSTALLED, RunFailed
from firsttouch.execution import backends, host_lock
from firsttouch.execution.process_runner import child, follow, last_lines
from firsttouch.fleet import campaigns, slurm
from firsttouch.fleet.campaigns import Campaign, Step
from firsttouch.fleet.journal import FINISHED, Entry, Journal, State, is_full, now, room
from firsttouch.fleet.leases import Beating, Claim, Claims, Holder
from firsttouch.fleet.state import missing_of
from firsttouch.host.emulation import host_name
from firsttouch.judge import samples_table, verdict_file
from firsttouch.judge.fleet_level import FEWEST_HOSTS
from firsttouch.judge.judging import MOST_PASSES, judge, judged, undecided, undecided_cases
from firsttouch.judge.samples_table import case_of
from firsttouch.judge.verdict import HostVerdict, case_name
from firsttouch.records import schema
from firsttouch.records.schema import Record
from firsttouch.systems.definition import System, load

Say = Callable[[str], None]
#: Seconds for which a busy host is left alone before the next look at it: a disturbance of a minute is no fault.
_PAUSES = (30, 60, 120, 240, 480)
_PAUSES_OF_SMOKE = (1, 2)


@dataclass
class Outcome:
    """What came of a run on one host: how many steps ended how, and its verdict where the campaign judges."""

    ended: dict[str, int] = field(default_factory=dict)
    verdict: HostVerdict | None = None

    @property
    def good(self) -> bool:
        """Tell whether all that was begun ended well."""
        return not set(self.ended) - FINISHED


def run(
    campaign: Campaign,
    say: Say,
    *,
    only: Sequence[str] = (),
    passes: int = MOST_PASSES,
    programs: str = "",
    image: str = "",
) -> Outcome:
    """Run all steps that are left for this host; raises Missing where the results have no room.

    *only* are patterns of the names of steps (none: all). What the host would be judged by and is unsure is
    measured again, up to so many *passes*. *programs* is the backend that they come from and *image* its image or
    view (empty: what the partition says); raises BadInput, Missing or CannotHere where it does not fit here.
    """
    chosen = load(campaign.system).programs(_partition(), programs, image)
    backends.prepared(*chosen, ["--version"])
    with room(campaign.folder), host_lock.measuring(say), host_lock.no_process_left():
        runner = _Runner(campaign, say, backends.command(*chosen), only)
        runner.journal.open()
        runner.journal.note_lost()
        runner.is_again = not runner.left()
        if campaign.judged:
            runner.look()
        runner.go()
        if campaign.judged:
            runner.judge(passes)
    return runner.outcome


class _Runner:
    """One host's part of a campaign."""

    def __init__(self, campaign: Campaign, say: Say, firsttouch: Sequence[str], only: Sequence[str] = ()) -> None:
        self.campaign, self.say, self.firsttouch = campaign, say, firsttouch
        self.steps = campaigns.chosen(campaign.steps, only)
        self.host = host_name()
        self.journal = campaign.host(self.host)
        self.job = slurm.Job.here()
        self.claims = Claims(campaign.folder / "claims", Holder.here(self.host))
        self.outcome = Outcome()
        self.tried: set[str] = set()
        #: By folder: each reads on where it was.
        self.journals = {self.journal.folder: self.journal}
        #: Whether an earlier job did all steps: this one is for what the fleet leaves undecided.
        self.is_again = False
        # Why steps were skipped: each reason is printed once.
        self.skipped: set[str] = set()

    def go(self) -> None:
        if self.campaign.shared:
            while (taken := self._next()) is not None:
                step, its = taken
                with _held(its):
                    beat = Beating(its)
                    if self._bridged(step, beat):
                        self.step(step, beat)
            return
        # Steps of this host alone: one claim for all of them, so that others see that it is at work.
        claim = self.claims.take(self.host)
        if claim is None:
            raise RunFailed(f"{self.host}: another process has just begun to measure this host")
        with _held(claim):
            done = self._finished()
            if not self._left(done):
                self.say(f"{self.host}: all {len(self.steps)} steps are done")
            for step in self._left(done):
                if self.campaign.judged and step.name != "topology":
                    self.look()
                self.step(step, Beating(claim))

    def left(self) -> list[Step]:
        """Return the steps that are left for this host."""
        return self._left(self._finished())

    def _left(self, done: set[str]) -> list[Step]:
        return [s for s in self.steps if s.name not in done and s.name not in self.tried]

    def _finished(self) -> set[str]:
        """Return what need not be run here any more: finished, or failed on some host since this submission.

        What failed is for the next submission: every host of this one would fail at it in turn.
        """
        hosts = self._every_journal() if self.campaign.shared else [self.journal]
        found = set()
        for entry in (e for host in hosts for e in host.entries()):
            failed = entry.state in {"failed", "invalid"} and self.job and entry.array == self.job.array
            if entry.state in FINISHED or failed:
                found.add(entry.step)
        return found

    def _every_journal(self) -> list[Journal]:
        """Return what each host did; of a journal that was read before, only what came since is read."""
        return [self.journals.setdefault(j.folder, j) for j in self.campaign.hosts()]

    def _bridged(self, step: Step, beat: Callable[[], None]) -> bool:
        """Measure the bridge of *step* (see Campaign.bridge) on this host first; tell whether *step* can follow.

        Where the bridge fails, this host leaves the other steps of the aligner to other hosts.
        """
        bridge = self.campaign.bridge(step)
        if bridge is None or bridge == step:
            return True
        if not self._has_finished(bridge) and bridge.name not in self.tried:
            self.step(bridge, beat)
        good = self._has_finished(bridge)
        if not good:
            self.tried |= {s.name for s in self.campaign.steps if s.aligner == step.aligner}
        return good

    def _has_finished(self, step: Step) -> bool:
        """Tell whether this host itself has finished *step*."""
        return any(e.step == step.name and e.state in FINISHED for e in self.journal.entries())

    def _why_skipped(self, step: Step) -> str:
        """Return why this host has skipped *step* ("": it has not)."""
        last = next((e for e in reversed(self.journal.entries()) if e.step == step.name), None)
        return last.reason if last and last.state == "skipped" else ""

    def _in_order(self, steps: Sequence[Step]) -> list[Step]:
        """Return shared steps in the order in which this host tries to take them.

        First those of aligners that it has the bridge of, so that few bridges are measured and most comparisons
        are within one host; then those that the fewest hosts have begun. Among these the order is drawn by lot,
        another one on each host, so that no scenario is always the first or the last of a host.
        """
        hosts: dict[str, set[str]] = {}
        for journal in self._every_journal():
            for entry in journal.entries():
                hosts.setdefault(entry.step, set()).add(journal.host)

        def rank(step: Step) -> tuple[bool, int, str, bool, str]:
            bridge = self.campaign.bridge(step)
            begun = hosts.get(bridge.name, set()) if bridge else set()
            lot = f"{self.campaign.created} {self.host}"
            return (
                self.host not in begun,
                len(begun),
                _lot(lot, step.aligner),
                step != bridge,
                _lot(lot, step.name),
            )

        return sorted(steps, key=rank)

    def _next(self) -> tuple[Step, Claim] | None:
        for step in self._in_order(self._left(self._finished())):
            claim = self.claims.take(step.name)
            if claim is None:
                continue
            # Somebody may have finished it between the look and the claim.
            if step.name not in self._finished():
                return step, claim
            claim.release()
        return None

    def step(self, step: Step, beat: Callable[[], None]) -> list[Record]:
        """Run one step; its records and how it ended are on the disk afterwards, or its reason."""
        self.tried.add(step.name)
        self._note(step, "began")
        began = time.monotonic()
        try:
            state, reason, found = self._measure(step, beat)
            begin, end = self.journal.add(found) if found else (0, 0)
        except BaseException as error:
            self._note(step, "stopped" if isinstance(error, KeyboardInterrupt) else "failed", _reason(error))
            raise
        seconds = time.monotonic() - began
        self._note(step, state, reason, seconds=seconds, begin=begin, end=end)
        self.outcome.ended[state] = self.outcome.ended.get(state, 0) + 1
        if state != "skipped" or reason not in self.skipped:
            host = f"{self.host} " if self.job and self.job.hosts > 1 else ""
            self.say(f"  {host}{step.name}: {state} [{seconds:.1f} s]" + (f": {reason}" if reason else ""))
        if state == "skipped":
            self.skipped.add(reason)
        return found

    def _note(
        self, step: Step, state: State, reason: str = "", *, seconds: float = 0, begin: int = 0, end: int = 0
    ) -> None:
        job = self.job
        whose = (job.job, job.array) if job else ("", "")
        self.journal.write(
            Entry(step.name, state, now(), self.host, *whose, reason, round(seconds, 3), begin, end)
        )

    def _measure(self, step: Step, beat: Callable[[], None]) -> tuple[State, str, list[Record]]:
        """Run the step's command; return how it ended, why where not well, and its records.

        No other step is started of an aligner whose bridge was skipped because this host lacks the aligner.
        """
        bridge = self.campaign.bridge(step)
        if bridge and bridge != step:
            reason = self._why_skipped(bridge)
            if reason.startswith(f"{step.aligner}{NOT_INSTALLED}"):
                return "skipped", reason, []
        with tempfile.TemporaryDirectory(prefix="firsttouch-") as name:
            out, log = Path(name) / "records.jsonl", Path(name) / "log"
            status = self._command([*step.argv, "--records", str(out)], log, beat)
            found = schema.read(out) if out.exists() else []
            said = log.read_text(encoding="utf-8", errors="replace").splitlines()
            cannot = next((li for li in said if li.startswith(CANNOT_HERE)), None)
            if cannot is not None and not found:
                return "skipped", cannot.removeprefix(CANNOT_HERE), []
            bad = next((r.reason for r in found if r.status != "valid"), None)
            if bad is not None:
                return "invalid", bad, found
            if status or not found:
                reason = last_lines(log, 1).removeprefix("firsttouch: error: ") or "it said nothing"
                if os.strerror(errno.ENOSPC) in reason:
                    reason += f" (temporary files are in {tempfile.gettempdir()}: TMPDIR names another folder)"
                return "failed", f"status {status}: {reason}", []
            return "done", "", found

    def _command(self, argv: list[str], log: Path, beat: Callable[[], None]) -> int:
        env = {
            profiles.VARIABLE: self.campaign.effort,
            "FIRSTTOUCH_SYSTEM": self.campaign.system,
            "FIRSTTOUCH_PARTITION": _partition(),
        }
        command = [*self.firsttouch, *argv]
        with (
            log.open("wb") as err,
            child(command, stop=signal.SIGTERM, patience=5, stderr=err, env=env) as process,
        ):
            return follow(process, 1, beat)

    def look(self) -> float:
        """Write down the host's settings, which explain what follows; return how many PUs others keep busy."""
        found = [
            replace(r, system=self.campaign.system, partition=_partition()) for r in kernel_settings.records()
        ]
        begin, end = self.journal.add(found)
        self._note(Step("settings", ()), "done", begin=begin, end=end)
        return next((r.value for r in found if r.metric == "busy_pus"), 0.0)

    def is_quiet(self) -> bool:
        """Wait, longer each time, until no other program keeps this host busy; tell whether that came to be."""
        pauses = _PAUSES_OF_SMOKE if self.campaign.effort == "smoke" else _PAUSES
        for pause in (*pauses, None):
            busy = self.look()
            if busy < kernel_settings.BUSY:
                return True
            if pause is not None:
                self.say(f"{self.host}: {busy:.1f} PUs are busy with something else: looking again in {pause} s")
                time.sleep(pause)
        return False

    def judge(self, passes: int) -> None:
        """Give this host its verdict; what is suspect is measured again before, while nothing disturbs it."""
        system = load(self.campaign.system)
        goal = 0
        for _ in range(passes - 1):
            suspect = self._suspect(system, passes)
            if self.is_again:
                # What the fleet of the earlier jobs leaves undecided is measured twice as often as before.
                unknown = self._undecided_by_fleet(system, passes)
                goal = goal or 2 * min(unknown.values(), default=0)
                suspect += [s for s in self.steps if unknown.get(s.name, goal) < goal and s not in suspect]
            if not suspect:
                break
            if any(s.name != "topology" for s in suspect) and not self.is_quiet():
                self.say(
                    f"{self.host}: it stays busy with something else: what is outside or unsure stays as it is"
                )
                break
            self.say(
                f"{self.host}: measuring again what is outside or unsure: {', '.join(s.name for s in suspect)}"
            )
            claim = self.claims.take(self.host)
            if claim is None:
                break
            with _held(claim):
                for step in suspect:
                    self.step(step, Beating(claim))
        found = [r for _, some in self.journal.measured() for r in some]
        missing = {self.host: missing_of(self.campaign, self.journal)}
        (self.outcome.verdict,) = judge(found, system, missing=missing)
        files = (self.journal.folder / "verdict", verdict_file.folder() / self.host)
        verdict_file.write(self.outcome.verdict, self.journal.measured_at(), *files)

    def _suspect(self, system: System, most: int) -> list[Step]:
        """Return the steps of which something is suspect or was disturbed, and may be decided by another pass."""
        host_records = (r for _, some in self.journal.measured() for r in some)
        names = self._steps_of(undecided(host_records, system, most))
        return [s for s in self.steps if s.name in names]

    def _undecided_by_fleet(self, system: System, most: int) -> dict[str, int]:
        """Return the passes so far of the steps that all hosts of the campaign together leave undecided here."""
        every = [r for j in self._every_journal() for _, some in j.measured() for r in some]
        if len({r.host for r in every}) < FEWEST_HOSTS:
            return {}
        found = judged(samples_table.of_records(every, system.name), system)
        return self._steps_of(undecided_cases(found, self.host, most))

    def _steps_of(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return the steps that measured these cases, with the fewest of the passes that are given for them."""
        steps: dict[str, int] = {}
        for entry, some in self.journal.measured():
            for record in some:
                name = case_name(record.check, record.metric, case_of(record.check, record.parameters))
                if name in counts:
                    steps[entry.step] = min(counts[name], steps.get(entry.step, counts[name]))
        return steps


def _lot(*names: str) -> str:
    """Return what sorts names as if by chance, the same way each time."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()


def _partition() -> str:
    return os.environ.get("SLURM_JOB_PARTITION", "default")


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "it was told to stop (Ctrl-C, a cancelled job or its time limit)"
    if is_full(error):
        return "the file system of the results is full"
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def _held(claim: Claim) -> Iterator[None]:
    try:
        yield
    finally:
        claim.release()
