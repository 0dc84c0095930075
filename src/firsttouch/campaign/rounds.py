# SPDX-License-Identifier: Apache-2.0
"""Rounds of a job: its hosts measure, wait for each other, and judge the records of all hosts together.

The hosts of a job agree without messages. Each one reads the journals of the others, and makes the same plan from
the same records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from firsttouch.campaign import state
from firsttouch.campaign.campaigns import Campaign
from firsttouch.campaign.journal import Entry, Journal, Mark, now
from firsttouch.campaign.leases import BEAT, GONE, Leases
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.execution import slurm
from firsttouch.host.host_lists import folded
from firsttouch.judge.findings import Findings
from firsttouch.judge.judging import undecided_cases
from firsttouch.judge.verdict import ORDER, HostVerdict, worst_first
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.units import text_range

#: The step of the journal's lines that end a round.
ROUND = "round"
#: How many hosts repeat a case with a host that is undecided in it: repetitions tell what good hosts reach, too.
SIBLINGS = 8
#: Seconds of the job that are kept for verdicts and report, and how many times as long as before a step may take.
_RESERVE, _LONGER = 120.0, 1.5
_POLL = 1.0
#: Seconds after which the first host names those that it waits for.
_PATIENCE = 300.0
#: Undecided cases that the last line of a job names.
_NAMED = 3


def repetitions(records: Iterable[Record]) -> dict[str, Counter[str]]:
    """Return how often each host has measured each case (by its key)."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        key = Case.of(record).key
        counts.setdefault(record.host, Counter())[key] += 1
    return counts


def plan(
    fleet: Findings, hosts: Sequence[str], counts: Mapping[str, Mapping[str, int]], most: int
) -> dict[str, list[str]]:
    """Return the keys of the cases that each of *hosts* measures in the next round, the most suspicious first.

    These are the cases that another repetition may decide, and those that a sibling is undecided in. A case has
    :data:`SIBLINGS` siblings, those with the fewest repetitions; a host that fails it is none. *counts* are the
    repetitions so far, at most *most*.
    """
    open_cases = {host: set(undecided_cases(fleet, host, most)) for host in hosts}
    suspicion: dict[str, tuple[int, float]] = {}
    failing: set[tuple[str, str]] = set()
    for host in hosts:
        for finding in fleet.of(host).findings if open_cases[host] or fleet.word(host) else ():
            key = finding.identity.key
            if finding.verdict == "fail":
                failing.add((host, key))
            if key in open_cases[host]:
                rank = ORDER.index(finding.verdict), finding.evidence or 0.0
                suspicion[key] = max(suspicion.get(key, rank), rank)
    wanted = {host: set(cases) for host, cases in open_cases.items()}
    for key in set[str]().union(*open_cases.values()):
        undecided_hosts = [host for host in hosts if key in open_cases[host]]
        goal = min(most, 1 + max(counts[host][key] for host in undecided_hosts))
        siblings = [
            host
            for host in hosts
            if key not in open_cases[host] and key in counts.get(host, ()) and (host, key) not in failing
        ]
        siblings.sort(key=lambda host: counts[host][key])
        for host in siblings[: max(0, SIBLINGS + 1 - len(undecided_hosts))]:
            if counts[host][key] < goal:
                wanted[host].add(key)
    return {
        host: sorted(sorted(cases), key=lambda key: suspicion.get(key, (0, 0.0)), reverse=True)
        for host, cases in wanted.items()
    }


class Meeting:
    """Where the *hosts* of a job wait for each other at the end of each round.

    *hosts* has this process's host. A host is not waited for if it has left, if Slurm has it as down, or if it
    gives no heartbeat. *present* are the hosts that ended the last round, *absent* says why the others did not.
    The mark of that round in the journals is *ended* (None: there is none yet). A decision about the next round
    rests on what stands before it: others may already measure again.
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
        """End a round on this host, and wait until all hosts have ended it; return whether any host measured."""
        if len(self.hosts) == 1:
            return is_measured
        holder, job = self.leases.holder, slurm.Job.here()
        ids = (job.job, job.array) if job else ("", "")
        mark = f"{holder.restarts} {number}"
        self.journal.write(Entry(ROUND, "measured" if is_measured else "skipped", now(), holder.host, *ids, mark))
        absent: dict[str, str] = {}
        began = self.clock.monotonic()
        # Hosts that did not end the last round are looked for at once.
        asked = began - (BEAT if self.absent else 0.0)
        is_announced = False
        while True:
            ends = {host: self._end(host, ids[0], mark) for host in self.hosts if host not in absent}
            if not (waiting := [host for host, end in ends.items() if not end]):
                break
            absent |= {host: "it ended before the others" for host in waiting if self.leases.has_left(host)}
            if (moment := self.clock.monotonic()) - asked >= BEAT:
                asked = moment
                dead = slurm.down(waiting) if ids[0] else set()
                dead |= {host for host in waiting if self.leases.silence(host, moment - began) >= GONE}
                absent |= dict.fromkeys(dead, state.SILENT)
            if set(waiting) <= set(absent):
                continue
            if self.speaks and not is_announced and moment - began >= _PATIENCE:
                self.say(f"{holder.host}: waiting for {folded(waiting)} to end round {number + 1}")
                is_announced = True
            beat()
            self.clock.sleep(_POLL)
        self.present = [host for host in self.hosts if host in ends]
        self.absent = {}
        for host, why in absent.items():
            entries = [e for e in self.journals[host].entries() if e.job == ids[0]]
            ended = f"{why} {state.last_step(self.campaign, entries)[1]}"
            self.absent[host] = ended if entries else "it measured nothing in this job"
        self.ended = (ROUND, ids[0], mark)
        return "measured" in ends.values()

    def _end(self, host: str, job: str, mark: str) -> str:
        """Return how a host ended the round with this *mark*, "" if it did not."""
        lines = (e for e in self.journals[host].entries() if e.step == ROUND)
        return next((e.state for e in lines if (e.job, e.reason) == (job, mark)), "")

    @property
    def speaks(self) -> bool:
        """Return whether this host is the one that prints what concerns all hosts of the job."""
        return self.present[0] == self.journal.host


def fits(seconds: float, deadline: float | None, clock: Clock) -> bool:
    """Return whether a step that took *seconds* fits before *deadline* (seconds since 1970; None: no end)."""
    return deadline is None or clock.time() + _LONGER * seconds + _RESERVE <= deadline


class Spent(Struct, frozen=True):
    """What the verdicts of a job cost, and what they leave open."""

    seconds: float
    #: The fewest and the most repetitions of a metric.
    repetitions: tuple[int, int]
    #: Why no more repetitions were made, "" if they would decide nothing.
    limit: str
    #: The undecided and suspect cases of each host, in words, the surest first.
    undecided: Mapping[str, Sequence[str]]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "limit": self.limit if self.undecided else ""}

    def text(self) -> str:
        """Return the last line of a job."""
        fewest, most = self.repetitions
        times = f"{text_range(str(fewest), str(most))} repetition{'s' if most != 1 else ''} of each metric"
        times = f"{times} in {_duration(self.seconds)}"
        if not self.undecided:
            return f"{times}; nothing is undecided"
        named = [f"{host}: {case}" for host, cases in self.undecided.items() for case in cases[:1]][:_NAMED]
        count = sum(map(len, self.undecided.values()))
        others = f"; {count - len(named)} more" if count > len(named) else ""
        why = f"; {self.limit}" if self.limit else ""
        return f"{times}{why}; still undecided: {'; '.join(named)}{others}"


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def spent(verdicts: Sequence[HostVerdict], seconds: float, limit: str) -> Spent:
    """Return what the *verdicts* of a job cost; see :class:`Spent`."""
    counts = [len(f.values) for v in verdicts for f in v.findings if f.evidence is not None] or [1]
    titles = {}
    for verdict in verdicts:
        findings = [f for f in verdict.findings if f.verdict in {"undecided", "suspect"}]
        if verdict.verdict == "undecided" and not findings:
            checks = ", ".join(check.replace("_", " ") for check in verdict.blind)
            titles[verdict.host] = [f"the comparison in {checks}" if checks else "nothing was judged"]
        elif findings:
            titles[verdict.host] = [f.title for f in worst_first(findings)]
    return Spent(seconds, (min(counts), max(counts)), limit, titles)
