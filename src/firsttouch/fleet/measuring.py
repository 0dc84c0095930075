# SPDX-License-Identifier: Apache-2.0
"""Judges measuring jobs: the next measurements of their hosts, the final verdicts, and the cost.

Campaigns and the check of a host do not judge: the command line gives them a :class:`JobJudge` or a
:class:`CheckJudge`.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from firsttouch.campaign.state import State, missing_results
from firsttouch.errors import SUSPECT, CannotHere
from firsttouch.fleet import verdict_log
from firsttouch.judge.constants import FEWEST_HOSTS, MOST_REPETITIONS
from firsttouch.judge.event_limits import is_exact
from firsttouch.judge.findings import Findings
from firsttouch.judge.judging import judged, undecided_cases
from firsttouch.judge.verdict import ORDER, HostVerdict, Word, worst, worst_first
from firsttouch.records import drift, samples_table
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.systems.definition import System, Undescribed
from firsttouch.units import number, text_range

#: How many other hosts also repeat a case that is undecided on a host, to show the level of good hosts.
SIBLINGS = 8
#: The most undecided cases in the last line of a job.
_NAMED = 3
_Records = Mapping[str, Sequence[Record]]
#: Verdict -> exit status of a command and of a job.
STATUS: Mapping[Word, int] = {"pass": 0, "undecided": 0, "suspect": SUSPECT, "invalid": 1, "fail": 1}


class JobJudge:
    """Judges the hosts of a job of the campaign *source*, by all records of the campaign.

    Undecided cases are measured up to *most* times. The verdicts come from :meth:`conclude`, the worst first.
    Arguments are as in :class:`firsttouch.campaign.run.Judge`.
    """

    def __init__(self, system: System, source: str, most: int = MOST_REPETITIONS) -> None:
        self.system, self.source, self.most = system, source, most
        self.verdicts: Sequence[HostVerdict] = ()
        #: The verdict of this host.
        self.verdict: HostVerdict | None = None
        #: The findings from which several hosts were judged.
        self.fleet: Findings | None = None

    def _judged(self, records: _Records, **options: Any) -> Findings:
        all_records = [*itertools.chain.from_iterable(records.values())]
        return judged(samples_table.of_records(all_records, self.system.name), self.system, **options)

    def next_cases(self, records: _Records, host: str, present: Collection[str]) -> tuple[list[str], bool]:
        """Return the keys of the cases that *host* measures next, and whether other *present* hosts do.

        The most suspicious come first.
        """
        by_references = [*undecided_by_references(records.get(host, ()), self.system, self.most)]
        others = [other for other in present if other != host]
        if not others:
            return by_references, False
        if sum(map(bool, records.values())) < FEWEST_HOSTS:
            return by_references, any(
                undecided_by_references(records.get(o, ()), self.system, self.most) for o in others
            )
        fleet = self._judged(records)
        planned = plan(fleet, [each for each in present if each in fleet.number], self.most)
        return [*planned.pop(host, ()), *by_references], any(planned.values())

    def left_by_fleet(self, records: _Records, host: str) -> dict[str, int]:
        """Return the cases that stay undecided on a *host* by the whole fleet, with their repetitions."""
        if sum(map(bool, records.values())) < FEWEST_HOSTS:
            return {}
        return undecided_cases(self._judged(records), host, self.most)

    def conclude(
        self,
        records: _Records,
        *,
        missing: Mapping[str, Sequence[str]],
        host: str,
        hosts: Collection[str],
        measured_at: float,
        file: Path,
    ) -> None:
        """Judge the *hosts* of the job, and write the verdict of this *host* to its verdict file and to *file*."""

        def configurations() -> dict[str, drift.Configuration]:
            return drift.latest(itertools.chain.from_iterable(records.values()))

        fleet = self._judged(records, missing=missing, configurations=configurations)
        self.verdicts = [fleet.verdict(each) for each in fleet.by_severity if each in hosts]
        self.verdict = next(verdict for verdict in self.verdicts if verdict.host == host)
        self.fleet = fleet if len(hosts) > 1 else None
        verdict_log.publish(self.verdict, measured_at, self.source, file)

    def exit_status(self, stands_for: Collection[str], *, strict: bool) -> int:
        """Return the exit status of a task that stands for some hosts; *strict*: undecided hosts are included."""
        worst = status((v.verdict for v in self.verdicts if v.host in stands_for), strict=strict)
        # srun returns the highest status of its tasks, and 4 (suspect) is not worse than 1 (fail).
        return worst and status((v.verdict for v in self.verdicts), strict=strict)


class CheckJudge(Struct, frozen=True):
    """Judges one host by the references of its *system*; *strict*: an undecided host has an exit status.

    *past* has earlier records of the host or of others of its type, with which it is compared, too.
    """

    system: System
    strict: bool
    past: Sequence[Record] = ()

    def verdict(self, records: Sequence[Record]) -> tuple[dict[str, Any], int]:
        """Return the verdict as JSON, and its exit status."""
        verdict = self._judged(records).verdict(records[0].host)
        document = verdict.to_dict()
        if verdict.verdict == "invalid":  # only a fail proves something against the host
            is_suspect = any(finding.verdict == "suspect" for finding in verdict.findings)
            is_suspect |= any(record.is_proof for record in records)
            return document, SUSPECT if is_suspect else CannotHere.exit_status
        return document, status([verdict.verdict], strict=self.strict)

    def undecided(self, records: Sequence[Record]) -> Collection[str]:
        """Return the keys of the cases that another repetition may decide."""
        counts = Counter(Case.from_record(record).key for record in records)
        # Earlier repetitions are not counted: they do not show what the host does now.
        keys = undecided_cases(self._judged(records), records[0].host, sys.maxsize)
        return [key for key in keys if counts[key] < MOST_REPETITIONS]

    def _judged(self, records: Sequence[Record]) -> Findings:
        """Return the findings by *records* and *past*.

        Of the past, the cases of *records*, all configurations, and the host's counts of events are used.
        """
        host, keys = records[0].host, {Case.from_record(record).key for record in records}
        past = [
            record
            for record in self.past
            if record.check == drift.CHECK
            or (record.host == host and record.limit)
            or Case.from_record(record).key in keys
        ]
        together = [*past, *records]
        table = samples_table.of_records(together)
        return judged(table, self.system, fleet=bool(past), configurations=lambda: drift.latest(together))


def campaign_findings(campaign_state: State, records: Sequence[Record], system: System) -> Findings:
    """Return the verdicts of a campaign's hosts by all its *records*, their configurations and missing results."""
    samples = samples_table.of_records(records, system.name)
    return judged(
        samples, system, missing=missing_results(campaign_state), configurations=lambda: drift.latest(records)
    )


# ----------------------------------------------------------------------
# The next round


def plan(fleet: Findings, hosts: Sequence[str], most: int) -> dict[str, list[str]]:
    """Return the keys of the cases that each of *hosts* measures in the next round, the most suspicious first.

    These are the cases that another repetition may decide, and cases that are undecided on a sibling. The siblings
    of a host in a case are the :data:`SIBLINGS` hosts with the fewest repetitions (at most *most*) that do not
    fail it.
    """
    samples = fleet.samples
    counts = {
        host: {samples.cases[samples.case[g]].key: int(samples.counts[g]) for g in fleet.groups(host).tolist()}
        for host in hosts
    }
    open_cases = {host: set(undecided_cases(fleet, host, most)) for host in hosts}
    suspicion: dict[str, tuple[int, float]] = {}
    failing: set[tuple[str, str]] = set()
    for host in hosts:
        for finding in fleet.verdict(host).findings if open_cases[host] or fleet.word(host) else ():
            key = finding.case.key
            if finding.verdict == "fail":
                failing.add((host, key))
            if key in open_cases[host]:
                rank = ORDER.index(finding.verdict), finding.loss
                suspicion[key] = max(suspicion.get(key, rank), rank)
    wanted = {host: set(cases) for host, cases in open_cases.items()}
    for key in set[str]().union(*open_cases.values()):
        undecided_hosts = [host for host in hosts if key in open_cases[host]]
        goal = min(most, 1 + max(counts[host][key] for host in undecided_hosts))
        siblings = [
            host
            for host in hosts
            if key not in open_cases[host] and key in counts[host] and (host, key) not in failing
        ]
        siblings.sort(key=lambda host: counts[host][key])
        for host in siblings[: max(0, SIBLINGS + 1 - len(undecided_hosts))]:
            if counts[host][key] < goal:
                wanted[host].add(key)
    return {
        host: sorted(sorted(cases), key=lambda key: suspicion.get(key, (0, 0.0)), reverse=True)
        for host, cases in wanted.items()
    }


# ----------------------------------------------------------------------
# The cost of a job


def cost_text(verdicts: Sequence[HostVerdict], seconds: float, limit: str) -> str:
    """Return the last line of a job: its repetitions and *seconds*, and its undecided cases.

    *limit* is the reason against more repetitions, "" if they would not decide.
    """
    counts = [len(f.values) for v in verdicts for f in v.findings if f.values and not is_exact(f.case)] or [1]
    fewest, most = min(counts), max(counts)
    times = f"{text_range(str(fewest), str(most))} repetition{'s' if most != 1 else ''} of each metric"
    times += f" in {number(seconds / 60)} min"
    open_cases: dict[str, list[str]] = {}
    for verdict in verdicts:
        findings = worst_first(f for f in verdict.findings if f.verdict in {"undecided", "suspect"})
        nothing = ([*verdict.blind] or ["nothing was judged"]) if verdict.verdict == "undecided" else []
        if cases := [f.case.title for f in findings] or nothing:
            open_cases[verdict.host] = cases
    if not open_cases:
        return f"{times}; nothing is undecided"
    named = [f"{host}: {cases[0]}" for host, cases in open_cases.items()][:_NAMED]
    count = sum(map(len, open_cases.values()))
    others = [f"{count - len(named)} more"] if count > len(named) else []
    why = [limit] if limit else []
    return "; ".join([times, *why, f"still undecided: {'; '.join([*named, *others])}"])


def undecided_by_references(
    host_records: Iterable[Record], system: System | Undescribed, most: int = MOST_REPETITIONS
) -> dict[str, int]:
    """Return the :func:`undecided_cases` of one host by its references alone."""
    verdicts = judged(samples_table.of_records(host_records, system.name), system, fleet=False)
    cases = (undecided_cases(verdicts, host, most) for host in verdicts.samples.hosts)
    return next(cases, {})


def status(words: Iterable[Word], *, strict: bool = False) -> int:
    """Return the exit status of the worst of some verdicts; with *strict*, undecided is a failure too."""
    word = worst(words)
    return STATUS["suspect"] if strict and word == "undecided" else STATUS[word]


def undecided_note(words: Sequence[Word], *, strict: bool = False) -> str:
    """Return a line about undecided hosts, which have the exit status of passes; "" without any."""
    undecided = words.count("undecided")
    if not undecided or status(words, strict=strict):
        return ""
    hosts = f"{undecided} of {len(words)} hosts" if len(words) > 1 else "the host"
    are = "is" if undecided == 1 else "are"
    return f"{hosts} {are} undecided, which is not a pass: the exit status is 0, with --strict {SUSPECT}"
