# SPDX-License-Identifier: Apache-2.0
"""Clock, caches and memory path of the cores, the clock after minutes of load if measured, and slow cores."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from firsttouch.benchmarks.cores import CHECK, CLOCK, SLOW, SLOWEST, STEP, SUSTAINED
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Chart, Result, value
from firsttouch.report.document import Entry, Table
from firsttouch.report.model import Absent, HostView
from firsttouch.report.text import clean, count
from firsttouch.units import number, percent

_TITLE = "Cores that are slower than their siblings"
_HOW = (
    "Every PU follows a chain of dependent additions, whose rate is the clock of the core, and chains of pointers "
    "in its caches and in memory: all PUs at once, then each alone. A PU that is well below equal ones in every "
    "sample is a slow core: 10 % in the clock and the first cache, 20 % in the second one, 30 % in memory."
)
#: The chains in words.
_CHAINS = {"registers": "clock", "l1": "first cache", "l2": "second cache", "memory": "memory"}
_RUNNING = {"all": "all PUs at once", "alone": "each PU alone"}


def aspect(view: HostView) -> Aspect:
    """Return the clock, also after a sustained load, and the slow cores."""
    records = view.select(CHECK)
    if not records:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    slow = [r for r in records if r.metric == SLOW and r.value]
    clocks = [r for r in records if r.metric == CLOCK and "running" not in r.parameters][:1]
    results = [Result("clock of the cores, all at work", r, _slowest(r)) for r in clocks]
    sustained = [r for r in records if r.metric == SUSTAINED]
    results += [Result(f"clock of the cores, after {_time(r)} of load", r, _fall(r)) for r in sustained]
    chains = _chains(records)
    tables = [
        Table(
            "The slowest core in each chain",
            ("chain", "PUs", "median", "the slowest", "PU", "of its siblings"),
            chains,
        )
    ]
    if slow:
        named = ", ".join(dict.fromkeys(_pu(r) for r in slow[:5]))
        results.append(Result("slow cores", text=count(len({_pu(r) for r in slow}), "PU"), compared=named))
        rows = [(_pu(r), _chain(r), _loss(r, "loss"), _loss(r, "loss_alone")) for r in slow]
        tables.insert(0, Table(_TITLE, ("PU", "in", "slower by", "alone by"), rows))
    shown = [table for table in tables if table.rows]
    shows = [result.sentence for result in results]
    return Aspect(results, [Chart(CHECK, _TITLE, _HOW, shows, tables=shown)] if shown else [])


def _chains(records: Sequence[Record]) -> list[tuple[Entry, ...]]:
    """Return the rows of the chains that were measured on all PUs at once and on each alone."""
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
    """Return chain and mode of a record; a record of all clocks at once has neither."""
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


def _fall(record: Record) -> str:
    """Return how far the clock fell since the first sample of a sustained load, and the slowest PU."""
    curve = record.parameters.get("curve")
    first = curve[0] if isinstance(curve, list) and curve else None
    fell = 1 - record.value / first if isinstance(first, (int, float)) and first > 0 else 0.0
    parts = [f"{percent(fell)} below the first sample"] if fell > 0 else []
    return "; ".join(filter(None, (*parts, _slowest(record))))


def _loss(record: Record, name: str) -> str:
    loss = record.parameters.get(name)
    return percent(loss) if isinstance(loss, (int, float)) else "unknown"


def _time(record: Record) -> str:
    seconds = record.parameters.get("sustain_s")
    return f"{number(seconds if isinstance(seconds, (int, float)) else 0)} s"
