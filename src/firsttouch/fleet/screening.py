# SPDX-License-Identifier: Apache-2.0
"""Which hosts to validate next within a budget of node hours, and the low-priority jobs that do it.

The model has one quantity: the hours that a host has probably been bad without anybody knowing it. A host becomes
bad at a rate (1/h) that its own record and that of its fleet give: :func:`rates`. Since the last verdict, it has
been bad for :func:`bad_hours`, which is about rate x age^2 / 2. A validation is worth it if these hours are at
least the node hours that it takes, and the hosts where they are most come first. This schedule minimizes the time
that hosts are bad for a given cost: a host with four times the rate is validated twice as often. Hosts without a
verdict, or with one that is older than the site allows, come before all others, the oldest first: so no host waits
forever, however good its record.

The functions of the model take arrays with a value per host; bench/screening.py simulates 10,000 hosts with them.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from firsttouch import paths
from firsttouch.benchmarks import profiles
from firsttouch.campaign import campaigns, journal
from firsttouch.campaign import submit as submit_module
from firsttouch.campaign.campaigns import Campaign
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution import slurm
from firsttouch.fleet import actions
from firsttouch.fleet.site_settings import Screening
from firsttouch.host.emulation import name_among
from firsttouch.judge import verdict_log
from firsttouch.judge.verdict import natural
from firsttouch.judge.verdict_log import Logged
from firsttouch.records import file_lock
from firsttouch.systems.definition import System

Values = npt.NDArray[np.float64]
HOUR, DAY = 3600.0, 86400.0

# ----------------------------------------------------------------------
# The model

#: Hours after which a verdict counts half as much in a host's record: a repaired host is trusted again.
HALF_LIFE = 180 * 24.0
#: How much the rates of hosts differ as long as there is no record: the shape of a gamma distribution, whose
#: relative deviation is 1/sqrt(SHAPE).
SHAPE = 0.5
#: Hours between incidents of a host that a fleet without a record expects: 10.36 % of the nodes of a new cluster
#: were defective within 90 days (Y. Xiong et al., USENIX ATC 2024).
FIRST_MTBI = 2160 / -math.log(1 - 0.1036)
#: Hours for which a host without a verdict is taken to be in service.
_NEW = 2160.0
#: Probability that a host is bad right after a verdict, if it is still in service.
DOUBT: Mapping[str, float] = {"pass": 0.0, "undecided": 0.02, "invalid": 0.2, "suspect": 0.5, "fail": 0.9}
#: Hours after which a host is validated again that did not pass; twice as many after each further such verdict.
AGAIN = 24.0
#: A validation is worth it if it ends this many bad hours of a host per node hour.
WORTH = 1.0


def faded(hours: Values) -> Values:
    """Return the weight of events that are *hours* old."""
    return np.asarray(0.5 ** (hours / HALF_LIFE))


def watched(hours: Values) -> Values:
    """Return the weighted hours of a record that began *hours* ago."""
    return (1 - faded(hours)) * HALF_LIFE / math.log(2)


def rates(incidents: Values, exposure: Values) -> Values:
    """Return how often each host becomes bad (1/h), given its weighted *incidents* within *exposure* hours.

    It is the mean of the posterior: the rates of a fleet's hosts are gamma-distributed, and incidents are a
    Poisson process (empirical Bayes). The fleet's own incidents give mean and shape of that distribution, the
    shape by its moments: where few hosts have most incidents, a host's own record decides almost alone.
    """
    of_fleet = (incidents.sum() + 1) / (exposure.sum() + FIRST_MTBI)
    expected = of_fleet * exposure
    # Weighted incidents have less variance than a Poisson process.
    variance = expected * (1 - exposure * math.log(2) / (2 * HALF_LIFE))
    excess = max(0.0, float(((incidents - expected) ** 2 - variance).sum()))
    shape = (float((expected**2).sum()) + SHAPE) / (excess + 1)
    return np.asarray((shape + incidents) / (shape / of_fleet + exposure))


def probability(age: Values, rate: Values, doubt: Values) -> Values:
    """Return the probability that a host is bad *age* hours after a verdict that left a *doubt*, a probability."""
    return np.asarray(1 - (1 - doubt) * np.exp(-rate * age))


def bad_hours(age: Values, rate: Values, doubt: Values) -> Values:
    """Return the expected hours that a host has been bad since its last verdict: the integral of probability."""
    return np.asarray(age + (1 - doubt) * np.expm1(-rate * age) / rate)


def chosen(
    age: Values, hours: Values, cost: Values, max_age: float, budget: float
) -> tuple[npt.NDArray[Any], int]:
    """Return the numbers of the hosts that are due, first to last, and how many of them fit into the budget.

    *age* are hours since the last verdict (infinite: none), *hours* their :func:`bad_hours`, *cost* the node hours
    of a validation; *max_age* and *budget* are in the same units.
    """
    over = age > max_age
    due = np.flatnonzero(over | (hours >= WORTH * cost))
    first = np.where(over, age, -1.0)
    # Ties keep the order of the hosts.
    order = due[np.lexsort((-(hours / cost)[due], -first[due]))]
    fitting = np.searchsorted(np.cumsum(cost[order]), budget * (1 + 1e-9), side="right")
    return order, int(fitting)


# ----------------------------------------------------------------------
# What is due


class Candidate(Struct, frozen=True):
    """A host that is due, and why.

    *age* is that of its last *verdict* (s; None: it has none), *failures* its failures so far, *probability* that
    of being bad by now, and *bad_hours* as in :func:`bad_hours` (None without a verdict).
    """

    host: str
    reasons: tuple[str, ...]
    age: float | None
    verdict: str
    failures: int
    probability: float
    bad_hours: float | None


class Due(Struct, frozen=True):
    """The hosts of a *system* to validate now, and those that are not.

    *later* counts due hosts beyond the budget, of which *over_age* are over the highest age. *left_out* has hosts
    that are out of service, *busy* those with a validation job, both with the reason; *late* has a line for each
    job that waits too long. *node_hours* are those of a validation, *spent* those submitted in this period, and
    *fresh* counts hosts that are not due.
    """

    system: str
    hosts: tuple[Candidate, ...]
    later: int
    over_age: int
    fresh: int
    left_out: Mapping[str, str]
    busy: Mapping[str, str]
    late: tuple[str, ...]
    node_hours: float
    budget: float
    spent: float
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; times are in seconds, costs in node hours."""
        return asdict(self) | {"hosts": [asdict(host) for host in self.hosts]}


def due(
    system: System,
    settings: Screening,
    hosts: Sequence[str] = (),
    changed: Mapping[str, float] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Due:
    """Return which of *hosts* (none: those of the *system* in Slurm, or in the log of verdicts) are due.

    *changed* has the times at which hosts' configurations changed (seconds since 1970). Raises BadInput if there
    are no hosts.
    """
    now, notes = clock.time(), list[str]()
    partition = settings.partition or submit_module.partition_of(system)
    states, queue, reserved = _slurm(partition, notes, clock)
    logs = verdict_log.read(clock=clock)
    held = {
        life.host for life in actions.Actions(clock=clock).lives.values() if life.hold or "hold" in life.unfinished
    }
    names = list(dict.fromkeys(hosts)) or hosts_of(system, states, logs)
    # Slurm shows a new reservation in the states of its hosts after some seconds.
    newly_out = {**dict.fromkeys(reserved, "reserved"), **dict.fromkeys(held, "held")}
    left_out = {
        host: state
        for host in names
        if (state := _out_of_service(states.get(host, slurm.Node(host, frozenset()))) or newly_out.get(host, ""))
    }
    jobs = {host: job for job in queue for host in job.hosts}
    busy = {host: _job_text(jobs[host], now) for host in names if host in jobs and host not in left_out}
    late = tuple(
        f"{','.join(job.hosts)}: {_job_text(job, now)}"
        for job in queue
        if job.state == "PENDING" and now - job.submitted > settings.patience and set(job.hosts) & set(names)
    )
    names = sorted((host for host in names if host not in left_out and host not in busy), key=natural)
    cost = node_hours(system.name)
    spent = spent_hours(system.name, now - settings.period, cost)
    own = _by_name(logs, names, system.name)
    asked = set(names)
    changes = {name_among(host, asked): when for host, when in (changed or {}).items()}
    table = _Table.of([own.get(host, []) for host in names], now, [changes.get(host, 0.0) for host in names])
    left = max(0.0, settings.budget / HOUR - spent)
    order, fitting = chosen(table.age, table.hours, np.full(len(names), cost), settings.max_age / HOUR, left)
    limit = settings.max_age
    return Due(
        system=system.name,
        hosts=tuple(table.candidate(i, names[i], limit) for i in order[:fitting]),
        later=len(order) - fitting,
        over_age=int(np.sum(table.age[order[fitting:]] > limit / HOUR)),
        fresh=len(names) - len(order),
        left_out=left_out,
        busy=busy,
        late=late,
        node_hours=cost,
        budget=settings.budget / HOUR,
        spent=spent,
        notes=tuple(notes),
    )


class _Table(Struct, frozen=True):
    """The columns of the model for some hosts, and their last verdicts."""

    age: Values
    hours: Values
    probability: Values
    changed: npt.NDArray[np.bool_]
    failures: Sequence[int]
    last: Sequence[Logged | None]

    @classmethod
    def of(cls, logs: Sequence[Sequence[Logged]], now: float, changes: Sequence[float]) -> _Table:
        last = [log[-1] if log else None for log in logs]
        onsets = [_onsets(log) for log in logs]
        incidents = np.array([faded((now - np.array(times)) / HOUR).sum() for times in onsets])
        exposure = watched(np.array([(now - log[0].time) / HOUR if log else 0.0 for log in logs]))
        age = np.array([max(0.0, now - log.time) / HOUR if log else math.inf for log in last])
        changed = np.array(
            [log is not None and change > log.time for log, change in zip(last, changes, strict=True)], np.bool_
        )
        doubt = np.array([DOUBT.get(log.verdict, 0.0) if log else 0.0 for log in last])
        doubt = np.where(changed, np.maximum(doubt, DOUBT["invalid"]), doubt)
        rate = rates(incidents, exposure)
        with np.errstate(invalid="ignore"):  # hosts without a verdict have an infinite age
            hours = np.where(np.isinf(age), math.inf, bad_hours(age, rate, doubt))
        # What was bad a moment ago is no news: it may be repaired first.
        hours = np.where(age < np.array([_pause(log) for log in logs]), 0.0, hours)
        chance = probability(np.where(np.isinf(age), _NEW, age), rate, doubt)
        return cls(age, hours, chance, changed, [len(times) for times in onsets], last)

    def candidate(self, i: int, host: str, max_age: float) -> Candidate:
        last, age = self.last[i], self.age[i] * HOUR
        reasons = []
        if last is None:
            reasons.append("never validated")
        else:
            if age > max_age:
                reasons.append(f"last verdict {days(age)} ago")
            if last.verdict != "pass":
                reasons.append(f"{last.verdict}: {last.reason}" if last.reason else last.verdict)
            if self.changed[i]:
                reasons.append("changed configuration")
            if self.failures[i] > (last.verdict == "fail"):
                reasons.append(f"failed {self.failures[i]} times" if self.failures[i] > 1 else "failed before")
        return Candidate(
            host,
            tuple(reasons) or (f"bad with a probability of {self.probability[i]:.1%}",),
            None if last is None else age,
            last.verdict if last else "",
            self.failures[i],
            float(self.probability[i]),
            None if last is None else float(self.hours[i]),
        )


def days(seconds: float) -> str:
    """Return a time in days, or in hours below two days."""
    return f"{seconds / DAY:.1f} d" if seconds >= 2 * DAY else f"{seconds / HOUR:.1f} h"


def _pause(log: Sequence[Logged]) -> float:
    """Return for how many hours a host is not due because of the last verdicts in its log: 0 after a pass."""
    bad = len([*itertools.takewhile(lambda line: line.verdict in {"fail", "suspect", "invalid"}, log[::-1])])
    return AGAIN * 2.0 ** min(bad - 1, 20) if bad else 0.0


def _onsets(log: Sequence[Logged]) -> list[float]:
    """Return the times of the failures in a log; failures without a pass between them are one."""
    times, bad = [], False
    for line in log:
        if line.verdict == "fail" and not bad:
            times.append(line.time)
        bad = line.verdict == "fail" or (bad and line.verdict != "pass")
    return times


def _by_name(logs: Mapping[str, list[Logged]], names: Sequence[str], system: str) -> dict[str, list[Logged]]:
    """Return the verdicts of a system's hosts by the names of the hosts, with or without their domain."""
    asked = set(names)
    return {
        name: own
        for host, log in logs.items()
        if (name := name_among(host, asked)) in asked and (own := [line for line in log if line.system == system])
    }


def hosts_of(system: System, states: Mapping[str, slurm.Node], logs: Mapping[str, list[Logged]]) -> list[str]:
    """Return the hosts of a system by the *states* of Slurm's hosts; without Slurm, those with a verdict.

    Raises BadInput if there are none.
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


# ----------------------------------------------------------------------
# What Slurm has: hosts that are out of service, and jobs that validate already

#: The name of the jobs that validate, whoever submitted them: that of slurm/validate.sbatch.
_JOB_NAME = "firsttouch-validate"


def _job_text(job: slurm.Waiting, now: float) -> str:
    why = f": {job.reason}" if job.state == "PENDING" and job.reason not in {"", "None"} else ""
    since = days(max(0.0, now - job.submitted))
    return f"job {job.job} is {job.state.lower()}, submitted {since} ago{why}"


def _slurm(
    partition: str, notes: list[str], clock: Clock
) -> tuple[Mapping[str, slurm.Node], list[slurm.Waiting], set[str]]:
    """Return the states of Slurm's hosts, the jobs that validate, and the hosts in active reservations.

    Without Slurm there are none, and a note says so.
    """
    try:
        states, queue = slurm.nodes(partition), slurm.named(_JOB_NAME, clock)
        reserved = {host for r in slurm.reservations().values() if r.active for host in r.hosts}
    except RunFailed as error:
        notes.append(f"without Slurm's states of hosts and jobs: {error}")
        return {}, [], set()
    if not states:
        raise BadInput(f"Slurm has no host in the partition '{partition}' of fleet.yaml or the system's file")
    return states, queue, reserved


def _out_of_service(node: slurm.Node) -> str:
    """Return the states for which a host is left out, "" for none; hosts that are held are reserved."""
    return " and ".join([*node.out_of_service, *node.reserved, *node.away]).lower()


# ----------------------------------------------------------------------
# Costs, and submission

#: Node hours of a validation as long as no campaign has ended.
USUAL_HOURS = 1.0
#: The campaigns, and the hosts of each, whose durations are read.
_CAMPAIGNS, _JOURNALS = 5, 40
#: The beginning of the names of campaigns that :func:`submit` creates.
PREFIX = "screening-"


def _campaigns(system: str, beginning: str = "") -> Iterator[Campaign]:
    """Yield the validations of a system's hosts whose names have a *beginning*, newest first."""
    stored = []
    for name in campaigns.names():
        if name.startswith(beginning):
            with contextlib.suppress(BadInput):
                stored.append(campaigns.existing(name))
    validations = (c for c in stored if c.kind == "validate" and c.system == system)
    yield from sorted(validations, key=lambda c: c.created, reverse=True)


def node_hours(system: str) -> float:
    """Return the median node hours of a host's validation in the last campaigns, or :data:`USUAL_HOURS`."""
    hours = []
    for number, campaign in enumerate(_campaigns(system)):
        if number == _CAMPAIGNS:
            break
        for host in campaign.hosts()[:_JOURNALS]:
            entries = host.entries()
            if len({e.step for e in entries if e.state in journal.FINISHED}) == len(campaign.steps):
                hours.append(sum(e.seconds for e in entries) / HOUR)
    return max(statistics.median(hours), 1 / HOUR) if hours else USUAL_HOURS


def spent_hours(system: str, since: float, cost: float) -> float:
    """Return the node hours of the hosts that were submitted for screening *since* a time.

    Hosts of which it is unknown whether a job was submitted, because the submitter was killed, count too.
    """
    begin = datetime.datetime.fromtimestamp(since, datetime.UTC).isoformat(timespec="milliseconds")
    hosts = 0
    for campaign in _campaigns(system, PREFIX):
        if campaign.created >= begin:
            notes = journal.submissions(campaign.folder)
            jobs = {host for note in notes if note.job for host in note.hosts}
            failed = [note for note in notes if note.problem not in {"", submit_module.NOT_YET}]
            refused = {host for note in failed for host in note.hosts}
            hosts += len({host for note in notes for host in note.hosts} - (refused - jobs))
    return hosts * cost


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let only one process at a time decide what is due and submit it, so that no host is submitted twice."""
    paths.results().mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a file system without locks
            stack.enter_context(file_lock.locked(paths.results() / ".screening.lock"))
        yield


def submit(
    plan: Due, settings: Screening, clock: Clock = SYSTEM_CLOCK
) -> tuple[Campaign, submit_module.Submitted]:
    """Submit a job for each host of *plan* as one campaign; the jobs give way to others as the *settings* say."""
    now = datetime.datetime.fromtimestamp(clock.time()).astimezone().strftime("%Y-%m-%dT%H-%M-%S")
    campaign = campaigns.create(
        campaigns.plan(
            "validate",
            campaigns.folder_of(f"{PREFIX}{plan.system[:40]}-{now}-{os.getpid()}"),
            system=plan.system,
            dataset=profiles.default_dataset(),
            aligners=(),
            repetitions=3,
        )
    )
    return campaign, submit_module.submit(campaign, [c.host for c in plan.hosts], sbatch_options(settings), [])


def sbatch_options(settings: Screening) -> list[str]:
    """Return the options of jobs that give way: those that fleet.yaml names."""
    named = {"qos": settings.qos, "partition": settings.partition, "nice": settings.nice}
    return [*(f"--{name}={value}" for name, value in named.items() if value), *settings.sbatch]


def counted(left_out: Mapping[str, str]) -> str:
    """Return the reasons why hosts are left out, with their numbers."""
    return ", ".join(f"{count} {why}" for why, count in Counter(left_out.values()).most_common())
