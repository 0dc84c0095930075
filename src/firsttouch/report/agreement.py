# SPDX-License-Identifier: Apache-2.0
"""The probe beside the field's own programs: the same case, measured by several of them on the same host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from firsttouch.cpulist import format_list
from firsttouch.probe_program import NAME
from firsttouch.records import Record
from firsttouch.report.hosts import HostView, banks, pu_nodes
from firsttouch.report.model import Table
from firsttouch.report.text import clean, number, percent

#: Store types that count as the same: what a compiler makes of STREAM's loops is not known from outside.
_REGULAR = frozenset({"regular", "compiler", None})
#: Parameters that make a case, beside PU-set and bank.
_SAME = ("threads", "size_bytes")


def program(record: Record) -> str:
    """Return the program that measured, an empty text where the record does not say."""
    return clean(str(record.parameters.get("program", "")))


def beside(view: HostView, record: Record) -> list[Record]:
    """Return the records of other programs that measured the same case as *record*, by program."""
    return _among(view.of(record.check, metric=record.metric), record)


def _among(records: Iterable[Record], one: Record) -> list[Record]:
    found = [r for r in records if r.metric == one.metric and program(r) != program(one) and _alike(one, r)]
    return sorted(found, key=program)


def _alike(one: Record, other: Record) -> bool:
    a, b = one.parameters, other.parameters
    same = all(n not in a or n not in b or a[n] == b[n] for n in _SAME)
    regular = {a.get("stores"), b.get("stores")} <= _REGULAR
    return same and regular and (pu_nodes(one), banks(one)) == (pu_nodes(other), banks(other))


def table(view: HostView, records: Sequence[Record]) -> Table | None:
    """Return the probe's *records* beside those of others in the same case, None where there are none."""
    # Few: of the many cells of a sweep, others measured some.
    others = [r for check in {r.check for r in records} for r in view.of(check) if program(r) != NAME]
    rows = [
        (
            record.metric.replace("_", " "),
            format_list(pu_nodes(record)),
            format_list(banks(record)),
            number(record.value),
            percent(record.spread),
            program(other),
            number(other.value),
            percent(other.spread),
            f"{record.value / other.value:.2f}" if other.value else "",
        )
        for record in records
        if program(record) == NAME
        for other in _among(others, record)
    ]
    if not rows:
        return None
    unit = records[0].unit
    header = (
        "metric",
        "PU-set",
        "bank",
        "probe",
        "spread",
        "other program",
        "its value",
        "its spread",
        "probe / other",
    )
    return Table(f"The probe beside other programs ({unit}, medians)", header, rows, frozenset({3, 4, 6, 7, 8}))
