# SPDX-License-Identifier: Apache-2.0
"""The measurements of many hosts as one table, sorted by case, host and time.

Records of one host and case are repetitions: the same thing measured again. The table has a row per repetition and
a group of rows per host and case. Only the columns of records that judging needs are read, and numbers stand for
their texts: a row takes about 5 bytes, and 10 while records are read.
"""

from __future__ import annotations

import json
import mmap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from firsttouch.records.cases import Case, identifiers, in_order, with_distinct_names
from firsttouch.records.catalogue import better_of, checks, counts_if_emulated
from firsttouch.records.groups import Bools, Floats, Ints, group_sums, run_begins
from firsttouch.records.schema import BUSY, EMULATOR, GAP, Record, to_frame
from firsttouch.statistics import seven_digits

if TYPE_CHECKING:
    import polars as pl

    from firsttouch.records.tables import Tables
    from firsttouch.units import Better

#: The theoretical bandwidth of one bank (GB/s), which follows from the bandwidth of a package.
BANK_BANDWIDTH = "theoretical_bandwidth_of_a_bank"
#: The metric of the check ``configuration`` by which a person states that a host has got another board.
REPLACED = "replaced"
#: The keys that identify the board and the processors of a host in the parameters of its configuration.
PARTS = {
    "board": "$.parts.board",
    "processors": "$.parts.processors",
    "interfaces": "$.parts.interfaces",
    "model": "$.settings['cpu.model']",
    "product": "$.settings['board.product']",
}
#: The columns of values that are read (:data:`firsttouch.records.tables.VALUES`).
READ = ("session", "case", "time", "value", "invalid")
#: Times are below this (ms since 1970: the year 2109), so that host number x _SPAN + time sorts by host and time.
_SPAN = 1 << 42


class Replacement(Struct, frozen=True):
    """A board or processors that a host got between two configurations: *before* and *since* (ms since 1970).

    *session* is the number of the first session with them.
    """

    before: int
    since: int
    session: int

    @property
    def text(self) -> str:
        """The replacement as a sentence without a full stop."""
        before, since = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (self.before, self.since))
        between = f"between {before:%Y-%m-%d %H:%M} and {since:%Y-%m-%d %H:%M} UTC"
        return f"another board or other processors since a time {between}"


class SamplesTable(Struct, frozen=True, dict=True):
    """All repetitions, sorted by case, host and time: the rows of a group (one host and case) are together.

    *hosts* are in alphabetical order, *cases* in the order of the catalogue. Columns of groups are

    - *case* and *host*: their numbers
    - *counts*: the number of the group's repetitions

    *session_times* has the end (ms since 1970) of each session by its number, which grows with time for each host,
    *host_sessions* the number of the first session of each host. *event_times* has the time (ms since 1970) of the
    rows of each case (a number) that counts events.

    *settings* are the latest values of each host that explain its speed: the topology check's,
    :data:`BANK_BANDWIDTH` if it is known, and the smallest of each state of the banks. *replaced* is the last
    replacement of each host that had one, and *replaced_of* the last ones of each system in a table of several.

    Columns of rows are

    - *value*, of which :meth:`values` returns the decimal numbers
    - *valid*, *reason* (why not: a number of *reasons*), and *judged*: whether references may judge the value
    - *ordinal*: the place of its session among the sessions of the host
    - *busy_pus*: how many PUs other processes used; None if no host was found busy
    """

    hosts: Sequence[str]
    cases: Sequence[Case]
    case: NDArray[np.int32]
    host: NDArray[np.int32]
    counts: NDArray[np.integer]
    session_times: Ints
    host_sessions: Ints
    event_times: Mapping[int, Ints]
    settings: Mapping[str, Mapping[str, float]]
    replaced: Mapping[str, Replacement]
    replaced_of: Mapping[str, Mapping[str, Replacement]]
    value: NDArray[np.float32]
    valid: Bools
    judged: Bools
    reason: NDArray[np.unsignedinteger]
    ordinal: NDArray[np.unsignedinteger]
    busy_pus: Floats | None
    reasons: Mapping[int, str]

    @cached_property
    def first_sessions(self) -> Ints:
        """The first session of each host with its present board and processors (0: all are)."""
        return np.array(
            [self.replaced[h].session if h in self.replaced else 0 for h in self.hosts], dtype=np.int64
        )

    @cached_property
    def parts_since(self) -> Ints:
        """Since when (ms since 1970) each host has its present board and processors (0: always)."""
        return np.array([self.replaced[h].since if h in self.replaced else 0 for h in self.hosts], dtype=np.int64)

    def values(self, rows: slice | Ints) -> Floats:
        """Return the values of some rows as they were recorded, with seven digits."""
        return seven_digits(self.value[rows])

    def is_busy(self, rows: slice) -> Bools:
        """Return which rows were measured while other processes used the host."""
        if self.busy_pus is None:
            return np.zeros(rows.stop - rows.start, dtype=np.bool_)
        return self.busy_pus[rows] >= BUSY

    @cached_property
    def begins(self) -> NDArray[np.integer]:
        """The first row of each group."""
        begins: NDArray[np.integer] = np.cumsum(self.counts) - self.counts
        return begins.astype(np.int32) if len(self.value) < 1 << 31 else begins

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

    def group(self, case: int, hosts: int | Ints) -> Any:
        """Return the group of a case and each of *hosts*, which have it."""
        groups = self.groups(case)
        return groups.start + np.searchsorted(self.host[groups], hosts)

    def groups_of_host(self, host: int) -> NDArray[np.intp]:
        """Return the groups of a host, by case."""
        begins, order = self._of_host
        return order[begins[host] : begins[host + 1]].astype(np.intp)

    def session_count(self, host: int) -> int:
        """Return the number of sessions of a host with its present board and processors."""
        rows, _ = self.rows_of_each(self.groups_of_host(host))
        first = max(self.first_sessions[host] - self.host_sessions[host], 0)
        return int(np.count_nonzero(np.bincount(self.ordinal[rows])[first:]))

    def by_case(self) -> Iterator[tuple[slice, slice]]:
        """Yield the groups and the rows of each case: what is made of all rows at once takes much memory."""
        for case in range(len(self.cases)):
            groups = self.groups(case)
            yield groups, self.rows_of(groups)

    def rows_of(self, groups: slice) -> slice:
        """Return the rows of consecutive groups."""
        if groups.start == groups.stop:
            return slice(0, 0)
        last = groups.stop - 1
        return slice(int(self.begins[groups.start]), int(self.begins[last] + self.counts[last]))

    def rows_of_each(self, groups: NDArray[np.integer]) -> tuple[Ints, Ints]:
        """Return the rows of some groups, and the place of each row's group among these."""
        counts = self.counts[groups]
        place = np.repeat(np.arange(len(groups)), counts)
        return (self.begins[groups] - np.cumsum(counts) + counts)[place] + np.arange(len(place)), place

    def session(self, groups: slice) -> Ints:
        """Return the session of each row of consecutive groups."""
        first = self.host_sessions[self.host[groups]]
        return np.repeat(first, self.counts[groups]) + self.ordinal[self.rows_of(groups)]

    def newest(self, groups: Any) -> Ints:
        """Return the end (ms since 1970) of the newest session of some groups."""
        last = self.ordinal[self.begins[groups] + self.counts[groups] - 1]
        newest: Ints = self.session_times[self.host_sessions[self.host[groups]] + last]
        return newest

    def reason_of(self, row: int) -> str:
        """Return why a row is not valid, an empty text for a valid one."""
        return self.reasons[int(self.reason[row])]

    def good(self, case: int) -> tuple[Floats, Ints, NDArray[np.int32]]:
        """Return the good repetitions (valid and judged) of a case: values, counts, and the host of each count."""
        groups = self.groups(case)
        rows = self.rows_of(groups)
        is_good = self.valid[rows] & self.judged[rows]
        counts = group_sums(is_good, self.begins[groups] - rows.start)
        return self.values(rows)[is_good], counts[counts > 0], self.host[groups][counts > 0]

    def of_hosts(self, names: Collection[str]) -> SamplesTable:
        """Return the repetitions of some hosts, with hosts renumbered."""
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
        """Return the rows of *chosen* groups, all of some *cases*, with hosts and cases renumbered."""
        rows = np.repeat(chosen, self.counts)
        hosts, host = np.unique(self.host[chosen], return_inverse=True)
        of_case = {number: rows[self.rows_of(self.groups(number))] for number in self.event_times}
        return replace(
            self,
            host_sessions=self.host_sessions[hosts],
            event_times={
                place: self.event_times[number][of_case[number]]
                for place, number in enumerate(cases)
                if number in of_case
            },
            hosts=[self.hosts[number] for number in hosts.tolist()],
            cases=[self.cases[number] for number in cases],
            case=np.searchsorted(cases, self.case[chosen]).astype(np.int32),
            host=host.astype(np.int32),
            counts=self.counts[chosen],
            busy_pus=None if self.busy_pus is None else self.busy_pus[rows],
            **{name: getattr(self, name)[rows] for name in _ROWS},
        )


#: The columns of rows of :class:`SamplesTable`, but for :attr:`SamplesTable.busy_pus`.
_ROWS = ("value", "valid", "judged", "reason", "ordinal")


def of_records(records: Iterable[Record], system: str | None = None) -> SamplesTable:
    """Return the table of *records*, of one *system* only if it is given."""
    from firsttouch.records.tables import split  # noqa: PLC0415 - loads the table library

    return of_tables([split(to_frame(records))], system)


def of_tables(tables: Iterable[Tables], system: str | None = None) -> SamplesTable:
    """Return the table of the records in *tables*, of one *system* only if it is given; they are not kept."""
    import polars as pl  # noqa: PLC0415 - a large import

    from firsttouch.records.tables import split  # noqa: PLC0415 - loads the table library

    read = _Read()
    read.add(split(to_frame(())), "")
    for each in tables:
        for name, of_system in each.by_system(system):
            read.add(of_system, name)
    visits = pl.concat(read.visits).with_row_index("visit")
    others = pl.concat(read.others)
    states, configured = _states(others), _parts(others)
    hosts = sorted(visits.filter("is_judged")["host"].unique())
    of_hosts = _keyed(visits, hosts).sort("number", "time", "end")
    gap = pl.col("time") - pl.col("end").cum_max().shift().over("number")
    sessions = of_hosts.filter((gap > GAP).fill_null(value=True))["key"].to_numpy()
    session = np.searchsorted(sessions, of_hosts["key"].to_numpy(), side="right")
    session_times = np.zeros(len(sessions) + 1, dtype=np.int64)
    np.maximum.at(session_times, session, of_hosts["end"].to_numpy())
    host_sessions = np.searchsorted(sessions, np.arange(len(hosts)) * _SPAN) + 1
    ordinal = session - host_sessions[of_hosts["number"].to_numpy()]
    numbers = of_hosts.select("visit", "key", ordinal=ordinal.astype(np.min_scalar_type(ordinal.max(initial=0))))
    settings: dict[str, dict[str, float]] = {}
    latest = states.sort("time", "value").group_by("host", "metric", "bank", maintain_order=True).last()
    smallest = latest.group_by("host", "metric", maintain_order=True).agg(pl.col("value").min())
    for host_name, metric, value in smallest.iter_rows():
        settings.setdefault(host_name, {})[metric] = value
    visits = visits.join(numbers, on="visit", how="left", maintain_order="left").fill_null(0)
    busy = _Busy.from_states(_keyed(states.filter(metric="busy_pus"), hosts), sessions)
    cases, columns = _sorted(read, visits, busy)
    systems = {case.system for case in cases}
    replaced_of = {
        name: _replaced(configured.filter(system=name), hosts, sessions) for name in configured["system"].unique()
    }
    return SamplesTable(
        hosts=hosts,
        cases=cases,
        session_times=session_times,
        host_sessions=host_sessions,
        settings=settings,
        replaced=replaced_of.get(next(iter(systems)), {}) if len(systems) == 1 else {},
        replaced_of=replaced_of,
        **columns,
        reasons=read.reasons,
    )


class _Part(Struct, frozen=True):
    """Repetitions of :data:`_BLOCK` names from one file, sorted by name.

    *begins* has the first row of each name, and the end. *visit* + *offset* is a row number of the visits of
    :class:`_Read`, and *time* begins with the visit. *reason* is 0 for valid rows. If all names have the same
    visits, *visit* has only the first name's.
    """

    begins: Ints
    offset: int
    visit: NDArray[np.integer]
    time: NDArray[np.integer]
    value: NDArray[np.float32]
    reason: NDArray[np.integer]

    def visits(self, rows: slice) -> NDArray[np.integer]:
        """Return the visits of the rows of a name."""
        return self.visit[rows] if len(self.visit) == len(self.time) else self.visit[: rows.stop - rows.start]


def _shared(visit: NDArray[np.integer], begins: Ints) -> NDArray[np.integer]:
    """Return the visits of the first name if all names have the same, and otherwise those of all."""
    counts = np.diff(begins)
    first = visit[: counts[0]]
    if (counts == counts[0]).all() and (visit.reshape(len(counts), -1) == first).all():
        return first
    return visit


#: The names of cases in a part. When all are in the table, its memory is free.
_BLOCK = 64
#: Arrays of this size (bytes) have memory of their own.
_LARGE = 1 << 16


def _empty(size: int, dtype: Any) -> NDArray[Any]:
    """Return an array whose memory is free as soon as nothing refers to it; malloc may keep what it had."""
    if size * np.dtype(dtype).itemsize < _LARGE:
        return np.empty(size, dtype)
    memory = mmap.mmap(-1, size * np.dtype(dtype).itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, dtype)


def _private(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy in memory of its own."""
    copy = _empty(len(values), values.dtype)
    copy[:] = values
    return copy


class _Read:
    """The records that were read: parts by block of names, and the visits.

    A name is the text of a case, which has several if they differ in parameters that do not identify it. Visits
    are the sessions of :class:`Tables`. Several of them make a session of a host if its software differs. *others*
    explain the speed of hosts.
    """

    def __init__(self) -> None:
        #: The cases, and their names (numbers), as they were read first.
        self.cases: list[Case] = []
        self.names: list[list[int]] = []
        self.blocks: dict[int, list[_Part]] = defaultdict(list)
        self.visits: list[pl.DataFrame] = []
        self.others: list[pl.DataFrame] = []
        self.reasons = {0: ""}
        self._visits = 0
        self._places: dict[str, int] = {}
        #: By system: the number of each name by its category (-1: not judged, -2: not read yet), and what explains
        #: the speed of hosts.
        self._numbers: dict[str, Ints] = {}
        self._explaining: dict[str, list[str]] = {}
        #: The number of names.
        self.named = 0

    def _name(self, system: str, text: str) -> int:
        """Return the number of a new name, -1 if its case is not judged."""
        from firsttouch.records.tables import fields_of  # noqa: PLC0415 - loads the table library

        fields = fields_of(text)
        name, metric = fields["check"], fields["metric"]
        check = checks().get(name)
        is_data = check is not None and (metric in check.data or not check.metrics)
        number = -1
        if not is_data:
            direction = better_of(name, metric, cast("Better", fields["better"]))
            parameters = identifiers(name, json.loads(fields["parameters"]))
            case = Case(system, name, metric, parameters, fields["unit"], direction)
            place = self._places.setdefault(f"{system}\0{case.key}", len(self.cases))
            if place == len(self.cases):
                self.cases.append(case)
                self.names.append([])
            number, self.named = self.named, self.named + 1
            self.names[place].append(number)
        if (is_data and fields["better"] == "neither") or name in {"topology", "cores", "configuration"}:
            self._explaining.setdefault(system, []).append(text)
        return number

    def sizes(self) -> Ints:
        """Return the number of rows of each case."""
        of_names = np.zeros(-(-self.named // _BLOCK) * _BLOCK, dtype=np.int64)
        for block, parts in self.blocks.items():
            of_block = np.sum([np.diff(part.begins) for part in parts], axis=0)
            of_names[block * _BLOCK : (block + 1) * _BLOCK] = of_block
        return np.array([of_names[names].sum() for names in self.names], dtype=np.int64)

    def taken(self, number: int) -> dict[str, NDArray[Any]]:
        """Return the rows of a case; cases are taken in order, and what only earlier ones need is removed."""
        names = self.names[number]
        for block in [block for block in self.blocks if block < names[0] // _BLOCK]:
            del self.blocks[block]
        slices = [
            (part, slice(*part.begins[name % _BLOCK : name % _BLOCK + 2].tolist()), name)
            for name in names
            for part in self.blocks[name // _BLOCK]
        ]
        lengths = [at.stop - at.start for _, at, _ in slices]
        offsets, of_name = np.repeat([(part.offset, name) for part, _, name in slices], lengths, axis=0).T
        rows = {
            column: np.concatenate([getattr(part, column)[at] for part, at, _ in slices])
            for column in ("time", "value", "reason")
        }
        visit = np.concatenate([part.visits(at) for part, at, _ in slices])
        return {**rows, "visit": visit + offsets, "name": of_name}

    def add(self, tables: Tables, system: str) -> None:
        """Add the records of one *system*."""
        import polars as pl  # noqa: PLC0415 - a large import

        values, codes = tables.values, tables.cases.to_physical().to_numpy()
        number_of = self._numbers.get(system, np.zeros(0, dtype=np.int64))
        added = max(0, int(codes.max(initial=0)) + 1 - len(number_of))
        number_of = self._numbers[system] = np.append(number_of, np.full(added, -2))
        new = np.flatnonzero(number_of[codes] == -2)
        number_of[codes[new]] = [self._name(system, text) for text in tables.cases.gather(new)]
        visit, time = values["session"].to_numpy(), values["time"].dt.epoch("ms").to_numpy()
        present, place = np.flatnonzero(np.bincount(visit)), np.zeros(len(tables.sessions), dtype=np.int64)
        place[present] = np.arange(len(present))
        if len(present) < len(place):
            visit = place[visit]
        first, last = (np.full(len(present), sign * np.iinfo(np.int64).max) for sign in (1, -1))
        np.minimum.at(first, visit, time)
        np.maximum.at(last, visit, time)
        number = number_of[values["case"].to_physical().to_numpy()]
        since = (last - first).max(initial=0)
        columns = {
            "visit": visit.astype(np.min_scalar_type(len(present))),
            "time": (time - first[visit]).astype(np.min_scalar_type(since)),
            "value": values["value"].to_numpy().astype(np.float32),
            "reason": np.broadcast_to(np.uint8(0), len(time)),
        }
        if len(invalid := values["invalid"].unique().drop_nulls()):
            self.reasons |= zip((invalid.to_physical() + 1).to_list(), invalid, strict=True)
            columns["reason"] = (values["invalid"].to_physical() + 1).fill_null(0).to_numpy()
        if not (is_judged := number >= 0).all():
            number, columns = number[is_judged], {name: column[is_judged] for name, column in columns.items()}
        has_judged = np.bincount(columns["visit"], minlength=len(present)) > 0
        if (number[1:] < number[:-1]).any():
            # Small integers are sorted by counting.
            order = np.argsort(number.astype(np.min_scalar_type(self.named)), kind="stable")
            number, columns = number[order], {name: column[order] for name, column in columns.items()}
        begins = np.searchsorted(number, np.arange(-(-self.named // _BLOCK) * _BLOCK + 1))
        for block in range(len(begins) // _BLOCK):
            of_block = begins[block * _BLOCK : (block + 1) * _BLOCK + 1]
            rows = slice(of_block[0], of_block[-1])
            if rows.start < rows.stop:
                kept = {name: _private(column[rows]) for name, column in columns.items() if name != "reason"}
                reason = columns["reason"][rows] if invalid.is_empty() else columns["reason"][rows].copy()
                kept["visit"] = _shared(kept["visit"], of_block)
                part = _Part(of_block - rows.start, self._visits, **kept, reason=reason)
                self.blocks[block].append(part)
        self._visits += len(present)
        is_emulated = pl.col("software").cast(pl.String).str.contains(EMULATOR, literal=True)
        visits = tables.sessions[present].select("host", is_emulated=is_emulated)
        self.visits.append(visits.with_columns(time=first, end=last, is_judged=has_judged))
        columns_of_others = ("host", "system", "check", "metric", "value", "status", "time", "parameters")
        explaining = tables.of_cases(self._explaining.get(system, ()))
        if len(explaining.values) or not self.others:
            others = explaining.records(columns_of_others)
            self.others.append(others.with_columns(pl.col("time").dt.epoch("ms")))


def _sorted(read: _Read, visits: pl.DataFrame, busy: _Busy | None) -> tuple[list[Case], dict[str, Any]]:
    """Return the cases, and the columns of rows and groups, by case, host and time; the parts are removed.

    *visits* have the key and the ordinal of the session of each visit. A record that was read twice (from a store
    and from the run that was appended to it) is one repetition. Of two that differ only in their validity, the
    worse one is used, whichever was read first.
    """
    sizes = read.sizes()
    cases = sorted(range(len(read.cases)), key=lambda number: in_order(read.cases[number]))
    begins = dict(zip(cases, (np.cumsum(sizes[cases]) - sizes[cases]).tolist(), strict=True))
    emulated, key_of, ordinal_of = (visits[name].to_numpy() for name in ("is_emulated", "key", "ordinal"))
    types: dict[str, Any] = {"value": np.float32, "ordinal": ordinal_of.dtype}
    types |= {"reason": np.uint32, "valid": np.bool_} if len(read.reasons) > 1 else {}
    types |= {"judged": np.bool_} if emulated.any() else {}
    types |= {"busy_pus": np.float64} if busy else {}
    size = int(sizes.sum())
    # Columns of one value take no memory.
    rows: dict[str, NDArray[Any]] = {
        "reason": np.broadcast_to(np.uint8(0), size),
        **dict.fromkeys(("valid", "judged"), np.broadcast_to(np.True_, size)),
        **{name: _empty(size, kind) for name, kind in types.items()},
    }
    groups: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}
    event_times: dict[int, Ints] = {}
    usual = of_previous = np.zeros(0, dtype=np.intp)
    for number, case in enumerate(read.cases):
        columns = read.taken(number)
        visit = columns["visit"]
        if not np.array_equal(visit, of_previous):  # Most cases have the visits of the one before.
            of_previous, ordinal, begin_keys = visit, ordinal_of[visit], key_of[visit]
        columns |= {"ordinal": ordinal, "valid": columns["reason"] == 0}
        columns["judged"] = ~emulated[visit] | counts_if_emulated(case.check, case.unit)
        keys = begin_keys + columns["time"]
        if len(usual) != len(keys) or not (np.diff(keys[usual]) > 0).all():
            usual = np.argsort(keys, kind="stable")
        order = usual if np.diff(keys[usual]).all() else _once(keys, columns)
        columns |= {"busy_pus": busy.pus(keys)} if busy else {}
        keys = keys[order]
        at = slice(begins[number], begins[number] + len(keys))
        for name in types:
            rows[name][at] = columns[name][order]
        host = (keys // _SPAN).astype(np.int32)
        firsts = run_begins(host)
        groups[number] = host[firsts], np.diff(firsts, append=len(host)).astype(np.int32)
        if case.limit and (columns["value"] % 1).any():
            case = read.cases[number] = replace(case, has_fractions=True)  # noqa: PLW2901
        if case.limit:
            event_times[cases.index(number)] = keys % _SPAN
    of_cases = [groups[number] for number in cases]
    none = np.zeros(0, dtype=np.int32)
    counts = np.concatenate([none, *(counts for _, counts in of_cases)])
    if counts.sum() < size:
        ends = (begins[number] + int(of_case.sum()) for number, (_, of_case) in zip(cases, of_cases, strict=True))
        kept = np.concatenate([np.arange(begins[n], end) for n, end in zip(cases, ends, strict=True)])
        rows = {name: column[kept] for name, column in rows.items()}
    return with_distinct_names([read.cases[number] for number in cases]), {
        "busy_pus": None,
        **rows,
        "case": np.repeat(np.arange(len(cases), dtype=np.int32), [len(host) for host, _ in of_cases]),
        "host": np.concatenate([none, *(host for host, _ in of_cases)]),
        "counts": counts,
        "event_times": event_times,
    }


def _once(keys: Ints, rows: Mapping[str, NDArray[Any]]) -> NDArray[np.intp]:
    """Return the order of the rows of a case by *keys*, without the rows that repeat another one."""
    identity = (rows["name"], rows["value"], keys)
    order = np.lexsort((rows["judged"], rows["valid"], *identity))
    is_other = np.any([np.diff(column[order]) != 0 for column in identity], axis=0)
    once: NDArray[np.intp] = order[np.append(True, is_other)]
    return once


def _states(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the values that explain a host's speed."""
    import polars as pl  # noqa: PLC0415 - a large import

    bank = _parameter("$.bank").fill_null("")
    states = frame.filter(pl.col("check") != "cores").select(
        "host", pl.col("metric").cast(pl.String), "value", "time", "system", bank=bank
    )
    return pl.concat([states, _of_a_bank(frame), _losses(frame)])


def _parts(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the board and the processors of each host, as text."""
    import polars as pl  # noqa: PLC0415 - a large import

    configured = frame.filter(
        pl.col("metric").is_in(["settings", REPLACED]), check="configuration", status="valid"
    )
    of_parts = {name: _parameter(path) for name, path in PARTS.items()}
    return configured.select("host", "time", "system", stated=pl.col("metric") == REPLACED, **of_parts)


def _parameter(path: str) -> pl.Expr:
    """Return the text at a *path* in the parameters of records, null without one."""
    import polars as pl  # noqa: PLC0415 - a large import

    return pl.col("parameters").cast(pl.String).str.json_path_match(path)


def _of_a_bank(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the theoretical bandwidth of one bank of each host; all banks are assumed to be equal."""
    import polars as pl  # noqa: PLC0415 - a large import

    packages, banks = (_parameter(f"$.{name}").cast(pl.Float64, strict=False) for name in ("packages", "banks"))
    of_packages = frame.filter(check="topology", metric="theoretical_bandwidth").filter(banks > 0)
    return _stated(of_packages, pl.lit(BANK_BANDWIDTH), pl.col("value") * packages / banks)


def loss_state(pu: object, chain: object) -> str:
    """Return the name of the state that says how much slower a PU is than its siblings in a chain of ``cores``."""
    return f"loss of PU {pu} in {chain}"


def _losses(frame: pl.DataFrame) -> pl.DataFrame:
    """Return how much slower each slow PU is in each chain, while all run (fractions)."""
    import polars as pl  # noqa: PLC0415 - a large import

    pu, chain, loss = (_parameter(f"$.{name}") for name in ("pu", "chain", "loss"))
    slow = frame.filter(check="cores", metric="slow_cores", status="valid")
    name = pl.format(loss_state("{}", "{}"), pu, chain.fill_null("registers"))
    return _stated(slow, name, loss.cast(pl.Float64, strict=False))


def _stated(frame: pl.DataFrame, metric: pl.Expr, value: pl.Expr) -> pl.DataFrame:
    """Return states of hosts that rows of other metrics state."""
    import polars as pl  # noqa: PLC0415 - a large import

    states = frame.select("host", metric=metric, value=value, time="time", system="system", bank=pl.lit(""))
    return states.drop_nulls()


def _keyed(table: pl.DataFrame, hosts: Sequence[str]) -> pl.DataFrame:
    """Return the rows of *hosts* by host and time, with the columns ``number`` and ``key`` (see :func:`_keys`)."""
    import polars as pl  # noqa: PLC0415 - a large import

    number = pl.col("host").cast(pl.Enum(hosts), strict=False).to_physical().cast(pl.Int64)
    numbered = table.with_columns(number=number).drop_nulls("number")
    key = pl.col("number") * _SPAN + pl.col("time").clip(0, _SPAN - 1)
    return numbered.with_columns(key=key).sort("number", "time", maintain_order=True)


def _replaced(configured: pl.DataFrame, hosts: Sequence[str], sessions: Ints) -> dict[str, Replacement]:
    """Return the last replacement of the board or the processors of each host.

    Somebody stated it, or the configuration shows it. Addresses of network cards identify a board only if all
    are new, and if its serial number is unknown: another card is not another board.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    # Settings that can be read only at times have not changed meanwhile.
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


class _Busy(Struct, frozen=True):
    """How many PUs (*values*) others used on hosts at some *keys* (:func:`_keyed`), and the keys of *sessions*."""

    keys: Ints
    values: Floats
    sessions: Ints

    @classmethod
    def from_states(cls, samples: pl.DataFrame, sessions: Ints) -> _Busy | None:
        """Return the samples of hosts that were busy, None without one."""
        import polars as pl  # noqa: PLC0415 - a large import

        samples = samples.filter((pl.col("value").max() >= BUSY).over("host")).sort("number", "time", "value")
        keys, values = samples["key"].to_numpy(), samples["value"].to_numpy()
        return None if samples.is_empty() else cls(keys, values, sessions)

    def pus(self, keys: Ints) -> Floats:
        """Return how many PUs others used at each of *keys*: the last sample of its session, 0 without one."""
        last = np.searchsorted(self.keys, keys, side="right") - 1
        of_sample, of_row = (
            np.searchsorted(self.sessions, at, side="right") for at in (self.keys[np.maximum(last, 0)], keys)
        )
        return np.where((last >= 0) & (of_sample == of_row), self.values[np.maximum(last, 0)], 0.0)
