# SPDX-License-Identifier: Apache-2.0
"""The pages of a fleet's report."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

import firsttouch
from firsttouch.judge.drift import Configuration
from firsttouch.judge.findings import Findings
from firsttouch.judge.history import iso
from firsttouch.judge.judging import Undescribed
from firsttouch.judge.verdict import ORDER, HostSummary, HostVerdict, Word, natural
from firsttouch.report import card, junit, multiqc, openmetrics, pages, site_tables
from firsttouch.report.document import DOCUMENT, SCHEMA
from firsttouch.report.fleet import configuration, figures, history, ranks
from firsttouch.report.fleet.history import History, Timeline
from firsttouch.report.fleet.ranks import Ranks
from firsttouch.report.guidelines import Guideline
from firsttouch.report.model import Problem
from firsttouch.report.site_tables import SiteTable
from firsttouch.report.text import clean, count, listed

# ----------------------------------------------------------------------
# What is missing: hosts, unfinished steps, and metrics that only some hosts have.

#: Metrics of a host that are named.
_NAMED = 2


@dataclass(frozen=True)
class Lost:
    """What is missing: *rows* of what and why.

    *hosts* is the number of hosts that lack something, *whole* the number of those without any result.
    """

    rows: Sequence[tuple[str, str]]
    hosts: int
    whole: int


def table(findings: Sequence[Findings], problems: Sequence[Problem]) -> Lost:
    """Return what is missing: whole hosts first, then steps and checks, then single metrics."""
    whole: list[tuple[str, str]] = [(p.host or p.name, p.reason) for p in problems if not p.check and not p.host]
    steps: list[tuple[str, str]] = []
    metrics: list[tuple[str, str]] = []
    hosts: set[str] = set()
    gone = 0
    for fleet in findings:
        for host, reasons in sorted(fleet.missing.items(), key=lambda item: natural(item[0])):
            if reasons:
                hosts.add(host)
                gone += host not in fleet.number
                (whole if host not in fleet.number else steps).append((host, "; ".join(reasons)))
        for number in np.flatnonzero(fleet.absent > 0).tolist():
            host = fleet.samples.hosts[number]
            hosts.add(host)
            metrics.append((host, _absent(fleet, host)))
    checks = {(p.host, p.name) for p in problems if p.check or p.host}
    steps += [(" ".join(filter(None, key)), _why(problems, key)) for key in sorted(checks)]
    metrics.sort(key=lambda item: natural(item[0]))
    return Lost([*whole, *steps, *metrics], len(hosts), gone)


def _absent(findings: Findings, host: str) -> str:
    absent = findings.deciding_cases.copy()
    absent[findings.samples.case[findings.groups(host)]] = False
    cases = np.flatnonzero(absent).tolist()
    metrics = listed((findings.samples.cases[case].title for case in cases), most=_NAMED)
    return f"{count(len(cases), 'metric')} that other hosts were judged by: {metrics}"


def _why(problems: Sequence[Problem], key: tuple[str, str]) -> str:
    return "; ".join(dict.fromkeys(f"{p.kind}: {p.reason}" for p in problems if (p.host, p.name) == key))


# ----------------------------------------------------------------------
# The files of a fleet's report. With too many results, metrics.prom and junit.xml have only the verdicts.

#: The files of a fleet's report; the folder hosts only on request.
FILES = frozenset(
    {
        "index.html",
        "summary.md",
        "summary.json",
        "findings.parquet",
        "metrics.prom",
        "summary.prom",
        "junit.xml",
        site_tables.FILE,
        "hosts",
    }
)
#: Up to this number of results, metrics.prom and junit.xml have all of them.
MOST_RESULTS = 50_000
#: Hosts that are listed with cause and evidence.
MOST_DETAILED = 50
#: Lines of evidence per host in summary.json.
_KEPT = 20
#: Lines on a terminal.
_SHORT = 20
#: Lines about the configuration of each system's hosts on a terminal.
_DRIFTED = 5


@dataclass(frozen=True)
class Fleet:
    """The summary of a fleet's report: summary.json (*document*), and the *worst* hosts in detail."""

    document: dict[str, Any]
    worst: Sequence[HostVerdict]
    ranks: Sequence[Ranks]
    guided: Sequence[Guideline] = ()
    configured: Sequence[configuration.Section | None] = ()

    def table(self) -> str:
        """Return the table for a terminal: the number of hosts by verdict, and the worst ones."""
        rows = [[clean(v.host), v.verdict, clean(v.cause), clean(_first(v))] for v in self.worst[:_SHORT]]
        body = tabulate(
            rows, ("host", "verdict", "possible cause", "evidence"), "simple", maxcolwidths=[24, 9, 36, 60]
        )
        more = sum(n for w, n in self.document["counts"].items() if w != "pass") - len(rows)
        parts = [self.document["line"], *([body] if rows else [])]
        notes = [clean(note) for ranks in self.ranks for note in ranks.findings.notes()]
        parts += ["\n".join(notes)] if notes else []
        drifted = [clean(line) for its in self.configured if its for line in its.lines()[:_DRIFTED]]
        parts += ["\n".join(["configuration:", *(f"  {line}" for line in drifted)])] if drifted else []
        lines = [
            clean(f"{guide.aligner} on {guide.system}, {line}") for guide in self.guided for line in guide.lines()
        ]
        parts += ["\n".join(lines)] if lines else []
        return "\n\n".join([*parts, *([f"and {count(more, 'more host')} that do not pass"] if more > 0 else [])])


def build(
    findings: Sequence[Findings],
    out: Path,
    *,
    problems: Sequence[Problem] = (),
    title: str = "NUMA report of a fleet",
    pages_of: Mapping[str, str] | None = None,
    guided: Sequence[Guideline] = (),
    configurations: Mapping[str, Configuration] | None = None,
    generated: datetime.datetime | None = None,
    histories: Mapping[str, History] | None = None,
    dated_ahead: Mapping[tuple[str, str], int] | None = None,
    of_site: Sequence[SiteTable] = (),
) -> Fleet:
    """Write the report of fleets (one per system) into the existing folder *out*; return its summary.

    *problems* are checks without a result, *pages_of* the pages of single hosts by host, *guided* the guidelines
    of aligners, *of_site* the tables that the site adds. *generated* is the time that the page states (default:
    now), *histories* are those of the systems by name, *configurations* those of hosts. *dated_ahead* has the
    latest time (ms since 1970) of records of the future by system and host.
    """
    with ThreadPoolExecutor(1) as beside:
        # The table takes as long as the page, so they are written at the same time.
        for fleet in findings:
            _ = fleet.table  # both read it: build it once
        written = beside.submit(ranks.write, findings, out / "findings.parquet")
        now = generated or datetime.datetime.now(datetime.UTC)
        over_time = [
            history.of_fleet(fleet.samples, (histories or {}).get(fleet.system.name), f"change{number}-")
            for number, fleet in enumerate(findings)
            if _is_judged(fleet)
        ]
        summary = _pages(
            findings,
            out,
            problems,
            pages_of or {},
            guided,
            over_time=over_time,
            configurations=configurations or {},
            dated_ahead=dated_ahead or {},
            of_site=of_site,
            title=title,
            generated=now,
        )
        written.result()
    return summary


def _pages(
    findings: Sequence[Findings],
    out: Path,
    problems: Sequence[Problem],
    pages_of: Mapping[str, str],
    guided: Sequence[Guideline],
    *,
    over_time: Sequence[Timeline],
    configurations: Mapping[str, Configuration],
    dated_ahead: Mapping[tuple[str, str], int],
    of_site: Sequence[SiteTable],
    title: str,
    generated: datetime.datetime,
) -> Fleet:
    stated = generated.isoformat(timespec="seconds")
    unjudged = sum(len(fleet.hosts) for fleet in findings if not _is_judged(fleet))
    findings = [fleet for fleet in findings if _is_judged(fleet)]
    ranks = [Ranks(fleet) for fleet in findings]
    each = sum(len(fleet.samples.counts) for fleet in findings) <= MOST_RESULTS
    summaries = [_summaries(r, each=each) for r in ranks]
    hosts = [summary for of_system in summaries for summary in of_system]
    worst = [_worst(of_system) for of_system in summaries]
    lost = table(findings, problems)
    counts = {word: sum(int(r.counts[i]) for r in ranks) for i, word in enumerate(ORDER)}
    configured = [configuration.section(configurations, fleet) for fleet in findings]
    sections = [
        {**_section(r, verdicts, pages_of, f"{number}-"), "timeline": timeline, "configuration": drifted}
        for number, (r, verdicts, timeline, drifted) in enumerate(
            zip(ranks, worst, over_time, configured, strict=True), start=1
        )
    ]
    document = write(
        out,
        {
            "kind": "fleet",
            "title": title,
            "generated": stated,
            "line": _line(counts, unjudged, sum(len(fleet.divided) for fleet in findings), lost),
            "counts": counts,
            "missing": [{"what": what, "reason": reason} for what, reason in lost.rows],
            "problems": [{"name": p.name, "kind": p.kind, "reason": p.reason, "host": p.host} for p in problems],
            "systems": [
                {
                    **_system(r, of_system, verdicts),
                    "changes": timeline.documents,
                    "configuration": drifted.to_dict() if drifted else None,
                }
                for r, of_system, verdicts, timeline, drifted in zip(
                    ranks, summaries, worst, over_time, configured, strict=True
                )
            ],
            "guidelines": [guide.to_dict() for guide in guided],
            "site_tables": [table.to_dict() for table in of_site],
            "dated_ahead": [
                {"system": system, "host": host, "time": iso(latest)}
                for (system, host), latest in sorted(dated_ahead.items())
            ],
        },
        {
            "card": card.of_fleet(
                ranks,
                counts,
                _line(counts, unjudged, sum(len(fleet.divided) for fleet in findings), lost),
                partial=lost.hosts - lost.whole,
                without=lost.whole,
                configured=sum(drifted.drift.hosts for drifted in configured if drifted),
                deviating=sum(
                    len({host for group in drifted.groups for host in group.hosts})
                    for drifted in configured
                    if drifted
                ),
                generated=generated,
            ),
            "lost": lost.rows,
            "of_site": of_site,
            "sections": sections,
            "guidelines": guided,
            "each": each,
            "files": [name for name in pages.PURPOSES if name in FILES and (name != site_tables.FILE or of_site)],
            **figures.legend(),
        },
    )
    number: Any = {"version": firsttouch.__version__, "generated": generated.timestamp()}
    common = {fleet.system.name: fleet.common_loss for fleet in findings}
    losses = {name: loss.loss if loss else 0.0 for name, loss in common.items()}
    summary = openmetrics.summary((), hosts, **number, common_losses=losses, dated_ahead=dated_ahead)
    files = {
        "summary.prom": summary,
        "metrics.prom": openmetrics.text((), hosts, **number, findings=findings) if each else summary,
        "junit.xml": junit.text((), hosts, problems, title=title, generated=stated, each=each),
        **multiqc.of_hosts((), hosts),
        **site_tables.files(of_site),
    }
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8")
    return Fleet(document, [v for verdicts in worst for v in verdicts], ranks, guided, configured)


def write(
    out: Path, document: Mapping[str, Any], facts: Mapping[str, Any], *, indent: int | None = None
) -> dict[str, Any]:
    """Write index.html, summary.md and summary.json, and return the latter; *document* is its body.

    The kind of the document names its templates. They take *facts* and the body. Python takes ten times as long
    with an *indent*, which matters for ten thousand hosts.
    """
    program, kind = firsttouch.__version__, document["kind"]
    facts = {**document, "version": program, **facts}
    summary = {"document": DOCUMENT, "schema": SCHEMA, "firsttouch": program, **document}
    text = json.dumps(summary, indent=indent, sort_keys=True, allow_nan=False) + "\n"
    (out / "index.html").write_text(pages.html(facts, f"{kind}.html.j2"), encoding="utf-8")
    (out / "summary.md").write_text(pages.ticket(facts, f"{kind}.md.j2"), encoding="utf-8")
    (out / "summary.json").write_text(text, encoding="utf-8")
    return summary


def _is_judged(findings: Findings) -> bool:
    """Return whether any metric judges hosts, or anything is missing; times of aligners judge no host."""
    return bool(findings.deciding_cases.any()) or any(findings.missing.values())


def worst(findings: Findings) -> list[str]:
    """Return the hosts of a fleet that do not pass, the worst first."""
    ranks = Ranks(findings)
    return [host for host in ranks.hosts if ranks.words[host]]


def _section(ranks: Ranks, worst: Sequence[HostVerdict], pages_of: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return what the page shows of the hosts of a system; *key* is in the names of its drawings."""
    rest = [h for h in ranks.hosts[len(worst) :] if ranks.words[h]]
    by_word = {w: [h for h in rest if ranks.words[h] == i] for i, w in enumerate(ORDER)}
    return {
        "system": ranks.findings.system.name,
        "notes": ranks.findings.notes(),
        "described": not isinstance(ranks.findings.system, Undescribed),
        "counts": [(w, int(n)) for w, n in zip(ORDER, ranks.counts, strict=True) if n],
        "hosts": len(ranks.findings.hosts),
        "cases": len(ranks.findings.samples.cases),
        "passes": len(ranks.findings.samples.value),
        "causes": any(v.causes for v in worst),
        "worst": [pages.evidence_row(v, pages_of.get(v.host, "")) for v in worst],
        "rest": [(w, hosts) for w, hosts in reversed(by_word.items()) if hosts],
        "heat": figures.heat(ranks),
        "spreads": figures.spreads(ranks, key),
        "header": figures.HEADER,
        "metrics": figures.rows(ranks),
    }


def _first(verdict: HostVerdict) -> str:
    first, *others = [line.text() for line in verdict.findings_evidence] or [""]
    return first + (f"; and {len(others)} more" if others else "")


def _line(counts: dict[Word, int], unjudged: int, divided: int, lost: Lost) -> str:
    """Return the summary in one line; *divided* counts the metrics in which the hosts form two groups."""
    words = [f"{n} {w}" for w, n in reversed(counts.items()) if n]
    words += [f"{unjudged} without a metric that judges hosts"] if unjudged else []
    verdicts = ", ".join(words) or "none judged"
    verdicts += f"; hosts form two groups in {count(divided, 'metric')}" if divided else ""
    partial = lost.hosts - lost.whole
    gaps = [f"{lost.whole} without any result"] if lost.whole else []
    gaps += [f"{count(partial, 'host')} with missing results"] if partial else []
    total = count(sum(counts.values()) + unjudged, "host")
    return f"{total}: {verdicts}; {', '.join(gaps) or 'nothing is missing'}."


def _summaries(ranks: Ranks, *, each: bool) -> list[HostSummary]:
    """Return all hosts, the worst first; these, or with *each* all hosts, have the sentences of their verdicts."""
    summaries = []
    for place, host in enumerate(ranks.hosts):
        is_detailed = each or (place < MOST_DETAILED and ranks.words[host])
        summaries.append(ranks.findings.summary(host, ranks.findings.of(host) if is_detailed else None))
    return summaries


def _worst(hosts: Sequence[HostSummary]) -> list[HostVerdict]:
    """Return the verdicts of the worst hosts that do not pass."""
    return [host.detail for host in hosts[:MOST_DETAILED] if host.verdict != "pass" and host.detail]


def _system(ranks: Ranks, summaries: Sequence[HostSummary], worst: Sequence[HostVerdict]) -> dict[str, Any]:
    findings = ranks.findings
    detailed = {
        v.host: {"causes": list(v.causes), "evidence": [line.text() for line in v.findings_evidence[:_KEPT]]}
        for v in worst
    }
    hosts = [
        {
            "host": summary.host,
            "verdict": summary.verdict,
            "findings": summary.counts,
            "unjudged": summary.unjudged,
            "loss": summary.loss,
            "measured": iso(summary.newest) if summary.newest else None,
            "missing": summary.missing,
            **detailed.get(summary.host, {}),
        }
        for summary in summaries
    ]
    cases = findings.samples.cases
    return {
        "system": findings.system.name,
        "hosts": hosts,
        "metrics": len(cases),
        "common_loss": findings.common_loss
        and {**asdict(findings.common_loss), "text": findings.common_loss.text},
        "divided": [
            {
                "metric": cases[number].name,
                "unit": cases[number].unit,
                "apart": two.apart,
                "better": {"hosts": list(two.better), "value": two.values[0]},
                "worse": {"hosts": list(two.worse), "value": two.values[1]},
            }
            for number, two in findings.divided.items()
        ],
    }
