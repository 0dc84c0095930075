# SPDX-License-Identifier: Apache-2.0
"""The measurements of many hosts as one table, sorted by case, host and time.

Records of one host and case are repetitions: the same thing measured again. The table has a row per repetition and
a group of rows per host and case.

A large table is never whole in memory. :class:`Joined` knows where the rows of each case are, in parts of records
or in the files of their summaries, and makes the table of some cases at a time (:meth:`Joined.pieces`), with the
numbers that hosts and cases have in the whole. Judging and the history take each piece once, and keep columns of
groups (:class:`CaseTable`). The rows of a host or of a case are read again if they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from firsttouch.benchmarks.kernel_settings import BUSY
from firsttouch.judge.reduced import GAP, PARTS, TABLES, Columns, Reduced, cases_of, nothing, reduced, system_of
from firsttouch.judge.sprt import Bools, Floats, Groups, Ints
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record, to_frame

if TYPE_CHECKING:
    import polars as pl

#: Times are below this (ms since 1970: the year 2109), so that host number x _SPAN + time sorts by host and time.
_SPAN = 1 << 42


class Replacement(Struct, frozen=True):
    """A board or processors that a host got between two configurations: *before* and *since* (ms since 1970).

    *session* is the number of the first session with them.
    """

    before: int
    since: int
    session: int


class CaseTable(Struct, frozen=True, dict=True):
    """The groups of a table of repetitions, sorted by case and host. A *group* stands for one host and case.

    *hosts* are in alphabetical order, *cases* in the order of the catalogue. Columns of groups are

    - *case* and *host*: their numbers
    - *counts*: the number of the group's repetitions

    *settings* are the latest values of each host that explain its speed: the topology check's,
    :data:`BANK_BANDWIDTH` if it is known, and the smallest of each state of the banks. *replaced* is the last
    replacement of each host that had one, and *replaced_of* that of each system in a table of several.
    """

    hosts: Sequence[str]
    cases: Sequence[Case]
    case: NDArray[np.int32]
    host: NDArray[np.int32]
    counts: Ints
    settings: Mapping[str, Mapping[str, float]]
    replaced: Mapping[str, Replacement]
    replaced_of: Mapping[str, Mapping[str, Replacement]]

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
    def names(self) -> NDArray[np.object_]:
        """The names of the hosts, by number."""
        return np.array(self.hosts, dtype=object)

    @cached_property
    def begins(self) -> Ints:
        """The first row of each group."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def of_case(self) -> Ints:
        """The first group of each case, and the number of all groups."""
        return np.searchsorted(self.case, np.arange(len(self.cases) + 1))

    @cached_property
    def _of_host(self) -> tuple[Ints, NDArray[np.integer]]:
        order = np.argsort(self.host, kind="stable").astype(np.min_scalar_type(len(self.host)))
        counts = np.bincount(self.host, minlength=len(self.hosts))
        return np.append(0, np.cumsum(counts)), order

    def groups(self, case: int) -> slice:
        """Return the groups of a case."""
        return slice(int(self.of_case[case]), int(self.of_case[case + 1]))

    def groups_of_host(self, host: int) -> NDArray[np.intp]:
        """Return the groups of a host, by case."""
        begins, order = self._of_host
        return order[begins[host] : begins[host + 1]].astype(np.intp)


class SamplesTable(CaseTable, frozen=True, dict=True):
    """All repetitions, sorted by case, host and time: the rows of a group are together, oldest first.

    Columns of rows are

    - *time* (ms since 1970) and *value*
    - *valid*, *reason* (why not: a number of *reasons*), and *judged*: whether references may judge the value
    - *sessions_of_rows*: a number that grows with time for each host
    - *busy_pus*: how many PUs other processes used; None if no host was found busy
    """

    time: Ints
    value: Floats
    valid: Bools
    judged: Bools
    reason: NDArray[np.unsignedinteger]
    sessions_of_rows: NDArray[np.int32]
    busy_pus: Floats | None
    reasons: Sequence[str]

    @cached_property
    def sessions(self) -> Ints:
        """The number of sessions of each group with the host's present board and processors."""
        session = self.sessions_of_rows
        begins = np.append(True, session[1:] != session[:-1])[: len(session)]
        begins[self.begins] = True
        if self.replaced:
            begins &= session >= np.repeat(self.first_sessions[self.host], self.counts)
        return np.add.reduceat(begins, self.begins, dtype=np.int64) if len(session) else self.counts

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

    def pieces(self, cases: Sequence[int] | None = None) -> Iterator[tuple[Sequence[int], SamplesTable]]:
        """Yield the table, as :meth:`Joined.pieces` does."""
        yield range(len(self.cases)) if cases is None else cases, self

    def table(self, _cases: Collection[int] | None = None) -> SamplesTable:
        """Return the table, as :meth:`Joined.table` does."""
        return self

    def of_hosts(self, names: Collection[str]) -> SamplesTable:
        """Return the repetitions of some hosts, with hosts numbered anew."""
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


#: The columns of rows of :class:`SamplesTable`, but for :attr:`SamplesTable.busy_pus`.
_ROWS = ("time", "value", "valid", "judged", "reason", "sessions_of_rows")
#: The fewest rows of the cases of a table that are in memory at a time.
PIECE = 1 << 21


def of_records(records: Iterable[Record], system: str | None = None) -> SamplesTable:
    """Return the table of *records*, of one *system* only if it is given."""
    listed = list(records)
    return of_parts([reduced(to_frame(listed))] if listed else [], system)


def of_parts(parts: Iterable[Reduced], system: str | None = None) -> SamplesTable:
    """Return the table of several parts of records, of one *system* only if it is given."""
    return joined(parts, system).table()


def joined(parts: Iterable[Reduced], system: str | None = None) -> Joined:
    """Return the same as :func:`of_parts`, to be had a piece at a time."""
    import polars as pl  # noqa: PLC0415 - a large import

    listed = [part if system is None else part.of_system(system) for part in parts]
    listed = listed or [nothing()]
    states, spans, configured = (pl.concat([getattr(p, name) for p in listed]) for name in TABLES)
    hosts = sorted({name for names in {id(p.hosts): p.hosts for p in listed}.values() for name in names})
    namings = list(dict.fromkeys(naming for part in listed for naming in part.namings))
    reasons = list(dict.fromkeys(["", *(reason for part in listed for reason in part.reasons)]))
    cases, case_of = cases_of(namings)
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
    return Joined(
        hosts,
        cases,
        settings,
        replaced_of.get(next(iter(systems)), {}) if len(systems) == 1 else {},
        replaced_of,
        _Rows(listed, hosts, dict(zip(namings, case_of, strict=True)), reasons, sessions=sessions, busy=busy),
    )


class Joined(Struct, frozen=True):
    """A table of repetitions (see :class:`SamplesTable`) that is made in pieces: those of some cases at a time.

    *first_case* is the number of the first of *cases* in *rows*. *numbers* are those of *hosts*, by their numbers
    in *rows* (None: the same).
    """

    hosts: Sequence[str]
    cases: Sequence[Case]
    settings: Mapping[str, Mapping[str, float]]
    replaced: Mapping[str, Replacement]
    replaced_of: Mapping[str, Mapping[str, Replacement]]
    rows: _Rows
    first_case: int = 0
    numbers: NDArray[np.int32] | None = None

    def pieces(self, cases: Sequence[int] | None = None) -> Iterator[tuple[Sequence[int], SamplesTable]]:
        """Yield some numbers of all cases, or of ascending *cases*, at a time, and their table.

        Hosts and cases have the numbers of the whole table there.
        """
        chosen = range(len(self.cases)) if cases is None else cases
        begin = size = 0
        for end, number in enumerate(chosen, start=1):
            size += self.rows.size(self.first_case + number)
            if size >= PIECE and end < len(chosen):
                yield chosen[begin:end], self.table(chosen[begin:end])
                begin, size = end, 0
        yield chosen[begin:], self.table(chosen[begin:])

    def table(self, cases: Collection[int] | None = None) -> SamplesTable:
        """Return the table of all cases, or of those with some ascending numbers."""
        chosen = range(len(self.cases)) if cases is None else cases
        columns = self.rows.columns([self.first_case + number for number in chosen])
        columns["case"] -= np.int32(self.first_case)
        if self.numbers is not None:
            columns["host"] = self.numbers[columns["host"]]
        return SamplesTable(
            self.hosts,
            self.cases,
            settings=self.settings,
            replaced=self.replaced,
            replaced_of=self.replaced_of,
            reasons=self.rows.reasons,
            **columns,
        )

    def of_hosts(self, names: Collection[str]) -> SamplesTable:
        """Return the repetitions of some hosts, with hosts numbered anew."""
        if len(names) >= len(self.hosts):
            return self.table()
        return replace(self, rows=self.rows.of_hosts(names)).table().of_hosts(names)

    def by_system(self, *names: str) -> dict[str, Joined]:
        """Return the repetitions of each system, and of *names*, which may have none."""
        systems = dict.fromkeys([*(case.system for case in self.cases), *names])
        if len(systems) == 1 and self.cases:
            return dict.fromkeys(systems, self)
        return {name: self._of_system(name) for name in systems}

    def _of_system(self, name: str) -> Joined:
        cases = [number for number, case in enumerate(self.cases) if case.system == name]
        hosts = self.rows.hosts_of(cases)
        numbers = np.cumsum(hosts, dtype=np.int32) - 1
        return replace(
            self,
            hosts=list(compress(self.hosts, hosts.tolist())),
            cases=[self.cases[number] for number in cases],
            replaced=self.replaced_of.get(name, self.replaced),
            first_case=cases[0] if cases else 0,
            numbers=numbers,
        )


class _Rows:
    """Joins the rows of parts, case by case: each part has those of a case together."""

    def __init__(
        self,
        parts: Sequence[Reduced],
        hosts: Sequence[str],
        case_of: Mapping[str, int],
        reasons: Sequence[str],
        *,
        sessions: Ints,
        busy: _BusyPus | None,
    ) -> None:
        self._parts, self.reasons, self._sessions, self._busy = parts, reasons, sessions, busy
        self._names = hosts, case_of
        #: Session n is from place n to place n + 1.
        self._bounds = np.concatenate([[np.iinfo(np.int64).min], sessions, [np.iinfo(np.int64).max]])
        number_of_host, number_of_naming, number_of_reason = (
            {text: number for number, text in enumerate(texts)} for texts in (hosts, case_of, reasons)
        )
        # Most parts share their list of hosts.
        lists = {id(part.hosts): part.hosts for part in parts}
        numbers = {
            key: np.array([number_of_host[host] for host in names], dtype=np.int32) for key, names in lists.items()
        }
        self._hosts = [numbers[id(part.hosts)] for part in parts]
        self._count = len(hosts)
        self._kind = np.min_scalar_type(len(reasons))
        self._reasons = [np.array([number_of_reason[r] for r in p.reasons], dtype=self._kind) for p in parts]
        #: By case: the part, its rows, and the number of their naming.
        self._stretches: dict[int, list[tuple[int, slice, int]]] = {case: [] for case in case_of.values()}
        for number, part in enumerate(parts):
            ends = np.cumsum(part.counts).tolist()
            for naming, end, count in zip(part.namings, ends, part.counts.tolist(), strict=True):
                stretch = (number, slice(end - count, end), number_of_naming[naming])
                self._stretches[case_of[naming]].append(stretch)
        #: Those of the case before: its parts, the order of its rows, and the sessions of these.
        self._loaded: dict[int, Columns] = {}
        self._order: NDArray[np.intp] | None = None
        self._last_sessions: NDArray[np.intp] = np.empty(0, dtype=np.intp)

    def of_hosts(self, names: Collection[str]) -> _Rows:
        """Return the rows of some hosts, in memory."""
        parts = [part.of_hosts(names) for part in self._parts]
        return _Rows(parts, *self._names, self.reasons, sessions=self._sessions, busy=self._busy)

    def size(self, case: int) -> int:
        """Return the number of rows of a case, with those that were read twice."""
        return sum(rows.stop - rows.start for _, rows, _ in self._stretches[case])

    def hosts_of(self, cases: Collection[int]) -> Bools:
        """Return which hosts have a row of some *cases*: all cases of a system."""
        chosen = np.zeros(self._count, dtype=np.bool_)
        for number in {number for case in cases for number, _, _ in self._stretches[case]}:
            part, hosts = self._parts[number], self._hosts[number]
            if len({system_of(naming) for naming in part.namings}) == 1:
                chosen[hosts] = True
                continue
            for case in cases:
                for other, rows, _ in self._stretches[case]:
                    if other == number:
                        chosen[hosts[part.rows()["host"][rows]]] = True
        return chosen

    def columns(self, cases: Sequence[int]) -> dict[str, Any]:
        """Return the columns of :class:`SamplesTable`, those of groups and those of rows."""
        size = sum(map(self.size, cases))
        kinds = (np.int64, np.float64, np.bool_, np.bool_, self._kind, np.int32)
        rows = {name: np.empty(size, dtype=kind) for name, kind in zip(_ROWS, kinds, strict=True)}
        busy_pus = None if self._busy is None else np.zeros(size)
        case_of_groups, hosts, counts, end = [], [], [], 0
        for case in filter(self._stretches.get, cases):
            # Parts have few rows each, and are sorted as the cases are.
            needed = {number for number, _, _ in self._stretches[case]}
            self._loaded = {n: self._loaded.get(n) or self._parts[n].rows() for n in needed}
            host, keys, columns = self._of_case(case, self._loaded)
            begin, end = end, end + len(host)
            for name, column in columns.items():
                rows[name][begin:end] = column
            rows["sessions_of_rows"][begin:end] = self._sessions_at(keys)
            if self._busy is not None and busy_pus is not None:
                busy_pus[begin:end] = self._busy.at(keys, rows["sessions_of_rows"][begin:end])
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

    def _of_case(
        self, case: int, parts: Mapping[int, Columns]
    ) -> tuple[NDArray[np.int32], Ints, dict[str, NDArray[Any]]]:
        """Return the host of each row of a case, its key (see :func:`_keys`) and the other columns, by key."""
        stretches = self._stretches[case]
        host = np.concatenate([self._hosts[n][parts[n]["host"][rows]] for n, rows, _ in stretches])
        columns = {
            name: np.concatenate([parts[n][name][rows] for n, rows, _ in stretches])
            for name in ("time", "value", "valid", "judged")
        }
        columns["reason"] = np.concatenate(
            [self._reasons[n][parts[n]["reason"][rows]] for n, rows, _ in stretches]
        )
        keys = _keys(host, columns["time"])
        if _is_ascending(keys):
            return host, keys, columns
        order = self._sorting(keys)
        ordered = keys[order]
        if (ordered[1:] == ordered[:-1]).any():
            naming = np.repeat(
                [place for _, _, place in stretches], [rows.stop - rows.start for _, rows, _ in stretches]
            )
            sorting = (naming, columns["value"], columns["time"], host)
            # Of two that differ in nothing else, the worse one counts, whichever is read first.
            order = np.lexsort((columns["judged"], columns["valid"], *sorting))
            # A record that was read twice (from a store and from a report made of it) is one repetition.
            differs = [np.diff(column[order], prepend=column[order[:1]] - 1) != 0 for column in sorting]
            order = order[np.logical_or.reduce(differs)]
            ordered = keys[order]
        return host[order], ordered, {name: column[order] for name, column in columns.items()}

    def _sorting(self, keys: Ints) -> NDArray[np.intp]:
        """Return the order of *keys*: that of the case before, if all hosts measured both in the same sessions."""
        order = self._order
        if order is None or len(order) != len(keys) or not _is_ascending(keys[order]):
            order = np.argsort(keys, kind="stable")
            self._order = order
        return order

    def _sessions_at(self, keys: Ints) -> NDArray[np.intp]:
        """Return the number of the session of each of ascending *keys*: mostly those of the case before."""
        sessions = self._last_sessions
        if len(sessions) != len(keys) or not (
            (self._bounds[sessions] <= keys).all() and (keys < self._bounds[sessions + 1]).all()
        ):
            sessions = np.searchsorted(self._sessions, keys, side="right")
            self._last_sessions = sessions
        return sessions


def _is_ascending(keys: Ints) -> bool:
    return bool((keys[1:] > keys[:-1]).all())


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
    parts = pl.col(*PARTS).forward_fill().over("host")
    rows = _keyed(configured, hosts).with_columns(parts, of_now=pl.col("board"))
    before = {name: pl.col(name).shift().over("host") for name in ("time", *PARTS)}
    other = [pl.col("stated"), *(pl.col(name) != before[name] for name in PARTS if name != "interfaces")]
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


class _BusyPus(Struct, frozen=True):
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
