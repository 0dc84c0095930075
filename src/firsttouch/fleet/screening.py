# SPDX-License-Identifier: Apache-2.0
"""Which hosts to validate next.

Hosts that were never measured come first, then those whose last verdict is not a pass, then the others; within
each group the oldest verdict first. A host with a verdict of today is not due.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from firsttouch.campaign import submit
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution import slurm
from firsttouch.fleet import actions, verdict_log
from firsttouch.fleet.verdict_log import Logged
from firsttouch.host.host_lists import natural
from firsttouch.systems.definition import System

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
