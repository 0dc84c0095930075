# SPDX-License-Identifier: Apache-2.0
"""Builds the report of many hosts: index.html, summary.md, summary.json, and findings.parquet with all of it.

metrics.prom and junit.xml are as of a single host, or hold the verdicts alone where there are too many results.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

import firsttouch
from firsttouch.report import DOCUMENT, Problem, junit, openmetrics
from firsttouch.report.document import SCHEMA
from firsttouch.report.fleet import findings, heat, history, missing, pages, spread
from firsttouch.report.fleet.ranks import Ranks
from firsttouch.report.guidelines import Guideline
from firsttouch.report.text import clean, count
from firsttouch.verdict import HostVerdict, Judged, Undescribed
from firsttouch.verdict.model import ORDER

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
        written = beside.submit(findings.write, judged, out / "findings.parquet")
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
    lost = missing.table(judged, problems)
    machine = _document(ranks, told, problems, lost, unjudged, title=title, generated=stated)
    machine["guidelines"] = [one.to_dict() for one in guided]
    sections = [_section(one, some, pages_of) for one, some in zip(ranks, told, strict=True)]
    facts = {"title": title, "generated": stated, "version": firsttouch.__version__, "line": machine["line"]}
    facts |= {"missing": lost, "sections": sections, "guidelines": guided, **heat.legend()}
    facts["each"] = sum(len(one.passes.counts) for one in judged) <= MOST_RESULTS
    (out / "index.html").write_text(pages.html("fleet.html.j2", facts), encoding="utf-8")
    (out / "summary.md").write_text(pages.ticket("fleet.md.j2", facts), encoding="utf-8")
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
        "heat": heat.heat(ranks),
        "spreads": spread.spreads(ranks),
        "shared": ranks.names.shared,
        "header": spread.HEADER,
        "metrics": spread.rows(ranks),
        "days": history.days(ranks),
        "lines": history.lines(ranks),
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
    lost: missing.Lost,
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
