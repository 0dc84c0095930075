# SPDX-License-Identifier: Apache-2.0
"""The measurements of many hosts as one table, sorted by case, host and time.

Records of one host and case are repetitions: the same thing measured again. The table has a row per repetition and
a group of rows per host and case.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from firsttouch.benchmarks.kernel_settings import BUSY
from firsttouch.benchmarks.kernel_settings import METRICS as SETTINGS
from firsttouch.errors import BadInput
from firsttouch.judge.sprt import Bools, Floats, Groups, Ints
from firsttouch.records.cases import Case, distinguished, identifying
from firsttouch.records.catalogue import better_of, checks, counts_if_emulated
from firsttouch.records.schema import Record, columns, in_utc, to_frame

if TYPE_CHECKING:
    import polars as pl

#: A session of a host ends if the host has no record for longer than this (ms). Several campaigns of a day are
#: separate sessions. A job that is requeued after hours is two sessions, which does no harm.
GAP = 3_600_000
#: The theoretical bandwidth of one bank (GB/s), which follows from that of a package.
BANK_BANDWIDTH = "theoretical_bandwidth_of_a_bank"
#: Times are below this (ms since 1970: the year 2109), so that host number x _SPAN + time sorts by host and time.
_SPAN = 1 << 42
#: The metric of the check ``configuration`` by which a person states that a host has got another board.
REPLACED = "replaced"
#: What tells the board and the processors of a host in the parameters of its configuration.
_PARTS = {
    "board": "$.parts.board",
    "processors": "$.parts.processors",
    "interfaces": "$.parts.interfaces",
    "model": "$.settings['cpu.model']",
    "product": "$.settings['board.product']",
}
#: The columns of a table of records that name a case, and all columns that are read.
_NAMING = ("system", "check", "metric", "unit", "better", "parameters")
READ = (*_NAMING, "host", "value", "status", "reason", "software", "time")


@dataclass(frozen=True)
class Replacement:
    """A board or processors that a host got between two configurations: *before* and *since* (ms since 1970).

    *session* is the number of the first session with them.
    """

    before: int
    since: int
    session: int


@dataclass(frozen=True)
class SamplesTable:
    """All repetitions, sorted by case, host and time. A *group* has those of one host and case, oldest first.

    *hosts* are in alphabetical order, *cases* in the order of their first records; groups and rows name both by
    number. *rows* has the columns

    - ``case``, ``host``, ``time`` (ms since 1970) and ``value``
    - ``valid``, ``reason`` (why not), and ``judged``: whether references may judge the value
    - ``session``: a number that grows with time for each host
    - ``busy``, if any host was found busy: how many PUs other processes used (0 in all other rows)

    *settings* are the latest values of each host that explain its speed: the topology check's,
    :data:`BANK_BANDWIDTH` if it is known, and the smallest of each state of the banks. *replaced* is the last
    replacement of each host that had one.
    """

    hosts: Sequence[str]
    cases: Sequence[Case]
    rows: pl.DataFrame
    settings: Mapping[str, Mapping[str, float]]
    replaced: Mapping[str, Replacement] = field(default_factory=dict)

    @cached_property
    def value(self) -> Floats:
        """The value of each row."""
        return self.rows["value"].to_numpy()

    @cached_property
    def time(self) -> Ints:
        """The time of each row (ms since 1970)."""
        return self.rows["time"].to_numpy()

    @cached_property
    def valid(self) -> Bools:
        """Whether each row is valid."""
        return self.rows["valid"].to_numpy()

    @cached_property
    def judged(self) -> Bools:
        """Whether references may judge each row."""
        return self.rows["judged"].to_numpy()

    @cached_property
    def first_sessions(self) -> Ints:
        """The first session of each host with its present board and processors (0: all are)."""
        firsts = np.zeros(len(self.hosts), dtype=np.int64)
        for number, host in enumerate(self.hosts if self.replaced else ()):
            if host in self.replaced:
                firsts[number] = self.replaced[host].session
        return firsts

    @cached_property
    def _groups(self) -> pl.DataFrame:
        return self.rows.group_by("case", "host", maintain_order=True).len("count")

    @cached_property
    def case(self) -> NDArray[np.int32]:
        """The case of each group."""
        return self._groups["case"].to_numpy()

    @cached_property
    def host(self) -> NDArray[np.int32]:
        """The host of each group."""
        return self._groups["host"].to_numpy()

    @cached_property
    def counts(self) -> Ints:
        """The number of rows of each group."""
        return self._groups["count"].to_numpy().astype(np.int64)

    @cached_property
    def begins(self) -> Ints:
        """The first row of each group."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def sessions(self) -> Ints:
        """The number of sessions of each group with the host's present board and processors."""
        session = self.rows["session"].to_numpy()
        begins = np.append(True, session[1:] != session[:-1])[: len(session)]
        begins[self.begins] = True
        begins &= session >= np.repeat(self.first_sessions[self.host], self.counts)
        return np.add.reduceat(begins, self.begins, dtype=np.int64) if len(session) else self.counts

    @cached_property
    def of_case(self) -> Ints:
        """The first group of each case, and the number of all groups."""
        return np.searchsorted(self.case, np.arange(len(self.cases) + 1))

    @cached_property
    def _of_host(self) -> tuple[Ints, NDArray[np.intp]]:
        order = np.argsort(self.host, kind="stable")
        return np.searchsorted(self.host[order], np.arange(len(self.hosts) + 1)), order

    def groups(self, case: int) -> slice:
        """Return the groups of a case."""
        return slice(int(self.of_case[case]), int(self.of_case[case + 1]))

    def groups_of_host(self, host: int) -> NDArray[np.intp]:
        """Return the groups of a host, by case."""
        begins, order = self._of_host
        return order[begins[host] : begins[host + 1]]

    def rows_of(self, groups: slice) -> slice:
        """Return the rows of consecutive groups."""
        if groups.start == groups.stop:
            return slice(0, 0)
        last = groups.stop - 1
        return slice(int(self.begins[groups.start]), int(self.begins[last] + self.counts[last]))

    def session(self, groups: slice) -> Ints:
        """Return the session of each row of consecutive groups."""
        return self.rows["session"][self.rows_of(groups)].to_numpy()

    def busy(self, groups: slice) -> Floats | None:
        """Return how many PUs others used at each row of consecutive groups; None if no host was busy."""
        return self.rows["busy"][self.rows_of(groups)].to_numpy() if "busy" in self.rows.columns else None

    def good(self, cases: Sequence[int]) -> tuple[Groups, NDArray[np.int32], Ints, Ints]:
        """Return the good repetitions (valid and judged) of *cases* taken as one.

        The numbers of the hosts (one per group), and the sessions and times (one per repetition) follow.
        """
        import polars as pl  # noqa: PLC0415 - a large import

        rows = pl.concat([self.rows[self.rows_of(self.groups(case))] for case in cases])
        rows = rows.filter("valid", "judged").sort("host", "time", maintain_order=True)
        counts = rows.group_by("host", maintain_order=True).len("count")
        values = Groups(rows["value"].to_numpy(), counts["count"].to_numpy().astype(np.int64))
        return values, counts["host"].to_numpy(), rows["session"].to_numpy(), rows["time"].to_numpy()

    def of_hosts(self, names: Collection[str]) -> SamplesTable:
        """Return the repetitions of some hosts."""
        return self._part(
            [number for number, name in enumerate(self.hosts) if name in names], range(len(self.cases))
        )

    def by_system(self, *names: str) -> dict[str, SamplesTable]:
        """Return the repetitions of each system, and of *names*, which may have none."""
        systems = dict.fromkeys([*(case.system for case in self.cases), *names])
        if len(systems) == 1 and self.cases:
            return dict.fromkeys(systems, self)
        return {
            name: self._part(None, [number for number, case in enumerate(self.cases) if case.system == name])
            for name in systems
        }

    def _part(self, hosts: Sequence[int] | None, cases: Sequence[int]) -> SamplesTable:
        """Return the rows of some *hosts* (None: all that have any) in some *cases*, numbered anew."""
        import polars as pl  # noqa: PLC0415 - a large import

        chosen = pl.col("case").is_in(list(cases))
        rows = self.rows.filter(chosen if hosts is None else chosen & pl.col("host").is_in(hosts))
        names = [self.hosts[number] for number in rows["host"].unique().sort()]
        rows = rows.with_columns(
            pl.col("host").rank("dense").cast(pl.Int32) - 1,
            pl.col("case").replace_strict(list(cases), range(len(cases)), return_dtype=pl.Int32),
        )
        return SamplesTable(names, [self.cases[number] for number in cases], rows, self.settings, self.replaced)


def of_records(records: Iterable[Record], system: str | None = None) -> SamplesTable:
    """Return the table of *records*, of one *system* only if it is given."""
    listed = list(records)
    return of_frames([to_frame(listed)] if listed else [], system)


def of_frames(frames: Iterable[pl.DataFrame], system: str | None = None) -> SamplesTable:
    """Return the table of some tables of records (see :func:`firsttouch.records.schema.to_frame`).

    They are reduced one at a time, so that only a few rows are held as text at once.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    parts = [
        _reduced(frame.select(READ) if system is None else frame.select(READ).filter(system=system))
        for frame in frames
    ]
    reduced = zip(*parts or [_reduced(pl.DataFrame(schema=columns()))], strict=True)
    rows, topology, spans, configured = map(pl.concat, reduced)
    del parts
    cases, case_numbers = _cases(rows["naming"].unique(maintain_order=True))
    hosts = rows["host"].unique().cast(pl.String).sort()
    host_number = pl.col("host").cast(pl.Enum(hosts), strict=False).to_physical().cast(pl.Int32)
    order = ["case", "host", "time", "value", "naming"]
    rows = rows.with_columns(host_number, case=case_numbers).sort(order, maintain_order=True)
    # A record that was read twice (from a store and from a report made of it) is one repetition.
    new = pl.any_horizontal(pl.col(name) != pl.col(name).shift() for name in order)
    rows = rows.filter(new.fill_null(value=True)).drop("naming")
    sessions = _sessions(spans.with_columns(host_number).drop_nulls("host"))
    rows = rows.with_columns(session=sessions.search_sorted(_keys(rows), side="right").cast(pl.Int64))
    rows = _with_busy(rows, topology.with_columns(host_number).drop_nulls("host"), sessions)
    settings: dict[str, dict[str, float]] = {}
    latest = topology.sort("time", "value").group_by("host", "metric", "bank", maintain_order=True).last()
    smallest = latest.group_by("host", "metric", maintain_order=True).agg(pl.col("value").min())
    for host, metric, value in smallest.iter_rows():
        settings.setdefault(host, {})[metric] = value
    return SamplesTable(hosts.to_list(), cases, rows, settings, _replaced(configured, hosts, sessions))


def _reduced(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the rows that are judged, the topology check's rows, the spans of time, and the parts of each host.

    Texts become categories: a table has few different ones.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    frame = frame.with_columns(milliseconds(frame["time"]), pl.col("host").cast(pl.Categorical))
    # Spans of an hour at most: consecutive ones make sessions.
    hours = frame.group_by("host", pl.col("time").floordiv(GAP).alias("hour"))
    spans = hours.agg(time=pl.col("time").min(), end=pl.col("time").max()).drop("hour")
    data = _is_data()
    states = frame.filter((pl.col("check") == "topology") | (data & (pl.col("better") == "neither")))
    bank = pl.col("parameters").str.json_path_match("$.bank").fill_null("")
    topology = states.select("host", "metric", "value", "time", bank=bank)
    topology = pl.concat([topology, _of_a_bank(frame)])
    valid = pl.col("status") == "valid"
    emulated = pl.col("software").str.contains('"emulator":', literal=True)
    rows = frame.filter(~pl.col("metric").is_in(SETTINGS) & ~data).select(
        "host",
        "time",
        "value",
        naming=pl.concat_str(_NAMING, separator="\0").cast(pl.Categorical),
        valid=valid,
        judged=_counts_if_emulated() | ~emulated,
        reason=pl.when(valid).then(pl.lit("")).otherwise("reason").cast(pl.Categorical),
    )
    configured = frame.filter(
        pl.col("metric").is_in(["settings", REPLACED]), check="configuration", status="valid"
    )
    texts = {name: configured["parameters"].str.json_path_match(path) for name, path in _PARTS.items()}
    stated = configured.select("host", "time", stated=pl.col("metric") == REPLACED)
    return rows, topology, spans, stated.with_columns(**texts)


def _counts_if_emulated() -> pl.Expr:
    """Return whether a row holds for an emulated host, too (see :attr:`Record.judged`)."""
    import polars as pl  # noqa: PLC0415 - a large import

    counting = [name for name in checks() if counts_if_emulated(name, "1")]
    return pl.col("check").is_in(counting) & (pl.col("unit") == "1")


def _is_data() -> pl.Expr:
    """Return whether a row is of a metric that nothing judges."""
    import polars as pl  # noqa: PLC0415 - a large import

    of_checks = [
        (pl.col("check") == name) & pl.col("metric").is_in(list(check.data))
        for name, check in checks().items()
        if check.data
    ]
    without_metrics = [name for name, check in checks().items() if not check.metrics]
    return pl.any_horizontal(pl.col("check").is_in(without_metrics), *of_checks)


def _of_a_bank(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the theoretical bandwidth of one bank of each host; all banks are assumed to be alike."""
    import polars as pl  # noqa: PLC0415 - a large import

    packages, banks = (
        pl.col("parameters").str.json_path_match(f"$.{name}").cast(pl.Float64, strict=False)
        for name in ("packages", "banks")
    )
    of_packages = frame.filter(check="topology", metric="theoretical_bandwidth").filter(banks > 0)
    return of_packages.select(
        "host",
        metric=pl.lit(BANK_BANDWIDTH),
        value=pl.col("value") * packages / banks,
        time="time",
        bank=pl.lit(""),
    ).drop_nulls()


def _cases(namings: pl.Series) -> tuple[list[Case], pl.Expr]:
    """Return the cases that texts of the naming columns stand for, and the number of the case of ``naming``."""
    import polars as pl  # noqa: PLC0415 - a large import

    numbers: dict[str, int] = {}
    cases: list[Case] = []
    number_of: list[int] = []
    for naming in namings:
        system, check, metric, unit, better, parameters = naming.split("\0")
        direction = better_of(check, metric, better)
        case = Case(system, check, metric, identifying(check, json.loads(parameters)), unit, direction)
        key = f"{system}\0{case.key}"
        if key not in numbers:
            numbers[key] = len(cases)
            cases.append(case)
        number_of.append(numbers[key])
    physical = pl.col("naming").to_physical()
    return distinguished(cases), physical.replace_strict(namings.to_physical(), number_of, return_dtype=pl.Int32)


def _sessions(spans: pl.DataFrame) -> pl.Series:
    """Return the beginnings of all sessions (see :func:`_keys`); a span is from ``time`` to ``end``."""
    import polars as pl  # noqa: PLC0415 - a large import

    spans = spans.sort("host", "time", "end")
    gap = pl.col("time") - pl.col("end").cum_max().shift().over("host")
    return _keys(spans.filter((gap > GAP).fill_null(value=True)))


def _replaced(configured: pl.DataFrame, hosts: pl.Series, sessions: pl.Series) -> dict[str, Replacement]:
    """Return the last replacement of the board or the processors of each host.

    Somebody stated it, or the configuration shows it. Addresses of network cards tell a board only if none is the
    same as before, and if its serial number is unknown: another card is no other board.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    # What can be read only at times has not changed meanwhile.
    parts = pl.col(*_PARTS).forward_fill().over("host")
    rows = configured.sort("host", "time").with_columns(parts, of_now=pl.col("board"))
    before = {name: pl.col(name).shift().over("host") for name in ("time", *_PARTS)}
    other = [pl.col("stated"), *(pl.col(name) != before[name] for name in _PARTS if name != "interfaces")]
    cards = pl.col("interfaces").str.split(" ").list.set_intersection(before["interfaces"].str.split(" "))
    other.append((cards.list.len() == 0) & (pl.col("of_now").is_null() | before["board"].is_null()))
    rows = rows.with_columns(before=before["time"]).filter(
        pl.any_horizontal(o.fill_null(value=False) for o in other)
    )
    numbers = {host: number for number, host in enumerate(hosts)}
    replaced = {}
    for host, since, last in rows.select("host", "time", "before").iter_rows():
        if host in numbers:
            session = sessions.search_sorted(numbers[host] * _SPAN + since, side="right")
            replaced[host] = Replacement(since if last is None else last, since, int(session))
    return replaced


def _with_busy(rows: pl.DataFrame, topology: pl.DataFrame, sessions: pl.Series) -> pl.DataFrame:
    """Return *rows* with the column ``busy``: the last number of busy PUs in the row's session before the row.

    Without a busy host the rows are returned as they are.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    samples = topology.filter(metric="busy_pus").sort("host", "time", "value")
    samples = samples.filter((pl.col("value").max() >= BUSY).over("host"))
    if samples.is_empty():
        return rows
    session = sessions.search_sorted(_keys(samples), side="right").cast(pl.Int64)
    last = _keys(samples).search_sorted(_keys(rows), side="right").cast(pl.Int64) - 1
    last_or_first = last.clip(0)
    same = (last >= 0) & (session.gather(last_or_first) == rows["session"])
    return rows.with_columns(busy=pl.when(same).then(samples["value"].gather(last_or_first)).otherwise(0.0))


def _keys(rows: pl.DataFrame) -> pl.Series:
    """Return a number for each row that sorts by host and time."""
    import polars as pl  # noqa: PLC0415 - a large import

    key = pl.col("host").cast(pl.Int64) * _SPAN + pl.col("time").clip(0, _SPAN - 1)
    return rows.select(key=key).to_series()


#: Stands for the time of a record that has none.
_UNKNOWN_TIME = "1970-01-01T00:00:00+00:00"


def milliseconds(texts: pl.Series) -> pl.Series:
    """Return the times of records in ms since 1970, 0 for an empty one; raises BadInput for what is not a time."""
    texts = texts.replace("", _UNKNOWN_TIME)
    times = texts.str.to_datetime("%+", time_zone="UTC", strict=False)
    if times.null_count():
        times = in_utc(texts).str.to_datetime("%+", time_zone="UTC", strict=False)
    if times.null_count():
        raise BadInput(f"not a time: {reprlib.repr(texts.filter(times.is_null())[0])}")
    return times.dt.epoch("ms")
