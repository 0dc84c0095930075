# SPDX-License-Identifier: Apache-2.0
"""The page of a report and the files beside it."""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import firsttouch
from firsttouch.errors import BadInput
from firsttouch.host import topology
from firsttouch.judge.common_loss import CommonLoss
from firsttouch.judge.verdict import ORDER, HostVerdict
from firsttouch.records.catalogue import checks
from firsttouch.records.schema import Record, write_table
from firsttouch.report import (
    card,
    document,
    guidelines,
    junit,
    model,
    multiqc,
    openmetrics,
    render,
    site_tables,
    tables,
)
from firsttouch.report.aspects import Aspects, of_host
from firsttouch.report.model import HostView, Problem, References, Table
from firsttouch.report.render import Summary
from firsttouch.report.site_tables import TableForm
from firsttouch.report.text import SIGNS, clean, count, markdown
from firsttouch.units import UNITS

if TYPE_CHECKING:
    from firsttouch.report.fleet.history import Timeline

# ----------------------------------------------------------------------
# Templates. They belong to this package, because an installed wheel has nothing else.

_BEFORE_UNIT = re.compile(rf"(?<=\d) (?=(?:%|{'|'.join(map(re.escape, UNITS))})(?![\w/]))")


def _script() -> Markup:
    """Return the script of every page, which the page's policy allows by its hash."""
    return Markup(resources.files("firsttouch.report").joinpath("templates", "page.js").read_text())  # noqa: S704


def html(facts: Mapping[str, Any], template: str | Path = "report.html.j2") -> str:
    """Return a page, or a part of one, which needs the style sheets that the page includes.

    *template* is the name of a template of this package, or the path of another.
    """
    templates = _environment(html=True)
    if isinstance(template, Path):
        return templates.from_string(template.read_text(encoding="utf-8")).render(**facts)
    return templates.get_template(template).render(**facts)


def ticket(facts: Mapping[str, Any], template: str = "summary.md.j2") -> str:
    """Return a Markdown text."""
    return _environment(html=False).get_template(template).render(**facts)


@functools.cache
def _environment(*, html: bool) -> Environment:
    """Return the Jinja environment for pages (*html*) or Markdown, which compiles each template once.

    It escapes each value and removes unprintable characters. On a page, no line breaks between a number and its
    unit.
    """
    script = _script()
    templates = Environment(
        loader=PackageLoader("firsttouch.report"),
        autoescape=html,  # noqa: S701 - _in_markdown escapes Markdown
        finalize=_on_page if html else _in_markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.globals.update(
        count=count,
        not_measured=render.not_measured,
        header=render.HEADER,
        row=render.row,
        verdict_signs=SIGNS,
        spread_tone=tables.spread_tone,
        purposes=PURPOSES,
        script=script,
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        sentence=guidelines.sentence,
        alternatives=guidelines.table,
        dropped=guidelines.dropped,
    )
    return templates


def _on_page(value: Any) -> Any:
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", clean(value))


def _in_markdown(value: Any) -> Any:
    return markdown(value) if isinstance(value, str) else value


# ----------------------------------------------------------------------
# Verdicts: a row per host, the worst first, with cause and evidence.

#: Lines of evidence in a row of a ticket, and in the folded part of a page; summary.json has all of them.
_SHOWN, _FOLDED = 3, 20


def verdict_table(verdicts: Sequence[HostVerdict]) -> Table | None:
    """Return the table of *verdicts*, None if there are none."""
    if not verdicts:
        return None
    counts = [f"{sum(v.verdict == w for v in verdicts)} {w}" for w in reversed(ORDER)]
    return Table(
        caption=f"Verdicts: {', '.join(c for c in counts if not c.startswith('0 '))}",
        header=("host", "verdict", "judged", "possible cause", "evidence"),
        rows=[
            (v.host, v.verdict, f"{_passed(v)} of {len(v.findings)} pass", v.cause, _evidence(v))
            for v in _worst_first(verdicts)
        ],
    )


def evidence_row(verdict: HostVerdict, page: str = "") -> dict[str, Any]:
    """Return what a page shows of a verdict (the macro *evidence*); *page* is the address of the host's page."""
    lines = verdict.findings_evidence
    return {
        "host": verdict.host,
        "page": page,
        "verdict": verdict.verdict,
        "judged": f"{_passed(verdict)} of {len(verdict.findings)} pass",
        "cause": verdict.cause,
        "why": lines[0].sentence_of(verdict.verdict) if lines else "",
        "evidence": [line.text() for line in lines[:_FOLDED]],
        "more": max(0, len(lines) - _FOLDED),
    }


def _worst_first(verdicts: Sequence[HostVerdict]) -> list[HostVerdict]:
    return sorted(verdicts, key=lambda v: (-ORDER.index(v.verdict), v.host))


def _passed(verdict: HostVerdict) -> int:
    return sum(f.verdict == "pass" for f in verdict.findings)


def _evidence(verdict: HostVerdict) -> str:
    lines = [line.text() for line in verdict.findings_evidence]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "; ".join([*lines[:_SHOWN], *more])


# ----------------------------------------------------------------------
# From records to the files of a report.

#: The files of a report; topology.xml only if the topology was given, a section of MultiQC if it has something.
FILES = frozenset(
    {
        "index.html",
        "summary.md",
        "summary.json",
        "metrics.prom",
        "summary.prom",
        "junit.xml",
        "records.parquet",
        "topology.xml",
        site_tables.FILE,
        multiqc.HOSTS,
        multiqc.SCENARIOS,
    }
)


#: What the files are for.
PURPOSES = {
    "summary.md": "for a ticket",
    "summary.json": "for programs",
    "records.parquet": "with each repetition",
    "findings.parquet": "with a row per host and metric",
    site_tables.FILE: "with the tables of the site",
    "summary.prom": "for Prometheus",
    "metrics.prom": "with a series per case",
    "junit.xml": "for continuous integration",
    "topology.xml": "of hwloc",
}


def build(
    records: Sequence[Record],
    out: Path,
    *,
    topology_xml: str | None = None,
    problems: Sequence[Problem] = (),
    title: str = "NUMA report",
    references: References | None = None,
    verdicts: Sequence[HostVerdict] = (),
    common_losses: Mapping[str, CommonLoss | None] = MappingProxyType({}),
    advice: Sequence[Mapping[str, Any]] = (),
    drawn: Collection[str] | None = None,
    timeline: Timeline | None = None,
    forms: Sequence[TableForm] = (),
    fleet_page: str = "",
    generated: datetime.datetime | None = None,
) -> Summary:
    """Write the report of *records* into the existing folder *out*; return its summary.

    *topology_xml* is hwloc's XML of the host. *references* returns a record's reference. *common_losses* has the
    loss that most hosts of a system share, or None, by system. *advice* is the result of
    :func:`firsttouch.advice.advice_text.find`. *drawn* are the hosts with figures (default: all); guidelines use
    the records of all hosts. *forms* are the tables that the site adds. *fleet_page* is the address of the fleet's
    page, if this one belongs to it. *generated* is the time that the pages state (default: now); the same
    arguments give the same files, byte for byte. Raises BadInput if there is nothing to report or the XML is not a
    topology.
    """
    problems = [*problems, *_common_problems(common_losses)]
    if not records and not problems and not advice:
        raise BadInput("there is no record to report: give files or folders with the records of a run")
    host = topology.parse_xml(topology_xml) if topology_xml is not None else None
    all_views = model.split(records, problems, host)
    expected = model.judging_references(verdicts, references)
    views = [replace(view, expected=expected) for view in all_views if drawn is None or view.host in drawn]
    # Problems that belong to no host are in several views.
    all_problems = tuple(dict.fromkeys((*problems, *(p for view in views for p in view.problems))))
    now = generated or datetime.datetime.now(datetime.UTC)
    stated = now.isoformat(timespec="seconds")
    reported = [(view, of_host(view)) for view in views]
    lines = tuple((view, render.results(aspects)) for view, aspects in reported)
    of_site = site_tables.of_hosts(forms, views)
    guided = guidelines.guidelines(all_views, advice)
    summary = Summary(
        hosts=lines,
        problems=all_problems,
        invalid=sum(len(view.invalid) for view in views),
        document=document.make(
            lines, all_problems, references, verdicts, guided, of_site=of_site, title=title, generated=stated
        ),
    )
    sections = [_section(view, aspects) for view, aspects in reported]
    facts = {
        "title": title,
        "generated": stated,
        "version": firsttouch.__version__,
        "verdicts": verdict_table(verdicts),
        "cards": _cards(reported, verdicts, all_problems),
        "fleet_page": fleet_page,
        "files": [
            name
            for name in PURPOSES
            if name in FILES and (name != "topology.xml" or topology_xml) and (name != site_tables.FILE or of_site)
        ],
        "evidence_rows": [evidence_row(v) for v in _worst_first(verdicts)],
        "problems": tables.problem_table(all_problems),
        "all_problems": all_problems,
        # Failed and invalid results come before all others; skipped checks are a detail, at the end.
        "grave": any(p.kind != "skipped" for p in all_problems) or any(view.invalid for view in views),
        "invalid": tables.invalid_records(views),
        "of_site": of_site,
        "missing": [
            (s["view"].host, g["id"], figure) for s in sections for g in s["groups"] for figure in g["absent"]
        ],
        "guidelines": guided,
        "timeline": timeline,
        "hosts": lines,
        "sections": sections,
        "references": {view.key: tables.references(view, references) for view in views},
    }
    summaries = [verdict.summary for verdict in verdicts]
    files = {
        "summary.json": json.dumps(summary.document, indent=1, sort_keys=True, allow_nan=False) + "\n",
        "summary.md": ticket(facts),
        "index.html": html(facts),
        "metrics.prom": openmetrics.text(
            views, summaries, version=firsttouch.__version__, generated=now.timestamp()
        ),
        "summary.prom": openmetrics.summary(
            views,
            summaries,
            version=firsttouch.__version__,
            generated=now.timestamp(),
            common_losses={name: loss.loss if loss else 0.0 for name, loss in common_losses.items()},
        ),
        "junit.xml": junit.text(views, summaries, all_problems, title=title, generated=stated),
        **multiqc.of_hosts(views, summaries),
        **site_tables.files(of_site),
        **({} if topology_xml is None else {"topology.xml": topology_xml}),
    }
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8")
    write_table(records, out / "records.parquet")
    return summary


def _common_problems(common_losses: Mapping[str, CommonLoss | None]) -> list[Problem]:
    """Return a problem for each system most of whose hosts lost alike."""
    return [
        Problem(f"references of {name}", "failed", loss.text, check="")
        for name, loss in common_losses.items()
        if loss is not None
    ]


def _cards(
    reported: Sequence[tuple[HostView, Aspects]],
    verdicts: Sequence[HostVerdict],
    problems: Sequence[Problem],
) -> list[card.Card]:
    """Return the cards of the hosts, the worst first."""
    judged = {(v.host, v.system): v for v in verdicts}
    titles = model.titles([view for view, _ in reported])
    cards = [
        card.of_host(view, titles[view.key], aspects, judged.get((view.host, view.system)), problems)
        for view, aspects in reported
    ]
    return sorted(cards, key=lambda c: -ORDER.index(c.word) if c.word else 1)


def _section(view: HostView, aspects: Aspects) -> dict[str, Any]:
    """Return the groups of figures and the tables of a host."""
    groups = [
        {
            "id": f"{view.key}-{check}-section",
            "heading": checks()[check].title,
            "figures": [render.figure(view, chart) for aspect in of_check for chart in aspect.charts],
            "absent": [absent for aspect in of_check for absent in aspect.absent],
            "tables": [table for aspect in of_check for table in aspect.tables],
            "notes": [aspect.note for aspect in of_check if aspect.note],
        }
        for check, of_check in aspects.items()
    ]
    shown = ("figures", "absent", "tables", "notes")
    return {
        "view": view,
        "groups": [group for group in groups if any(group[part] for part in shown)],
        "configuration": tables.configuration(view),
        "others": tables.others(view),
        "placements": tables.placements(view),
        "software": tables.software(view),
    }
