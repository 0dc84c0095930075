# SPDX-License-Identifier: Apache-2.0
"""Turns results and charts of aspects into tables, summary.json and drawn figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

import firsttouch
from firsttouch.documents import attributes
from firsttouch.execution import progress
from firsttouch.records.cases import by_key
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Chart, Result, spread
from firsttouch.report.aspects import Aspects, topology
from firsttouch.report.document import Card, Cell, Entry, Figure, Fold, Listing, Paragraph, Span, Table, spans
from firsttouch.report.model import HostView, Problem, References
from firsttouch.report.text import clean
from firsttouch.units import percent, quantity

HEADER = ("what", "value", "spread", "n", "compare with")
#: On a terminal: the width of the first column, the lines of one host and of a sentence, and the problems. With
#: the four other lines of characterize, there are at most 25.
_LABEL, _MOST, _LINES, _NAMED = 28, 21, 3, 2


def card_key(view: HostView) -> str:
    """Return the address of the card of a host within the page."""
    return f"{view.key}-card"


def headlines(results: Iterable[Result]) -> Table:
    """Return the table of the results of a host."""
    return Table("In short", HEADER, [row(result) for result in results], kind="short stack")


def row(result: Result) -> tuple[Entry, ...]:
    """Return the cells of a result, as in HEADER."""
    record = result.record
    if record is None:
        return (result.label, result.text, "", "", result.compared)
    value = result.text or Cell(record.value, partial(quantity, unit=record.unit))
    return (result.label, value, spread(record), record.repetitions, result.compared)


def to_dict(result: Result) -> dict[str, Any]:
    """Return the JSON form of a result."""
    record = result.record
    return {
        **{"label": result.label, "text": result.value, "compared": result.compared},
        **(attributes(record, "value", "unit", "spread", "repetitions") if record else {}),
    }


def results(aspects: Aspects) -> tuple[Result, ...]:
    """Return the results of all aspects of a host."""
    return tuple(result for aspect in aspects.values() for result in aspect.results)


def line(view: HostView, chart: Chart) -> Fold:
    """Return a chart without a drawing as a line that can be unfolded."""
    first, *others = chart.shows or [""]
    how = Paragraph(f"{chart.how} {chart.measured}", "small", f"{view.key}-{chart.key}")
    listing = [Listing(others)] if others else []
    return Fold([Span(chart.title, "b"), " ", Span(first, tone="why")], [*listing, how, *chart.tables])


def figure(view: HostView, chart: Chart) -> Figure:
    """Draw a chart; the ids of its panels begin with the key of the host."""
    name = f"{view.key}-{chart.key}"
    return Figure(
        name=name,
        title=chart.title,
        how=chart.how,
        shows=tuple(chart.shows),
        measured=chart.measured,
        panels=tuple(
            draw(
                name=f"{name}-{position}",
                title=": ".join(filter(None, (chart.title, heading))),
                heading=heading,
                description=" ".join(chart.shows),
            )
            for position, (heading, draw) in enumerate(chart.panels.items(), start=1)
        ),
        tables=tuple(chart.tables),
    )


# ----------------------------------------------------------------------
# The summary.


class Summary(Struct, frozen=True):
    """The summary of a report: the results and the card of each host, the problems, and the invalid records."""

    hosts: tuple[tuple[HostView, tuple[Result, ...]], ...]
    problems: tuple[Problem, ...]
    invalid: int
    document: dict[str, Any]
    cards: Sequence[Card] = ()

    def table(self) -> str:
        """Return the lines for a terminal: the card, a line per result if there is room, and what is missing."""

        def wrapped(text: str, indent: int = 2, lines: int = _LINES) -> str:
            return progress.wrap_text(clean(text), indent, lines)

        cards = {card.key: card for card in self.cards}
        # Failed checks and invalid records are counted.
        warnings = [f"warning: {text}" for card in self.cards for text in card.warnings[:1]]
        problems = [wrapped(f"- {p.check or p.name}: {p.reason}", 0, 1) for p in self.problems[:_NAMED]]
        ending = "\n".join([not_measured(self.problems, self.invalid), *problems, *map(wrapped, warnings)])
        parts = []
        for view, results in self.hosts:
            card = cards.get(card_key(view))
            place = f"(system {view.system}, partition {view.partition})"
            lines = [wrapped(f"{card.heading if card else view.host} {place}", 0, 1)]
            for name, text in card.lines.items() if card else ():
                lines += wrapped(f"{name}: {''.join(spans(text))}").split("\n")
            listed = [wrapped(_line(result), 0, 1) for result in results if not result.is_detail]
            room = _MOST - ending.count("\n") - 2 - len(lines) if progress.columns() else len(listed)
            if (hidden := len(listed) - room) > 0:
                listed[room - 1 :] = [f"and {hidden + 1} more results on the page"]
            parts.append("\n".join([*lines, *listed]))
        return "\n\n".join([*parts, ending])


def _line(result: Result) -> str:
    """Return a result as a line."""
    record = result.record
    spread_of = f", spread {percent(record.spread)}" if record and record.repetitions > 1 else ""
    stated = filter(None, (f"{result.value}{spread_of}", result.compared))
    return clean(f"{result.label:<{_LABEL}}  {'; '.join(stated)}")


def not_measured(problems: Iterable[Problem], invalid: int) -> str:
    """Return the line that counts the *problems* and the *invalid* records."""
    kinds = Counter(p.kind for p in problems)
    parts = [f"{kinds[kind]} {kind}" for kind in ("failed", "skipped", "invalid") if kinds[kind]]
    checks = ", ".join(parts) if parts else "none failed, skipped or invalid"
    return f"Checks: {checks}. Invalid records: {invalid}."


# ----------------------------------------------------------------------
# summary.json: the whole report as one document for programs

#: Identifies the document as a report. Increment SCHEMA when a key changes its meaning.
DOCUMENT = "firsttouch report"
SCHEMA = 1


def report_document(**body: Any) -> dict[str, Any]:
    """Return the document with this *body*."""
    return {"document": DOCUMENT, "schema": SCHEMA, "firsttouch": firsttouch.__version__, **body}


def host_document(view: HostView, lines: Sequence[Result], references: References | None) -> dict[str, Any]:
    """Return the entry of a host in a report of few hosts, with its records by check.

    The value and spread of an invalid record are null; only records.parquet has its samples. *spread* is the
    fraction (maximum - minimum) / median.
    """
    records = (*view.valid, *view.invalid)
    return {
        "host": view.host,
        "system": view.system,
        "partition": view.partition,
        "first_time": min((r.time for r in records), default=None),
        "last_time": max((r.time for r in records), default=None),
        "topology": view.topology.to_dict() if view.topology else None,
        "headlines": [to_dict(line) for line in lines],
        "checks": {
            check: [_metric(view, record, references) for record in of_check]
            for check, of_check in by_key(records, lambda r: r.check).items()
        },
    }


def _metric(view: HostView, record: Record, references: References | None) -> dict[str, Any]:
    valid = record.status == "valid"
    reference = references(record) if references and valid else None
    stated = record.check == "bandwidth" or (record.check == "loaded_latency" and record.unit == "GB/s")
    share = topology.fraction(view, record) if valid and stated else None
    measured = {"value": record.value, "minimum": min(record.samples), "maximum": max(record.samples)}
    return {
        **attributes(record, "metric", "parameters", "unit", "better", "status", "reason", "repetitions"),
        **attributes(record, "time", "software"),
        **{name: x if valid else None for name, x in {**measured, "spread": record.spread}.items()},
        "theoretical_percent": None if share is None else 100 * share,
        "reference": reference
        and {
            **attributes(reference, "value", "source"),
            **{"lower": reference.minimum, "upper": reference.maximum},
        },
    }
