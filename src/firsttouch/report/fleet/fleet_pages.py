# SPDX-License-Identifier: Apache-2.0
"""The pages of a fleet's report."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from firsttouch.documents import attributes
from firsttouch.execution.progress import wrap_text
from firsttouch.host.host_lists import fold, natural
from firsttouch.judge.findings import Findings
from firsttouch.judge.history import Change
from firsttouch.judge.verdict import ORDER, Divided, HostSummary, HostVerdict, Word
from firsttouch.records import catalogue
from firsttouch.records.drift import Configuration, Deviation, Drift, described, dividing_settings, drift
from firsttouch.report import forms, guidelines, openmetrics, pages, render
from firsttouch.report import verdicts as of_verdicts
from firsttouch.report.document import (
    Block,
    Card,
    Document,
    Fold,
    Listing,
    Paragraph,
    Section,
    Span,
    Table,
    how_to_read,
    not_shown,
    when_made,
    word_span,
)
from firsttouch.report.fleet import figures
from firsttouch.report.fleet.figures import Ranks
from firsttouch.report.guidelines import Guideline
from firsttouch.report.model import Problem
from firsttouch.report.text import clean, count, list_names
from firsttouch.units import iso

# ----------------------------------------------------------------------
# Missing results: hosts, unfinished steps, and metrics that only some hosts have.

_MISSING = "What is missing"
#: The most metrics of a host that are named.
_NAMED = 2


class MissingResults(Struct, frozen=True):
    """The missing results: *rows* with the result and the reason.

    *hosts* is the number of hosts with missing results, *whole* the number without any result.
    """

    rows: Sequence[tuple[str, str]]
    hosts: int
    whole: int

    @property
    def table(self) -> Table:
        """The table of missing results."""
        return Table(f"Missing hosts and results: {len(self.rows)}", ("what", "why"), self.rows, kind="stack")


def missing_results(findings: Sequence[Findings], problems: Sequence[Problem]) -> MissingResults:
    """Return the missing results: whole hosts first, then steps and checks, then single metrics."""
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
    for key in sorted(checks):
        why = dict.fromkeys(f"{p.kind}: {p.reason}" for p in problems if (p.host, p.name) == key)
        steps.append((" ".join(filter(None, key)), "; ".join(why)))
    metrics.sort(key=lambda item: natural(item[0]))
    return MissingResults([*whole, *steps, *metrics], len(hosts), gone)


def _absent(findings: Findings, host: str) -> str:
    titles = [case.title for case in findings.absent_cases(host)]
    return f"{count(len(titles), 'metric')} that other hosts were judged by: {list_names(titles, most=_NAMED)}"


# ----------------------------------------------------------------------
# The files of a fleet's report.

#: The files of a fleet's report; the folder "hosts" exists only on request.
FILES = frozenset({"index.html", "hosts", *pages.PURPOSES} - {"records.parquet", "topology.xml"})
#: The most hosts that are listed with cause and evidence.
MOST_DETAILED = 50
#: The most lines of evidence per host in summary.json.
_KEPT = 20
#: Hosts and changes on a terminal.
_SHORT, _CHANGES = 20, 5
#: Lines about the configuration of each system's hosts on a terminal.
_DRIFTED = 5


class FleetSummary(Struct, frozen=True):
    """The summary of a fleet's report: summary.json (*document*), and the *worst* hosts in detail."""

    document: dict[str, Any]
    worst: Sequence[HostVerdict]
    ranks: Sequence[Ranks]
    guided: Sequence[Guideline] = ()
    configured: Sequence[Drifted | None] = ()
    changes: Sequence[Change] = ()

    def table(self) -> str:
        """Return the table for a terminal: the number of hosts by verdict, and the worst ones."""
        worst = of_verdicts.table(self.worst, lines=1).columns(0, 1, 3, 4)
        body = forms.terminal(worst, _SHORT)
        more = sum(n for w, n in self.document["counts"].items() if w != "pass") - len(worst.rows[:_SHORT])
        parts = [wrap_text(self.document["line"], 2), *([body] if worst.rows else [])]
        notes = [wrap_text(clean(note), 2) for ranks in self.ranks for note in ranks.findings.notes()]
        parts += ["\n".join(notes)] if notes else []
        drifted = [clean(line) for its in self.configured if its for line in its.lines()[:_DRIFTED]]
        drifted = [wrap_text(f"  {line}", 4) for line in drifted]
        parts += ["\n".join(["configuration:", *drifted])] if drifted else []
        parts += [forms.terminal(pages.change_table(self.changes), _CHANGES)] if self.changes else []
        lines = [wrap_text(clean(line), 2) for line in guidelines.lines(self.guided)]
        parts += ["\n".join(lines)] if lines else []
        return "\n\n".join([*parts, *([f"and {count(more, 'more host')} that do not pass"] if more > 0 else [])])


def build(
    findings: Sequence[Findings],
    out: Path,
    *,
    problems: Sequence[Problem] = (),
    title: str = "NUMA report of a fleet",
    pages_of: Mapping[str, str] = MappingProxyType({}),
    guided: Sequence[Guideline] = (),
    configurations: Mapping[str, Configuration] = MappingProxyType({}),
    generated: datetime.datetime | None = None,
    histories: Mapping[str, Sequence[Change]] = MappingProxyType({}),
) -> FleetSummary:
    """Write the report of fleets (one per system) into the existing folder *out*; return its summary.

    *problems* are checks without a result, *pages_of* the pages of single hosts by host, *guided* the guidelines
    of aligners. *generated* is the time that the page states (default: now), *histories* are the changes by
    system, *configurations* the configurations of hosts.
    """
    with ThreadPoolExecutor(1) as beside:
        # The table takes as long as the page, so they are written at the same time.
        for fleet in findings:
            _ = fleet.losses  # both read them: compute them once
        written = beside.submit(figures.write, findings, out / "findings.parquet")
        now = generated or datetime.datetime.now(datetime.UTC)
        unjudged = sum(len(fleet.hosts) for fleet in findings if not _is_judged(fleet))
        judged = [fleet for fleet in findings if _is_judged(fleet)]
        of_systems = [Ranks(fleet) for fleet in judged]
        summaries = [[r.findings.summary(host) for host in r.hosts] for r in of_systems]
        hosts = [summary for of_system in summaries for summary in of_system]
        systems = [
            _System(
                of_system,
                [fleet.verdict(host) for host in of_system.hosts[:MOST_DETAILED] if of_system.words[host]],
                histories.get(fleet.system.name, ()),
                host_drift(configurations, fleet),
            )
            for fleet, of_system in zip(judged, of_systems, strict=True)
        ]
        missing = missing_results(judged, problems)
        counts = {word: sum(int(r.counts[i]) for r in of_systems) for i, word in enumerate(ORDER)}
        line = _line(counts, unjudged, sum(len(two.parts) for fleet in judged for two in fleet.divided), missing)
        document = render.report_document(
            kind="fleet",
            title=title,
            generated=now.isoformat(timespec="seconds"),
            line=line,
            counts=counts,
            missing=[{"what": what, "reason": reason} for what, reason in missing.rows],
            problems=[attributes(p, "name", "kind", "reason", "host") for p in problems],
            systems=[system.to_dict(of_system) for system, of_system in zip(systems, summaries, strict=True)],
            guidelines=[guide.to_dict() for guide in guided],
        )
        worst = [verdict for system in systems for verdict in system.worst]
        first = max(worst, key=lambda verdict: ORDER.index(verdict.verdict), default=None)
        of_fleet = of_verdicts.card_of_fleet(hosts, line, first, len(hosts) - missing.hosts)
        shown = _Shown(document, systems, missing, guided)
        common = {fleet.system.name: fleet.common_loss for fleet in judged}
        files = {
            "summary.prom": openmetrics.summary((), hosts, generated=now.timestamp(), common_losses=common),
        }
        forms.write(out, shown.page(of_fleet, pages_of), shown.ticket(), document, files, indent=None)
        written.result()
    changes = [change for listed in histories.values() for change in listed]
    return FleetSummary(document, worst, of_systems, guided, [system.drifted for system in systems], changes)


def _is_judged(findings: Findings) -> bool:
    """Return whether hosts have verdicts: whether anything but times of aligners was measured or is missing.

    A host without anything to compare its metrics with is undecided.
    """
    of_aligners = catalogue.of_kind("aligner")
    is_measured = any(case.check not in of_aligners for case in findings.samples.cases)
    return is_measured or bool(findings.deciding_cases.any()) or any(findings.missing.values())


def worst(findings: Findings) -> list[str]:
    """Return the hosts of a fleet that do not pass, the worst first."""
    ranks = Ranks(findings)
    return [host for host in ranks.hosts if ranks.words[host]]


def _line(counts: dict[Word, int], unjudged: int, divided: int, missing: MissingResults) -> str:
    """Return the summary in one line; *divided* is the number of parts in which the hosts form two groups."""
    words = of_verdicts.words(counts)
    words += [f"{unjudged} without a metric that judges hosts"] if unjudged else []
    verdicts = ", ".join(words) or "none judged"
    verdicts += f"; hosts form two groups in {count(divided, 'part')}" if divided else ""
    partial = missing.hosts - missing.whole
    gaps = [f"{missing.whole} without any result"] if missing.whole else []
    gaps += [f"{count(partial, 'host')} with missing results"] if partial else []
    gaps += [f"{count(len(missing.rows), 'problem')} below, of no host"] if missing.rows and not gaps else []
    total = count(sum(counts.values()) + unjudged, "host")
    return f"{total}: {verdicts}; {', '.join(gaps) or 'nothing is missing'}."


# ----------------------------------------------------------------------
# The page, the ticket and summary.json.

#: The most rows on the page and in the ticket, and where the others are.
_ROWS, _LISTED, _IN_TICKET, _WHERE = 60, 20, 30, "summary.json"
_EVERY_HOST = "Every host passes."
#: A longer list is rendered only when it becomes visible.
_MANY = 1000


class _System(Struct, frozen=True):
    """The hosts of a system: the *worst* in detail, the changes, and their configurations."""

    ranks: Ranks
    worst: Sequence[HostVerdict]
    changes: Sequence[Change]
    drifted: Drifted | None

    @property
    def name(self) -> str:
        """The name of the system."""
        return self.ranks.findings.system.name

    @property
    def others(self) -> dict[Word, list[str]]:
        """The hosts that do not pass and are not among the worst, by verdict, the worst first."""
        rest = self.ranks.hosts[len(self.worst) :]
        by_word = {w: [h for h in rest if self.ranks.words[h] == i] for i, w in enumerate(ORDER) if i}
        return {word: hosts for word, hosts in reversed(by_word.items()) if hosts}

    def to_dict(self, summaries: Sequence[HostSummary]) -> dict[str, Any]:
        """Return the JSON form with *summaries* of all hosts."""
        findings = self.ranks.findings
        detailed = {
            v.host: {"causes": list(v.causes), "evidence": v.findings_evidence[:_KEPT]} for v in self.worst
        }
        hosts = [
            {
                **attributes(summary, "host", "verdict", "unjudged", "loss", "missing"),
                "findings": summary.counts,
                "measured": iso(summary.newest) if summary.newest else None,
                **detailed.get(summary.host, {}),
            }
            for summary in summaries
        ]
        return {
            "system": self.name,
            "hosts": hosts,
            "metrics": len(findings.samples.cases),
            "common_loss": findings.common_loss
            and {**asdict(findings.common_loss), "text": findings.common_loss.text},
            "divided": [asdict(two) for two in findings.divided],
            "changes": [change.to_dict() for change in self.changes[: pages.MOST_KEPT]],
            "configuration": self.drifted.to_dict() if self.drifted else None,
        }

    def section(self, number: int, pages_of: Mapping[str, str]) -> Section:
        """Return the section of the page; *number* is in its addresses and in the names of its drawings."""
        ranks, findings = self.ranks, self.ranks.findings
        samples = findings.samples
        unknown = [not_shown("no record has the configuration of a host.")]
        sections = [
            Section("Hosts that do not pass", self._worst(pages_of), f"verdicts{number}"),
            Section("Hosts x metrics", figures.heat(ranks, {v.host for v in self.worst}), f"heat{number}"),
            Section(
                "Configuration",
                self.drifted.blocks(self.name) if self.drifted else unknown,
                f"configuration{number}",
            ),
            Section("History", pages.history(self.changes), f"history{number}"),
        ]
        words: list[str] = []
        for word, hosts in reversed(list(zip(ORDER, ranks.counts.tolist(), strict=True))):
            if hosts:
                words += [", " if words else "", word_span(word, f"{hosts} {word}")]
        size = f". {count(len(samples.cases), 'metric')}, {count(int(samples.counts.sum()), 'value')}."
        return Section(
            f"System {self.name}: {count(len(findings.hosts), 'host')}",
            [
                Paragraph([*words, size]),
                *(Paragraph([Span(f"{note}.", "b")]) for note in findings.notes()),
                *sections,
            ],
            f"system{number}",
        )

    def _worst(self, pages_of: Mapping[str, str]) -> list[Block]:
        """Return the hosts that do not pass: the worst with their evidence, the names of the others."""
        if not self.worst:
            return [Paragraph(_EVERY_HOST, "good")]
        fail, invalid, suspect, undecided = map(word_span, ("fail", "invalid", "suspect", "undecided"))
        meaning = [
            *(fail, ": the loss of a part exceeds the differences of good hosts, or a count is wrong. "),
            *(invalid, ": the measurement itself was wrong. "),
            *(suspect, ": unusual, but not surely enough for a fail; or something is missing. "),
            *(undecided, ": the measurements cannot tell yet. "),
            *(Span("firsttouch campaign submit validate", "code"), " measures suspect and undecided hosts again."),
        ]
        folds = [
            Fold(
                [f"{count(len(hosts), 'more host')}: ", word_span(word)],
                [Listing(hosts, "names long" if len(hosts) > _MANY else "names")],
                "more",
            )
            for word, hosts in self.others.items()
        ]
        worst = of_verdicts.folds(self.worst, self.ranks.host_keys, pages_of, complete="findings.parquet")
        return [worst, *folds, Paragraph(meaning, "small")]

    def short_section(self) -> Section:
        """Return the section of the ticket."""
        blocks: list[Block] = [Paragraph(f"{note}.") for note in self.ranks.findings.notes()]
        if self.worst:
            table = of_verdicts.table(self.worst, lines=1)
            more = [f"and {len(table.rows) - _IN_TICKET} more"] if len(table.rows) > _IN_TICKET else []
            more += [f"{len(hosts)} {word}" for word, hosts in self.others.items()]
            blocks.append(replace(table, rows=table.rows[:_IN_TICKET]))
            blocks += [Paragraph(f"{', '.join(more)} (index.html, {_WHERE})")] if more else []
        else:
            blocks.append(Paragraph(_EVERY_HOST))
        if lines := self.drifted.lines() if self.drifted else []:
            blocks += [Paragraph("Configuration:"), Listing(lines)]
        return Section(f"System {self.name}: hosts that do not pass", blocks)


class _Shown(Struct, frozen=True):
    """The content of the page and the ticket next to the card."""

    document: Mapping[str, Any]
    systems: Sequence[_System]
    missing: MissingResults
    guided: Sequence[Guideline]

    def page(self, of_fleet: Card, pages_of: Mapping[str, str]) -> Document:
        """Return the page."""
        missing = self.missing.table.first(_ROWS, _WHERE)
        return Document(
            self.document["title"],
            [Paragraph(when_made(self.document["generated"]), "small")],
            [
                of_fleet,
                *(system.section(number, pages_of) for number, system in enumerate(self.systems, start=1)),
                *([Section(_MISSING, missing, "missing")] if self.missing.rows else []),
                *guidelines.sections(self.guided),
            ],
            pages.foot(FILES),
        )

    def ticket(self) -> Document:
        """Return the ticket."""
        missing = self.missing.table.first(_LISTED, _WHERE)
        return Document(
            self.document["title"],
            [Paragraph(self.document["line"]), Paragraph(when_made(self.document["generated"]))],
            [
                *([Section(_MISSING, missing)] if self.missing.rows else []),
                *guidelines.short_sections(self.guided),
                *(system.short_section() for system in self.systems),
            ],
        )


# ----------------------------------------------------------------------
# The section Configuration: settings that deviate, and settings that divide the hosts

#: The most groups of deviating hosts on the page, in the ticket and in summary.json, and the most settings of
#: each.
_GROUPS_ON_PAGE, _GROUPS_IN_TICKET, _GROUPS_KEPT, _SETTINGS = 40, 10, 500, 8
_HOW = "The golden value is the one that most hosts have. A row lists the deviations that its hosts share."


class Drifted(Struct, frozen=True):
    """The configurations of a system's hosts: their *drift*, the *groups* that deviate, and *divisions*.

    A division is two groups of hosts and the settings that differ between them.
    """

    drift: Drift
    groups: Mapping[tuple[str, ...], Sequence[Deviation]]
    divisions: Sequence[tuple[Divided, Sequence[str]]]

    def blocks(self, system: str) -> list[Block]:
        """Return the section of a page: settings that divide hosts, that deviate, and the golden configuration."""
        sentence = f"The {count(self.drift.hosts, 'host')} with a known configuration have the same settings."
        deviations: list[Block] = [Paragraph(sentence, "good")]
        if self.groups:
            caption = f"Deviations from the golden configuration: {count(len(self.groups), 'group')} of hosts"
            rows = [(_settings(deviations), _hosts(hosts)) for hosts, deviations in self.groups.items()]
            table = Table(caption, ("deviation", "hosts"), rows, kind="stack")
            deviations = table.first(_GROUPS_ON_PAGE, "summary.json")
        golden = Table(
            f"Golden configuration of system {system}",
            ("setting", "value of most hosts"),
            list(self.drift.golden.items()),
        )
        return [
            *(Paragraph([Span(f"{text[0].upper()}{text[1:]}.", "b")]) for text in self.divided()),
            *deviations,
            Fold(f"The golden configuration: {count(len(self.drift.golden), 'setting')}", [golden]),
            how_to_read(_HOW),
        ]

    def lines(self) -> list[str]:
        """Return the sentences of the ticket and the terminal: settings that divide hosts, then deviations."""
        lines = self.divided()
        for hosts, deviations in [*self.groups.items()][:_GROUPS_IN_TICKET]:
            lines.append(f"{_settings(deviations)}: {clean(_hosts(hosts))}")
        more = len(self.groups) - _GROUPS_IN_TICKET
        return [*lines, *([f"and {count(more, 'more group')} of deviating hosts"] if more > 0 else [])]

    def divided(self) -> list[str]:
        """Return the settings in which the two groups of a divided fleet differ."""
        return [
            f"the two groups of hosts in {count(len(groups.parts), 'part')} "
            f"differ in {clean('; '.join(settings[:_SETTINGS])) or 'no setting'}"
            for groups, settings in self.divisions
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "hosts": self.drift.hosts,
            "golden": dict(self.drift.golden),
            "deviations": [
                {
                    "hosts": list(hosts),
                    "settings": {d.setting: {"value": d.value, "golden": d.golden} for d in deviations},
                }
                for hosts, deviations in [*self.groups.items()][:_GROUPS_KEPT]
            ],
            "divisions": [
                {**attributes(groups, "better", "worse"), "settings": list(settings)}
                for groups, settings in self.divisions
            ],
        }


def host_drift(configurations: Mapping[str, Configuration], findings: Findings) -> Drifted | None:
    """Return the configurations of a system's hosts; None if all of them are unknown."""
    own = {host: configurations[host] for host in findings.hosts if host in configurations}
    if not own:
        return None
    apart = drift(own)
    return Drifted(
        apart, apart.by_hosts(), [(two, dividing_settings(own, two.better, two.worse)) for two in findings.divided]
    )


def _settings(deviations: Sequence[Deviation]) -> str:
    texts = described(deviations)
    more = len(texts) - _SETTINGS
    return clean("; ".join(texts[:_SETTINGS]) + (f"; and {count(more, 'more setting')}" if more > 0 else ""))


def _hosts(hosts: Sequence[str]) -> str:
    return f"{count(len(hosts), 'host')}, {fold(hosts)}"
