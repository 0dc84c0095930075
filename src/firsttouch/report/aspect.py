# SPDX-License-Identifier: Apache-2.0
"""An aspect of a host: its results and charts, from which all forms of a report are made (see render.py).

To add an aspect, write ``aspects/NAME.py`` with the name of its check and a function ``aspect(view)``. A check
with ``tables`` in the catalogue needs no module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.benchmarks.measure import WIDE
from firsttouch.host.host_lists import natural
from firsttouch.records.cases import Case, by_key
from firsttouch.records.catalogue import Check
from firsttouch.records.schema import Record
from firsttouch.report.document import Cell, Entry, Panel, Table
from firsttouch.report.model import Absent, HostView, banks, pu_nodes, varying_parameters
from firsttouch.report.text import clean, plain, span
from firsttouch.units import number, percent, quantity

# ----------------------------------------------------------------------
# The parts of an aspect.


class Result(Struct, frozen=True):
    """A line of the summary: the value of a *record*, or a *text*, and a comparison.

    A *detail* appears only in the figure of its check.
    """

    label: str
    record: Record | None = None
    compared: str = ""
    text: str = ""
    is_detail: bool = False

    @property
    def value(self) -> str:
        """The text of the line."""
        return self.text or (value(self.record) if self.record else "")

    @property
    def sentence(self) -> str:
        """The line as the sentence of a figure."""
        label = f"{self.label[:1].upper()}{self.label[1:]}"
        return f"{label}: {'; '.join(filter(None, (self.value, self.compared)))}."


class Draw(Protocol):
    """Draws a panel whose ids begin with *name*; *title* and *description* are its text alternative."""

    def __call__(self, *, name: str, title: str, heading: str, description: str) -> Panel:
        """Return the panel."""


#: A drawing of fewer values says no more than a sentence.
FEWEST_DRAWN = 3


class Chart(Struct, frozen=True):
    """A figure before it is drawn: *how* to read it, its sentences (*shows*) and how it was *measured*.

    *key* is unique among the charts of a host. *panels* are the drawings by their headings; without any, the page
    has a line.
    """

    key: str
    title: str
    how: str
    shows: Sequence[str]
    measured: str = ""
    panels: Mapping[str, Draw] = {}
    tables: Sequence[Table] = ()


class Aspect(Struct, frozen=True):
    """The results of a host for one aspect: charts may be *absent*."""

    results: Sequence[Result] = ()
    charts: Sequence[Chart] = ()
    absent: Sequence[Absent] = ()


# ----------------------------------------------------------------------
# Shared by all aspects.


def metric_title(record: Record) -> str:
    """Return the metric in words, as verdicts name it: ``copy``."""
    return Case.from_record(record).title_of_metric


def value(record: Record) -> str:
    """Return the median with its unit."""
    return quantity(record.value, record.unit)


#: The spread from which a cell is coloured.
_LOOSE = 0.1


def spread(record: Record) -> Cell:
    """Return the spread of a record as a cell, coloured if it is large; empty for one repetition."""
    share = record.spread
    tone = "wide" if share > WIDE else "loose" if share > _LOOSE else ""
    return Cell(share, percent, tone) if record.repetitions > 1 else Cell()


def measured(records: Iterable[Record]) -> str:
    """Return the sentence on repetitions and spread of a figure."""
    counts, spreads = zip(*((r.repetitions, abs(r.spread)) for r in records), strict=True)
    if set(counts) == {1}:
        return "Measured once each, so the spread is unknown."
    widest = max(spreads)
    text = (
        f"Median of {span(counts)} repetitions; bars and bands go from the smallest to the largest one. "
        f"The widest spread, (largest - smallest) / median, is {percent(widest)}"
    )
    if widest > WIDE:
        return f"{text}, too wide for a comparison. Make sure that the host is idle, then measure again."
    return f"{text}."


#: Header of the cells of a value.
VALUE_HEADER = ("median", "fastest", "slowest", "spread", "n")


def values(record: Record) -> tuple[Entry, ...]:
    """Return the cells of VALUE_HEADER."""
    ends = sorted((min(record.samples), max(record.samples)), reverse=record.better == "higher")
    return (*(Cell(x, number) for x in (record.value, *ends)), spread(record), record.repetitions)


def value_table(caption: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[Entry], Record]]) -> Table:
    """Return a table of records; each row begins with the cells of its *labels*."""
    return Table(caption, (*labels, *VALUE_HEADER), [(*cells, *values(record)) for cells, record in rows])


# ----------------------------------------------------------------------
# Ways of measuring.


def way_of(record: Record, order: Sequence[str]) -> dict[str, Any]:
    """Return the parameters that identify the way of measuring a record, those in *order* first."""
    way = Case.from_record(record).way
    return {name: way[name] for name in (*order, *sorted(way.keys() - {*order})) if name in way}


#: The parameters whose values are shown without their names.
_NAMELESS = {"program", "access", "kernel", "policy"}


def way_name(parameters: Mapping[str, Any]) -> str:
    """Return a way of measuring as a title."""
    words = []
    for key, value in parameters.items():
        text = clean(plain(value))
        if key in {"instructions", "stores", "pages"}:
            # "compiler": the program does not reveal the compiler's choice.
            words.append(f"{key} by the compiler" if text == "compiler" else text and f"{text} {key}")
        else:
            words.append(text if key in _NAMELESS else text and f"{key.replace('_', ' ')} {text}")
    return ", ".join(filter(None, words))


# ----------------------------------------------------------------------
# The probe compared with other programs: the same case on the same host.

#: Store types that are treated as equal, because STREAM does not report which type the compiler chose.
_REGULAR = frozenset({"regular", "compiler", None})
#: Parameters that identify a case, in addition to PU-set and bank.
_SAME = ("threads", "size_bytes")


def program(record: Record) -> str:
    """Return the program that measured, "" if not recorded."""
    return clean(str(record.parameters.get("program", "")))


def others_text(view: HostView, record: Record) -> str:
    """Return the same case by other programs: ``likwid-bench 10.1 GB/s; stream 9.70 GB/s``."""

    def is_same_case(other: Record) -> bool:
        a, b = record.parameters, other.parameters
        is_equal = all(n not in a or n not in b or a[n] == b[n] for n in _SAME)
        regular = {a.get("stores"), b.get("stores")} <= _REGULAR
        return is_equal and regular and (pu_nodes(record), banks(record)) == (pu_nodes(other), banks(other))

    others = [r for r in view.select(record.check, metric=record.metric) if program(r) != program(record)]
    return "; ".join(f"{program(r)} {value(r)}" for r in sorted(filter(is_same_case, others), key=program))


# ----------------------------------------------------------------------
# Checks that are shown as tables only.

#: From this value on, a unit has the prefix for a million.
_MILLION = 1e6


def tabulate_check(view: HostView, check: str, entry: Check) -> Aspect:
    """Return the aspect of a check with a table of each metric and the best record of it."""
    records = view.select(check)
    if not records:
        return Aspect(absent=[Absent(entry.title, view.why_absent(check))])
    metrics = [*entry.metrics, *entry.data]
    by_metric = by_key(records, lambda r: r.metric)
    results, tables = [], []
    for metric in sorted(by_metric, key=lambda m: (metrics.index(m) if m in metrics else len(metrics), m)):
        of_metric = _in_millions(by_metric[metric])
        names = [name for name in entry.parameters if name in varying_parameters(of_metric)]
        rows = sorted(((_labels(r, names), r) for r in of_metric), key=lambda row: [*map(natural, row[0])])
        title = metric.replace("_", " ")
        header = [name.replace("_", " ") for name in names]
        tables.append(value_table(f"{entry.title}: {title} ({of_metric[0].unit})", header or ["check"], rows))
        ranked = sorted(of_metric, key=lambda r: r.value, reverse=of_metric[0].better == "higher")
        first, last = ranked[0], ranked[-1]
        if first.better != "neither":
            compared = _place(first, names)
            compared += f"; the worst {value(last)}, {_place(last, names)}" if len(of_metric) > 1 else ""
            results.append(Result(f"{metric_title(first)}, the best", first, compared, is_detail=True))
    shows = [result.sentence for result in results]
    return Aspect(results, [Chart(check, entry.title, " ".join(entry.tables.split()), shows, tables=tables)])


def _place(record: Record, names: Sequence[str]) -> str:
    """Return the parameters of those *names*: ``threads 4, lock spin``."""
    labels = zip(names, _labels(record, names), strict=False)
    return ", ".join(f"{name.replace('_', ' ')} {label}" for name, label in labels if label)


def _labels(record: Record, names: Sequence[str]) -> list[str]:
    """Return the texts of a record's parameters with those *names*; its check's parameters without any."""
    parameters = Case.from_record(record).parameters
    return [clean(plain(parameters.get(name))) for name in names] or [record.check]


def _in_millions(records: Sequence[Record]) -> Sequence[Record]:
    """Return *records* of one metric, in millions of the unit if they have millions."""
    if max(r.value for r in records) < _MILLION or records[0].unit == "1":
        return records
    return [replace(r, unit=f"M{r.unit}", samples=tuple(s / _MILLION for s in r.samples)) for r in records]
