# SPDX-License-Identifier: Apache-2.0
"""Runs what is missing of a campaign on this host, one step at a time, until nothing is left to do here."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from firsttouch import backend, exclusive, records, settings
from firsttouch.campaign import model, slurm
from firsttouch.campaign.claims import Beating, Claim, Claims, Holder
from firsttouch.campaign.files import is_full, room
from firsttouch.campaign.journal import FINISHED, Entry, Journal, State, now
from firsttouch.campaign.model import Campaign, Step
from firsttouch.campaign.state import missing_of
from firsttouch.errors import CANNOT_HERE, RunFailed
from firsttouch.machine import host_name
from firsttouch.measure import effort
from firsttouch.records import Record
from firsttouch.supervise import guarded, last_lines
from firsttouch.systems import System, load
from firsttouch.verdict import HostVerdict, file
from firsttouch.verdict.judge import MOST_PASSES, cases, judge, undecided

Say = Callable[[str], None]


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
    backend.prepared(*chosen, ["--version"])
    with room(campaign.folder), exclusive.measuring(say), exclusive.no_process_left():
        runner = _Runner(campaign, say, backend.command(*chosen), only)
        runner.journal.open()
        runner.journal.note_lost()
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
        self.steps = model.chosen(campaign.steps, only)
        self.host = host_name()
        self.journal = campaign.host(self.host)
        self.job = slurm.Job.here()
        self.claims = Claims(campaign.folder / "claims", Holder.here(self.host))
        self.outcome = Outcome()
        self.tried: set[str] = set()
        #: By folder: each reads on where it was.
        self.journals = {self.journal.folder: self.journal}
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
                self.step(step, Beating(claim))

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
            self.say(f"  {step.name}: {state} [{seconds:.1f} s]" + (f": {reason}" if reason else ""))
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
        """Run the step's command; return how it ended, why where not well, and its records."""
        with tempfile.TemporaryDirectory(prefix="firsttouch-") as name:
            out, log = Path(name) / "records.jsonl", Path(name) / "log"
            status = self._command([*step.argv, "--records", str(out)], log, beat)
            found = records.read(out) if out.exists() else []
            said = log.read_text(encoding="utf-8", errors="replace").splitlines()
            cannot = next((li for li in said if li.startswith(CANNOT_HERE)), None)
            if cannot is not None and not found:
                return "skipped", cannot.removeprefix(CANNOT_HERE), []
            bad = next((r.reason for r in found if r.status != "valid"), None)
            if bad is not None:
                return "invalid", bad, found
            if status or not found:
                reason = last_lines(log, 1).removeprefix("firsttouch: error: ") or "it said nothing"
                return "failed", f"status {status}: {reason}", []
            return "done", "", found

    def _command(self, argv: list[str], log: Path, beat: Callable[[], None]) -> int:
        env = {
            **os.environ,
            effort.VARIABLE: self.campaign.effort,
            "FIRSTTOUCH_SYSTEM": self.campaign.system,
            "FIRSTTOUCH_PARTITION": _partition(),
        }
        with log.open("wb") as err:
            process = subprocess.Popen(
                guarded([*self.firsttouch, *argv]),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                process_group=0,
            )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(1)
                beat()
        except BaseException:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
            raise

    def look(self) -> None:
        """Write down the host's settings, which name the cause of a bad verdict."""
        found = [replace(r, system=self.campaign.system, partition=_partition()) for r in settings.records()]
        begin, end = self.journal.add(found)
        self._note(Step("settings", ()), "done", begin=begin, end=end)

    def judge(self, passes: int) -> None:
        """Give this host its verdict; what is suspect is measured again before."""
        system = load(self.campaign.system)
        for _ in range(passes - 1):
            suspect = self._suspect(system, passes)
            if not suspect:
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
        file.write(self.outcome.verdict, self.journal.folder / "verdict", file.folder() / self.host)

    def _suspect(self, system: System, most: int) -> list[Step]:
        """Return the steps of which something is suspect and may be decided by another pass."""
        made = [(entry.step, r) for entry, some in self.journal.measured() for r in some]
        of = {id(r): step for step, r in made}
        names = {of[id(passes[0])] for passes in cases(r for _, r in made) if undecided(passes, system, most)}
        return [s for s in self.steps if s.name in names]


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
