# SPDX-License-Identifier: Apache-2.0
"""The measurements of many hosts as one table, sorted by case, host and time.

Records of one host and case are repetitions: the same thing measured again. The table has a row per repetition and
a group of rows per host and case. Only the columns of records that judging needs are read, and numbers stand for
their texts: a row takes about 25 bytes, and 45 while the table is sorted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from firsttouch.records.cases import Case, by_key, identifiers, in_order, with_distinct_names
from firsttouch.records.catalogue import better_of, checks, counts_if_emulated
from firsttouch.records.groups import Bools, Floats, Ints, group_sums, run_begins
from firsttouch.records.schema import BUSY, EMULATOR, GAP, Record, to_frame

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

    *settings* are the latest values of each host that explain its speed: the topology check's,
    :data:`BANK_BANDWIDTH` if it is known, and the smallest of each state of the banks. *replaced* is the last
    replacement of each host that had one, and *replaced_of* the last ones of each system in a table of several.

    Columns of rows are

    - *time* (ms since 1970) and *value*
    - *valid*, *reason* (why not: a number of *reasons*), and *judged*: whether references may judge the value
    - *sessions_of_rows*: a number that grows with time for each host
    - *busy_pus*: how many PUs other processes used; None if no host was found busy
    """

    hosts: Sequence[str]
    cases: Sequence[Case]
    case: NDArray[np.int32]
    host: NDArray[np.int32]
    counts: Ints
    settings: Mapping[str, Mapping[str, float]]
    replaced: Mapping[str, Replacement]
    replaced_of: Mapping[str, Mapping[str, Replacement]]
    time: Ints
    value: Floats
    valid: Bools
    judged: Bools
    reason: NDArray[np.unsignedinteger]
    sessions_of_rows: NDArray[np.int32]
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

    def is_busy(self, rows: slice) -> Bools:
        """Return which rows were measured while other processes used the host."""
        if self.busy_pus is None:
            return np.zeros(rows.stop - rows.start, dtype=np.bool_)
        return self.busy_pus[rows] >= BUSY

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

    def group(self, case: int, host: int) -> int:
        """Return the group of a case and a *host* that has it."""
        groups = self.groups(case)
        number: int = groups.start + int(np.searchsorted(self.host[groups], host))
        return number

    def groups_of_host(self, host: int) -> NDArray[np.intp]:
        """Return the groups of a host, by case."""
        begins, order = self._of_host
        return order[begins[host] : begins[host + 1]].astype(np.intp)

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

    def reason_of(self, row: int) -> str:
        """Return why a row is not valid, an empty text for a valid one."""
        return self.reasons[int(self.reason[row])]

    def good(self, case: int) -> tuple[Floats, Ints, NDArray[np.int32]]:
        """Return the good repetitions (valid and judged) of a case: values, counts, and the host of each count."""
        groups = self.groups(case)
        rows = self.rows_of(groups)
        is_good = self.valid[rows] & self.judged[rows]
        counts = group_sums(is_good, self.begins[groups] - rows.start)
        return self.value[rows][is_good], counts[counts > 0], self.host[groups][counts > 0]

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


def of_records(records: Iterable[Record], system: str | None = None) -> SamplesTable:
    """Return the table of *records*, of one *system* only if it is given."""
    from firsttouch.records.tables import split  # noqa: PLC0415 - loads the table library

    return of_tables([split(to_frame(records))], system)


def of_tables(tables: Iterable[Tables], system: str | None = None) -> SamplesTable:
    """Return the table of the records in *tables*, of one *system* only if it is given; they are not kept."""
    import polars as pl  # noqa: PLC0415 - a large import

    from firsttouch.records.tables import split  # noqa: PLC0415 - loads the table library

    # The numbers of the names of cases (a system and a text), and the reasons by their number.
    names: dict[tuple[str, str], int] = {}
    reasons = {0: ""}
    parts = [_part(split(to_frame(())), "", names, reasons)]
    for each in tables:
        parts += [_part(of_system, name, names, reasons) for name, of_system in each.by_system(system)]
    visits = pl.concat([part.visits for part in parts]).with_row_index("visit")
    others = pl.concat([part.others for part in parts])
    states, configured = _states(others), _parts(others)
    hosts = sorted(visits.filter("is_judged")["host"].unique())
    of_hosts = _keyed(visits, hosts).sort("number", "time", "end")
    gap = pl.col("time") - pl.col("end").cum_max().shift().over("number")
    sessions = of_hosts.filter((gap > GAP).fill_null(value=True))["key"].to_numpy()
    session = np.searchsorted(sessions, of_hosts["key"].to_numpy(), side="right").astype(np.int32)
    numbers = of_hosts.select("visit", pl.col("number").cast(pl.Int32), session=session)
    settings: dict[str, dict[str, float]] = {}
    latest = states.sort("time", "value").group_by("host", "metric", "bank", maintain_order=True).last()
    smallest = latest.group_by("host", "metric", maintain_order=True).agg(pl.col("value").min())
    for host_name, metric, value in smallest.iter_rows():
        settings.setdefault(host_name, {})[metric] = value
    cases, case_of = _cases_of(names)
    visits = visits.join(numbers, on="visit", how="left", maintain_order="left").fill_null(-1)
    columns = _sorted(parts, cases, case_of, visits)
    parts.clear()
    systems = {case.system for case in cases}
    replaced_of = {
        name: _replaced(configured.filter(system=name), hosts, sessions) for name in configured["system"].unique()
    }
    return SamplesTable(
        hosts=hosts,
        cases=cases,
        settings=settings,
        replaced=replaced_of.get(next(iter(systems)), {}) if len(systems) == 1 else {},
        replaced_of=replaced_of,
        **columns,
        busy_pus=_busy_pus(_keyed(states.filter(metric="busy_pus"), hosts), sessions, columns),
        reasons=reasons,
    )


class _Part(Struct, frozen=True):
    """Repetitions of judged metrics, sorted by the number of the name of their case; *ends* has an end for each.

    *visit* is a row number in *visits*, the sessions of :class:`Tables`. Several of them make a session of a host
    if its software differs. *time* begins with the visit. *reason* is 0 for valid rows. *others* explain the speed
    of hosts.
    """

    ends: Ints
    visit: NDArray[np.integer]
    time: NDArray[np.integer]
    value: Floats
    reason: NDArray[np.integer]
    visits: pl.DataFrame
    others: pl.DataFrame


def _part(tables: Tables, system: str, names: dict[tuple[str, str], int], reasons: dict[int, str]) -> _Part:
    """Return the records of one *system*; *names* and *reasons* get the new ones."""
    import polars as pl  # noqa: PLC0415 - a large import

    from firsttouch.records.tables import fields_of  # noqa: PLC0415 - loads the table library

    values = tables.values
    codes = tables.cases.to_physical().to_numpy()
    explains, number_of = [], np.zeros(codes.max(initial=0) + 1, dtype=np.int32)
    for text, code in zip(tables.cases, codes.tolist(), strict=True):
        name, metric = (fields_of(text)[field] for field in ("check", "metric"))
        check = checks().get(name)
        is_data = check is not None and (metric in check.data or not check.metrics)
        number_of[code] = -1 if is_data else names.setdefault((system, text), len(names))
        if (is_data and fields_of(text)["better"] == "neither") or name in {"topology", "cores", "configuration"}:
            explains.append(text)
    # Values of a session are next to each other.
    visit, time = values["session"].to_numpy(), values["time"].dt.epoch("ms").to_numpy()
    begins = run_begins(visit)
    present, place = np.unique(visit[begins], return_inverse=True)
    first, last = (np.full(len(present), sign * np.iinfo(np.int64).max) for sign in (1, -1))
    if len(begins):
        np.minimum.at(first, place, np.minimum.reduceat(time, begins))
        np.maximum.at(last, place, np.maximum.reduceat(time, begins))
    number = number_of[values["case"].to_physical().to_numpy()]
    lengths = np.diff(begins, append=len(visit))
    since = time - np.repeat(first[place], lengths)
    columns = {
        "visit": np.repeat(place.astype(np.min_scalar_type(len(present))), lengths),
        "time": since.astype(np.min_scalar_type(-since.max(initial=0))),
        "value": values["value"].to_numpy(),
        "reason": np.zeros(len(time), dtype=np.uint8),
    }
    if len(invalid := values["invalid"].unique().drop_nulls()):
        reasons |= zip((invalid.to_physical() + 1).to_list(), invalid, strict=True)
        columns["reason"] = (values["invalid"].to_physical() + 1).fill_null(0).to_numpy()
    if not (is_judged := number >= 0).all():
        number, columns = number[is_judged], {name: column[is_judged] for name, column in columns.items()}
    has_judged = np.zeros(len(present), dtype=np.bool_)
    has_judged[columns["visit"]] = True
    count = len(names)
    # Small integers are sorted by counting.
    order = np.argsort(number.astype(np.min_scalar_type(count)), kind="stable")
    is_emulated = pl.col("software").cast(pl.String).str.contains(EMULATOR, literal=True)
    visits = tables.sessions[present].select("host", is_emulated=is_emulated)
    columns_of_others = ("host", "system", "check", "metric", "value", "status", "time", "parameters")
    others = tables.of_cases(explains).records(columns_of_others)
    return _Part(
        np.cumsum(np.bincount(number, minlength=count)),
        **{name: column[order] for name, column in columns.items()},
        visits=visits.with_columns(time=first, end=last, is_judged=has_judged),
        others=others.with_columns(pl.col("time").dt.epoch("ms")),
    )


def _sorted(
    parts: Sequence[_Part], cases: Sequence[Case], case_of: Sequence[int], visits: pl.DataFrame
) -> dict[str, NDArray[Any]]:
    """Return the columns of rows and groups, by case, host and time, with the host and the session of each visit.

    A record that was read twice (from a store and from the run that was appended to it) is one repetition. Of two
    that differ only in their validity, the worse one is used, whichever was read first.
    """
    size = sum(len(part.time) for part in parts)
    types: dict[str, Any] = {"time": np.int64, "value": np.float64, "sessions_of_rows": np.int32}
    # Columns of one value take no memory.
    rows: dict[str, NDArray[Any]] = {
        "reason": np.broadcast_to(np.uint8(0), size),
        **dict.fromkeys(("valid", "judged"), np.broadcast_to(np.True_, size)),
    }
    columns = (visits[name].to_numpy() for name in ("is_emulated", "time", "number", "session"))
    emulated, first_of, host_of, session_of = columns
    if any_invalid := any(part.reason.any() for part in parts):
        types |= {"reason": np.uint32, "valid": np.bool_}
    if emulated.any():
        types["judged"] = np.bool_
    rows |= {name: np.empty(size, dtype=kind) for name, kind in types.items()}
    offsets = np.cumsum([0, *(len(part.visits) for part in parts)]).tolist()
    groups: dict[str, list[Ints]] = {"case": [], "host": [], "counts": []}
    end = 0
    for case, numbers in sorted(by_key(range(len(case_of)), case_of.__getitem__).items()):
        slices = [
            (part, slice(part.ends[number - 1] if number else 0, part.ends[number]), number, offset)
            for number in numbers
            for part, offset in zip(parts, offsets, strict=False)
            if number < len(part.ends)
        ]
        lengths = [at.stop - at.start for _, at, *_ in slices]
        name, offset = (np.repeat([each[place] for each in slices], lengths) for place in (2, 3))
        visit, time, value, reason = (
            np.concatenate([getattr(part, column)[at] for part, at, *_ in slices])
            for column in ("visit", "time", "value", "reason")
        )
        visit = visit + offset
        of_case = {"time": first_of[visit] + time, "value": value, "sessions_of_rows": session_of[visit]}
        if any_invalid:
            of_case |= {"reason": reason, "valid": reason == 0}
        if emulated.any():
            of_case["judged"] = ~emulated[visit] | counts_if_emulated(cases[case].check, cases[case].unit)
        host = host_of[visit]
        key = _keys(host, of_case["time"])
        order = np.argsort(key, kind="stable")
        if not np.diff(key[order]).all():
            order = _once(key, name, of_case)
        host = host[order]
        begin, end = end, end + len(host)
        for column, values in of_case.items():
            rows[column][begin:end] = values[order]
        firsts = run_begins(host)
        groups["case"].append(np.full(len(firsts), case, dtype=np.int32))
        groups["host"].append(host[firsts])
        groups["counts"].append(np.diff(firsts, append=len(host)))
    rows = {name: column[:end] for name, column in rows.items()}
    none = np.zeros(0, dtype=np.int32)
    return {**rows, **{name: np.concatenate([none, *of_cases]) for name, of_cases in groups.items()}}


def _once(key: Ints, name: Ints, rows: Mapping[str, NDArray[Any]]) -> NDArray[np.intp]:
    """Return the order of the rows of a case by *key*, without the rows that repeat another one."""
    identity = (name, rows["value"], rows["time"], key)
    order = np.lexsort((*(rows[column] for column in ("judged", "valid") if column in rows), *identity))
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


def _cases_of(names: Iterable[tuple[str, str]]) -> tuple[list[Case], list[int]]:
    """Return the cases that *names* (a system and a text) stand for, and the number of the case of each."""
    from firsttouch.records.tables import fields_of  # noqa: PLC0415 - loads the table library

    numbers: dict[str, int] = {}
    cases: list[Case] = []
    number_of: list[int] = []
    for system, text in names:
        fields = fields_of(text)
        check, metric = fields["check"], fields["metric"]
        direction = better_of(check, metric, cast("Better", fields["better"]))
        parameters = identifiers(check, json.loads(fields["parameters"]))
        case = Case(system, check, metric, parameters, fields["unit"], direction)
        key = f"{system}\0{case.key}"
        if key not in numbers:
            numbers[key] = len(cases)
            cases.append(case)
        number_of.append(numbers[key])
    order = sorted(range(len(cases)), key=lambda number: in_order(cases[number]))
    place = {number: position for position, number in enumerate(order)}
    return with_distinct_names([cases[number] for number in order]), [place[number] for number in number_of]


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


def _busy_pus(samples: pl.DataFrame, sessions: Ints, columns: Mapping[str, NDArray[Any]]) -> Floats | None:
    """Return how many PUs others used at each row: the last sample of its session, 0 without one.

    The result is None if no host was ever busy.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    samples = samples.filter((pl.col("value").max() >= BUSY).over("host")).sort("number", "time", "value")
    if samples.is_empty():
        return None
    at = samples["key"].to_numpy()
    keys = _keys(np.repeat(columns["host"], columns["counts"]), columns["time"])
    last = np.searchsorted(at, keys, side="right") - 1
    place = np.maximum(last, 0)
    is_known = (last >= 0) & (np.searchsorted(sessions, at, side="right")[place] == columns["sessions_of_rows"])
    return np.where(is_known, samples["value"].to_numpy()[place], 0.0)
