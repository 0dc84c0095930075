# SPDX-License-Identifier: Apache-2.0
"""The page of a few hosts and the files next to it."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from firsttouch.errors import BadInput
from firsttouch.host import topology
from firsttouch.judge.findings import CommonLoss
from firsttouch.judge.history import Change
from firsttouch.judge.verdict import ORDER, HostVerdict
from firsttouch.records.cases import Case, by_key, identifiers, with_distinct_names
from firsttouch.records.catalogue import Check, checks
from firsttouch.records.schema import Record, write_table
from firsttouch.report import forms, guidelines, model, openmetrics, render
from firsttouch.report import verdicts as of_verdicts
from firsttouch.report.aspect import Chart, Result, value_table
from firsttouch.report.aspects import Aspects, host_aspects
from firsttouch.report.document import (
    Block,
    Card,
    Cell,
    Document,
    Entry,
    Fold,
    Group,
    Listing,
    Paragraph,
    Section,
    Span,
    Table,
    Text,
    linked_files,
    spans,
    when_made,
)
from firsttouch.report.guidelines import Guideline
from firsttouch.report.model import Absent, HostView, Problem, References, common
from firsttouch.report.render import Summary
from firsttouch.report.text import anchors, case, clean, count
from firsttouch.units import number, percent, signed_percent

# ----------------------------------------------------------------------
# The files of a report.

#: The files next to a page, with their purposes.
PURPOSES = {
    "summary.md": "for a ticket",
    "summary.json": "for programs",
    "records.parquet": "with each repetition",
    "findings.parquet": "with a row per host and metric",
    "summary.prom": "for Prometheus",
    "topology.xml": "of hwloc",
}
#: The files of a report; topology.xml only if the topology was given.
FILES = frozenset({"index.html", *PURPOSES} - {"findings.parquet"})


def foot(files: Collection[str]) -> list[Block]:
    """Return the foot of a page, which names the *files* next to it."""
    return [linked_files({name: purpose for name, purpose in PURPOSES.items() if name in files})]


def build(
    records: Sequence[Record],
    out: Path,
    *,
    topology_xml: str | None = None,
    problems: Sequence[Problem] = (),
    title: str = "NUMA report",
    references: References | None = None,
    verdicts: Sequence[HostVerdict] = (),
    alone: Sequence[HostVerdict] = (),
    common_losses: Mapping[str, CommonLoss | None] = MappingProxyType({}),
    changes: Sequence[Change] = (),
    fleet_page: str = "",
    generated: datetime.datetime | None = None,
) -> Summary:
    """Write the report of *records* into the existing folder *out*; return its summary.

    *topology_xml* is hwloc's XML of the host. *references* returns a record's reference. *verdicts* are about
    hosts that references or other hosts judge, *alone* about the others. *common_losses* has the loss that most
    hosts of a system share, or None, by system. *fleet_page* is the address of the fleet's page, if there is one.
    *generated* is the time that the pages state (default: now). Equal arguments give equal files, byte for byte.
    Raises BadInput without results, or if the XML is not a topology.
    """
    shared = {name: loss for name, loss in common_losses.items() if loss is not None}
    problems = [
        *problems,
        *(Problem(f"references of {name}", "failed", loss.text, check="") for name, loss in shared.items()),
    ]
    if not records and not problems:
        raise BadInput("there is no record to report: give files or folders with the records of a run")
    host = topology.parse_xml(topology_xml) if topology_xml is not None else None
    views = model.split(records, problems, host)
    now = generated or datetime.datetime.now(datetime.UTC)
    report = _Report(
        title=title,
        stated=now.isoformat(timespec="seconds"),
        hosts=[_PageHost(view, host_aspects(view)) for view in views],
        # Problems without a host appear in several views.
        problems=tuple(dict.fromkeys((*problems, *(p for view in views for p in view.problems)))),
        verdicts=of_verdicts.worst_first(verdicts),
        alone=alone,
        guidelines=guidelines.guidelines(views),
        references=references,
        changes=changes,
        fleet_page=fleet_page,
        files=FILES - ({"topology.xml"} if not topology_xml else set()),
    )
    lines = tuple((host.view, host.results) for host in report.hosts)
    counts = {name: sum(len(getattr(view, name)) for view in views) for name in ("valid", "invalid")}
    document = render.report_document(
        title=title,
        generated=report.stated,
        records={**counts, "superseded": sum(view.superseded for view in views)},
        problems=[asdict(p) for p in report.problems],
        verdicts=[v.to_dict() for v in verdicts],
        alone=[v.to_dict() for v in alone],
        guidelines=[g.to_dict() for g in report.guidelines],
        hosts=[render.host_document(view, host_aspects, references) for view, host_aspects in lines],
    )
    summaries = [verdict.summary for verdict in verdicts if verdict.summary]
    files = {
        "summary.prom": openmetrics.summary(
            views, summaries, generated=now.timestamp(), common_losses=common_losses
        ),
        **({} if topology_xml is None else {"topology.xml": topology_xml}),
    }
    forms.write(out, _page(report), _ticket(report), document, files)
    write_table(records, out / "records.parquet")
    return Summary(lines, report.problems, counts["invalid"], document, _cards(report))


# ----------------------------------------------------------------------
# The page and the ticket.


class _PageHost(Struct, frozen=True):
    """A host of the page with its aspects."""

    view: HostView
    aspects: Aspects

    @property
    def results(self) -> tuple[Result, ...]:
        """The lines of its summary."""
        return render.results(self.aspects)

    @property
    def charts(self) -> list[tuple[str, Chart]]:
        """The charts, each with its check."""
        return [(check, chart) for check, aspect in self.aspects.items() for chart in aspect.charts]

    @property
    def absent(self) -> list[Absent]:
        """The charts that could not be drawn."""
        return [absent for aspect in self.aspects.values() for absent in aspect.absent]


class _Report(Struct, frozen=True):
    """The content of the page and the ticket; *verdicts* are the worst first."""

    title: str
    stated: str
    hosts: Sequence[_PageHost]
    problems: tuple[Problem, ...]
    verdicts: Sequence[HostVerdict]
    alone: Sequence[HostVerdict]
    guidelines: Sequence[Guideline]
    references: References | None
    changes: Sequence[Change]
    fleet_page: str
    files: Collection[str]

    @property
    def is_grave(self) -> bool:
        """Whether problems precede the results; if checks were only skipped, they follow at the end."""
        return any(p.kind != "skipped" for p in self.problems) or any(h.view.invalid for h in self.hosts)


def _page(report: _Report) -> Document:
    hosts, is_single = report.hosts, len(report.hosts) == 1
    problems = [_problems(report)]
    systems = sorted({v.system for v in report.verdicts})
    keys = anchors("host", (v.host for v in report.verdicts), "-".join(systems))
    verdicts = of_verdicts.folds(report.verdicts, keys)
    counts = Paragraph(f"{of_verdicts.count_verdicts(report.verdicts)}.")
    which = [f"{count(len(hosts), 'host')}. "]
    if is_single:
        view = hosts[0].view
        which = ["Host ", Span(view.host, "b"), f", system {view.system}, partition {view.partition}. "]
    fleet = [" ", Span("The whole fleet", link=report.fleet_page)] if report.fleet_page else []
    return Document(
        report.title,
        [Paragraph([*which, *when_made(report.stated), *fleet], "small")],
        [
            *_cards(report),
            *(problems if report.is_grave else []),
            *([Section("Verdicts", [counts, verdicts], "verdicts")] if report.verdicts else []),
            *([Section("History", history(report.changes), "history")] if report.changes else []),
            *guidelines.sections(report.guidelines),
            *(_host_section(report, host, is_single=is_single) for host in hosts),
            *([] if report.is_grave else problems),
        ],
        foot(report.files),
        f"{report.title}: {hosts[0].view.host}" if is_single else "",
    )


def _short_section(host: _PageHost, card: Card) -> Section:
    """Return the section of a host in a ticket: the content of its card, and its results."""
    view = host.view
    stated: list[Text] = [[Span(name, "b"), ": ", *spans(text)] for name, text in card.lines.items()]
    stated += [[Span("Warning", "b"), f": {text}"] for text in card.warnings]
    results = [render.headlines(host.results), Paragraph(_VALUES), *_older(view)]
    return Section(
        f"{card.heading} (system {view.system}, partition {view.partition})",
        [Listing(stated), *(results if host.results else [Paragraph(_NOTHING)])],
    )


def _ticket(report: _Report) -> Document:
    cards = {card.key: card for card in _cards(report)}
    rows = of_verdicts.table(report.verdicts, lines=_EVIDENCE)
    invalid = _invalid(report)
    records = sum(len(host.view.invalid) for host in report.hosts)
    blocks: list[Block] = [Paragraph(render.not_measured(report.problems, records))]
    if table := _problem_table(report.problems):
        blocks.append(table)
    if invalid:
        blocks += [Paragraph("Invalid records (not results):"), Listing(invalid)]
    return Document(
        report.title,
        [Paragraph(when_made(report.stated))],
        [
            *([Section(of_verdicts.count_verdicts(report.verdicts), [rows])] if report.verdicts else []),
            Section(_PROBLEMS, blocks),
            *guidelines.short_sections(report.guidelines),
            *(_short_section(host, cards[render.card_key(host.view)]) for host in report.hosts),
        ],
    )


_PROBLEMS = "What was not measured"
_VALUES = "Values are medians of n repetitions. Spread is (largest - smallest) / median."
_UNITS = "GB = 10\N{SUPERSCRIPT NINE} bytes, GiB = 2\N{SUPERSCRIPT THREE}\N{SUPERSCRIPT ZERO} bytes."
_NOTHING = "This host has no valid result."
_NO_RESULT = (
    "The placement did not hold, or the output was wrong. Such records are not results, and no figure shows them."
)
#: Lines of evidence of a host in a ticket.
_EVIDENCE = 3


def _cards(report: _Report) -> list[Card]:
    """Return the cards of the hosts, the worst first."""
    judged = {(v.host, v.system): v for v in report.verdicts}
    verdicts = {(v.host, v.system): v for v in report.alone} | judged
    titles = model.titles([host.view for host in report.hosts])
    cards = []
    for host in report.hosts:
        v, key = host.view, (host.view.host, host.view.system)
        verdict = verdicts.get(key)
        of_system = [g for g in report.guidelines if g.system == v.system]
        placement = guidelines.recommendation(of_system)
        card = of_verdicts.card_of_host(
            *(v, titles[v.key], host.aspects, verdict, report.problems),
            is_judged=verdict is not None and (verdict.is_judged or (key in judged and bool(verdict.missing))),
            placement=placement,
        )
        cards.append(card)
    words: Sequence[str] = ORDER
    return sorted(cards, key=lambda c: -words.index(c.word) if c.word else 1)


def _problems(report: _Report) -> Section:
    """Return the missing measurements, and the invalid records."""
    table, invalid = _problem_table(report.problems), _invalid(report)
    blocks: list[Block] = [table or Paragraph("No check failed, was skipped or is invalid.", "good")]
    missing = [
        f"{'; '.join(absent.title for absent in charts)}{_on(report, host.view.host)}: {reason}"
        for host in report.hosts
        for reason, charts in by_key(host.absent, lambda absent: absent.reason).items()
    ]
    if missing:
        blocks += [Paragraph("Missing values and figures:"), Listing(missing)]
    if invalid:
        blocks.append(Section("Invalid records", [Paragraph(_NO_RESULT), Listing(invalid, "invalid")]))
    return Section(_PROBLEMS, blocks, "problems")


def _invalid(report: _Report) -> list[list[str]]:
    """Return the cases of invalid records with the reasons."""
    return [
        [Span(case, "s"), f"{_on(report, host)} ", Span("invalid:", "b"), f" {reason}"]
        for host, case, reason in _invalid_records([host.view for host in report.hosts])
    ]


def _on(report: _Report, host: str) -> str:
    return f" on {host}" if len(report.hosts) > 1 else ""


def _host_section(report: _Report, host: _PageHost, *, is_single: bool) -> Section:
    """Return the section of a host: its results in short, its aspects, and details."""
    view = host.view
    short: list[Block] = [Paragraph(_NOTHING)]
    if host.results:
        table = render.headlines(result for result in host.results if not result.is_detail)
        short = [table, Paragraph(f"{_VALUES} {_UNITS}", "small")]
    drawn = by_key((item for item in host.charts if item[1].panels), lambda item: item[0])
    lines = [render.line(view, chart) for _, chart in host.charts if not chart.panels]
    sections = [
        Section("In short", [*short, *_older(view)], f"{view.key}-short"),
        *(
            Section(
                checks()[check].title, [render.figure(view, c) for _, c in charts], f"{view.key}-{check}-section"
            )
            for check, charts in drawn.items()
        ),
        *([Section("More results", [Group("results", lines)], f"{view.key}-more")] if lines else []),
        Section("Details", _details(view, report.references), f"{view.key}-details"),
    ]
    place = Paragraph(f"System {view.system}, partition {view.partition}.", "small")
    return Section(
        f"Results of {view.host}" if is_single else view.host,
        [*([] if is_single else [place]), *sections],
        view.key,
    )


def _older(view: HostView) -> list[Block]:
    """Return which records tables and figures do not show."""
    if not view.superseded:
        return []
    text = f"Repeated measurements: the newest is shown, and {count(view.superseded, 'earlier value')} not. "
    return [Paragraph(f"{text}Verdicts use all of them, and records.parquet has them.", "small")]


def _details(view: HostView, references: References | None) -> list[Block]:
    """Return the folded tables of values that no figure shows."""
    of_view = (_configuration_table, _undrawn_table, _placement_table, _software_table)
    shown = filter(None, (_reference_table(view, references), *(table(view) for table in of_view)))
    return [Fold(f"{table.caption} ({count(len(table.rows), 'row')})", [table]) for table in shown]


# ----------------------------------------------------------------------
# Tables: the numbers of the figures, and the values that no figure shows

_NO_PLACEMENT: Mapping[str, Any] = {}


def _software_table(view: HostView) -> Table | None:
    """Return the programs and their versions, a row for each version."""
    uses = {(str(n), str(v), r.check) for r in (*view.valid, *view.invalid) for n, v in r.software.items()}
    users = by_key(sorted(uses), lambda use: use[:2])
    rows = [
        (name, version, ", ".join(check for *_, check in its_uses)) for (name, version), its_uses in users.items()
    ]
    return Table("Software", ("program", "version", "used by"), rows) if rows else None


def _configuration_table(view: HostView) -> Table | None:
    """Return the settings of the host."""
    rows = [(name, clean(value)) for name, value in sorted(view.settings.items())]
    return Table("Configuration", ("setting", "value"), rows) if rows else None


def _placement_table(view: HostView) -> Table | None:
    """Return the requested and the reported placement of each instance."""
    # The records of one run (sizes, kernels, events) have the same placement and share a row.
    instances = [
        (record, (instance, case(requested), _actual(actual) if actual else "not read back", record.status))
        for record in (*view.valid, *view.invalid)
        for instance, (requested, actual) in enumerate(
            zip_longest(record.placement_asked, record.placement_found, fillvalue=_NO_PLACEMENT)
        )
    ]
    rows: list[tuple[Entry, ...]] = [
        (check, case(common([record for record, _ in placed])), len(placed), *placement)
        for (check, placement), placed in by_key(instances, lambda item: (item[0].check, item[1])).items()
    ]
    header = ("check", "case", "records", "instance", "requested", "found", "status")
    return Table("Placement requested and found", header, rows) if rows else None


def _actual(placement: Mapping[str, Any]) -> str:
    pages = placement.get("pages")
    if not isinstance(pages, Mapping) or not pages:
        return case(placement)
    counts = {node: p for node, p in pages.items() if isinstance(p, (int, float))}
    total = sum(counts.values()) or 1
    shares = ", ".join(f"{percent(p / total)} on {node}" for node, p in counts.items())
    rest = case({k: v for k, v in placement.items() if k != "pages"})
    return f"{rest}; {number(total)} pages: {shares}"


def _undrawn_table(view: HostView) -> Table | None:
    """Return the valid records that no figure shows: counters, and checks without a figure."""
    rows = [
        ((r.check, r.metric, case(identifiers(r.check, r.parameters)), r.unit), r)
        for r in view.valid
        if not checks().get(r.check, Check({}, ())).draws(r.metric)
    ]
    return value_table("Counters and other metrics", ("check", "metric", "case", "unit"), rows) if rows else None


def _reference_table(view: HostView, find: References | None) -> Table | None:
    """Return the metrics that have a reference, with its source."""
    rows: list[tuple[Entry, ...]] = []
    for record, titled in zip(view.valid, with_distinct_names([*map(Case.from_record, view.valid)]), strict=True):
        if find and (reference := find(record)):
            values = (record.value, reference.value, reference.minimum, reference.maximum)
            rows.append((titled.title, record.unit, *(Cell(value, number) for value in values), reference.source))
    header = ("metric", "unit", "newest record", "reference", "from", "to", "source")
    return Table("References", header, rows) if rows else None


def _problem_table(problems: Sequence[Problem]) -> Table | None:
    """Return the checks that failed, are invalid or were skipped, in this order."""
    order = {"failed": 0, "invalid": 1, "skipped": 2}
    rows = [
        (p.kind, p.host, p.name, p.reason)
        for p in sorted(problems, key=lambda p: (order[p.kind], p.host, p.name, p.reason))
    ]
    caption = f"{count(len(rows), 'check')} without a result"
    return Table(caption, ("what", "host", "check", "reason"), rows, kind="stack") if rows else None


def _invalid_records(views: Sequence[HostView]) -> list[tuple[str, str, str]]:
    """Return (host, case, reason) of the invalid records, without their samples."""

    def of_one_run(record: Record) -> tuple[str, ...]:
        # All sizes of a latency curve belong to one run.
        parameters = {k: v for k, v in identifiers(record.check, record.parameters).items() if k != "size_bytes"}
        return record.host, record.check, record.metric, case(parameters), record.reason

    runs = by_key((record for view in views for record in view.invalid), of_one_run)
    cases = with_distinct_names(
        [replace(Case.from_record(r[0]), system="", parameters=common(r)) for r in runs.values()]
    )
    return [
        (
            key[0],
            titled.title + (f" ({len(run)} records)" if len(run) > 1 else ""),
            key[-1] or "no reason was recorded",
        )
        for (key, run), titled in zip(runs.items(), cases, strict=True)
    ]


# ----------------------------------------------------------------------
# The section about history: a table of changes and their times

#: The most changes in the table, and in summary.json.
MOST_ROWS, MOST_KEPT = 60, 1000
_CHANGE_HEADER = ("when", "hosts", "part", "change", "configuration")
_NO_CHANGE = "No part changed. A change is visible with at least three sessions before and after it."
_SEEN = (
    "A change has at least three sessions before it and after it. Changes of many hosts come first, then the "
    "newest."
)


def history(changes: Sequence[Change]) -> list[Block]:
    """Return the section of the *changes* of a system's hosts."""
    if not changes:
        return [Paragraph(_NO_CHANGE)]
    return [
        Paragraph(f"{_history_line(changes)}. {_SEEN}"),
        *change_table(changes).first(MOST_ROWS, "summary.json"),
    ]


def change_table(changes: Sequence[Change]) -> Table:
    """Return the table of *changes*, in the same order."""
    return Table(
        f"Changes over time: {len(changes)}", _CHANGE_HEADER, [*map(_change_row, changes)], kind="stack changes"
    )


def _change_row(change: Change) -> tuple[Entry, ...]:
    size = Cell(change.change, signed_percent)
    return (change.when, change.who, change.parts, size, "; ".join(change.causes))


def _history_line(changes: Sequence[Change]) -> str:
    shared = sum(len(c.hosts) > 1 for c in changes)
    worse_hosts = len({host for c in changes if len(c.hosts) == 1 and c.worse for host in c.hosts})
    parts = [f"{count(shared, 'change')} of many hosts at once"] if shared else []
    parts += [f"{count(len(changes) - shared, 'change')} of single hosts"] if len(changes) > shared else []
    parts += [f"{count(worse_hosts, 'host')} became worse alone"] if worse_hosts else []
    return "; ".join(parts)
