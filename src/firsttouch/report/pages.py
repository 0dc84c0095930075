# SPDX-License-Identifier: Apache-2.0
"""The page of a few hosts and the files next to it."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import asdict

from firsttouch.errors import BadInput
from firsttouch.host import topology
from firsttouch.judge.findings import CommonLoss
from firsttouch.judge.history import Change
from firsttouch.judge.verdict import ORDER, HostVerdict
from firsttouch.records.cases import by_key
from firsttouch.records.catalogue import checks
from firsttouch.records.schema import Record, write_table
from firsttouch.report import forms, guidelines, model, openmetrics, render, summary, tables
from firsttouch.report import verdicts as of_verdicts
from firsttouch.report.aspect import Chart, Result
from firsttouch.report.aspects import Aspects, host_aspects
from firsttouch.report.document import (
    Block,
    Card,
    Document,
    Fold,
    Group,
    Listing,
    Paragraph,
    Section,
    Span,
    Text,
    linked_files,
    spans,
    when_made,
)
from firsttouch.report.fleet import history
from firsttouch.report.guidelines import Guideline
from firsttouch.report.model import Absent, HostView, Problem, References
from firsttouch.report.render import Summary
from firsttouch.report.text import anchors, count

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
    document = summary.document(
        title=title,
        generated=report.stated,
        records={**counts, "superseded": sum(view.superseded for view in views)},
        problems=[asdict(p) for p in report.problems],
        verdicts=[v.to_dict() for v in verdicts],
        alone=[v.to_dict() for v in alone],
        guidelines=[g.to_dict() for g in report.guidelines],
        hosts=[summary.host(view, host_aspects, references) for view, host_aspects in lines],
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
            *([Section("History", history.blocks(report.changes), "history")] if report.changes else []),
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
    if table := tables.problem_table(report.problems):
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
    table, invalid = tables.problem_table(report.problems), _invalid(report)
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
        for host, case, reason in tables.invalid_records([host.view for host in report.hosts])
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
    of_view = (tables.configuration, tables.others, tables.placements, tables.software)
    shown = filter(None, (tables.references(view, references), *(table(view) for table in of_view)))
    return [Fold(f"{table.caption} ({count(len(table.rows), 'row')})", [table]) for table in shown]
