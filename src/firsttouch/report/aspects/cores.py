# SPDX-License-Identifier: Apache-2.0
"""Clock, caches and way to memory of the cores, the clock over minutes if that was measured, and slow cores."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

from firsttouch.benchmarks.cores import CHECK, CLOCK, SLOW, SLOWEST, STEP, SUSTAINED
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Chart, Result, value
from firsttouch.report.document import Entry, Panel, Table
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, HostView
from firsttouch.report.text import clean, count
from firsttouch.units import number, percent

_TITLE = "Cores that are slower than their siblings"
_HOW = (
    "Every PU follows a chain of dependent additions, whose rate is the clock of the core, and chains of pointers "
    "in its caches and in memory: all PUs at once, then each alone. A PU that is well below equal ones in every "
    "sample is a slow core: 10 % in the clock and the first cache, 20 % in the second one, 30 % in memory."
)
_CHAINS_TITLE = "The slowest core in each chain"
#: The chains in words.
_CHAINS = {"registers": "clock", "l1": "first cache", "l2": "second cache", "memory": "memory"}
_RUNNING = {"all": "all PUs at once", "alone": "each PU alone"}
_CURVE_TITLE = "Clock of the cores under a sustained load"
_CURVE_HOW = (
    "Each point is the median clock of all PUs, all at work. A step down in the first minute is the end of the "
    "processor's turbo budget; a slow decline afterwards is heat. The last quarter is compared with other hosts."
)


def aspect(view: HostView) -> Aspect:
    """Return the clock, its curve under a sustained load, and the slow cores."""
    records = view.of(CHECK)
    if not records:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    slow = [r for r in records if r.metric == SLOW and r.value]
    clocks = [r for r in records if r.metric == CLOCK and "running" not in r.parameters][:1]
    results = [Result("clock of the cores, all at work", r, _slowest(r)) for r in clocks]
    sustained = [r for r in records if r.metric == SUSTAINED]
    results += [Result(f"clock of the cores, after {_time(r)} of load", r, _slowest(r)) for r in sustained]
    charts = [chart for number, r in enumerate(sustained) if (chart := _chart(r, number))]
    chains = _chains(records)
    tables = [Table(_CHAINS_TITLE, ("chain", "PUs", "median", "the slowest", "PU", "of its siblings"), chains)]
    if slow:
        named = ", ".join(dict.fromkeys(_pu(r) for r in slow[:5]))
        results.append(Result("slow cores", text=count(len({_pu(r) for r in slow}), "PU"), compared=named))
        rows = [(_pu(r), _chain(r), _loss(r, "loss"), _loss(r, "loss_alone")) for r in slow]
        tables.insert(0, Table(_TITLE, ("PU", "in", "slower by", "alone by"), rows))
    shown = [table for table in tables if table.rows]
    return Aspect(results, charts, tables=shown, note=_HOW if shown else "")


def _chains(records: Sequence[Record]) -> list[tuple[Entry, ...]]:
    """Return the rows of the chains that were measured at once and alone."""
    shares = {_way(r): r for r in records if r.metric == SLOWEST}
    rates = {_way(r): r for r in records if r.metric in {CLOCK, STEP}}
    rows: list[tuple[Entry, ...]] = []
    for way in itertools.product(_CHAINS, _RUNNING):
        if (rate := rates.get(way)) and (share := shares.get(way)):
            chain, running = way
            pu = clean(str(share.parameters.get("slowest_pu", "")))
            slowest = _value_of(rate, "slowest")
            rows.append((_CHAINS[chain], _RUNNING[running], value(rate), slowest, pu, percent(share.value)))
    return rows


def _way(record: Record) -> tuple[str, str]:
    """Return chain and running of a record; those of all clocks at once are not stated."""
    p = record.parameters
    return str(p.get("chain", "registers")), str(p.get("running", "all"))


def _pu(record: Record) -> str:
    return f"PU {clean(str(record.parameters.get('pu')))}"


def _chain(record: Record) -> str:
    chain = _way(record)[0]
    return _CHAINS.get(chain, clean(chain))


def _value_of(record: Record, name: str) -> str:
    number_of = record.parameters.get(name)
    return f"{number(number_of)} {record.unit}" if isinstance(number_of, (int, float)) else ""


def _slowest(record: Record) -> str:
    slowest = _value_of(record, "slowest")
    return f"the slowest PU {slowest}" if slowest else ""


def _loss(record: Record, name: str) -> str:
    loss = record.parameters.get(name)
    return percent(loss) if isinstance(loss, (int, float)) else "unknown"


def _seconds(record: Record) -> float:
    seconds = record.parameters.get("sustain_s")
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0


def _time(record: Record) -> str:
    return f"{number(_seconds(record))} s"


def _chart(record: Record, position: int) -> Chart | None:
    """Return the chart of a sustained load, None if the record has no curve."""
    curve = record.parameters.get("curve")
    if not isinstance(curve, list) or not curve or not all(isinstance(y, (int, float)) and y > 0 for y in curve):
        return None
    fell = 1 - record.value / curve[0]
    points = [(_seconds(record) * (i + 1) / len(curve), float(clock)) for i, clock in enumerate(curve)]
    change = f"{percent(fell)} below the first sample" if fell > 0 else "not below the first sample"
    return Chart(
        key=f"{CHECK}-{position}" if position else CHECK,
        title=_CURVE_TITLE,
        how=_CURVE_HOW,
        shows=[f"In the last quarter of {_time(record)} the clock is {value(record)}, {change}."],
        measured=f"{count(len(curve), 'sample')} without a pause.",
        panels={"": partial(_panel, points)},
        tables=[
            Table("Clock over time", ("time (s)", "clock (GHz)"), [(number(x), number(y)) for x, y in points])
        ],
    )


def _panel(points: list[tuple[float, float]], *, name: str, title: str, heading: str, description: str) -> Panel:
    look = drawing.series(0, radius=2)
    axes = drawing.Chart(
        name,
        (
            drawing.zero_based_scale(max(x for x, _ in points)),
            drawing.zero_based_scale(1.08 * max(y for _, y in points)),
        ),
        ("time under load (s)", "clock (GHz)"),
        {},
        heading=heading,
    )
    axes.draw_series(look, points, [f"{number(x)} s: {number(y)} GHz" for x, y in points])
    return axes.canvas.panel(title, description)
