# SPDX-License-Identifier: Apache-2.0
"""The measurements of many hosts as one table, sorted by case, host and time.

Records of one host and case are repetitions: the same thing measured again. The table has a row per repetition and
a group of rows per host and case.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from firsttouch.benchmarks.kernel_settings import BUSY
from firsttouch.benchmarks.kernel_settings import METRICS as SETTINGS
from firsttouch.errors import BadInput
from firsttouch.judge.sprt import Bools, Floats, Groups, Ints
from firsttouch.records.cases import Case, distinguished, identifying, in_order
from firsttouch.records.catalogue import better_of, checks, counts_if_emulated
from firsttouch.records.schema import Record, columns, in_utc, is_emulated, to_frame

if TYPE_CHECKING:
    import polars as pl

    from firsttouch.units import Better

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

    *hosts* are in alphabetical order, *cases* in the order of the catalogue. Columns of groups are

    - *case* and *host*: their numbers
    - *counts*: the number of the group's rows

    and those of rows are

    - *time* (ms since 1970) and *value*
    - *valid*, *reason* (why not: a number of *reasons*), and *judged*: whether references may judge the value
    - *sessions_of_rows*: a number that grows with time for each host
    - *busy_pus*: how many PUs other processes used; None if no host was found busy

    *settings* are the latest values of each host that explain its speed: the topology check's,
    :data:`BANK_BANDWIDTH` if it is known, and the smallest of each state of the banks. *replaced* is the last
    replacement of each host that had one, and *replaced_of* that of each system in a table of several.
    """

    hosts: Sequence[str]
    cases: Sequence[Case]
    case: NDArray[np.int32]
    host: NDArray[np.int32]
    counts: Ints
    time: Ints
    value: Floats
    valid: Bools
    judged: Bools
    reason: NDArray[np.unsignedinteger]
    sessions_of_rows: NDArray[np.int32]
    busy_pus: Floats | None
    reasons: Sequence[str]
    settings: Mapping[str, Mapping[str, float]]
    replaced: Mapping[str, Replacement] = field(default_factory=dict)
    replaced_of: Mapping[str, Mapping[str, Replacement]] = field(default_factory=dict)

    @cached_property
    def first_sessions(self) -> Ints:
        """The first session of each host with its present board and processors (0: all are)."""
        return self._of_replacements(lambda replacement: replacement.session)

    @cached_property
    def parts_since(self) -> Ints:
        """Since when (ms since 1970) each host has its present board and processors (0: always)."""
        return self._of_replacements(lambda replacement: replacement.since)

    def _of_replacements(self, value: Callable[[Replacement], int]) -> Ints:
        """Return a value of each host's last replacement, 0 for a host without any."""
        values = np.zeros(len(self.hosts), dtype=np.int64)
        for number, host in enumerate(self.hosts if self.replaced else ()):
            if host in self.replaced:
                values[number] = value(self.replaced[host])
        return values

    @cached_property
    def begins(self) -> Ints:
        """The first row of each group."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def sessions(self) -> Ints:
        """The number of sessions of each group with the host's present board and processors."""
        session = self.sessions_of_rows
        begins = np.append(True, session[1:] != session[:-1])[: len(session)]
        begins[self.begins] = True
        if self.replaced:
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
        return self.sessions_of_rows[self.rows_of(groups)].astype(np.int64)

    def busy(self, groups: slice) -> Floats | None:
        """Return how many PUs others used at each row of consecutive groups; None if no host was busy."""
        return None if self.busy_pus is None else self.busy_pus[self.rows_of(groups)]

    def reason_of(self, row: int) -> str:
        """Return why a row is not valid, an empty text for a valid one."""
        return self.reasons[int(self.reason[row])]

    def good(self, cases: Sequence[int]) -> tuple[Groups, NDArray[np.int32], Ints, Ints]:
        """Return the good repetitions (valid and judged) of *cases* taken as one.

        The numbers of the hosts (one per group), and the sessions and times (one per repetition) follow.
        """
        rows = np.concatenate([np.arange(len(self.value))[self.rows_of(self.groups(case))] for case in cases])
        hosts = np.concatenate([self._host_of_rows(self.groups(case)) for case in cases])
        is_good = self.valid[rows] & self.judged[rows]
        rows, hosts = rows[is_good], hosts[is_good]
        order = np.lexsort((self.time[rows], hosts))
        rows, hosts = rows[order], hosts[order]
        firsts = np.flatnonzero(np.diff(hosts, prepend=-1))
        values = Groups(self.value[rows], np.diff(firsts, append=len(hosts)))
        return values, hosts[firsts], self.sessions_of_rows[rows].astype(np.int64), self.time[rows]

    def _host_of_rows(self, groups: slice) -> NDArray[np.int32]:
        return np.repeat(self.host[groups], self.counts[groups])

    def of_hosts(self, names: Collection[str]) -> SamplesTable:
        """Return the repetitions of some hosts."""
        is_named = np.array([name in names for name in self.hosts], dtype=np.bool_)
        return self._part(is_named[self.host], range(len(self.cases)))

    def by_system(self, *names: str) -> dict[str, SamplesTable]:
        """Return the repetitions of each system, and of *names*, which may have none."""
        systems = dict.fromkeys([*(case.system for case in self.cases), *names])
        if len(systems) == 1 and self.cases:
            return dict.fromkeys(systems, self)
        cases_of = {
            name: [number for number, case in enumerate(self.cases) if case.system == name] for name in systems
        }
        return {
            name: replace(
                self._part(np.isin(self.case, cases), cases), replaced=self.replaced_of.get(name, self.replaced)
            )
            for name, cases in cases_of.items()
        }

    def _part(self, chosen: Bools, cases: Sequence[int]) -> SamplesTable:
        """Return the rows of *chosen* groups, all of some *cases*, with hosts and cases numbered anew."""
        rows = np.repeat(chosen, self.counts)
        hosts, host = np.unique(self.host[chosen], return_inverse=True)
        return replace(
            self,
            hosts=[self.hosts[number] for number in hosts.tolist()],
            cases=[self.cases[number] for number in cases],
            case=np.searchsorted(cases, self.case[chosen]).astype(np.int32),
            host=host.astype(np.int32),
            counts=self.counts[chosen],
            busy_pus=None if self.busy_pus is None else self.busy_pus[rows],
            **{name: getattr(self, name)[rows] for name in _ROWS},
        )


@dataclass(frozen=True)
class Reduced:
    """What judging needs of some records, small and without texts in its rows.

    A row is a repetition of a metric that is judged: *time* (ms since 1970), *value*, *valid*, *judged*, and the
    numbers of its *host* and its *reason* in the lists of these. Rows are sorted by naming (the columns of
    :data:`_NAMING`), host, time and value; *counts* is the number of rows of each naming. Namings are in the order
    of their first records.

    *states* are values that explain a host's speed (columns host, metric, value, time, system, bank), *spans* the
    hours with records (system, host, time, end), and *parts* what tells the board and the processors.
    """

    hosts: Sequence[str]
    namings: Sequence[str]
    reasons: Sequence[str]
    counts: Ints
    host: NDArray[np.unsignedinteger]
    reason: NDArray[np.unsignedinteger]
    time: Ints
    value: Floats
    valid: Bools
    judged: Bools
    states: pl.DataFrame
    spans: pl.DataFrame
    parts: pl.DataFrame

    def renamed(self, names: Mapping[str, str]) -> Reduced:
        """Return the same with other names of hosts."""
        tables: dict[str, Any] = {name: renamed(getattr(self, name), names) for name in TABLES}
        return replace(self, hosts=[names.get(host, host) for host in self.hosts], **tables)

    def of_system(self, system: str) -> Reduced:
        """Return the part of one *system*."""
        chosen = np.array([naming.split("\0", 1)[0] == system for naming in self.namings], dtype=np.bool_)
        rows = np.repeat(chosen, self.counts)
        return replace(
            self,
            namings=[naming for naming, is_chosen in zip(self.namings, chosen, strict=True) if is_chosen],
            counts=self.counts[chosen],
            **{name: getattr(self, name)[rows] for name in COLUMNS},
            **{name: getattr(self, name).filter(system=system) for name in TABLES},
        )


def renamed(table: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """Return a *table* with other names of hosts."""
    return table.with_columns(table["host"].replace(dict(names))) if names else table


#: The columns of rows, and the tables, of :class:`Reduced`.
COLUMNS = ("host", "reason", "time", "value", "valid", "judged")
TABLES = ("states", "spans", "parts")
#: The columns of rows of :class:`SamplesTable`, but for :attr:`SamplesTable.busy_pus`.
_ROWS = ("time", "value", "valid", "judged", "reason", "sessions_of_rows")


def of_records(records: Iterable[Record], system: str | None = None) -> SamplesTable:
    """Return the table of *records*, of one *system* only if it is given."""
    listed = list(records)
    return of_parts([reduced(to_frame(listed))] if listed else [], system)


def reduced(frame: pl.DataFrame) -> Reduced:
    """Return what judging needs of a table of records (see :func:`firsttouch.records.schema.to_frame`)."""
    import polars as pl  # noqa: PLC0415 - a large import

    frame = frame.select(READ).with_columns(milliseconds(frame["time"]))
    # Spans of an hour at most: consecutive ones make sessions.
    hours = frame.group_by("system", "host", pl.col("time").floordiv(GAP).alias("hour"))
    spans = hours.agg(time=pl.col("time").min(), end=pl.col("time").max()).drop("hour")
    data = _is_data()
    states = frame.filter((pl.col("check") == "topology") | (data & (pl.col("better") == "neither")))
    bank = pl.col("parameters").str.json_path_match("$.bank").fill_null("")
    states = states.select("host", "metric", "value", "time", "system", bank=bank)
    valid = pl.col("status") == "valid"
    rows = frame.filter(~pl.col("metric").is_in(SETTINGS) & ~data).select(
        "host",
        "time",
        "value",
        naming=pl.concat_str(_NAMING, separator="\0"),
        valid=valid,
        judged=_counts_if_emulated() | ~is_emulated(),
        reason=pl.when(valid).then(pl.lit("")).otherwise("reason"),
    )
    texts = {name: rows[name].unique(maintain_order=True) for name in ("host", "naming", "reason")}
    rows = rows.with_columns(
        pl.col(name).cast(pl.Enum(listed)).to_physical() for name, listed in texts.items()
    ).sort("naming", "host", "time", "value", maintain_order=True)
    configured = frame.filter(
        pl.col("metric").is_in(["settings", REPLACED]), check="configuration", status="valid"
    )
    of_parts = {name: configured["parameters"].str.json_path_match(path) for name, path in _PARTS.items()}
    stated = configured.select("host", "time", "system", stated=pl.col("metric") == REPLACED)
    return Reduced(
        hosts=texts["host"].to_list(),
        namings=texts["naming"].to_list(),
        reasons=texts["reason"].to_list(),
        counts=np.bincount(rows["naming"].to_numpy(), minlength=len(texts["naming"])),
        **{name: rows[name].to_numpy() for name in COLUMNS},
        states=pl.concat([states, _of_a_bank(frame)]),
        spans=spans,
        parts=stated.with_columns(**of_parts),
    )


def nothing() -> Reduced:
    """Return what judging needs of no record."""
    import polars as pl  # noqa: PLC0415 - a large import

    return reduced(pl.DataFrame(schema=columns()))


def of_parts(parts: Iterable[Reduced], system: str | None = None) -> SamplesTable:
    """Return the table of several parts of records, of one *system* only if it is given."""
    import polars as pl  # noqa: PLC0415 - a large import

    listed = [part if system is None else part.of_system(system) for part in parts]
    listed = listed or [nothing()]
    states, spans, configured = (pl.concat([getattr(p, name) for p in listed]) for name in TABLES)
    in_use = [np.bincount(part.host, minlength=len(part.hosts)) > 0 for part in listed]
    hosts = sorted(
        {name for part, used in zip(listed, in_use, strict=True) for name in np.array(part.hosts, object)[used]}
    )
    namings = list(dict.fromkeys(naming for part in listed for naming in part.namings))
    reasons = list(dict.fromkeys(["", *(reason for part in listed for reason in part.reasons)]))
    cases, case_of = _cases(namings)
    sessions = _sessions(_keyed(spans, hosts))
    busy = _busy_pus(_keyed(states.filter(metric="busy_pus"), hosts), sessions)
    settings: dict[str, dict[str, float]] = {}
    latest = states.sort("time", "value").group_by("host", "metric", "bank", maintain_order=True).last()
    smallest = latest.group_by("host", "metric", maintain_order=True).agg(pl.col("value").min())
    for host, metric, value in smallest.iter_rows():
        settings.setdefault(host, {})[metric] = value
    systems = {case.system for case in cases}
    replaced_of = {
        name: _replaced(configured.filter(system=name), hosts, sessions) for name in configured["system"].unique()
    }
    joined = _Joined(listed, hosts, namings, reasons, case_of)
    return SamplesTable(
        hosts,
        cases,
        **joined.columns(len(cases), sessions, busy),
        reasons=reasons,
        settings=settings,
        replaced=replaced_of.get(next(iter(systems)), {}) if len(systems) == 1 else {},
        replaced_of=replaced_of,
    )


class _Joined:
    """Joins the rows of parts, case by case: each part has those of a case together."""

    def __init__(
        self,
        parts: Sequence[Reduced],
        hosts: Sequence[str],
        namings: Sequence[str],
        reasons: Sequence[str],
        case_of: Sequence[int],
    ) -> None:
        self._parts = parts
        number_of_host, number_of_naming, number_of_reason = (
            {text: number for number, text in enumerate(texts)} for texts in (hosts, namings, reasons)
        )
        self._hosts = [np.array([number_of_host.get(h, -1) for h in p.hosts], dtype=np.int32) for p in parts]
        kind = np.min_scalar_type(len(reasons))
        self._reasons = [np.array([number_of_reason[r] for r in p.reasons], dtype=kind) for p in parts]
        #: By case: the part, its rows, and the number of their naming.
        self._stretches: dict[int, list[tuple[int, slice, int]]] = {}
        for number, part in enumerate(parts):
            ends = np.cumsum(part.counts).tolist()
            for naming, end, count in zip(part.namings, ends, part.counts.tolist(), strict=True):
                place = number_of_naming[naming]
                self._stretches.setdefault(case_of[place], []).append((number, slice(end - count, end), place))

    def columns(self, cases: int, sessions: Ints, busy: _BusyPus | None) -> dict[str, Any]:
        """Return the columns of :class:`SamplesTable`, those of groups and those of rows."""
        size = sum(len(part.value) for part in self._parts)
        kinds = (np.int64, np.float64, np.bool_, np.bool_, self._reasons[0].dtype, np.int32)
        rows = {name: np.empty(size, dtype=kind) for name, kind in zip(_ROWS, kinds, strict=True)}
        busy_pus = None if busy is None else np.zeros(size)
        case_of_groups, hosts, counts, end = [], [], [], 0
        for case in range(cases):
            host, columns = self._of_case(case)
            begin, end = end, end + len(host)
            for name, column in columns.items():
                rows[name][begin:end] = column
            keys = _keys(host, columns["time"])
            rows["sessions_of_rows"][begin:end] = np.searchsorted(sessions, keys, side="right")
            if busy is not None and busy_pus is not None:
                busy_pus[begin:end] = busy.at(keys, rows["sessions_of_rows"][begin:end])
            firsts = np.flatnonzero(np.diff(host, prepend=-1))
            hosts.append(host[firsts])
            counts.append(np.diff(firsts, append=len(host)))
            case_of_groups.append(np.full(len(firsts), case, dtype=np.int32))
        return {
            "case": np.concatenate([np.empty(0, np.int32), *case_of_groups]),
            "host": np.concatenate([np.empty(0, np.int32), *hosts]),
            "counts": np.concatenate([np.empty(0, np.int64), *counts]),
            # Without the records that were read twice.
            **{name: column[:end] for name, column in rows.items()},
            "busy_pus": None if busy_pus is None else busy_pus[:end],
        }

    def _of_case(self, case: int) -> tuple[NDArray[np.int32], dict[str, NDArray[Any]]]:
        """Return the host of each row of a case, and the rows' columns, sorted by host and time."""
        stretches = self._stretches[case]
        host = np.concatenate([self._hosts[n][self._parts[n].host[rows]] for n, rows, _ in stretches])
        columns = {
            name: np.concatenate([getattr(self._parts[n], name)[rows] for n, rows, _ in stretches])
            for name in ("time", "value", "valid", "judged")
        }
        columns["reason"] = np.concatenate(
            [self._reasons[n][self._parts[n].reason[rows]] for n, rows, _ in stretches]
        )
        keys = _keys(host, columns["time"])
        if (np.diff(keys) > 0).all():
            return host, columns
        order = np.argsort(keys, kind="stable")
        if (np.diff(keys[order]) == 0).any():
            naming = np.repeat(
                [place for _, _, place in stretches], [rows.stop - rows.start for _, rows, _ in stretches]
            )
            sorting = (naming, columns["value"], columns["time"], host)
            # Of two that differ in nothing else, the worse one counts, whichever is read first.
            order = np.lexsort((columns["judged"], columns["valid"], *sorting))
            # A record that was read twice (from a store and from a report made of it) is one repetition.
            differs = [np.diff(column[order], prepend=column[order[:1]] - 1) != 0 for column in sorting]
            order = order[np.logical_or.reduce(differs)]
        return host[order], {name: column[order] for name, column in columns.items()}


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
        system="system",
        bank=pl.lit(""),
    ).drop_nulls()


def _cases(namings: Iterable[str]) -> tuple[list[Case], list[int]]:
    """Return the cases that texts of the naming columns stand for, and the number of the case of each text."""
    numbers: dict[str, int] = {}
    cases: list[Case] = []
    number_of: list[int] = []
    for naming in namings:
        system, check, metric, unit, better, parameters = naming.split("\0")
        direction = better_of(check, metric, cast("Better", better))
        case = Case(system, check, metric, identifying(check, json.loads(parameters)), unit, direction)
        key = f"{system}\0{case.key}"
        if key not in numbers:
            numbers[key] = len(cases)
            cases.append(case)
        number_of.append(numbers[key])
    order = sorted(range(len(cases)), key=lambda number: in_order(cases[number]))
    place = {number: position for position, number in enumerate(order)}
    return distinguished([cases[number] for number in order]), [place[number] for number in number_of]


def _keys(host: NDArray[np.integer], time: Ints) -> Ints:
    """Return a number for each row that sorts by host and time."""
    keys: Ints = host.astype(np.int64) * _SPAN + np.clip(time, 0, _SPAN - 1)
    return keys


def _keyed(table: pl.DataFrame, hosts: Sequence[str]) -> pl.DataFrame:
    """Return the rows of *hosts* by host and time, with the columns ``number`` and ``key`` (see :func:`_keys`)."""
    import polars as pl  # noqa: PLC0415 - a large import

    number = pl.col("host").cast(pl.Enum(hosts), strict=False).to_physical().cast(pl.Int64)
    numbered = table.with_columns(number=number).drop_nulls("number")
    key = pl.col("number") * _SPAN + pl.col("time").clip(0, _SPAN - 1)
    return numbered.with_columns(key=key).sort("number", "time", maintain_order=True)


def _sessions(spans: pl.DataFrame) -> Ints:
    """Return the beginnings of all sessions (see :func:`_keys`); a span is from ``time`` to ``end``."""
    import polars as pl  # noqa: PLC0415 - a large import

    gap = pl.col("time") - pl.col("end").cum_max().shift().over("number")
    return spans.sort("number", "time", "end").filter((gap > GAP).fill_null(value=True))["key"].to_numpy()


def _replaced(configured: pl.DataFrame, hosts: Sequence[str], sessions: Ints) -> dict[str, Replacement]:
    """Return the last replacement of the board or the processors of each host.

    Somebody stated it, or the configuration shows it. Addresses of network cards tell a board only if none is the
    same as before, and if its serial number is unknown: another card is no other board.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    # What can be read only at times has not changed meanwhile.
    parts = pl.col(*_PARTS).forward_fill().over("host")
    rows = _keyed(configured, hosts).with_columns(parts, of_now=pl.col("board"))
    before = {name: pl.col(name).shift().over("host") for name in ("time", *_PARTS)}
    other = [pl.col("stated"), *(pl.col(name) != before[name] for name in _PARTS if name != "interfaces")]
    cards = pl.col("interfaces").str.split(" ").list.set_intersection(before["interfaces"].str.split(" "))
    other.append((cards.list.len() == 0) & (pl.col("of_now").is_null() | before["board"].is_null()))
    rows = rows.with_columns(before=before["time"]).filter(
        pl.any_horizontal(o.fill_null(value=False) for o in other)
    )
    return {
        host: Replacement(
            since if last is None else last, since, int(np.searchsorted(sessions, key, side="right"))
        )
        for host, since, last, key in rows.select("host", "time", "before", "key").iter_rows()
    }


@dataclass(frozen=True)
class _BusyPus:
    """How many PUs others used on busy hosts: at *keys* (see :func:`_keys`), in *sessions*, *values*."""

    keys: Ints
    sessions: Ints
    values: Floats

    def at(self, keys: Ints, sessions: NDArray[np.integer]) -> Floats:
        """Return the last value before each of *keys* in the same session, 0 without one."""
        last = np.searchsorted(self.keys, keys, side="right") - 1
        some = np.maximum(last, 0)
        return np.where((last >= 0) & (self.sessions[some] == sessions), self.values[some], 0.0)


def _busy_pus(samples: pl.DataFrame, sessions: Ints) -> _BusyPus | None:
    """Return the samples of the hosts that were busy once, None without such a host."""
    import polars as pl  # noqa: PLC0415 - a large import

    samples = samples.filter((pl.col("value").max() >= BUSY).over("host")).sort("number", "time", "value")
    if samples.is_empty():
        return None
    keys = samples["key"].to_numpy()
    return _BusyPus(keys, np.searchsorted(sessions, keys, side="right"), samples["value"].to_numpy())


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
