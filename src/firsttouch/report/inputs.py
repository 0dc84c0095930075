# SPDX-License-Identifier: Apache-2.0
"""Reads the inputs of reports, verdicts and stores: records, stores, campaigns, and results of ReFrame."""

from __future__ import annotations

import datetime
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from firsttouch.benchmarks import reframe_run
from firsttouch.benchmarks.reframe_run import Trouble
from firsttouch.campaign import campaigns as model
from firsttouch.campaign.state import State, finished_records, missing_results, state, without_superseded
from firsttouch.clock import MOST_SKEW, SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, one_line
from firsttouch.host.emulation import short_name
from firsttouch.judge.findings import Findings
from firsttouch.judge.judging import judged
from firsttouch.records import catalogue, drift, perflogs, samples_table, schema
from firsttouch.records.drift import Configuration
from firsttouch.records.samples_table import SamplesTable
from firsttouch.records.schema import Record, Unread
from firsttouch.systems.definition import System, Undescribed
from firsttouch.tools import require_report

if TYPE_CHECKING:
    import polars as pl

    from firsttouch.records.store import Sources
    from firsttouch.records.tables import Tables


#: The most unreadable files in a message.
_MOST_PRINTED = 20
#: From this number of hours on, a time ahead is stated in days.
_HOURS_IN_DAYS = 48


class Gathered(Struct, frozen=True, dict=True):
    """The inputs: files with records, states of campaigns, and troubles in ReFrame's run reports.

    Records before the time *since* are ignored. Records that are dated in the future are ignored, too, unless
    *keeps_future* (they are only stored); *dated_ahead* has their latest time (ms since 1970) by system and host.

    *unread* are unreadable files, folders and records, *hosts* the hosts with samples, *systems* the number of
    records per system, and *configured* the records of configurations
    (:func:`firsttouch.records.drift.configured`). They are complete once the samples have been read.
    """

    paths: Sequence[Path]
    sources: Sources
    campaigns: Sequence[State]
    troubles: Sequence[Trouble]
    unread: dict[str, Unread] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)
    systems: Counter[str] = field(default_factory=Counter)
    configured: list[pl.DataFrame] = field(default_factory=list)
    since: datetime.datetime | None = None
    keeps_future: bool = False
    dated_ahead: dict[tuple[str, str], int] = field(default_factory=dict)
    #: The records of ReFrame's performance logs.
    logged: Sequence[Record] = ()
    clock: Clock = SYSTEM_CLOCK

    @cached_property
    def missing_of(self) -> dict[str, dict[str, list[str]]]:
        """The missing results of the campaigns, by system and host."""
        missing: dict[str, dict[str, list[str]]] = {}
        for seen in self.campaigns:
            system_samples = missing.setdefault(seen.campaign.system, {})
            for host, lost in missing_results(seen).items():
                system_samples.setdefault(host, []).extend(lost)
        return missing

    @cached_property
    def _measured(self) -> list[Record]:
        return [*self.logged, *(r for seen in self.campaigns for r in finished_records(seen))]

    @cached_property
    def _parsed(self) -> Sources:
        """The sources, with records that are not in tables already parsed, which takes longer than reading."""
        from firsttouch.records.store import of_lines  # noqa: PLC0415 - loads the table library
        from firsttouch.records.tables import split  # noqa: PLC0415 - see above

        parsed = of_lines(self.sources.lines, self._keep_unread)
        measured = [split(schema.to_frame(self._measured))] if self._measured else []
        return replace(self.sources, lines=(), piped=[*self.sources.piped, *parsed, *measured])

    def samples(self, system: str | None = None) -> SamplesTable:
        """Return the samples of all records, or only *system*'s."""
        self.systems.clear()
        self.configured[:] = [drift.configured(())]
        samples = samples_table.of_tables(self._noted(self._tables(columns=samples_table.READ)), system)
        self.hosts[:] = samples.hosts
        return samples

    def records(self, hosts: Sequence[str] | None = None, *, aligners: bool = False) -> list[Record]:
        """Return all records, or only records of *hosts* or of *aligners*' checks, each once, oldest first."""
        import polars as pl  # noqa: PLC0415 - see firsttouch.records

        columns = tuple(schema.columns())
        wanted = pl.lit(value=True) if hosts is None else pl.col("host").is_in(hosts)
        tables = self._tables(hosts=hosts)
        if aligners:
            tables = (each.of_checks(*catalogue.of_kind("aligner")) for each in tables)
        rows = pl.concat([schema.to_frame(()), *(each.records(columns).filter(wanted) for each in tables)])
        # Lines of checks precede the same records of a store, which lack placements.
        once = rows.unique(
            [name for name in columns if "placement" not in name], keep="first", maintain_order=True
        )
        return schema.from_frame(once.sort("time", maintain_order=True))

    def frames(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield some *columns* of the records that are used."""
        return (tables.records(columns) for tables in self._tables())

    def _tables(self, **options: Any) -> Iterator[Tables]:
        """Yield the records that are neither too old nor in the future; note the hosts of the latter.

        Records in the future would otherwise be the newest session. The *options* are those of ``store.tables``.
        """
        import polars as pl  # noqa: PLC0415 - see firsttouch.records

        from firsttouch.records.store import tables  # noqa: PLC0415 - loads the table library

        now = datetime.datetime.fromtimestamp(self.clock.time() + MOST_SKEW, datetime.UTC)
        for each in tables(self._parsed, self._keep_unread, since=self.since, **options):
            used = each
            if (each.values["time"] > now).any():
                ahead = each.filter(pl.col("time") > now).records(("system", "host", "time"))
                latest = ahead.group_by("system", "host").agg(pl.col("time").max().dt.epoch("ms"))
                for system, host, time in latest.iter_rows():
                    self.dated_ahead[system, host] = max(time, self.dated_ahead.get((system, host), 0))
                used = each if self.keeps_future else each.filter(pl.col("time") <= now)
            yield used if self.since is None else used.filter(pl.col("time") >= self.since)

    def ahead(self, system: str | None = None) -> dict[str, str]:
        """Return a sentence for each host with records of the future, or only for the hosts of *system*."""
        return {
            host: _ahead_text(latest / 1000, self.clock.time())
            for (name, host), latest in sorted(self.dated_ahead.items())
            if system in {None, name}
        }

    def print_ahead(self) -> None:
        """Print the hosts with records of the future on standard error."""
        for host, sentence in list(self.ahead().items())[:_MOST_PRINTED]:
            print(f"firsttouch: {one_line(host)}: {sentence}", file=sys.stderr)
        if (more := len(self.ahead()) - _MOST_PRINTED) > 0:
            print(f"firsttouch: records of {more} more are dated in the future", file=sys.stderr)

    def _alike(self) -> list[str]:
        """Return a line for each host that seems to have two names, for example with and without its domain."""
        names = {name.strip().lower(): name for name in reversed(self.hosts)}
        pairs = [(names[key], host) for host in self.hosts if names[key := host.strip().lower()] != host]
        pairs += [(names[s], name) for key, name in names.items() if (s := short_name(key)) != key and s in names]
        return [
            f"{first!r} and {second!r} seem to be one host, and are judged as two: its records need one name"
            for first, second in sorted(pairs)
        ]

    def _noted(self, tables: Iterable[Tables]) -> Iterator[Tables]:
        """Yield *tables*, and note their systems and their configurations."""
        for each in tables:
            self.systems.update({name: len(of_system.values) for name, of_system in each.by_system()})
            if len((configured := each.of_checks(drift.CHECK)).values):
                self.configured.append(drift.configured(configured.records(drift.READ)))
            yield each

    def configurations(self) -> dict[str, Configuration]:
        """Return the newest configuration of each host, read with the samples if these have been read."""
        import polars as pl  # noqa: PLC0415 - see firsttouch.records

        configured = self.configured or map(drift.configured, self.frames(drift.READ))
        return drift.latest(pl.concat([drift.configured(()), *configured]))

    def _keep_unread(self, unread: Unread) -> None:
        # Reading a file again must not repeat a line.
        self.unread[str(unread)] = unread

    def lost(self, system: str, hosts: Collection[str], *, strangers: bool = True) -> dict[str, list[str]]:
        """Return why results of a *system* are missing, by host: from campaigns, unreadable, or in the future.

        *hosts* have records of the system. Unreadable input without a host's name may belong to any of them. With
        *strangers*, hosts without a readable record belong to this system, too.
        """
        reasons = {host: list(lost) for host, lost in self.missing_of.get(system, {}).items()}
        system_samples = {*hosts, *reasons}
        for unread in self.unread.values():
            of = hosts if unread.hosts is None else unread.hosts if strangers else unread.hosts & system_samples
            for host in of:
                reasons.setdefault(host, []).append(f"cannot be read: {unread}")
        for host, sentence in self.ahead(system).items():
            reasons.setdefault(host, []).append(sentence)
        return reasons

    def refuse_without(self, system: str, hosts: Collection[str]) -> None:
        """Raise BadInput if a *system* has no records; *hosts* have records of it."""
        if hosts or self.ahead(system) or self.missing_of.get(system):
            return
        self.refuse_unread()
        if of_others := self.other_systems(system):
            raise BadInput(f"no record of system {system}: these are {of_others}")
        raise self.nothing()

    def other_systems(self, system: str) -> str:
        """Return the number of records of systems other than *system*, and their names; "" without any."""
        others = {name: count for name, count in sorted(self.systems.items()) if name != system}
        names = ", ".join(name or "(no name)" for name in others)
        return f"{sum(others.values())} records of {names}" if others else ""

    def print_unread(self) -> None:
        """Print the ignored inputs on standard error; raises BadInput if input is unreadable."""
        self.print_ahead()
        for line in self._alike()[:_MOST_PRINTED]:
            print(f"firsttouch: {line}", file=sys.stderr)
        for unread in list(self.unread.values())[:_MOST_PRINTED]:
            print(f"firsttouch: left out: {one_line(str(unread))}", file=sys.stderr)
        if (more := len(self.unread) - _MOST_PRINTED) > 0:
            print(f"firsttouch: left out: {more} more", file=sys.stderr)
        if self.unread:
            count = sum(unread.count for unread in self.unread.values())
            raise BadInput(f"left out because unreadable: {count} records, files or folders, named above")

    def refuse_unread(self) -> None:
        """Raise BadInput for the first unreadable input."""
        for unread in self.unread.values():
            raise unread.error

    def nothing(self) -> BadInput:
        """Return the error of a report without records."""
        self.refuse_unread()
        for host, sentence in self.ahead().items():
            return BadInput(f"no record counts: {one_line(host)}: {sentence}")
        where = ", ".join(map(str, self.paths))
        if self.since and any(len(tables.values) for tables in replace(self, since=None)._tables()):
            date = f"{self.since:%Y-%m-%d %H:%M} UTC"
            return BadInput(f"all records in {where} are older than --max-age: they are from before {date}")
        return BadInput(f"no record in {where}: a run writes them to records.jsonl")


def gather(paths: Sequence[Path], max_age: float | None = None, *, logs: bool = False) -> Gathered:
    """Find the inputs among *paths*, without records older than *max_age* seconds; with *logs*, performance logs.

    Raises BadInput for a path that does not exist, and Missing if the libraries for records are not installed.
    """
    require_report()
    for path in paths:
        if not path.exists():
            raise BadInput("no such file or folder", file=path)
    if logs:
        return _of_logs(paths)
    runs = [f for path in paths for f in _run_reports(path)]
    given = [path for path in paths if path not in runs]
    unread: dict[str, Unread] = {}
    results, troubles = [], []
    for run in runs:
        try:
            # The results of the checks in a run report are read, too.
            results += reframe_run.folders(run) if run in paths else []
            troubles += reframe_run.read(run)
        except BadInput as error:
            unread[str(error)] = Unread(error)
    from firsttouch.records.store import find  # noqa: PLC0415 - loads the table library

    sources = find([*given, *results], lambda u: unread.update({str(u): u}))
    campaigns = []
    for folder in sources.campaigns:
        try:
            campaigns.append(state(model.read(folder.absolute())))
        except BadInput as error:
            unread[str(error)] = Unread(error)
    since = None
    if max_age is not None:
        since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=max_age)
    return Gathered(paths, sources, without_superseded(campaigns), troubles, unread, since=since)


def _of_logs(paths: Sequence[Path]) -> Gathered:
    """Return the records of performance logs, and print how many rows are left out."""
    from firsttouch.records.store import Sources  # noqa: PLC0415 - loads the table library

    records, unread, several = perflogs.read(paths)
    if several:
        print(f"firsttouch: left out: {several} values of jobs on several hosts", file=sys.stderr)
    return Gathered(paths, Sources((), (), ()), (), (), logged=records, unread={str(u): u for u in unread})


def _ahead_text(latest: float, now: float) -> str:
    """Return the sentence about records up to a time *latest* that is after *now* (both seconds since 1970)."""
    day = datetime.datetime.fromtimestamp(latest, datetime.UTC).date()
    hours = int((latest - now) / 3600)
    lead = f"{hours // 24} days" if hours >= _HOURS_IN_DAYS else "1 hour" if hours == 1 else f"{hours} hours"
    why = f"the host's clock was {lead} ahead or more"
    return f"records are dated {day}, which is in the future, and are ignored: {why}"


def _run_reports(path: Path) -> list[Path]:
    if path.is_dir():
        return reframe_run.reports(path)
    return [path] if path.suffix == ".json" and path.is_file() and reframe_run.is_report(path) else []


class Judgement(NamedTuple):
    """The verdicts of a system's hosts, and the inputs of the verdicts."""

    findings: Findings
    inputs: Gathered


def judge(records: Sequence[Path], system: System | Undescribed, *, logs: bool = False) -> Judgement:
    """Judge the hosts of *system* by its references and their fleet, from files, folders, stores, campaigns.

    Records of other systems are left out. A host passes only if all its records can be read, and if its campaigns
    have no missing results. Raises BadInput without a record.
    """
    samples, gathered = system_samples(records, system, logs=logs)
    missing = gathered.lost(system.name, samples.hosts)
    return Judgement(judged(samples, system, missing=missing, configurations=gathered.configurations), gathered)


def system_samples(
    paths: Sequence[Path], system: System | Undescribed, *, logs: bool = False
) -> tuple[SamplesTable, Gathered]:
    """Return the samples of *system* in *paths*, and print how many records are of other systems.

    Raises BadInput if *system* has none.
    """
    gathered = gather(paths, logs=logs)
    samples = gathered.samples(system.name)
    gathered.refuse_without(system.name, {*samples.hosts, *samples.settings})
    if of_others := gathered.other_systems(system.name):
        print(
            one_line(f"firsttouch: left out: {of_others}: --system {system.name} judges its own"), file=sys.stderr
        )
    return samples, gathered
