# SPDX-License-Identifier: Apache-2.0
"""Quarantine: holds hosts back by reservations, tests them there, and releases or drains them.

In: the log of verdicts, the site's settings, the journal of actions, and Slurm's state. Out: reservations, jobs,
drained hosts, and lines in the journal. A :class:`Round` may be killed at any moment: each action on Slurm is
preceded by its intent, and the next pass asks Slurm for its outcome.

Each host is held by its own reservation, named after the site's setting and the host, with the flags MAINT and
IGNORE_JOBS: running jobs continue. Actions of others are never undone: hosts that are drained, down or reserved
are left alone, and a reservation of ours that somebody deleted is not made again.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import asdict, replace

from firsttouch import paths
from firsttouch.benchmarks import profiles
from firsttouch.campaign import campaigns, submit
from firsttouch.campaign.campaigns import Campaign
from firsttouch.campaign.state import missing_results, state
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, FirstTouchError, RunFailed, TimedOut
from firsttouch.execution import slurm
from firsttouch.execution.host_lock import user_name
from firsttouch.fleet import actions, exclusion, verdict_log
from firsttouch.fleet.actions import Action, Actions, QuarantineState, Test, What
from firsttouch.fleet.site_settings import SiteSettings
from firsttouch.fleet.verdict_log import Logged
from firsttouch.host.host_lists import natural
from firsttouch.judge.judging import judge
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records.schema import Record
from firsttouch.systems.definition import System, load

#: Seconds before a hold that Slurm refused is tried again.
_HOUR = 3600.0
#: The most other hosts that a test is compared with: more take long to read and do not help.
_COMPARED = 50
#: The most characters of a host's name in the name of a campaign.
_LONGEST_HOST = 70
_FORBIDDEN = "only an operator or administrator of Slurm may hold, release and drain hosts"
_BY_HAND = "by hand"
_DECIDED = frozenset({"pass", "fail"})


class Forbidden(RunFailed):
    """Slurm refuses all actions of this user (exit 1)."""


class Cause(Struct, frozen=True):
    """Why a host is held: a *reason*, its *source* (a campaign), its *system*, and why it is *drained* already."""

    reason: str
    source: str = ""
    system: str = paths.LOCAL
    drained: str = ""


class Round:
    """One pass over the journal and Slurm, under the journal's lock, whose descriptor is *lock*.

    Unless the *settings* permit actions, the rules only print them; hosts that a person held are always tested,
    released and drained. *say* gets a line per event. :attr:`failed` is whether an action failed.
    """

    def __init__(self, journal: Actions, lock: int, settings: SiteSettings, say: Callable[[str], None]) -> None:
        self.journal, self.fds, self.settings, self.say = journal, (lock,), settings, say
        self.hold_settings = settings.hold
        self.reservations = slurm.reservations()
        self.failed = False
        self.campaigns = exclusion.Campaigns()
        self._counts: dict[str, int] = {}
        self._would_hold: dict[str, str] = {}

    # ------------------------------------------------------------ the pass
    def tend(self) -> None:
        """Finish earlier actions, proceed with held and drained hosts, and hold hosts that failed.

        Raises RunFailed if Slurm does not answer, or forbids this user everything.
        """
        for life in self._lives():
            self._each(life, self.finish)
        for life in self._lives():
            if life.hold or life.drained:
                self._each(life, self.look_after)
        self.hold_new()

    def _lives(self) -> list[QuarantineState]:
        return sorted(self.journal.lives.values(), key=lambda life: life.host)

    def _each(self, life: QuarantineState, step: Callable[[QuarantineState], None]) -> None:
        """Do *step* for one host; a failure does not affect other hosts."""
        try:
            step(life)
        except Forbidden:
            raise
        except FirstTouchError as error:
            self.failed = True
            self.say(f"firsttouch: error: {life.host}: {error}")

    # ------------------------------------------------------------ finishing the actions of a killed pass
    def finish(self, life: QuarantineState) -> None:
        """End each action that has only an intent, by the state of Slurm.

        A person's requests that Slurm has not executed are executed now; the rules decide again about the others.
        """
        for intent in list(life.unfinished.values()):
            job = ""
            match intent.what:
                case "hold":
                    happened = self._is_reserved(life.host)
                case "release":
                    happened = not self._is_reserved(life.host)
                case "test":
                    since = min(intent.time, self.journal.clock.time())
                    job = next(iter(slurm.jobs_called(_job_name(intent.id), since)), "")
                    happened = bool(job)
                case "drain":
                    happened = _is_ours(slurm.node(life.host))
                case _:  # resume
                    happened = not slurm.node(life.host).is_drained
            self.journal.end(intent, "done" if happened else "undone", job=job)
            self.say(f"{life.host}: an interrupted {intent.what} {'is' if happened else 'was not'} done")
            if not happened and intent.hand:
                self._again(life, intent)

    def _again(self, life: QuarantineState, intent: Action) -> None:
        if intent.what == "hold":
            self._reserve(life, Cause(intent.reason, intent.source, intent.system, intent.drained), hand=True)
        elif intent.what == "release":
            self._release(life, intent.reason, hand=True, drained=intent.drained)
        elif intent.what == "resume":
            self._resume(life)

    def _is_reserved(self, host: str) -> bool:
        reservation = self.reservations.get(self.name(host))
        return reservation is not None and host in reservation.hosts

    def name(self, host: str) -> str:
        """Return the name of our reservation of a host."""
        return f"{self.hold_settings.reservation}-{host}"

    # ------------------------------------------------------------ hosts that are held or drained
    def look_after(self, life: QuarantineState) -> None:
        """Do the next step of a held host, or note that somebody else released or resumed it."""
        if life.hold is None:
            node = slurm.node(life.host)
            if not _is_ours(node):
                self._note("returned", life, "resumed by somebody else")
            return
        if not self._is_reserved(life.host):
            self._cancel(life)
            self._note("returned", life, "released by somebody else")
            return
        node = slurm.node(life.host)
        if life.drained and life.drained_in_hold:
            self._release(life, "it is drained")
        elif node.is_drained and node.reason != life.hold.drained:
            self._release(life, f"drained by somebody else: {node.reason}", drained=node.reason)
        else:
            if _is_ours(node):
                self._resume(life)
            self._next_step(life, life.hold)

    def _note(self, what: What, life: QuarantineState, reason: str) -> None:
        self.journal.note(what, life.host, reason=reason)
        self.say(f"{life.host}: {reason}")

    def _next_step(self, life: QuarantineState, hold: Action) -> None:
        """Judge the last test of a held host, and release, drain or test it."""
        last = life.tests[-1] if life.tests else None
        if last and not last.ended and not self._judge(life, hold, last):
            return
        if last and last.verdict == "fail":
            fleet = None if hold.hand else self.campaigns.judged(hold.source)
            if fleet and fleet.common_loss and life.host in fleet.common_loss.hosts:
                self._release(life, fleet.common_loss.text, source=hold.source)
            else:
                self._drain(life, last)
        elif life.passes >= self.hold_settings.passes:
            passed = f"{life.passes} tests in a row passed"
            self._release(life, passed, source=last.campaign if last else "")
        elif len(life.tests) < self.hold_settings.tries:
            self._test(life, hold)
        elif not life.is_stuck:
            why = f" (the last one: {last.reason})" if last and last.reason else ""
            reason = f"{len(life.tests)} tests did not decide{why}: release or drain it by hand"
            self._note("stuck", life, reason)

    def _judge(self, life: QuarantineState, hold: Action, test: Test) -> bool:
        """Write the result of a test; return False if its job has not ended."""
        jobs = slurm.active_jobs([test.job])
        if jobs is None:
            raise RunFailed("Slurm's queue (squeue) does not answer")
        if test.job in jobs:
            self.say(f"{life.host}: test {len(life.tests)} is job {test.job}, {jobs[test.job].lower()}")
            return False
        earlier: list[str] = []
        for other in life.tests[:-1]:
            earlier = [] if other.verdict in _DECIDED else [*earlier, other.campaign]
        word, reason, measured = verdict_of(life.host, test.campaign, hold.source, earlier)
        note_it = {"id": test.id, "source": test.campaign, "verdict": word, "reason": reason, "measured": measured}
        self.journal.note("result", life.host, job=test.job, **note_it)
        self.say(f"{life.host}: test {len(life.tests)} {word or 'has no result'}{': ' * bool(reason)}{reason}")
        return True

    # ------------------------------------------------------------ hosts that failed
    def hold_new(self) -> None:
        """Hold hosts with bad verdicts, oldest first, within the limits of the settings."""
        waiting: Counter[str] = Counter()
        for logged in exclusion.unsettled_verdicts(self.journal, self.hold_settings):
            try:
                node = exclusion.node_of(logged.host)
            except FirstTouchError as error:
                self.say(f"{logged.host}: its verdict is {logged.verdict}, but {error}")
                continue
            host = node.name
            if exclusion.is_settled(self.journal, host, logged):
                continue
            life = self.journal.life(host)
            if why := self._why_not(life, node, logged):
                self.say(f"{host}: {logged.verdict}, and not held: {why}")
            elif why := self.campaigns.stop(logged.source) or self._limit(logged.system):
                waiting[why] += 1
            else:
                self._each(life, partial(self._hold, logged=logged))
        for why, count in waiting.items():
            self.say(f"{count} more hosts are not held: {why}")

    def _why_not(self, life: QuarantineState, node: slurm.Node, logged: verdict_log.Logged) -> str:
        """Return why a host with a bad verdict is not held, "" if it may be."""
        now = self.journal.clock.time()
        if taken := node.text(node.out_of_service):
            return f"it is {taken}"
        if others := self.foreign(life.host):
            return f"it is in the reservation {', '.join(others)}"
        if life.ended and now - life.ended < self.hold_settings.cool_down:
            left = self.hold_settings.cool_down - (now - life.ended)
            return f"it cools down for {left / 3600:.1f} h more"
        if now - life.failed < _HOUR:
            return "Slurm refused it less than an hour ago"
        word = self.campaigns.word(logged)
        if word not in self.hold_settings.verdicts:
            return f"by the present references its verdict is {word}"
        return ""

    def _limit(self, system: str) -> str:
        """Return the reason if no more hosts of a *system* may be held, or ""."""
        settings, count = self.hold_settings, self._count(system)
        # Hosts that the rules hold or drained, or would hold if they were permitted to act.
        held = {life.host for life in self._lives() if life.is_out and life.system in {system, ""}}
        out = len(held | {host for host, name in self._would_hold.items() if name == system})
        if out >= settings.most_out(count):
            share = f"hold.max_out is {100 * settings.max_out:.3g} %"
            return f"{out} of {count} hosts of {system} are out of service by these rules, and {share}"
        return ""

    def foreign(self, host: str) -> list[str]:
        """Return the active reservations of others that have a host."""
        own = self.name(host)
        return [n for n, r in self.reservations.items() if n != own and r.active and host in r.hosts]

    def _count(self, system: str) -> int:
        """Return the number of a system's hosts in Slurm; if unknown, the number with a verdict."""
        if system not in self._counts:
            logs = verdict_log.read(clock=self.journal.clock)
            try:
                described = load(system)
                states = slurm.nodes(submit.partition_of(described))
                self._counts[system] = len(hosts_of(described, states, logs))
            except FirstTouchError:
                self._counts[system] = sum(log[-1].system == system for log in logs.values())
        return self._counts[system]

    def _hold(self, life: QuarantineState, logged: verdict_log.Logged) -> None:
        cause = Cause(logged.reason or f"its verdict is {logged.verdict}", logged.source, logged.system)
        if not self.hold_settings.act:
            self._would_hold[life.host] = cause.system
            self._would(life, f"held: {cause.reason}")
        else:
            self._test(life, self._reserve(life, cause, hand=False))

    # ------------------------------------------------------------ by hand
    def hold_by_hand(self, host: str, reason: str, system: str) -> None:
        """Hold a host and submit its first test; a host that we drained is resumed within the reservation.

        Raises BadInput if the host is held already, is in a reservation of others, or is not in the system.
        """
        node = exclusion.node_of(host)
        life = self.journal.life(node.name)
        self.finish(life)
        if life.hold and self._is_reserved(node.name):
            raise BadInput(f"{node.name} is held already: {life.hold.reason}")
        if others := self.foreign(node.name):
            raise BadInput(f"{node.name} is in the reservation {', '.join(others)}, so it is left alone")
        if life.hold:
            self._note("returned", life, "released by somebody else")
        logged = next(iter(verdict_log.read().get(host, [])[-1:]), None)
        chosen = system or (logged.system if logged else paths.LOCAL)
        load(chosen)
        source, drained = logged.source if logged else "", node.reason if node.is_drained else ""
        hold = self._reserve(life, Cause(reason or _BY_HAND, source, chosen, drained), hand=True)
        if _is_ours(node):
            self._resume(life)
        elif taken := node.text(node.out_of_service):
            self.say(f"{node.name} is {taken}: its test waits until somebody resumes it")
        self._test(life, hold)

    def release_by_hand(self, host: str, reason: str) -> None:
        """Release a host that is held and cancel its test; raises BadInput if it is not held."""
        node = exclusion.node_of(host)
        life = self.journal.life(node.name)
        self.finish(life)
        if life.hold is None or not self._is_reserved(node.name):
            resume = f"; `scontrol update nodename={node.name} state=resume` resumes it"
            raise BadInput(f"{node.name} is not held{resume if node.is_drained else ''}")
        self._release(life, reason or _BY_HAND, hand=True)

    # ------------------------------------------------------------ actions on Slurm
    def _acts_on(self, life: QuarantineState) -> bool:
        """Return whether the rules may do the next step of a held host."""
        return self.hold_settings.act or (life.hold is not None and life.hold.hand)

    def _do(self, life: QuarantineState, text: str, intent: Action, command: Callable[[], str | None]) -> None:
        """Do an action after its intent was written. Raises Forbidden, and RunFailed with Slurm's reason.

        If Slurm does not answer, the action has no end yet, and the next pass asks Slurm.
        """
        try:
            job = command() or ""
        except RunFailed as error:
            if isinstance(error, TimedOut) or slurm.is_unanswered(error):  # Slurm may have done it
                raise
            self.journal.end(intent, "failed", reason=str(error))
            if exclusion.is_forbidden(error):
                raise Forbidden(f"{life.host}: {_FORBIDDEN} ({error})") from error
            raise
        self.journal.end(intent, job=job)
        self.say(f"{life.host} {text}{f', job {job}' if job else ''}")

    def _would(self, life: QuarantineState, text: str) -> None:
        """Print an action that is omitted because the site only observes."""
        self.say(f"{life.host} would be {text}")

    def _reserve(self, life: QuarantineState, cause: Cause, *, hand: bool) -> Action:
        """Hold a host, and return the intent; raises BadInput for an unknown system."""
        host, name = life.host, self.name(life.host)
        load(cause.system)
        intent = self.journal.begin("hold", host, hand=hand, **asdict(cause))
        reserve = partial(slurm.reserve, name, host, user_name(os.geteuid()), fds=self.fds)
        self._do(life, f"is held by the reservation {name}: {cause.reason}", intent, reserve)
        self.reservations[name] = slurm.Reservation((host,), active=True)
        return intent

    def _test(self, life: QuarantineState, hold: Action) -> None:
        """Submit the next test of a held host, as a separate campaign."""
        if not self._acts_on(life):
            self._would(life, f"tested: test {len(life.tests) + 1}")
            return
        settings = self.hold_settings
        campaign = campaigns.plan(
            "validate",
            campaigns.folder_of(_test_name(life.host, self.journal.clock.time())),
            system=hold.system,
            dataset=profiles.default("dataset"),
            aligners=(),
            repetitions=settings.repetitions,
            only=settings.steps,
            effort=settings.effort,
        )
        intent = self.journal.begin("test", life.host, source=campaign.name, system=campaign.system)

        def submitted() -> str:
            campaigns.create(campaign)
            mail = (f"--mail-user={self.settings.mail}", "--mail-type=END,FAIL") if self.settings.mail else ()
            names = (f"--job-name={_job_name(intent.id)}", f"--reservation={self.name(life.host)}")
            return submit.submit_alone(campaign, life.host, [*names, *mail, *settings.sbatch], fds=self.fds)

        self._do(life, f"is tested in the reservation: {campaign.name}", intent, submitted)

    def _release(
        self, life: QuarantineState, reason: str, *, hand: bool = False, source: str = "", drained: str = ""
    ) -> None:
        if not (hand or self._acts_on(life)):
            self._would(life, f"released: {reason}")
            return
        hand = hand or (life.hold is not None and life.hold.hand)
        intent = self.journal.begin("release", life.host, hand=hand, reason=reason, source=source, drained=drained)

        def released() -> None:
            self._cancel(life)
            slurm.unreserve(self.name(life.host), fds=self.fds)

        self._do(life, f"is released: {reason}", intent, released)
        self.reservations.pop(self.name(life.host), None)

    def _cancel(self, life: QuarantineState) -> None:
        """Cancel unfinished tests of a host, because Slurm does not delete a reservation that jobs use."""
        jobs = slurm.active_jobs([test.job for test in life.tests if not test.ended])
        if jobs is None:
            raise RunFailed("Slurm's queue (squeue) does not answer")
        if jobs:
            slurm.run(["scancel", *sorted(jobs, key=int)], fds=self.fds)

    def _drain(self, life: QuarantineState, test: Test) -> None:
        if not self._acts_on(life):
            self._would(life, f"drained: {test.reason}")
            return
        hand = life.hold is not None and life.hold.hand
        planned = exclusion.plan_host(life.host, test.reason, test.campaign, self.name(life.host))
        if planned.why_not:
            self.say(f"{planned.why_not}; it stays held")
            return
        intent = self.journal.begin("drain", life.host, hand=hand, reason=test.reason, source=test.campaign)
        self._do(life, f"is drained: {test.reason}", intent, lambda: slurm.run(planned.argv, fds=self.fds))
        self._release(life, "it is drained")

    def _resume(self, life: QuarantineState) -> None:
        """Resume a host that we drained, now that it is held."""
        argv = ("scontrol", "update", f"nodename={life.host}", "state=resume")
        intent = self.journal.begin("resume", life.host, hand=True, reason="it is tested again")
        self._do(life, "is resumed for its test", intent, lambda: slurm.run(argv, fds=self.fds))


def _is_ours(node: slurm.Node) -> bool:
    """Return whether a host is drained by us."""
    return node.is_drained and node.reason.startswith(exclusion.OURS)


def _job_name(test: str) -> str:
    return f"firsttouch-{test}"


def _test_name(host: str, now: float) -> str:
    """Return the name of the campaign of a test, with the host's name shortened if necessary."""
    stamp = time.strftime("%Y-%m-%dT%H-%M-%S", time.localtime(now))
    if len(host) > _LONGEST_HOST:
        host = f"{host[: _LONGEST_HOST - 9]}-{hashlib.sha256(host.encode()).hexdigest()[:8]}"
    return f"hold-{host}-{stamp}"


def verdict_of(host: str, name: str, source: str, earlier: Sequence[str] = ()) -> tuple[str, str, float]:
    """Return the verdict of a test, the reason, and the time of the measurement; "" without a measurement.

    *name* is the test's campaign; *earlier* campaigns without a decision add their repetitions. If the system's
    references do not decide, the host is compared with other hosts of the campaign *source*, which blamed it.
    """
    try:
        campaign = campaigns.find_campaign(name)
        system = load(campaign.system)
    except BadInput as error:
        return "", str(error), 0.0
    if not (measured := campaign.host(host).measured_at()):
        return "", "its job measured nothing", 0.0
    records = [record for each in (*earlier, name) for record in _records(host, each)]
    missing = {host: missing_results(state(campaign)).get(host, [])}
    verdict = _of(host, judge(records, system, missing=missing))
    if verdict.verdict not in _DECIDED and not missing[host]:
        others = [record for records in _others(host, campaign, source) for record in records]
        if others:
            compared = _of(host, judge([*records, *others], system, missing=missing))
            # A test may measure less than the other hosts did, so results that only they have are not missing.
            is_good = not compared.blind and not compared.parts
            if is_good and {f.verdict for f in compared.findings} == {"pass"}:
                return "pass", "", measured
            verdict = replace(compared, missing=()) if compared.findings else verdict
    return verdict.verdict, verdict.reason(), measured


def _records(host: str, name: str) -> list[Record]:
    """Return the records of a host in the campaign *name*; none if it was removed."""
    try:
        measured = campaigns.find_campaign(name).host(host).all_records()
    except BadInput:
        return []
    return [record for record in measured if record.host == host]


def _of(host: str, verdicts: Sequence[HostVerdict]) -> HostVerdict:
    return next(verdict for verdict in verdicts if verdict.host == host)


def _others(host: str, campaign: Campaign, source: str) -> Iterator[list[Record]]:
    """Yield the records of other hosts of the campaign *source*, in the steps of *campaign*."""
    steps = {step.name for step in campaign.steps}
    try:
        fleet = campaigns.find_campaign(source)
    except BadInput:  # the verdict came from files, or the campaign was removed
        return
    if fleet.system != campaign.system:
        return
    for journal in [journal for journal in fleet.hosts() if journal.host != host][:_COMPARED]:
        yield from (records for entry, records in journal.finished_steps() if entry.step in steps)


# ----------------------------------------------------------------------
# Which hosts to validate next
#
# Hosts that were never measured come first, then those whose last verdict is not a pass, then the others; within
# each group the oldest verdict first. A host with a verdict of today is not due.

#: Seconds after a verdict before which the host is never due, and after which it is due by default.
_DAY, MAX_AGE = 86400.0, 7 * 86400.0
#: The name of the jobs that validate, whoever submitted them, as in slurm/validate.sbatch.
_JOB_NAME = "firsttouch-validate"


class Candidate(Struct, frozen=True):
    """A host that is due, with its last verdict ("" without one), the verdict's age (s), and why it is due."""

    host: str
    verdict: str
    age: float | None
    reason: str


class Due(Struct, frozen=True):
    """The hosts of a *system* to validate now, first to last, and why others are *left_out*.

    *later* is the number of further due hosts. *note* is not empty if Slurm does not
    answer.
    """

    system: str
    hosts: tuple[Candidate, ...]
    later: int
    left_out: Mapping[str, str]
    note: str = ""


def due(
    system: System,
    hosts: Sequence[str] = (),
    count: int | None = None,
    max_age: float = MAX_AGE,
    clock: Clock = SYSTEM_CLOCK,
) -> Due:
    """Return which of *hosts* (none: the hosts of the *system* in Slurm, or in the log of verdicts) are due.

    With *count*, these are the first ones, regardless of the age of their verdicts; otherwise all that were never
    measured, are suspected, or have a verdict older than *max_age* (s). Raises BadInput if no host is due.
    """
    logs, note, left_out = verdict_log.read(clock=clock), "", dict[str, str]()
    states: Mapping[str, slurm.Node] = {}
    try:
        partition = submit.partition_of(system)
        if not (states := slurm.nodes(partition)):
            raise BadInput(f"Slurm has no host in the partition '{partition}' of the system's file")
        left_out = {host: f"has a {state.lower()} job" for host, state in slurm.states_by_host(_JOB_NAME).items()}
        left_out |= {h: "reserved" for r in slurm.reservations().values() if r.active for h in r.hosts}
    except RunFailed as error:
        note = f"Slurm's states of hosts and jobs are unknown: {error}"
    lives = actions.Actions(clock=clock).lives.values()
    left_out |= {life.host: "held" for life in lives if life.hold or "hold" in life.unfinished}
    for host, node in states.items():
        if out := " and ".join([*node.out_of_service, *node.reserved, *node.away]).lower():
            left_out[host] = out
    names = list(dict.fromkeys(hosts)) or hosts_of(system, states, logs)
    last = {host: line for host, log in logs.items() for line in log if line.system == system.name}
    now = clock.time()
    ranked = []
    for host in sorted(set(names) - set(left_out), key=natural):
        if (logged := last.get(host)) is None:
            ranked.append((0, 0.0, Candidate(host, "", None, "never validated")))
            continue
        age, is_suspected = max(0.0, now - logged.time), logged.verdict != "pass"
        if age >= (_DAY if is_suspected or count is not None else max_age):
            reason = logged.reason or f"last verdict {days(age)} ago"
            ranked.append((1 if is_suspected else 2, -age, Candidate(host, logged.verdict, age, reason)))
    chosen = [candidate for *_, candidate in sorted(ranked, key=lambda row: row[:2])]
    away = {host: left_out[host] for host in names if host in left_out}
    return Due(system.name, tuple(chosen[:count]), len(chosen) - len(chosen[:count]), away, note)


def days(seconds: float) -> str:
    """Return a time in days, or in hours below two days."""
    return f"{seconds / _DAY:.1f} d" if seconds >= 2 * _DAY else f"{seconds / 3600:.1f} h"


def hosts_of(system: System, states: Mapping[str, slurm.Node], logs: Mapping[str, Sequence[Logged]]) -> list[str]:
    """Return the hosts of a system by the *states* of Slurm's hosts; without Slurm, those with a verdict.

    Raises BadInput without a host.
    """
    if states:
        names = [host for host in states if any(re.match(pattern, host) for pattern in system.hostnames)]
        where = f"none of Slurm's {len(states)} hosts has a name that fits: name them by --hosts, or extend"
    else:
        names = [host for host, log in logs.items() if log[-1].system == system.name]
        where = "there is no Slurm here and no verdict of its hosts: name them by --hosts, or describe them by"
    if not names:
        raise BadInput(f"{system.name}: {where} `hostnames` in the system's file", file=system.path)
    return names
