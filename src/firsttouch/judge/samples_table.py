# SPDX-License-Identifier: Apache-2.0
"""Samples of many hosts in columns, grouped by metric and host."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from firsttouch.benchmarks.kernel_settings import BUSY
from firsttouch.benchmarks.kernel_settings import METRICS as SETTINGS
from firsttouch.judge.sprt import Bools, Floats, Groups, Ints, stable
from firsttouch.judge.verdict import case_name
from firsttouch.records.schema import Better, Record, to_frame
from firsttouch.systems.facts import PARAMETERS

if TYPE_CHECKING:
    import polars as pl


# ----------------------------------------------------------------------
# The passes of a fleet in columns: what is judged of records, of ten thousand hosts as of one.
#
# Records of one host and case are passes: the same thing measured again.

#: Parameters that name a case beside those that a reference may name.
_BESIDE = ("effort", "division", "reads")
#: A session of a host ends where it has no record for longer than this (ms): a campaign, or a part of one. Several
#: campaigns of a day are sessions of their own; a job that is requeued after hours is two, which does no harm.
GAP = 3_600_000
#: Times of a host in :attr:`Passes.sessions` are below this (ms since 1970: the year 2109).
SPAN = 1 << 42


@dataclass(frozen=True)
class Case:
    """A metric of a check in one case: *parameters* are those that name it. Values are in *unit*."""

    system: str
    check: str
    metric: str
    parameters: Mapping[str, Any]
    unit: str
    better: Better

    @cached_property
    def name(self) -> str:
        """The metric with what tells its case from others of the check."""
        return case_name(self.check, self.metric, self.parameters)

    @property
    def exact(self) -> bool:
        """Tell whether values are read of the host and not measured: a single one is as good as many."""
        return self.check == "topology"


@dataclass(frozen=True)
class Passes:
    """All passes, ordered by case, host and time; a *group* is those of one host and case, oldest first.

    *hosts* are in alphabetical order, *cases* in the order in which they first came. Of each pass there is its
    *value*, its *time* (ms since 1970), whether it is *valid* and may be *judged*, and why not (a number of
    *reasons*). Of each group there is its *case*, its *host* and how many passes it has (*counts*).
    *settings* are the latest values of each host that explain its speed, *looks* (time, PUs that others kept busy)
    those of each host that was found busy. *sessions* are where sessions begin: host number x SPAN + time, sorted.
    """

    hosts: Sequence[str]
    cases: Sequence[Case]
    value: Floats
    time: Ints
    valid: Bools
    judged: Bools
    reason: NDArray[np.int32]
    reasons: Sequence[str]
    case: NDArray[np.int32]
    host: NDArray[np.int32]
    counts: Ints
    settings: Mapping[str, Mapping[str, float]]
    looks: Mapping[str, Sequence[tuple[int, float]]]
    sessions: Ints

    @cached_property
    def begins(self) -> Ints:
        """Return where the passes of each group begin."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def of_case(self) -> Ints:
        """Return where the groups of each case begin, and the number of all."""
        return np.searchsorted(self.case, np.arange(len(self.cases) + 1))

    @cached_property
    def of_host(self) -> tuple[Ints, NDArray[np.intp]]:
        """Return where the groups of each host begin in the order of hosts, and that order."""
        order = stable(self.host)
        return np.searchsorted(self.host[order], np.arange(len(self.hosts) + 1)), order

    def groups(self, case: int) -> slice:
        """Return the groups of a case."""
        return slice(int(self.of_case[case]), int(self.of_case[case + 1]))

    def passes(self, groups: slice) -> slice:
        """Return the passes of consecutive groups."""
        if groups.start == groups.stop:
            return slice(0, 0)
        last = groups.stop - 1
        return slice(int(self.begins[groups.start]), int(self.begins[last] + self.counts[last]))

    def session(self, groups: slice) -> Ints:
        """Return the number of each pass's session, for all passes of consecutive groups."""
        part = self.passes(groups)
        if len(self.sessions) == len(self.hosts):
            return np.zeros(part.stop - part.start, dtype=np.int64)
        return self._session(np.repeat(self.host[groups], self.counts[groups]), self.time[part])

    def _session(self, host: NDArray[np.int32], time: Ints) -> Ints:
        keys = host.astype(np.int64) * SPAN + np.clip(time, 0, SPAN - 1)
        return np.searchsorted(self.sessions, keys, side="right")

    def busy(self, groups: slice) -> Floats | None:
        """Return how many PUs others kept busy at each pass of consecutive groups; None: none on any host.

        What the last look before a pass saw, in the same session, is taken for what it was.
        """
        if not self.looks:
            return None
        number = {name: i for i, name in enumerate(self.hosts)}
        begin, found = self.passes(groups).start, None
        for name in self.looks:
            for group in np.flatnonzero(self.host[groups] == number.get(name, -1)).tolist():
                part = self.passes(slice(groups.start + group, groups.start + group + 1))
                if found is None:
                    found = np.zeros(self.passes(groups).stop - begin)
                found[part.start - begin : part.stop - begin] = self._seen(name, number[name], self.time[part])
        return found

    def _seen(self, name: str, number: int, time: Ints) -> Floats:
        """Return how many PUs the last look at a host saw busy, at each *time*."""
        looks = np.array([t for t, _ in self.looks[name]], dtype=np.int64)
        seen = np.array([busy for _, busy in self.looks[name]])
        last = np.searchsorted(looks, time, side="right") - 1
        host = np.full(len(time), number, dtype=np.int32)
        same = self._session(host, time) == self._session(host, looks[last])
        return np.where((last >= 0) & same, seen[last], 0.0)

    def good(self, cases: Sequence[int]) -> tuple[Groups, NDArray[np.int32]]:
        """Return the good passes (valid, to be judged) of *cases* taken as one, and their hosts' numbers."""
        parts = [self.passes(self.groups(case)) for case in cases]
        numbers = [np.repeat(self.host[g], self.counts[g]) for g in map(self.groups, cases)]
        host, time = np.concatenate(numbers), np.concatenate([self.time[p] for p in parts])
        kept = np.concatenate([self.valid[p] & self.judged[p] for p in parts])
        order = np.flatnonzero(kept)
        if len(cases) > 1:
            order = order[np.lexsort((time[order], host[order]))]
        found, counts = np.unique(host[order], return_counts=True)
        return Groups(np.concatenate([self.value[p] for p in parts])[order], counts), found


def case_of(check: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return those *parameters* of a record that tell its case from others of the check."""
    known = PARAMETERS.get(check)
    names = parameters if known is None else (*known, *_BESIDE)
    return {name: parameters[name] for name in names if name in parameters}


def split(passes: Passes, *names: str) -> dict[str, Passes]:
    """Return the passes of each system (and of *names*, where there may be none)."""
    systems = list(dict.fromkeys([*(case.system for case in passes.cases), *names]))
    if len(systems) == 1 and passes.cases:
        return {systems[0]: passes}
    return {name: _of_system(passes, name) for name in systems}


def of_hosts(passes: Passes, names: Collection[str]) -> Passes:
    """Return the passes of some hosts alone."""
    mine = np.array([host in names for host in passes.hosts], dtype=np.bool_)
    return _of_groups(passes, mine[passes.host], np.ones(len(passes.cases), dtype=np.bool_))


def _of_system(passes: Passes, system: str) -> Passes:
    mine = np.array([case.system == system for case in passes.cases], dtype=np.bool_)
    return _of_groups(passes, mine[passes.case] if len(mine) else np.zeros(0, dtype=np.bool_), mine)


def _of_groups(passes: Passes, groups: Bools, mine: Bools) -> Passes:
    """Return the passes of *groups*, which are all of the cases that are *mine*."""
    kept = np.repeat(groups, passes.counts)
    hosts, host = np.unique(passes.host[groups], return_inverse=True)
    case = np.cumsum(mine) - 1
    sessions = passes.sessions[np.isin(passes.sessions // SPAN, hosts)]
    return Passes(
        hosts=[passes.hosts[i] for i in hosts.tolist()],
        cases=[case for case, is_mine in zip(passes.cases, mine, strict=True) if is_mine],
        value=passes.value[kept],
        time=passes.time[kept],
        valid=passes.valid[kept],
        judged=passes.judged[kept],
        reason=passes.reason[kept],
        reasons=passes.reasons,
        case=case[passes.case[groups]].astype(np.int32),
        host=host.astype(np.int32),
        counts=passes.counts[groups],
        settings=passes.settings,
        looks=passes.looks,
        sessions=np.searchsorted(hosts, sessions // SPAN) * SPAN + sessions % SPAN,
    )


# ----------------------------------------------------------------------
# Makes the columns of a fleet's passes of records, table by table, so that few rows are held as text at once.

_Kind = TypeVar("_Kind", bound=np.generic)
#: What tells one case from another in a table, and all that is read of one.
_NAMING = ("system", "check", "metric", "unit", "better", "parameters")
READ = (*_NAMING, "host", "value", "status", "reason", "software", "time")


def of_records(records: Iterable[Record], system: str | None = None) -> Passes:
    """Return the passes of *records*, of one *system* only where it is named."""
    found = list(records)
    return of_frames([to_frame(found)] if found else [], system)


def of_frames(frames: Iterable[pl.DataFrame], system: str | None = None) -> Passes:
    """Return the passes of tables of records (see :func:`firsttouch.records.schema.to_frame`), one at a time."""
    made = _Made(system)
    for frame in _ahead(frames):
        made.add(frame)
    return made.passes()


def _ahead(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield tables, the next one of which is read meanwhile."""
    left = iter(frames)
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, left, None)
        while (frame := coming.result()) is not None:
            coming = reader.submit(next, left, None)
            yield frame


class _Made:
    """The columns while tables are added."""

    def __init__(self, system: str | None) -> None:
        self.system = system
        self.hosts: dict[str, int] = {}
        self.cases: dict[str, int] = {}
        self.listed: list[Case] = []
        self.known: pl.DataFrame | None = None
        self.cases_of: list[int] = []
        self.reasons: dict[str, int] = {"": 0}
        self.parts: list[list[NDArray[Any]]] = []
        self.settings: dict[str, dict[str, tuple[int, float]]] = {}
        self.looks: dict[str, list[tuple[int, float]]] = {}
        self.spans: list[pl.DataFrame] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Add the rows of a table."""
        import polars as pl  # noqa: PLC0415 - see firsttouch.records

        frame = frame.select(READ)
        if self.system is not None:
            frame = frame.filter(pl.col("system") == self.system)
        if frame.is_empty():
            return
        frame = frame.with_columns(pl.Series("time", _instants(frame["time"])))
        self.spans.append(_spans(frame.select("host", "time")))
        self._explain(frame.filter(pl.col("check") == "topology"))
        frame = frame.filter(~pl.col("metric").is_in(SETTINGS))
        if frame.is_empty():
            return
        emulated = pl.col("software").str.contains('"emulator":', literal=True)
        columns = frame.select(
            (pl.col("status") == "valid").alias("valid"),
            ((pl.col("unit") == "1") | ~emulated).alias("judged"),
            "value",
        )
        reason = np.zeros(len(frame), dtype=np.int32)
        if not (valid := columns["valid"].to_numpy()).all():
            told = frame["reason"].filter(~columns["valid"])
            reason[~valid] = [self.reasons.setdefault(text, len(self.reasons)) for text in told]
        self.parts.append(
            [
                self._texts(frame),
                self._hosts(frame["host"]),
                columns["value"].to_numpy(),
                frame["time"].to_numpy(),
                valid,
                columns["judged"].to_numpy(),
                reason,
            ]
        )

    def _explain(self, topology: pl.DataFrame) -> None:
        for host, metric, value, time in topology.select("host", "metric", "value", "time").iter_rows():
            latest = self.settings.setdefault(host, {})
            latest[metric] = max(latest.get(metric, (time, value)), (time, value))
            if metric == "busy_pus":
                self.looks.setdefault(host, []).append((time, value))

    def _hosts(self, names: pl.Series) -> NDArray[np.int32]:
        import polars as pl  # noqa: PLC0415 - see firsttouch.records

        ordered = names.unique(maintain_order=True)
        numbers = [self.hosts.setdefault(name, len(self.hosts)) for name in ordered]
        if len(numbers) == 1:
            return np.full(len(names), numbers[0], dtype=np.int32)
        return names.replace_strict(ordered, numbers, return_dtype=pl.Int32).to_numpy()

    def _texts(self, frame: pl.DataFrame) -> NDArray[np.int32]:
        """Return the number of the texts that name each row's case: a few, each of which is looked at once."""
        import polars as pl  # noqa: PLC0415 - see firsttouch.records

        naming = list(_NAMING)
        found = frame.select(naming)
        if self.known is not None:
            numbers = found.join(self.known, on=naming, how="left", maintain_order="left")["text"]
            if not numbers.null_count():
                return numbers.to_numpy()
            new = found.filter(numbers.is_null()).unique(maintain_order=True)
        else:
            new = found.unique(maintain_order=True)
        numbers = pl.int_range(len(self.cases_of), len(self.cases_of) + len(new), dtype=pl.Int32, eager=True)
        self.cases_of += [self._case(row) for row in new.iter_rows()]
        added = new.with_columns(numbers.alias("text"))
        self.known = added if self.known is None else pl.concat([self.known, added])
        return found.join(self.known, on=naming, how="left", maintain_order="left")["text"].to_numpy()

    def _case(self, naming: tuple[Any, ...]) -> int:
        system, check, metric, unit, better, parameters = naming
        case = case_of(check, json.loads(parameters))
        key = json.dumps([system, check, metric, unit, better, case], sort_keys=True)
        if key not in self.cases:
            self.cases[key] = len(self.cases)
            self.listed.append(Case(system, check, metric, case, unit, better))
        return self.cases[key]

    def passes(self) -> Passes:
        """Return all that was added, in order."""
        names = sorted(self.hosts)
        rank = np.empty(len(names), dtype=np.int32)
        rank[[self.hosts[name] for name in names]] = np.arange(len(names))
        # The largest moment of a run: what is not needed any more goes at once.
        text, value, time = self._column(0, np.int32), self._column(2, np.float64), self._column(3, np.int64)
        host = rank[self._column(1, np.int32)]
        valid, judged, reason = self._column(4, np.bool_), self._column(5, np.bool_), self._column(6, np.int32)
        self.parts.clear()
        case = np.array(self.cases_of, dtype=np.int32)[text]
        order = _order(case, host, time, value)
        case, host, time, value = case[order], host[order], time[order], value[order]
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (np.diff(case) != 0) | (np.diff(host) != 0)
        # A record that was read twice (in a store and in a report made of it) is one pass.
        twice = ~new
        twice[1:] &= (np.diff(time) == 0) & (np.diff(value) == 0) & (np.diff(text[order]) == 0)
        if twice.any():
            kept = ~twice
            order, new = order[kept], new[kept]
            case, host, time, value = case[kept], host[kept], time[kept], value[kept]
        first = np.flatnonzero(new)
        return Passes(
            hosts=names,
            cases=self.listed,
            value=value,
            time=time,
            valid=valid[order],
            judged=judged[order],
            reason=reason[order],
            reasons=list(self.reasons),
            case=case[first],
            host=host[first],
            counts=np.diff(first, append=len(order)),
            settings={host: {m: v for m, (_, v) in latest.items()} for host, latest in self.settings.items()},
            looks={h: sorted(seen) for h, seen in self.looks.items() if any(busy >= BUSY for _, busy in seen)},
            sessions=self._sessions({name: i for i, name in enumerate(names)}),
        )

    def _sessions(self, numbers: dict[str, int]) -> NDArray[np.int64]:
        """Return where sessions begin (see :class:`Passes`) of hosts with these numbers."""
        import polars as pl  # noqa: PLC0415 - see firsttouch.records

        if not numbers:
            return np.empty(0, dtype=np.int64)
        spans = pl.concat(self.spans).filter(pl.col("host").is_in(list(numbers)))
        spans = spans.with_columns(number=pl.col("host").replace_strict(numbers, return_dtype=pl.Int64))
        spans = spans.sort("number", "begin", "end")
        gap = pl.col("begin") - pl.col("end").cum_max().shift().over("number")
        begins = spans.filter((gap > GAP).fill_null(value=True))
        return (begins["number"] * SPAN + begins["begin"].clip(0, SPAN - 1)).to_numpy()

    def _column(self, number: int, kind: type[_Kind]) -> NDArray[_Kind]:
        """Return a column of all parts, which are freed of it."""
        found = [np.empty(0, dtype=kind), *(part[number] for part in self.parts)]
        for part in self.parts:
            part[number] = found[0]
        return np.concatenate(found, dtype=kind)


def _spans(times: pl.DataFrame) -> pl.DataFrame:
    """Return spans of time (*begin*, *end*) of each host without a longer gap than GAP in any."""
    import polars as pl  # noqa: PLC0415 - see firsttouch.records

    hours = times.group_by("host", pl.col("time").floordiv(GAP).alias("hour"))
    return hours.agg(pl.col("time").min().alias("begin"), pl.col("time").max().alias("end")).drop("hour")


def _order(case: NDArray[Any], host: NDArray[Any], time: NDArray[Any], value: NDArray[Any]) -> NDArray[np.intp]:
    """Return the order by case, host, time and value."""
    order = stable(host)
    order = order[stable(case[order])]
    ordered = [column[order] for column in (case, host, time, value)]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (np.diff(ordered[0]) != 0) | (np.diff(ordered[1]) != 0)
    later, more = np.diff(ordered[2]), np.diff(ordered[3])
    wrong = ~new[1:] & ((later < 0) | ((later == 0) & (more < 0)))
    if wrong.any():
        # Seldom: a host's files are read in the order in which it wrote them.
        group = np.cumsum(new)
        some = np.isin(group, group[1:][wrong])
        order[some] = order[some][np.lexsort((ordered[3][some], ordered[2][some], group[some]))]
    return order


def _instants(texts: pl.Series) -> NDArray[np.int64]:
    """Return times in ms since 1970; one that states no offset is UTC, one that is no time the first of all."""
    told = texts.str.to_datetime("%+", time_zone="UTC", strict=False)
    if told.null_count():
        told = told.zip_with(
            told.is_not_null(), (texts + "Z").str.to_datetime("%+", time_zone="UTC", strict=False)
        )
    return told.dt.epoch("ms").fill_null(0).to_numpy()
