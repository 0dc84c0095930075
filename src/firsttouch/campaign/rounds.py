# SPDX-License-Identifier: Apache-2.0
"""Rounds of a job: its hosts measure, then wait for each other, then the records of all hosts are judged together.

The hosts of a job exchange no messages: each reads the journals of the others, and makes the same plan from the
same records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firsttouch.campaign import state
from firsttouch.campaign.campaigns import Campaign
from firsttouch.campaign.journal import Entry, Journal, Mark, now
from firsttouch.campaign.leases import BEAT, GONE, Leases
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.execution import slurm
from firsttouch.host.host_lists import fold

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
                absent |= dict.fromkeys(dead, state.SILENT)
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
            ended = f"{why} {state.last_step(self.campaign, entries)[1]}"
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
