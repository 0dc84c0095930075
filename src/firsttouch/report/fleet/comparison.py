# SPDX-License-Identifier: Apache-2.0
"""The report of a comparison of two campaigns: changes, their hosts, and results that only one of them has."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.documents import attributes
from firsttouch.execution.progress import wrap_text
from firsttouch.judge.comparison import (
    CONFIDENCE,
    ORDER,
    Comparison,
    Host,
    MetricChange,
    Word,
)
from firsttouch.judge.constants import FAIL_TAIL, FEWEST_HOSTS, LEAST_LOSS
from firsttouch.records.cases import Case, by_key
from firsttouch.report import forms, render
from firsttouch.report.document import (
    Block,
    Cell,
    Document,
    Entry,
    Listing,
    Paragraph,
    Section,
    Span,
    Table,
    anchored_cell,
    cell_of,
    how_to_read,
    linked_files,
    not_shown,
    when_made,
)
from firsttouch.report.text import anchors, clean, count, list_names
from firsttouch.units import percent, quantity, signed_percent, text_range

# ----------------------------------------------------------------------
# Changes as tables.

#: The sign of a word, for readers who do not see its colour.
SIGNS: Mapping[Word, str] = {
    "worse": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "changed": "\N{BLACK DIAMOND}",
    "better": "\N{BLACK UP-POINTING TRIANGLE}",
    "undecided": "?",
    "unchanged": "=",
}
_HEADER = (
    *("metric", "verdict", "before", "after", "change", "99 % interval", "hosts"),
    "hosts unlike the others",
)
_IN_SHORT = ("metric", "what changed", "by how much (medians)", "what would be seen")
_HOSTS = ("host", "metrics that changed", "the worst of them", "metrics that are gone", "new metrics")
#: The most hosts or metrics in a cell.
_NAMED = 5
_DECIDED = frozenset({"worse", "changed", "better"})


def change_table(changes: Sequence[MetricChange]) -> Table:
    """Return the table of *changes*, in the same order."""
    keys = anchors("change", (f"{c.case.system}.{c.case.title}" for c in changes)).values()
    rows = [_row(c, key) for c, key in zip(changes, keys, strict=True)]
    caption = f"All {count(len(changes), 'metric')}, the most urgent first"
    return Table(caption, _HEADER, rows, kind="stack changes")


def _row(change: MetricChange, key: str) -> tuple[Entry, ...]:
    needed = ": ".join(filter(None, (change.word, _needs([change]))))
    return (
        anchored_cell(change.case.title, key),
        _word_cell(change.word, needed),
        *(Cell(value, partial(quantity, unit=change.case.unit)) for value in (change.before, change.after)),
        Cell(change.size, signed_percent),
        Cell((change.low, change.high), _range),
        change.hosts,
        list_names([f"{host} ({signed_percent(size)})" for host, size in change.unlike], most=_NAMED),
    )


def _needs(changes: Sequence[MetricChange]) -> str:
    """Return the smallest visible change, and what undecided *changes* need."""
    floors = [c.floor for c in changes if c.word not in _DECIDED and math.isfinite(c.floor)]
    seen = [f"would have seen {percent(max(floors))}"] if floors else []
    needs = list(dict.fromkeys(c.needs for c in changes if c.needs))
    return "; ".join([*seen, *([f"needs {list_names(needs, most=2)}"] if needs else [])])


def _word_cell(word: Word, text: str = "") -> Cell:
    """Return the cell of a word in its colour with its sign, as *text* if there is one."""
    return Cell(text or word, tone=f"nowrap word-{word}", sign=SIGNS[word])


def short_table(changes: Sequence[MetricChange]) -> Table:
    """Return a table with a row per metric of a check and its worst word, in order of urgency."""
    by_metric = by_key(changes, lambda c: (c.case.check, c.case.metric))
    ordered = [(min((c.word for c in cases), key=ORDER.index), cases) for cases in by_metric.values()]
    ordered.sort(key=lambda row: (ORDER.index(row[0]), -max(abs(c.size) for c in row[1])))
    rows: list[tuple[Entry, ...]] = [(c[0].case.title_of_metric, *_summary(word, c)) for word, c in ordered]
    return Table("In short", _IN_SHORT, rows, kind="stack")


def _summary(word: Word, changes: Sequence[MetricChange]) -> Iterator[Cell]:
    counts = Counter(c.word for c in changes)
    words = ", ".join(f"{w} {counts[w]}" for w in ORDER if counts[w])
    all_alike = f"{word} in all {len(changes)} cases"
    yield _word_cell(word, all_alike if len(counts) == 1 else f"{words} of {len(changes)} cases")
    of_word = [c for c in changes if c.word == word]
    sizes = [c.size for c in of_word]
    yield Cell(_range((min(sizes), max(sizes))), tone="nowrap")
    yield Cell(_needs(of_word), tone="nowrap")


def host_table(changed: Sequence[Host]) -> Table:
    """Return the table of the hosts that changed unlike the others."""

    def named(cases: Sequence[Case]) -> str:
        return f"{len(cases)}: {list_names([case.title for case in cases], most=2)}" if cases else ""

    keys = anchors("host", (host.name for host in changed))
    rows: list[tuple[Entry, ...]] = [
        (
            anchored_cell(host.name, keys[host.name]),
            len(host.changes) or "",
            list_names((f"{case.title} {_directed(case, size)}" for case, size in host.changes), most=3),
            named(host.lost),
            named(host.new),
        )
        for host in changed
    ]
    return Table(f"Hosts by their worst change: {len(rows)}", _HOSTS, rows, kind="stack")


def _directed(case: Case, size: float) -> str:
    """Return a change in percent and whether it is for the better: ``+9.9 % (worse)``."""
    if case.better == "neither" or not size:
        return signed_percent(size)
    return f"{signed_percent(size)} ({'worse' if case.worsening(size) > 0 else 'better'})"


def _range(ends: tuple[float, float]) -> str:
    """Return an interval of changes in percent."""
    return text_range(*map(signed_percent, ends))


# ----------------------------------------------------------------------
# How to read the changes.


def change_blocks(short: Table, changes: Table) -> list[Block]:
    """Return the tables of changes, and how to read them."""
    if not changes.rows:
        return [not_shown("no host has the same metric in both.")]
    how = (
        "Each host is compared with itself, and several hosts are pooled without those that changed unlike the "
        "others; a change from 0 is stated as 100 %. Repetitions and sessions are evidence with the errors of "
        f"verdicts. The interval holds the change with {100 * CONFIDENCE:g} % (Student's distribution). Values "
        "that are read or counted decide at once. A single session before and after cannot tell a change from "
        "what differs between sessions."
    )
    smallest = f"{100 * LEAST_LOSS:g} %"
    words = [
        f"worse, better: a host changed by more than {smallest} (many hosts: by less), and the probability that "
        f"any metric changes so by chance is at most {FAIL_TAIL:g}. Changed: the metric has no better direction.",
        f"unchanged: the whole interval is within {smallest}.",
        "undecided: anything else. The row says what would decide it.",
    ]
    return [short, changes, how_to_read(how), Listing(words, "words")]


# ----------------------------------------------------------------------
# The files of a comparison.

#: The most lines on a terminal or in a ticket, and where the others are.
_SHORT, _WHERE = 20, "index.html, summary.json"
#: Rows of hosts, and of hosts and metrics that only one campaign has, on the page.
_ON_PAGE = 80


class Compared(Struct, frozen=True):
    """The report of a comparison: summary.json (*document*), and its tables.

    *lost* has the cases that only one campaign has, *hosts* the hosts that changed unlike the others, *short* and
    *changes* the metrics.
    """

    document: dict[str, Any]
    lost: Table
    hosts: Table
    short: Table
    changes: Table

    @property
    def is_worse(self) -> bool:
        """Whether a metric or a host became worse."""
        return bool(self.document["counts"]["worse"] or any(host["worse"] for host in self.document["hosts"]))

    @property
    def of_note(self) -> Table:
        """The changes except "unchanged"."""
        rows = [row for row in self.changes.rows if cell_of(row[1]).value != "unchanged"]
        return replace(self.changes, rows=rows)

    def table(self) -> str:
        """Return the summary line, what only one campaign has, the worst hosts, and the most urgent changes."""
        changes = self.of_note.columns(*range(len(_HEADER) - 1))
        tables = [forms.terminal(table, _SHORT) for table in (self.lost, self.hosts, changes) if table.rows]
        return "\n\n".join([wrap_text(self.document["line"], 2), *tables])

    def page(self) -> Document:
        """Return the page."""
        files = linked_files({"summary.md": "for a ticket", "summary.json": "for programs"})
        return self._document(change_blocks(self.short, self.changes), _ON_PAGE, "summary.json", [files])

    def ticket(self) -> Document:
        """Return the ticket, with the first rows of each table."""
        short = [
            f"{metric}: {what}, {size}{f' ({seen})' if seen else ''}"
            for metric, what, size, seen in self.short.texts
        ]
        of_note = self.of_note.first(_SHORT, _WHERE) if self.of_note.rows else []
        return self._document([Listing(short), *of_note], _SHORT, _WHERE)

    def _document(self, changes: Sequence[Block], rows: int, where: str, foot: Sequence[Block] = ()) -> Document:
        """Return a document of *changes* and the first *rows* of the other tables, if they have any."""
        line = Paragraph([Span(self.document["line"], "b")])
        lead = [line, Paragraph(when_made(self.document["generated"]), "small")]
        other_tables = (
            ("What only one of them has", self.lost, "missing"),
            ("Hosts that changed unlike the others", self.hosts, "hosts"),
        )
        lost, hosts = (
            [Section(title, table.first(rows, where), key)] if table.rows else []
            for title, table, key in other_tables
        )
        sections = [*lost, Section("What changed", changes, "changes"), *hosts]
        return Document(self.document["title"], lead, sections, foot)


def build(
    comparison: Comparison, out: Path, *, names: tuple[str, str], generated: datetime.datetime | None = None
) -> Compared:
    """Write the report of a comparison into the existing folder *out*; *names* are the campaigns' names."""
    counts = {word: sum(c.word == word for c in comparison.changes) for word in ORDER}
    needs = _needs(comparison.changes)
    texts = {"undecided": f"undecided ({needs})"} if needs else {}
    words = ", ".join(f"{n} {texts.get(w, w)}" for w, n in counts.items() if n) or "none to compare"
    worst = next((c for c in comparison.changes if c.word == "worse"), None)
    first = f"First: {worst.case.title} {_directed(worst.case, worst.size)}. " if worst else ""
    busy = f" Not idle: {list_names(comparison.busy, most=_NAMED)}." if comparison.busy else ""
    both = f"{count(len(comparison.changes), 'metric')} of {count(comparison.hosts, 'host')} in both"
    lost = _lost(comparison, names)
    of_one = {"host": comparison.hosts_of_one, "metric": comparison.cases_of_one}
    counts_of_one = [count(n, noun) for noun, items in of_one.items() if (n := sum(map(len, items)))]
    only = f"Only in one: {', '.join(counts_of_one)}. " if lost else ""
    document = render.report_document(
        kind="comparison",
        title=f"What changed from {clean(names[0])} to {clean(names[1])}",
        generated=(generated or datetime.datetime.now(datetime.UTC)).isoformat(timespec="seconds"),
        line=f"{both}: {words}. {only}{first}{_unlike(comparison)}{busy}",
        counts=counts,
        busy=list(comparison.busy),
        missing=[{"what": what, "reason": why} for what, why in lost],
        hosts=[
            {
                "host": host.name,
                "worse": host.worst[0] > 0,
                "changes": [{"metric": case.name, "change": size} for case, size in host.changes],
                **{what: [case.name for case in getattr(host, what)] for what in ("lost", "new")},
            }
            for host in comparison.changed
        ],
        changes=[_change_entry(change) for change in comparison.changes],
    )
    compared = Compared(
        document,
        Table("Hosts and metrics that cannot be compared", ("what", "why"), lost, kind="stack"),
        host_table(comparison.changed),
        short_table(comparison.changes),
        change_table(comparison.changes),
    )
    forms.write(out, compared.page(), compared.ticket(), document)
    return compared


def _unlike(comparison: Comparison) -> str:
    """Return the sentence that counts the hosts that changed unlike the others, with the worst change."""
    if not comparison.changed:
        few = f"Outliers are not named of less than {FEWEST_HOSTS} hosts."
        return few if comparison.hosts < FEWEST_HOSTS else "No single host changed unlike the others."
    changed, lost, new = (
        sum(bool(getattr(h, what)) for h in comparison.changed) for what in ("changes", "lost", "new")
    )
    parts = [f"{count(changed, 'host')} changed unlike the others"] if changed else []
    parts += [f"{count(lost, 'host')} lost metrics that others have"] if lost else []
    parts += [f"{count(new, 'host')} {'has' if new == 1 else 'have'} new metrics"] if new else []
    worst = comparison.changed[0]
    what = [f"{worst.changes[0][0].title} {_directed(*worst.changes[0])}"] if worst.changes else []
    what += [f"{count(len(worst.lost), 'metric')} gone"] if worst.lost else []
    which = "the worst is" if worst.worst[0] > 0 else "such as"
    example = f"; {which} {worst.name}: {', '.join(what)}" if what else ""
    return f"{', '.join(parts)}{example}."


def _change_entry(change: MetricChange) -> dict[str, Any]:
    return {
        **attributes(change, "hosts", "before", "after", "low", "high"),
        "floor": change.floor if math.isfinite(change.floor) else None,
        **attributes(change.case, "unit", "better"),
        **{"metric": change.case.name, "verdict": change.word, "change": change.size},
        "needs": change.needs or None,
        "unlike": [{"host": host, "change": size} for host, size in change.unlike],
    }


def _lost(comparison: Comparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the hosts and cases that only one of the campaigns has, hosts first."""
    all_of_one = ((comparison.hosts_of_one, ""), (comparison.cases_of_one, "no host has it in both: "))
    return [
        (item, f"{why}in {there}, not in {other}")
        for of_campaigns, why in all_of_one
        for items, (there, other) in zip(of_campaigns, (names, names[::-1]), strict=True)
        for item in items
    ]
