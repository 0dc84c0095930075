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
from firsttouch.judge.history import iso
from firsttouch.judge.judging import Judged, Undescribed
from firsttouch.judge.verdict import ORDER, HostVerdict, Word, natural
from firsttouch.report import card, junit, multiqc, openmetrics, pages
from firsttouch.report.document import DOCUMENT, SCHEMA
from firsttouch.report.fleet import configuration, figures, history, ranks
from firsttouch.report.fleet.history import History, Timeline
from firsttouch.report.fleet.ranks import Names, Ranks, names
from firsttouch.report.guidelines import Guideline
from firsttouch.report.model import Problem
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


def table(judged: Sequence[Judged], problems: Sequence[Problem]) -> Lost:
    """Return what is missing: whole hosts first, then steps and checks, then single metrics."""
    whole: list[tuple[str, str]] = [(p.host or p.name, p.reason) for p in problems if not p.check and not p.host]
    steps: list[tuple[str, str]] = []
    metrics: list[tuple[str, str]] = []
    hosts: set[str] = set()
    gone = 0
    for fleet in judged:
        short = names(fleet.samples.cases)
        for host, reasons in sorted(fleet.missing.items(), key=lambda item: natural(item[0])):
            if reasons:
                hosts.add(host)
                gone += host not in fleet.number
                (whole if host not in fleet.number else steps).append((host, "; ".join(reasons)))
        for number in np.flatnonzero(fleet.absent > 0).tolist():
            host = fleet.samples.hosts[number]
            hosts.add(host)
            metrics.append((host, _absent(fleet, host, short)))
    checks = {(p.host, p.name) for p in problems if p.check or p.host}
    steps += [(" ".join(filter(None, key)), _why(problems, key)) for key in sorted(checks)]
    metrics.sort(key=lambda item: natural(item[0]))
    return Lost([*whole, *steps, *metrics], len(hosts), gone)


def _absent(judged: Judged, host: str, short: Names) -> str:
    absent = judged.judging.copy()
    absent[judged.samples.case[judged.groups(host)]] = False
    cases = np.flatnonzero(absent).tolist()
    metrics = listed((short.of[case] for case in cases), most=_NAMED)
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
        rows = [[clean(v.host), v.verdict, clean(_cause(v)), clean(_first(v))] for v in self.worst[:_SHORT]]
        body = tabulate(
            rows, ("host", "verdict", "possible cause", "evidence"), "simple", maxcolwidths=[24, 9, 36, 60]
        )
        more = sum(n for w, n in self.document["counts"].items() if w != "pass") - len(rows)
        parts = [self.document["line"], *([body] if rows else [])]
        notes = [clean(note) for ranks in self.ranks for note in ranks.judged.notes()]
        parts += ["\n".join(notes)] if notes else []
        drifted = [clean(line) for its in self.configured if its for line in its.lines()[:_DRIFTED]]
        parts += ["\n".join(["configuration:", *(f"  {line}" for line in drifted)])] if drifted else []
        lines = [
            clean(f"{guide.aligner} on {guide.system}, {line}") for guide in self.guided for line in guide.lines()
        ]
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
    configurations: Mapping[str, Configuration] | None = None,
    generated: datetime.datetime | None = None,
    histories: Mapping[str, History] | None = None,
    dated_ahead: Mapping[tuple[str, str], int] | None = None,
) -> Fleet:
    """Write the report of fleets (one per system) into the existing folder *out*; return its summary.

    *problems* are checks without a result, *pages_of* the pages of single hosts by host, *guided* the guidelines
    of aligners. *generated* is the time that the page states (default: now), *histories* are those of the systems
    by name, *configurations* those of hosts. *dated_ahead* has the latest time (ms since 1970) of records of
    the future by system and host.
    """
    with ThreadPoolExecutor(1) as beside:
        # The table takes as long as the page, so they are written at the same time.
        written = beside.submit(ranks.write, judged, out / "findings.parquet")
        now = generated or datetime.datetime.now(datetime.UTC)
        over_time = [
            history.of_fleet(fleet.samples, (histories or {}).get(fleet.system.name), f"change{number}-")
            for number, fleet in enumerate(judged)
            if _is_judged(fleet)
        ]
        summary = _pages(
            judged,
            out,
            problems,
            pages_of or {},
            guided,
            over_time=over_time,
            configurations=configurations or {},
            dated_ahead=dated_ahead or {},
            title=title,
            generated=now,
        )
        written.result()
    return summary


def _pages(
    judged: Sequence[Judged],
    out: Path,
    problems: Sequence[Problem],
    pages_of: Mapping[str, str],
    guided: Sequence[Guideline],
    *,
    over_time: Sequence[Timeline],
    configurations: Mapping[str, Configuration],
    dated_ahead: Mapping[tuple[str, str], int],
    title: str,
    generated: datetime.datetime,
) -> Fleet:
    stated = generated.isoformat(timespec="seconds")
    unjudged = sum(len(fleet.hosts) for fleet in judged if not _is_judged(fleet))
    judged = [fleet for fleet in judged if _is_judged(fleet)]
    ranks = [Ranks(fleet) for fleet in judged]
    worst = [[r.judged.of(h) for h in r.hosts[:MOST_DETAILED] if r.words[h]] for r in ranks]
    lost = table(judged, problems)
    counts = {word: sum(int(r.counts[i]) for r in ranks) for i, word in enumerate(ORDER)}
    each = sum(len(fleet.samples.counts) for fleet in judged) <= MOST_RESULTS
    configured = [configuration.section(configurations, fleet) for fleet in judged]
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
            "line": _line(counts, unjudged, sum(len(fleet.divided) for fleet in judged), lost),
            "counts": counts,
            "missing": [{"what": what, "reason": reason} for what, reason in lost.rows],
            "problems": [{"name": p.name, "kind": p.kind, "reason": p.reason, "host": p.host} for p in problems],
            "systems": [
                {
                    **_system(r, verdicts),
                    "changes": timeline.documents,
                    "configuration": drifted.to_dict() if drifted else None,
                }
                for r, verdicts, timeline, drifted in zip(ranks, worst, over_time, configured, strict=True)
            ],
            "guidelines": [guide.to_dict() for guide in guided],
            "dated_ahead": [
                {"system": system, "host": host, "time": iso(latest)}
                for (system, host), latest in sorted(dated_ahead.items())
            ],
        },
        {
            "card": card.of_fleet(
                ranks,
                counts,
                _line(counts, unjudged, sum(len(fleet.divided) for fleet in judged), lost),
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
            "sections": sections,
            "guidelines": guided,
            "each": each,
            "files": [name for name in pages.PURPOSES if name in FILES],
            **figures.legend(),
        },
    )
    summary = openmetrics.of_fleet(document)
    if each:
        verdicts = [fleet.of(host) for fleet in judged for host in fleet.hosts]
        metrics = openmetrics.text((), verdicts, version=firsttouch.__version__, generated=generated.timestamp())
        tests = junit.text((), verdicts, problems, title=title, generated=stated)
    else:
        metrics, tests = summary, junit.of_fleet(document)
    (out / "metrics.prom").write_text(metrics, encoding="utf-8")
    (out / "summary.prom").write_text(summary, encoding="utf-8")
    for name, text in multiqc.of_fleet(document).items():
        (out / name).write_text(text, encoding="utf-8")
    (out / "junit.xml").write_text(tests, encoding="utf-8")
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


def _is_judged(judged: Judged) -> bool:
    """Return whether any metric judges hosts, or anything is missing; times of aligners judge no host."""
    return bool(judged.judging.any()) or any(judged.missing.values())


def worst(judged: Judged) -> list[str]:
    """Return the hosts of a fleet that do not pass, the worst first."""
    ranks = Ranks(judged)
    return [host for host in ranks.hosts if ranks.words[host]]


def _section(ranks: Ranks, worst: Sequence[HostVerdict], pages_of: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return what the page shows of the hosts of a system; *key* is in the names of its drawings."""
    rest = [h for h in ranks.hosts[len(worst) :] if ranks.words[h]]
    by_word = {w: [h for h in rest if ranks.words[h] == i] for i, w in enumerate(ORDER)}
    return {
        "system": ranks.judged.system.name,
        "notes": ranks.judged.notes(),
        "described": not isinstance(ranks.judged.system, Undescribed),
        "counts": [(w, int(n)) for w, n in zip(ORDER, ranks.counts, strict=True) if n],
        "hosts": len(ranks.judged.hosts),
        "cases": len(ranks.judged.samples.cases),
        "passes": len(ranks.judged.samples.value),
        "causes": any(v.causes for v in worst),
        "worst": [pages.evidence_row(v, pages_of.get(v.host, "")) for v in worst],
        "rest": [(w, hosts) for w, hosts in reversed(by_word.items()) if hosts],
        "heat": figures.heat(ranks),
        "spreads": figures.spreads(ranks, key),
        "shared": ranks.names.shared,
        "header": figures.HEADER,
        "metrics": figures.rows(ranks),
    }


def _cause(verdict: HostVerdict) -> str:
    return verdict.cause


def _evidence(verdict: HostVerdict) -> list[str]:
    """Return the evidence without the causes, which stand beside it."""
    return verdict.evidence[len(verdict.causes) :]


def _first(verdict: HostVerdict) -> str:
    first, *others = _evidence(verdict) or [""]
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


def _system(ranks: Ranks, worst: Sequence[HostVerdict]) -> dict[str, Any]:
    judged = ranks.judged
    detailed = {v.host: {"causes": list(v.causes), "evidence": _evidence(v)[:_KEPT]} for v in worst}
    hosts = []
    for host in ranks.hosts:
        number = judged.number.get(host)
        newest = int(ranks.newest[number]) if number is not None else 0
        counted = judged.counts[number].tolist() if number is not None else [0] * (len(ORDER) + 1)
        hosts.append(
            {
                "host": host,
                "verdict": ORDER[ranks.words[host]],
                "findings": {w: n for w, n in zip(ORDER, counted, strict=False) if n},
                "unjudged": counted[-1],
                "loss": float(ranks.losses[number]) if number is not None else 0.0,
                "measured": iso(newest) if newest else None,
                "missing": len(judged.missing.get(host, ()))
                + (int(judged.absent[number]) if number is not None else 0),
                **detailed.get(host, {}),
            }
        )
    cases = judged.samples.cases
    return {
        "system": judged.system.name,
        "hosts": hosts,
        "metrics": len(cases),
        "common_loss": judged.common_loss and {**asdict(judged.common_loss), "text": judged.common_loss.text},
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
