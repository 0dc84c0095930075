# SPDX-License-Identifier: Apache-2.0
"""The pages of a fleet's report."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, PackageLoader
from markupsafe import Markup
from tabulate import tabulate

import firsttouch
from firsttouch.judge.judging import Judged, Undescribed
from firsttouch.judge.verdict import ORDER, HostVerdict, natural
from firsttouch.report import junit, openmetrics
from firsttouch.report import pages as report_pages
from firsttouch.report.document import DOCUMENT, SCHEMA
from firsttouch.report.fleet import figures, ranks
from firsttouch.report.fleet.ranks import Names, Ranks, names
from firsttouch.report.guidelines import Guideline
from firsttouch.report.model import Problem
from firsttouch.report.text import clean, count, listed

# ----------------------------------------------------------------------
# What is not there: hosts that did not come, steps that were not finished, metrics that only some hosts have.

#: Lines that a page shows.
MOST = 60
#: Metrics of a host that are named.
_NAMED = 2


@dataclass(frozen=True)
class Lost:
    """What is missing: *every* line as what and why.

    Of as many *hosts* something is missing, as many of these did not come at all (*whole*).
    """

    every: Sequence[tuple[str, str]]
    hosts: int
    whole: int

    @property
    def shown(self) -> Sequence[tuple[str, str]]:
        """The lines that a page shows."""
        return self.every[:MOST]

    @property
    def left_out(self) -> int:
        """How many it does not show."""
        return len(self.every) - len(self.shown)


def table(judged: Sequence[Judged], problems: Sequence[Problem]) -> Lost:
    """Return all that is missing, whole hosts first, then steps and checks, then single metrics."""
    whole: list[tuple[str, str]] = [(p.host or p.name, p.reason) for p in problems if not p.check and not p.host]
    steps: list[tuple[str, str]] = []
    metrics: list[tuple[str, str]] = []
    hosts: set[str] = set()
    gone = 0
    for one in judged:
        called = names(one.passes.cases)
        for host, reasons in sorted(one.missing.items(), key=lambda item: natural(item[0])):
            if reasons:
                hosts.add(host)
                gone += host not in one.number
                (whole if host not in one.number else steps).append((host, "; ".join(reasons)))
        for number in np.flatnonzero(one.absent > 0).tolist():
            host = one.passes.hosts[number]
            hosts.add(host)
            metrics.append((host, _absent(one, host, called)))
    found = {(p.host, p.name) for p in problems if p.check or p.host}
    steps += [(" ".join(filter(None, key)), _why(problems, key)) for key in sorted(found)]
    metrics.sort(key=lambda item: natural(item[0]))
    return Lost([*whole, *steps, *metrics], len(hosts), gone)


def _absent(one: Judged, host: str, called: Names) -> str:
    lost = one.judging.copy()
    lost[one.passes.case[one.groups(host)]] = False
    some = np.flatnonzero(lost).tolist()
    told = listed((called.of[case] for case in some), most=_NAMED)
    return f"{count(len(some), 'metric')} that other hosts were judged by: {told}"


def _why(problems: Sequence[Problem], key: tuple[str, str]) -> str:
    return "; ".join(dict.fromkeys(f"{p.kind}: {p.reason}" for p in problems if (p.host, p.name) == key))


# ----------------------------------------------------------------------
# The pages about many hosts: the templates of this folder, with the report's own style and macros.

_LOADER = ChoiceLoader([PackageLoader("firsttouch.report.fleet"), PackageLoader("firsttouch.report")])


def html(template: str, facts: Mapping[str, Any]) -> str:
    """Return a page."""
    # The style sheets are the package's own text: nothing of the records is in them.
    return part(template, {**facts, "css": Markup(style())})  # noqa: S704


def part(template: str, facts: Mapping[str, Any]) -> str:
    """Return a part of a page, to be shown elsewhere with the page's :func:`style`."""
    return report_pages.environment(_LOADER, html=True).get_template(template).render(**facts)


def style() -> str:
    """Return the style sheet of these pages, which begins with that of all reports."""
    environment = report_pages.environment(_LOADER, html=True)
    return "\n".join(_LOADER.get_source(environment, name)[0] for name in ("report.css", "fleet.css"))


def ticket(template: str, facts: Mapping[str, Any]) -> str:
    """Return a Markdown text."""
    return report_pages.environment(_LOADER, html=False).get_template(template).render(**facts)


# ----------------------------------------------------------------------
# Builds the report of many hosts: index.html, summary.md, summary.json, and findings.parquet with all of it.
#
# metrics.prom and junit.xml are as of a single host, or hold the verdicts alone where there are too many
# results.

#: What a fleet's report consists of; a folder of hosts only where some were asked for.
FILES = frozenset(
    {"index.html", "summary.md", "summary.json", "findings.parquet", "metrics.prom", "junit.xml", "hosts"}
)
#: Results of so many hosts and metrics are written one by one for monitoring and continuous integration.
MOST_RESULTS = 50_000
#: Hosts that are told of one by one, with cause and evidence.
MOST_TOLD = 50
#: Lines of evidence of one host, of those that the page shows and the summary holds.
_SHOWN, _KEPT = 3, 20
#: Lines that a terminal or a ticket shows.
_SHORT = 20


@dataclass(frozen=True)
class Fleet:
    """What a report of a fleet says in short: the *document*, the *worst* hosts in detail, and a table."""

    document: dict[str, Any]
    worst: Sequence[HostVerdict]
    ranks: Sequence[Ranks]
    guided: Sequence[Guideline] = ()

    def table(self) -> str:
        """Return the table for a terminal: how many hosts of each verdict, and the worst ones."""
        rows = [[clean(v.host), v.verdict, clean(_cause(v)), clean(_first(v))] for v in self.worst[:_SHORT]]
        body = tabulate(rows, ("host", "verdict", "cause", "evidence"), "simple", maxcolwidths=[24, 8, 36, 60])
        more = sum(n for w, n in self.document["counts"].items() if w != "pass") - len(rows)
        parts = [self.document["line"], *([body] if rows else [])]
        notes = [clean(note) for one in self.ranks for note in one.judged.notes()]
        parts += ["\n".join(notes)] if notes else []
        lines = [f"{one.aligner} on {one.system}, {line}" for one in self.guided for line in one.lines()]
        parts += ["\n".join(lines)] if lines else []
        return "\n\n".join([*parts, *([f"and {count(more, 'more host')} that do not pass"] if more > 0 else [])])


def build(
    judged: Sequence[Judged],
    out: Path,
    *,
    problems: Sequence[Problem] = (),
    title: str = "NUMA report of a fleet",
    pages_of: Mapping[str, str] | None = None,
    guided: Sequence[Guideline] = (),
    generated: datetime.datetime | None = None,
) -> Fleet:
    """Write the report of fleets (one for each system) into the existing folder *out*; return it in short.

    *problems* are checks without a result, *pages_of* are the pages of single hosts, by host, *guided* are the
    guidelines of aligners. *generated* is the time that the page states (default: now).
    """
    with ThreadPoolExecutor(1) as beside:
        # The table takes as long as the page, and neither needs the other's processor.
        written = beside.submit(ranks.write, judged, out / "findings.parquet")
        now = generated or datetime.datetime.now(datetime.UTC)
        made = _pages(judged, out, problems, pages_of or {}, guided, title=title, generated=now)
        written.result()
    return made


def _pages(
    judged: Sequence[Judged],
    out: Path,
    problems: Sequence[Problem],
    pages_of: Mapping[str, str],
    guided: Sequence[Guideline],
    *,
    title: str,
    generated: datetime.datetime,
) -> Fleet:
    stated = generated.isoformat(timespec="seconds")
    unjudged = sum(len(one.hosts) for one in judged if not _is_judged(one))
    judged = [one for one in judged if _is_judged(one)]
    ranks = [Ranks(one) for one in judged]
    told = [[one.judged.of(h) for h in one.hosts[:MOST_TOLD] if one.words[h]] for one in ranks]
    lost = table(judged, problems)
    machine = _document(ranks, told, problems, lost, unjudged, title=title, generated=stated)
    machine["guidelines"] = [one.to_dict() for one in guided]
    sections = [_section(one, some, pages_of) for one, some in zip(ranks, told, strict=True)]
    facts = {"title": title, "generated": stated, "version": firsttouch.__version__, "line": machine["line"]}
    facts |= {"missing": lost, "sections": sections, "guidelines": guided, **figures.legend()}
    facts["each"] = sum(len(one.passes.counts) for one in judged) <= MOST_RESULTS
    (out / "index.html").write_text(html("fleet.html.j2", facts), encoding="utf-8")
    (out / "summary.md").write_text(ticket("fleet.md.j2", facts), encoding="utf-8")
    if facts["each"]:
        every = [one.of(host) for one in judged for host in one.hosts]
        metrics = openmetrics.text((), every, version=firsttouch.__version__, generated=generated.timestamp())
        tests = junit.text((), every, problems, title=title, generated=stated)
    else:
        metrics, tests = openmetrics.of_fleet(machine), junit.of_fleet(machine)
    (out / "metrics.prom").write_text(metrics, encoding="utf-8")
    (out / "junit.xml").write_text(tests, encoding="utf-8")
    # On one line: with indents, Python takes ten times as long, and nobody reads ten thousand hosts.
    text = json.dumps(machine, sort_keys=True, allow_nan=False) + "\n"
    (out / "summary.json").write_text(text, encoding="utf-8")
    return Fleet(machine, [v for some in told for v in some], ranks, guided)


def _is_judged(judged: Judged) -> bool:
    """Tell whether there is anything to judge hosts by, or anything missing: aligners' times are neither."""
    return bool(judged.judging.any()) or any(judged.missing.values())


def worst(judged: Judged) -> list[str]:
    """Return the hosts of a fleet that do not pass, the worst first."""
    ranks = Ranks(judged)
    return [host for host in ranks.hosts if ranks.words[host]]


def _section(ranks: Ranks, worst: Sequence[HostVerdict], pages_of: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows of one system's hosts."""
    rest = [h for h in ranks.hosts[len(worst) :] if ranks.words[h]]
    by_word = {w: [h for h in rest if ranks.words[h] == i] for i, w in enumerate(ORDER)}
    return {
        "system": ranks.judged.system.name,
        "notes": ranks.judged.notes(),
        "described": not isinstance(ranks.judged.system, Undescribed),
        "counts": [(w, int(n)) for w, n in zip(ORDER, ranks.counts, strict=True) if n],
        "hosts": len(ranks.judged.hosts),
        "cases": len(ranks.judged.passes.cases),
        "passes": len(ranks.judged.passes.value),
        "causes": any(v.causes for v in worst),
        "failing": sum(ranks.words[h] > 0 for h in ranks.judged.number),
        "worst": [
            {
                "host": v.host,
                "page": pages_of.get(v.host, ""),
                "verdict": v.verdict,
                "judged": f"{sum(f.verdict == 'pass' for f in v.findings)} of {len(v.findings)} pass",
                "cause": _cause(v),
                "evidence": v.evidence[len(v.causes) :][:_SHOWN],
                "more": max(0, len(v.evidence) - len(v.causes) - _SHOWN),
            }
            for v in worst
        ],
        "rest": [(w, hosts) for w, hosts in reversed(by_word.items()) if hosts],
        "heat": figures.heat(ranks),
        "spreads": figures.spreads(ranks),
        "shared": ranks.names.shared,
        "header": figures.HEADER,
        "metrics": figures.rows(ranks),
        "days": figures.days(ranks),
        "lines": figures.lines(ranks),
    }


def _cause(verdict: HostVerdict) -> str:
    return "; ".join(verdict.causes)


def _first(verdict: HostVerdict) -> str:
    lines = verdict.evidence[len(verdict.causes) :]
    return (lines[0] if lines else "") + (f"; and {len(lines) - 1} more" if len(lines) > 1 else "")


def _document(
    ranks: Sequence[Ranks],
    worst: Sequence[Sequence[HostVerdict]],
    problems: Sequence[Problem],
    lost: Lost,
    unjudged: int,
    *,
    title: str,
    generated: str,
) -> dict[str, Any]:
    counts = {word: sum(int(one.counts[i]) for one in ranks) for i, word in enumerate(ORDER)}
    total = sum(counts.values())
    told = ", ".join(f"{n} {w}" for w, n in reversed(counts.items()) if n)
    if unjudged:
        told = ", ".join(filter(None, (told, f"{unjudged} without a metric that hosts are judged by")))
    told = told or "none judged"
    if divided := sum(len(one.judged.divided) for one in ranks):
        told += f"; hosts form two groups in {count(divided, 'metric')}"
    some = lost.hosts - lost.whole
    gaps = [f"{lost.whole} did not come"] if lost.whole else []
    gaps += [f"something is missing of {some} of them"] if some else []
    return {
        "document": DOCUMENT,
        "schema": SCHEMA,
        "kind": "fleet",
        "firsttouch": firsttouch.__version__,
        "title": title,
        "generated": generated,
        "line": f"{count(total + unjudged, 'host')}: {told}; {', '.join(gaps) or 'nothing is missing'}.",
        "counts": counts,
        "missing": [{"what": what, "reason": reason} for what, reason in lost.every],
        "problems": [{"name": p.name, "kind": p.kind, "reason": p.reason, "host": p.host} for p in problems],
        "systems": [_system(one, some) for one, some in zip(ranks, worst, strict=True)],
    }


def _system(ranks: Ranks, worst: Sequence[HostVerdict]) -> dict[str, Any]:
    judged = ranks.judged
    detailed = {v.host: {"causes": list(v.causes), "evidence": v.evidence[len(v.causes) :][:_KEPT]} for v in worst}
    hosts = []
    for host in ranks.hosts:
        number = judged.number.get(host)
        counted = judged.counts[number].tolist() if number is not None else [0] * (len(ORDER) + 1)
        hosts.append(
            {
                "host": host,
                "verdict": ORDER[ranks.words[host]],
                "findings": {w: n for w, n in zip(ORDER, counted, strict=False) if n},
                "unjudged": counted[-1],
                "missing": len(judged.missing.get(host, ()))
                + (int(judged.absent[number]) if number is not None else 0),
                **detailed.get(host, {}),
            }
        )
    cases = judged.passes.cases
    return {
        "system": judged.system.name,
        "hosts": hosts,
        "metrics": len(cases),
        "divided": [
            {
                "metric": cases[number].name,
                "unit": cases[number].unit,
                "apart": two.apart,
                "better": {"hosts": list(two.better), "value": two.values[0]},
                "worse": {"hosts": list(two.worse), "value": two.values[1]},
            }
            for number, two in judged.divided.items()
        ],
    }
