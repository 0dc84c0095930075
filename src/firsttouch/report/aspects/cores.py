# SPDX-License-Identifier: Apache-2.0
"""The clock of the cores while all of them run, and the slow ones."""

from __future__ import annotations

from firsttouch.benchmarks.cores import CHECK, CLOCK, SLOW
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Result
from firsttouch.report.document import Table
from firsttouch.report.model import Absent, HostView
from firsttouch.report.text import count

_TITLE = "Cores that are slower than their siblings"
_HOW = (
    "A chain of dependent additions on every PU, all at once: its rate is the clock of the core. A PU that is "
    "more than 10 % slower than equal ones in every sample is a slow core."
)


def aspect(view: HostView) -> Aspect:
    """Return the clock, and the slow cores."""
    records = view.of(CHECK)
    if not records:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    slow = [r for r in records if r.metric == SLOW and r.value]
    clocks = [r for r in records if r.metric == CLOCK]
    results = [Result("clock of the cores, all at work", r, _slowest(r)) for r in clocks[:1]]
    if not slow:
        return Aspect(results)
    named = ", ".join(f"PU {r.parameters['pu']}" for r in slow[:5])
    rows = [(f"PU {r.parameters['pu']}", f"{100 * r.parameters['loss']:.0f} %") for r in slow]
    results.append(Result("slow cores", text=count(len(slow), "PU"), compared=named))
    return Aspect(results, tables=[Table(_TITLE, ("PU", "slower by"), rows)], note=_HOW)


def _slowest(record: Record) -> str:
    return f"the slowest PU {record.parameters['slowest']:.3g} {record.unit}"
