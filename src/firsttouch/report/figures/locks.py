# SPDX-License-Identifier: Apache-2.0
"""Locks: records per second from one reader, over the threads and over the records of a batch."""

from __future__ import annotations

from collections.abc import Iterable

from firsttouch.benchmarks.locks import CHECK
from firsttouch.records.schema import Record
from firsttouch.report import lock_rates
from firsttouch.report.aspect import measured, value_table
from firsttouch.report.figures import drawing
from firsttouch.report.lock_rates import COMPACT, Rates
from firsttouch.report.model import Absent, Figure, HostView, Panel, Table
from firsttouch.report.text import clean, count, percent, plain

_TITLE = "Records per second from one reader under a lock"
_HOW = (
    "Higher is better. A line that doubles with twice the threads scales perfectly. One that levels off or falls "
    "waits for the lock or the reader. Original parsing is done under the lock. Otherwise, a thread only copies "
    "under the lock and parses afterwards: one record (deferred), several (batched) or a block of fixed size "
    "(blocked). Where the curve over batches levels off, larger batches gain nothing."
)
_HEIGHT = 210


def figures(view: HostView) -> list[Figure | Absent]:
    """Return a figure for each amount of work with a record, or why there is none."""
    groups = lock_rates.rates(view)
    if not groups:
        return [Absent(_TITLE, view.why_absent(CHECK))]
    return [_figure(f"{view.key}-locks-{i}", group) for i, group in enumerate(groups, start=1)]


def _figure(name: str, group: Rates) -> Figure:
    shows = lock_rates.sentences(group)
    panels = [
        _panel(f"{name}-{i}", group, parsing, " ".join(shows))
        for i, parsing in enumerate(group.by_threads, start=1)
    ]
    if group.by_batch:
        panels.append(_batches(f"{name}-batches", group, " ".join(shows)))
    return Figure(
        name=name,
        title=f"{_TITLE}: {group.name}",
        how=_HOW,
        shows=shows,
        measured=measured(group.records()),
        panels=tuple(panels),
        tables=(*(_table(group, parsing) for parsing in group.by_threads), *_batch_tables(group)),
    )


def _heading(group: Rates, parsing: str) -> str:
    """Return the title of a parsing, with the records that are taken at once."""
    sizes = {plain(r.parameters.get("batch")) for r in group.by_threads[parsing].values()} - {"", "1"}
    return clean(f"{parsing} parsing{f', {sizes.pop()} records at once' if len(sizes) == 1 else ''}").capitalize()


def _panel(name: str, group: Rates, parsing: str, shows: str) -> Panel:
    rates = group.by_threads[parsing]
    # Compact threads are drawn; if no such rate is valid, those of another placement, which the heading names.
    places = {place for _, place, _ in rates}
    drawn = COMPACT if COMPACT in places else min(places)
    lines: dict[str, list[drawing.Point]] = {}
    for (lock, place, threads), record in rates.items():
        if place == drawn:
            lines.setdefault(lock, []).append(drawing.of(threads, record))
    heading = _heading(group, parsing) + ("" if drawn == COMPACT else clean(f", threads {drawn}"))
    return _draw(name, group, lines, heading, shows)


def _batches(name: str, group: Rates, shows: str) -> Panel:
    lines = {lock: [drawing.of(n, r) for n, r in rates.items()] for lock, rates in group.by_batch.items()}
    heading = f"Batched parsing, {count(group.most, 'thread')}"
    return _draw(name, group, lines, heading, shows, counted="record", across="records of a batch")


def _draw(
    name: str,
    group: Rates,
    lines: dict[str, list[drawing.Point]],
    heading: str,
    shows: str,
    *,
    counted: str = "thread",
    across: str = "",
) -> Panel:
    """Return a panel; all panels of a figure have the same scale."""
    values = [value for r in group.records() for value in r.samples]
    return drawing.draw_lines(
        lines,
        label=f"rate ({group.records()[0].unit})",
        name=name,
        title=f"{_TITLE}, {group.name}: {heading}",
        description=shows,
        size=(440, _HEIGHT),
        heading=heading,
        logarithmic=drawing.wide(values),
        counted=counted,
        across=across,
        scale=values,
    )


def _waiting(group: Rates, record: Record) -> str:
    share = group.wait(record)
    return "" if share is None else percent(share)


def _table(group: Rates, parsing: str) -> Table:
    rows = [
        ((clean(lock), clean(place), str(threads), _waiting(group, record)), record)
        for (lock, place, threads), record in group.by_threads[parsing].items()
    ]
    caption = f"{_heading(group, parsing)} ({rows[0][1].unit})"
    return value_table(caption, ("lock", "placement", "threads", "waiting"), rows)


def _batch_tables(group: Rates) -> Iterable[Table]:
    rows = [
        ((clean(lock), str(batch), _waiting(group, record)), record)
        for lock, by_batch in group.by_batch.items()
        for batch, record in by_batch.items()
    ]
    if rows:
        caption = f"Batched parsing with {count(group.most, 'thread')} ({rows[0][1].unit})"
        yield value_table(caption, ("lock", "batch", "waiting"), rows)
