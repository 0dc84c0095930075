# SPDX-License-Identifier: Apache-2.0
"""Known answers of every PU, and patterns in every bank: their number, and the wrong ones."""

from __future__ import annotations

from firsttouch.benchmarks.correctness import CHECK
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Chart, Result
from firsttouch.report.document import Entry, Table
from firsttouch.report.model import Absent, HostView
from firsttouch.report.text import clean, count

_TITLE = "Right answers"
_HOW = (
    "Every PU computes the same works with known answers, all PUs at once, and every bank keeps patterns. One "
    "wrong answer proves a fault of the PU that gave it, however many right ones there are."
)


def aspect(view: HostView) -> Aspect:
    """Return the number of wrong answers, and the table of all kinds of work."""
    records = view.select(CHECK)
    if not records:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    wrong = [r for r in records if r.value > 0]
    shown = [*wrong, *(r for r in records if not r.value)]
    table = Table(_TITLE, ("work", "answers", "wrong", "PU", "bits"), [_row(r) for r in shown])
    worst = max(records, key=lambda r: r.value)
    compared = _where(worst) if wrong else f"of {count(len(records), 'kind')} of work and memory"
    result = Result("wrong answers", worst, compared)
    return Aspect([result], [Chart(CHECK, _TITLE, _HOW, [result.sentence], tables=[table])])


def _row(record: Record) -> tuple[Entry, ...]:
    p = record.parameters
    units = p.get("units")
    answers = int(units) if isinstance(units, (int, float)) else ""
    return (_where(record), answers, int(record.value), str(p.get("pu", "")), str(p.get("bits", "")))


def _where(record: Record) -> str:
    p = record.parameters
    if "bank" not in p:
        return clean(str(p.get("work", "unknown work")))
    address = p.get("physical_address")
    where = f", first at {clean(str(address))}" if address else ""
    return f"patterns in bank {p['bank']}{where}"
