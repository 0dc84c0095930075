# SPDX-License-Identifier: Apache-2.0
"""The measurements of many hosts as one table, sorted by case, host and time.

Records of one host and case are repetitions: the same thing measured again. The table has a row per repetition and
a group of rows per host and case. Only the columns of records that judging needs are read, and numbers stand for
their texts: a row takes about 25 bytes, and 45 while the table is sorted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from firsttouch.records.cases import Case, identifiers, in_order, with_distinct_names
from firsttouch.records.catalogue import better_of, checks, counts_if_emulated
from firsttouch.records.groups import Bools, Floats, Ints, group_sums
from firsttouch.records.schema import BUSY, GAP, Record, states_emulator, to_frame

if TYPE_CHECKING:
    import polars as pl

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
#: The columns of a table of records that name a case, and all columns that are read.
_NAMING = ("system", "check", "metric", "unit", "better", "parameters")
READ = (*_NAMING, "host", "value", "status", "reason", "software", "time")
#: Times are below this (ms since 1970: the year 2109), so that host number x _SPAN + time sorts by host and time.
_SPAN = 1 << 42


class Replacement(Struct, frozen=True):
    """A board or processors that a host got between two configurations: *before* and *since* (ms since 1970).

    *session* is the number of the first session with them.
    """

    before: int
    since: int
    session: int


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
    reasons: Sequence[str]

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
    return of_frames([to_frame(records)], system)


def of_frames(frames: Iterable[pl.DataFrame], system: str | None = None) -> SamplesTable:
    """Return the table of the records in *frames*, of one *system* only if it is given.

    A frame has the columns :data:`READ` of :func:`firsttouch.records.schema.to_frame`, and is not kept.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    numbers: dict[tuple[str, ...], int] = {}
    tables: list[tuple[pl.DataFrame, ...]] = []
    for frame in itertools.chain([to_frame(())], frames):
        chosen = frame.select(READ) if system is None else frame.select(READ).filter(system=system)
        tables.append(_parted(chosen.with_columns(pl.col("time").dt.epoch("ms")), numbers))
    rows, states, spans, configured = (pl.concat(parts) for parts in zip(*tables, strict=True))
    tables.clear()
    hosts, host = _numbered(rows["host"])
    reasons, reason = _numbered(rows["reason"])
    rows = rows.with_columns(host, reason)
    cases, columns = _sorted(rows, numbers)
    sessions = _sessions(_keyed(spans, hosts))
    settings: dict[str, dict[str, float]] = {}
    latest = states.sort("time", "value").group_by("host", "metric", "bank", maintain_order=True).last()
    smallest = latest.group_by("host", "metric", maintain_order=True).agg(pl.col("value").min())
    for host_name, metric, value in smallest.iter_rows():
        settings.setdefault(host_name, {})[metric] = value
    systems = {case.system for case in cases}
    replaced_of = {
        name: _replaced(configured.filter(system=name), hosts, sessions) for name in configured["system"].unique()
    }
    case_of, host_of = columns.pop("case"), columns.pop("host")
    keys = _keys(host_of, columns["time"])
    begins = np.flatnonzero((np.diff(case_of, prepend=-1) != 0) | (np.diff(host_of, prepend=-1) != 0))
    sessions_of_rows = np.searchsorted(sessions, keys, side="right").astype(np.int32)
    return SamplesTable(
        hosts=hosts,
        cases=cases,
        case=case_of[begins],
        host=host_of[begins],
        counts=np.diff(begins, append=len(case_of)),
        settings=settings,
        replaced=replaced_of.get(next(iter(systems)), {}) if len(systems) == 1 else {},
        replaced_of=replaced_of,
        **{name: columns[name] for name in _ROWS[:-1]},
        sessions_of_rows=sessions_of_rows,
        busy_pus=_busy_pus(_keyed(states.filter(metric="busy_pus"), hosts), sessions, keys, sessions_of_rows),
        reasons=reasons,
    )


def _parted(frame: pl.DataFrame, numbers: dict[tuple[str, ...], int]) -> tuple[pl.DataFrame, ...]:
    """Return the repetitions of judged metrics, and the states, spans and parts of hosts.

    *numbers* get one for each text that names a case. Whatever follows from few texts is found out once for each.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    kind, firsts = _kinds(texts := frame.select(*_NAMING, "software"))
    namings, judged, explains = np.zeros((3, len(firsts)), dtype=np.int32)
    for number, (*naming, software) in enumerate(texts[firsts].iter_rows()):
        _, name, metric, unit, better, _ = naming
        check = checks().get(name)
        is_data = check is not None and (metric in check.data or not check.metrics)
        namings[number] = -1 if is_data else numbers.setdefault(tuple(naming), len(numbers))
        judged[number] = not states_emulator(software) or counts_if_emulated(name, unit)
        explains[number] = (is_data and better == "neither") or name in {"topology", "cores", "configuration"}
    valid = pl.col("status") == "valid"
    rows = frame.select(
        *("host", "time", "value"),
        naming=namings[kind],
        judged=judged.astype(np.bool_)[kind],
        valid=valid,
        reason=pl.when(valid).then(pl.lit("").cast(pl.Categorical)).otherwise("reason"),
    )
    others = frame.filter(explains.astype(np.bool_)[kind])
    return rows.filter(pl.col("naming") >= 0), _states(others), _spans(frame), _parts(others)


def _kinds(texts: pl.DataFrame) -> tuple[NDArray[np.integer], Ints]:
    """Return a number for each row, the same for equal rows, and the first row of each number."""
    # There are few different rows: counting the codes of their texts takes less time than hashing.
    kind: NDArray[np.integer] = np.zeros(len(texts), dtype=np.int64)
    count = min(len(texts), 1)
    for column in texts:
        codes = column.to_physical().to_numpy()
        if len(codes) and (codes != codes[0]).any():
            codes = _dense(codes)[0]
            kind, count = _dense(kind * (int(codes.max()) + 1) + codes)
    firsts = np.zeros(count, dtype=np.int64)
    firsts[kind[::-1]] = np.arange(len(kind))[::-1]
    return kind, firsts


def _dense(codes: NDArray[np.integer]) -> tuple[NDArray[np.integer], int]:
    """Return the numbers of some codes among those that are there, and how many these are."""
    if codes.max() >= 1 << 22:  # too many to be counted
        present, numbers = np.unique(codes, return_inverse=True)
        return numbers, len(present)
    places = np.cumsum(np.bincount(codes) > 0)
    return (places - 1)[codes], int(places[-1])


def _sorted(rows: pl.DataFrame, numbers: Iterable[tuple[str, ...]]) -> tuple[list[Case], dict[str, NDArray[Any]]]:
    """Return the cases, and the columns of the rows, sorted by case, host and time; *rows* are used up.

    A record that was read twice (from a store and from the run that was appended to it) is one repetition. Of two
    that differ only in their validity, the worse one is used, whichever was read first.
    """
    cases, case_of = _cases_of(numbers)
    naming = rows.drop_in_place("naming").to_numpy()
    case = np.array(case_of, dtype=np.min_scalar_type(len(cases)))[naming]
    host, time = rows["host"].to_numpy(), rows["time"].to_numpy()
    order = np.argsort(case, kind="stable").astype(np.uint32)
    is_tied = np.zeros(len(order), dtype=np.bool_)
    # One case after the other: its rows are in few runs by time already.
    ends = np.cumsum(np.bincount(case, minlength=1))
    for of_case, tied in zip(np.split(order, ends[:-1]), np.split(is_tied, ends[:-1]), strict=True):
        key = _keys(host[of_case], time[of_case])
        by_key = np.argsort(key, kind="stable")
        of_case[:] = of_case[by_key]
        tied[1:] = np.diff(key[by_key]) == 0
    if len(places := np.flatnonzero(is_tied | np.append(is_tied[1:], False))):
        among = order[places]
        identity = [column[among] for column in (naming, rows["value"].to_numpy(), time, host, case)]
        worse_first = [rows[name].gather(among).to_numpy() for name in ("judged", "valid")]
        by_all = np.lexsort([*worse_first, *identity])
        order[places] = among[by_all]
        is_same = np.all([np.diff(column[by_all].astype(np.float64)) == 0 for column in identity], axis=0)
        order = np.delete(order, places[1:][is_same])
    del naming, host, time
    columns = {name: rows.drop_in_place(name).gather(order).to_numpy() for name in rows.columns}
    return cases, {**columns, "case": case[order].astype(np.int32)}


def _numbered(texts: pl.Series) -> tuple[list[str], pl.Series]:
    """Return the texts of a column in alphabetical order, and the column with their numbers."""
    import polars as pl  # noqa: PLC0415 - a large import

    ordered = sorted(texts.unique())
    return ordered, texts.cast(pl.Enum(ordered)).to_physical().cast(pl.Int32)


def _spans(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the hours with records of each host: consecutive ones make sessions."""
    import polars as pl  # noqa: PLC0415 - a large import

    frame = frame.select("system", "host", "time", hour=pl.col("time").floordiv(GAP))
    # Rows of a host are next to each other, and grouping takes longer.
    is_first = pl.any_horizontal(
        pl.col(name).ne_missing(pl.col(name).shift()) for name in frame.columns if name != "time"
    )
    begins = frame.select(is_first.arg_true()).to_series().to_numpy()
    times = frame["time"].to_numpy()
    least, most = (f.reduceat(times, begins) if len(times) else times for f in (np.minimum, np.maximum))
    return frame[begins].with_columns(time=least, end=most).drop("hour")


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


def _cases_of(namings: Iterable[tuple[str, ...]]) -> tuple[list[Case], list[int]]:
    """Return the cases that texts of the naming columns stand for, and the number of the case of each."""
    numbers: dict[str, int] = {}
    cases: list[Case] = []
    number_of: list[int] = []
    for system, check, metric, unit, better, parameters in namings:
        direction = better_of(check, metric, cast("Better", better))
        case = Case(system, check, metric, identifiers(check, json.loads(parameters)), unit, direction)
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


def _sessions(spans: pl.DataFrame) -> Ints:
    """Return the beginnings of all sessions (see :func:`_keys`); a span is from ``time`` to ``end``."""
    import polars as pl  # noqa: PLC0415 - a large import

    gap = pl.col("time") - pl.col("end").cum_max().shift().over("number")
    return spans.sort("number", "time", "end").filter((gap > GAP).fill_null(value=True))["key"].to_numpy()


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


def _busy_pus(
    samples: pl.DataFrame, sessions: Ints, keys: Ints, sessions_of_rows: NDArray[np.integer]
) -> Floats | None:
    """Return how many PUs others used at each of *keys*: the last sample of its session, 0 without one.

    The result is None if no host was ever busy.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    samples = samples.filter((pl.col("value").max() >= BUSY).over("host")).sort("number", "time", "value")
    if samples.is_empty():
        return None
    at = samples["key"].to_numpy()
    last = np.searchsorted(at, keys, side="right") - 1
    place = np.maximum(last, 0)
    is_known = (last >= 0) & (np.searchsorted(sessions, at, side="right")[place] == sessions_of_rows)
    return np.where(is_known, samples["value"].to_numpy()[place], 0.0)
