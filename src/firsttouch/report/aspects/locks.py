# SPDX-License-Identifier: Apache-2.0
"""Locks: records per second from one reader, over the threads and over the records of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.benchmarks.locks import BATCH, CHECK, COMMON, RECORDS, WAITING, WITHIN
from firsttouch.records.cases import Case, grouped
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Chart, Draw, Result, best, measured, value, value_table
from firsttouch.report.document import Cell, Table
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, HostView, whole
from firsttouch.report.text import clean, count, listed, plain
from firsttouch.units import percent

_TITLE = "Records per second from one reader under a lock"
_HOW = (
    "Higher is better. A line that doubles with twice the threads scales perfectly. One that levels off or falls "
    "waits for the lock or the reader. Original parsing is done under the lock. Otherwise, a thread only copies "
    "under the lock and parses afterwards: one record (deferred), several (batched) or a block of fixed size "
    "(blocked). Where the curve over batches levels off, larger batches gain nothing."
)


def aspect(view: HostView) -> Aspect:
    """Return the highest rate and a chart for each amount of work with a record."""
    groups = rates_of(view)
    if not groups:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    return Aspect(
        [result for group in groups for result in _results(group)],
        [_chart(f"locks-{position}", group) for position, group in enumerate(groups, start=1)],
    )


def _results(group: Rates) -> Iterable[Result]:
    fastest, original = group.fastest(), group.fastest(["original"])
    if fastest is None:
        return
    compared = [f"{fastest.parameters['lock']} lock, {fastest.parameters['parsing']} parsing"]
    if original is not None and original is not fastest:
        compared.append(f"original parsing {value(original)}, {original.parameters['lock']} lock")
    if batch := _batch_of_host(group):
        compared.append(f"needs {count(batch, 'record')} at once")
    yield Result(f"one reader, {count(group.most, 'thread')}, {group.name}", fastest, "; ".join(compared))


# ----------------------------------------------------------------------
# The rates of a host.

#: The order of locks and parsings, from the simplest on; others follow.
LOCKS = ("spin", "ticket", "mutex", "queue", "atomic")
PARSINGS = ("original", "deferred", "batched", "blocked")
COMPACT, SPREAD = "compact", "spread"
#: What a title calls parameters that tell groups of rates apart; others have their names.
_LABELS = {"record_bytes": "bytes of a record"}
_UNIT, _MILLION = "Mrecords/s", 1e6


class Rates(Struct, frozen=True):
    """The rates of one host with one amount of work, in millions of records per second.

    *by_threads* are those of a parsing by lock, placement and number of threads; of batched parsing, those with
    *batch* records at once. *by_batch* are those of a lock by batch, compact with the *most* threads. *needed* are
    the smallest sufficient batches by lock. *waiting* are shares of the threads' time by the case of the rate.
    """

    name: str
    work_ns: float
    most: int
    batch: int
    by_threads: Mapping[str, Mapping[tuple[str, str, int], Record]]
    by_batch: Mapping[str, Mapping[int, Record]]
    needed: Mapping[str, Record]
    waiting: Mapping[str, float]

    def records(self) -> list[Record]:
        """Return all rates."""
        parsings, locks = self.by_threads.values(), self.by_batch.values()
        return [*(r for p in parsings for r in p.values()), *(r for b in locks for r in b.values())]

    def wait(self, record: Record) -> float | None:
        """Return the share of the threads' time that they waited for the lock, None if it is unknown."""
        return self.waiting.get(plain(record.parameters))

    def with_all(self, parsing: str) -> dict[str, Record]:
        """Return the rates of a parsing by lock, compact with the most threads."""
        rates = self.by_threads.get(parsing, {})
        return {lock: r for (lock, place, threads), r in rates.items() if (place, threads) == (COMPACT, self.most)}

    def fastest(self, parsings: Iterable[str] = PARSINGS) -> Record | None:
        """Return the highest rate of *parsings* with the most threads."""
        return best(r for parsing in parsings for r in self.with_all(parsing).values())


def rates_of(view: HostView) -> list[Rates]:
    """Return the rates of the host, a group for each amount of work, the least work first."""
    ways = [(record, {k: plain(v) for k, v in Case.of(record).way.items()}) for record in view.of(CHECK)]
    names = [name for name in dict.fromkeys(name for _, way in ways for name in way) if name != "work_ns"]
    groups = grouped(ways, lambda item: (_work(item[0]), tuple(item[1].get(name, "") for name in names)))
    varying = [len(set(column)) > 1 for column in zip(*(values for _, values in groups), strict=True)]
    result = []
    for (work_ns, values), of_group in sorted(groups.items(), key=lambda item: item[0]):
        labels = [
            f"{_LABELS.get(name, name.replace('_', ' '))} {value or 'full'}"
            for name, value, varies in zip(names, values, varying, strict=True)
            if varies
        ]
        if group := _rates(clean(", ".join([_work_text(work_ns), *labels])), work_ns, [r for r, _ in of_group]):
            result.append(group)
    return result


def _rates(name: str, work_ns: float, records: Sequence[Record]) -> Rates | None:
    measured = sorted((r for r in records if r.metric == RECORDS), key=_order)
    if not measured:
        return None
    most = max(whole(r, "threads") for r in measured)
    batched = [r for r in measured if r.parameters["parsing"] == "batched" and _batch(r)]
    batches = {_batch(r) for r in batched}
    batch = COMMON if COMMON in batches else max(batches, default=0)
    by_threads: dict[str, dict[tuple[str, str, int], Record]] = {}
    by_batch: dict[str, dict[int, Record]] = {}
    for record in measured:
        p = record.parameters
        rate = replace(record, unit=_UNIT, samples=tuple(s / _MILLION for s in record.samples))
        lock, place, threads = p["lock"], str(p.get("placement", COMPACT)), whole(record, "threads")
        if p["parsing"] != "batched" or _batch(record) == batch:
            by_threads.setdefault(p["parsing"], {})[lock, place, threads] = rate
        if record in batched and (place, threads) == (COMPACT, most):
            by_batch.setdefault(lock, {})[_batch(record)] = rate
    return Rates(
        name,
        work_ns,
        most,
        batch,
        {p: by_threads[p] for p in sorted(by_threads, key=lambda p: _position(PARSINGS, p))},
        {lock: dict(sorted(rates.items())) for lock, rates in by_batch.items() if len(rates) > 1},
        {r.parameters["lock"]: r for r in sorted(records, key=_order) if r.metric == BATCH},
        {plain(r.parameters): r.value for r in records if r.metric == WAITING},
    )


def _batch(record: Record) -> int:
    batch = record.parameters.get("batch")
    return batch if isinstance(batch, int) and batch > 0 else 0


def _work(record: Record) -> float:
    work = record.parameters.get("work_ns")
    return float(work) if isinstance(work, (int, float)) else 0.0


def _order(record: Record) -> tuple[Any, ...]:
    p = record.parameters
    return (_position(LOCKS, p["lock"]), str(p.get("placement")), whole(record, "threads"), _batch(record))


def _position(order: Sequence[str], name: str) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order), name)


def _work_text(nanoseconds: float) -> str:
    """Return the work with each record: ``no other work``, ``250 ns of work``, ``1 µs of work``."""
    if not nanoseconds:
        return "no other work"
    return f"{nanoseconds / 1000:g} µs of work" if nanoseconds >= 1000 else f"{nanoseconds:g} ns of work"


# ----------------------------------------------------------------------
# What the rates show.


def _batch_of_host(group: Rates) -> int:
    """Return the batch that suffices for every lock, 0 if it is unknown."""
    return max((round(r.value) for r in group.needed.values()), default=0)


def sufficient_batches(group: Rates) -> list[str]:
    """Return the sentence that states the sufficient batch of each lock, or nothing."""
    needed = {lock: round(r.value) for lock, r in group.needed.items()}
    if not needed:
        return []
    size, share = _batch_of_host(group), percent(WITHIN).replace(".0", "")
    host = "single records" if size == 1 else f"batches of {size} records"
    by_lock = ", ".join(f"{clean(lock)} {batch}" for lock, batch in needed.items())
    text = (
        f"With {count(group.most, 'thread')} and {_work_text(group.work_ns)}, this host needs {host} to come "
        f"within {share} of the rate of larger batches with each lock: {by_lock}."
    )
    # The batches that are not slower than the best one in all repetitions, by lock.
    not_slower = [
        {batch for batch, record in rates.items() if not _slower(record, fastest)}
        for rates in group.by_batch.values()
        if (fastest := best(rates.values()))
    ]
    least = min(set.intersection(*not_slower), default=size) if not_slower else size
    sized = "Single records are" if least == 1 else f"Batches of {least} are"
    return [text if least >= size else f"{text} {sized} not clearly slower, as repetitions overlap."]


def _slower(record: Record, other: Record) -> bool:
    """Return whether all repetitions are slower than those of the other; one repetition shows nothing."""
    return min(record.repetitions, other.repetitions) > 1 and max(record.samples) < min(other.samples)


# ----------------------------------------------------------------------
# The chart.


#: The fewest numbers of threads that are drawn as curves.
_FEWEST = 3
_NO_CURVE = "The rates with {} threads are no curve: the tables have them."


def _chart(key: str, group: Rates) -> Chart:
    threads = sorted({threads for rates in group.by_threads.values() for _, _, threads in rates})
    is_curve = len(threads) >= _FEWEST
    panels = dict(_panel(group, parsing) for parsing in group.by_threads) if is_curve else {}
    tables = [_table(group, parsing) for parsing in group.by_threads]
    if group.by_batch:
        heading = f"Batched parsing, {count(group.most, 'thread')}"
        lines = {lock: [drawing.of(n, r) for n, r in rates.items()] for lock, rates in group.by_batch.items()}
        panels[heading] = _drawn(group, lines, counted="record", across="records of a batch")
        rows = [
            ((clean(lock), batch, Cell(group.wait(record), percent)), record)
            for lock, rates in group.by_batch.items()
            for batch, record in rates.items()
        ]
        caption = f"Batched parsing with {count(group.most, 'thread')} ({_UNIT})"
        tables.append(value_table(caption, ("lock", "batch", "waiting"), rows))
    return Chart(
        key=key,
        title=f"{_TITLE}: {group.name}",
        how=_HOW,
        shows=[*sufficient_batches(group), *([] if is_curve else [_NO_CURVE.format(listed(map(str, threads)))])],
        measured=measured(group.records()),
        panels=panels,
        tables=tables,
    )


def _heading(group: Rates, parsing: str) -> str:
    """Return the title of a parsing, with the records that are taken at once."""
    sizes = {plain(r.parameters.get("batch")) for r in group.by_threads[parsing].values()} - {"", "1"}
    return clean(f"{parsing} parsing{f', {sizes.pop()} records at once' if len(sizes) == 1 else ''}").capitalize()


def _panel(group: Rates, parsing: str) -> tuple[str, Draw]:
    rates = group.by_threads[parsing]
    # Compact threads are drawn; if no such rate is valid, those of another placement, which the heading names.
    places = {place for _, place, _ in rates}
    drawn = COMPACT if COMPACT in places else min(places)
    shown = grouped((key for key in rates if key[1] == drawn), lambda key: key[0])
    lines = {lock: [drawing.of(key[2], rates[key]) for key in keys] for lock, keys in shown.items()}
    heading = _heading(group, parsing) + ("" if drawn == COMPACT else clean(f", threads {drawn}"))
    return heading, _drawn(group, lines)


def _drawn(
    group: Rates, lines: Mapping[str, Sequence[drawing.Point]], *, counted: str = "thread", across: str = ""
) -> Draw:
    """Return how to draw *lines*; all panels of a chart have the same scale."""
    values = [sample for r in group.records() for sample in r.samples]
    return partial(
        drawing.draw_lines,
        lines,
        label=f"rate ({_UNIT})",
        size=(440, 210),
        logarithmic=drawing.wide(values),
        scale=values,
        counted=counted,
        across=across,
    )


def _table(group: Rates, parsing: str) -> Table:
    rows = [
        ((clean(lock), clean(place), threads, Cell(group.wait(record), percent)), record)
        for (lock, place, threads), record in group.by_threads[parsing].items()
    ]
    return value_table(f"{_heading(group, parsing)} ({_UNIT})", ("lock", "placement", "threads", "waiting"), rows)
