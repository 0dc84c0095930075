# SPDX-License-Identifier: Apache-2.0
"""Verdicts in a document: the card at the top of a page, and a line per host with its evidence, worst first."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from firsttouch.benchmarks.measure import WIDE
from firsttouch.judge.verdict import ORDER, HostVerdict, Word, answer, deciding
from firsttouch.report import render
from firsttouch.report.aspects import Aspects, topology
from firsttouch.report.document import Card, Fold, Group, Listing, Paragraph, Span, Table, Tile, word_span
from firsttouch.report.fleet.ranks import Ranks
from firsttouch.report.model import HostView, Problem
from firsttouch.report.text import SIGNS, count, listed, plain
from firsttouch.units import percent

# ----------------------------------------------------------------------
# The verdicts of hosts.

#: Lines of evidence that a page has.
_ON_PAGE = 20
#: Other parts than the deciding one that a card has.
_OTHERS = 2


def worst_first(verdicts: Sequence[HostVerdict]) -> list[HostVerdict]:
    """Return *verdicts* in order of severity."""
    return sorted(verdicts, key=lambda v: (-ORDER.index(v.verdict), v.host))


def counted(verdicts: Sequence[HostVerdict]) -> str:
    """Return how many hosts have each verdict: ``Verdicts: 1 fail, 3 pass``."""
    return f"Verdicts: {', '.join(words(Counter(v.verdict for v in verdicts)))}"


def words(counts: Mapping[Word, int]) -> list[str]:
    """Return the number of hosts with each verdict, the worst first: ``1 fail``."""
    return [f"{counts[word]} {word}" for word in reversed(ORDER) if counts.get(word)]


def table(verdicts: Sequence[HostVerdict], *, lines: int) -> Table:
    """Return the table of *verdicts* with the first *lines* of evidence of each."""
    rows = []
    for v in verdicts:
        texts = v.findings_evidence
        hidden = [f"and {len(texts) - lines} more"] if len(texts) > lines else []
        rows.append((v.host, v.verdict, _judged(v), v.cause, "; ".join([*texts[:lines], *hidden])))
    return Table("Verdicts", ("host", "verdict", "judged", "possible cause", "evidence"), rows)


def _judged(verdict: HostVerdict) -> str:
    return f"{sum(f.verdict == 'pass' for f in verdict.findings)} of {len(verdict.findings)} pass"


def folds(
    verdicts: Sequence[HostVerdict],
    keys: Mapping[str, str],
    pages: Mapping[str, str] = MappingProxyType({}),
    *,
    complete: str = "summary.json",
) -> Group:
    """Return a line for each verdict, with its evidence folded.

    *keys* are the addresses of hosts within the page, *pages* those of their own pages. *complete* is the
    file with all evidence.
    """
    return Group("hosts", [_fold(v, keys[v.host], pages.get(v.host, ""), complete) for v in verdicts])


def _fold(verdict: HostVerdict, key: str, page: str, complete: str) -> Fold:
    lines, judged = verdict.findings_evidence, _judged(verdict)
    why = lines[0].removeprefix(f"{verdict.verdict}: ") if lines else judged
    why += f"; and {len(lines) - 1} more" if len(lines) > 1 else ""
    texts = lines[:_ON_PAGE]
    texts += [f"and {len(lines) - _ON_PAGE} more in {complete}"] if len(lines) > _ON_PAGE else []
    cause = f" Possible cause: {verdict.cause}." if verdict.cause else ""
    links = [" ", Span(f"All results of {verdict.host}", link=page)] if page else []
    links += [" ", Span(f"Link to {verdict.host}", link=f"#{key}")]
    return Fold(
        [word_span(verdict.verdict), " ", Span(verdict.host, "b"), " ", Span(why, tone="why")],
        [Paragraph([f"{judged}.{cause}", *links], key=key), *([Listing(texts)] if len(lines) > 1 else [])],
    )


# ----------------------------------------------------------------------
# A host.


#: The verdict whose colour and sign an answer has.
_LIKE: Mapping[str, Word] = {"as expected": "pass", "low": "suspect", "unknown": "undecided"}
#: What to do next about a low part.
_AGAIN, _MODULES = "Measure it again", "; if it stays low, look at its memory modules and firmware"


def answered(verdict: HostVerdict) -> str:
    """Return what the parts of a host reach that nothing else judged, and what to do next."""
    first = deciding(verdict.expected)
    if first is None:
        return "Neither its bandwidth nor its latency was measured."
    others = [e for e in verdict.expected if e.answer != "as expected" and e is not first]
    others.sort(key=lambda e: e.answer != "low")
    texts = [e.text() for e in (first, *others[:_OTHERS])]
    texts += [f"and {len(others) - _OTHERS} more"] if len(others) > _OTHERS else []
    if first.answer == "low":
        low = {e.part.split()[0] for e in (first, *others) if (e.answer, e.kind == "count") == ("low", False)}
        texts.append(_AGAIN + _MODULES * bool(low & {"memory", "modules"}))
    return ". ".join(f"{text[0].upper()}{text[1:]}" for text in texts) + "."


def card_of_host(
    view: HostView,
    title: str,
    aspects: Aspects,
    verdict: HostVerdict | None,
    problems: Sequence[Problem],
    *,
    is_judged: bool,
    placement: str = "",
) -> Card:
    """Return the card of a host; *problems* are its checks without a result, *placement* what is recommended."""
    if verdict is None:
        sentence = "Not judged: there is nothing to compare with."
    elif not is_judged:
        sentence = answered(verdict)
    else:
        passed = sum(f.verdict == "pass" for f in verdict.findings)
        sentence = f"{passed} of {count(len(verdict.findings), 'judged metric')} pass."
        if reason := verdict.why():
            sentence += f" {reason}."
    sentence += f" {placement}." if placement else ""
    stated = answer(verdict.expected) if verdict and not is_judged else ""
    return Card(
        key=render.card_key(view),
        title=title,
        word=_LIKE.get(stated, verdict.verdict if verdict else ""),
        answer=stated,
        sentence=sentence,
        tiles=[aspect.tile for section in aspects.values() for aspect in section if aspect.tile],
        warnings=_warnings(view, aspects, problems),
        facts=_facts(view),
    )


def _warnings(view: HostView, aspects: Aspects, problems: Sequence[Problem]) -> list[str]:
    """Return what a reader must know before using any number of the page."""
    warnings = []
    records = {id(result.record): result.record for result in render.results(aspects)}
    repeated = [r for r in records.values() if r and r.repetitions > 1]
    wide = [r for r in repeated if r.spread > WIDE]
    if wide:
        warnings.append(
            f"This host was not idle: {len(wide)} of {count(len(repeated), 'metric')} "
            f"{'varies' if len(wide) == 1 else 'vary'} by more than {100 * WIDE:.0f} %. "
            "Measure again when it is idle."
        )
    if view.invalid:
        warnings.append(
            f"{count(len(view.invalid), 'record')} {'is' if len(view.invalid) == 1 else 'are'} invalid: "
            "a placement did not hold, or the output was wrong. No figure shows them."
        )
    if failed := [p for p in problems if p.kind == "failed" and p.host in {"", view.host}]:
        warnings.append(f"{count(len(failed), 'check')} failed: {listed((p.name for p in failed), most=4)}.")
    return warnings


def _facts(view: HostView) -> list[str]:
    """Return what the host is and when it was measured, each in a few words."""
    names = view.settings
    model = names.get("cpu.model") or (view.topology.info.get("CPUModel") if view.topology else None)
    facts = [plain(model)] if model else []
    facts += topology.size_texts(view)
    firmware = " ".join(names[k] for k in ("firmware.vendor", "firmware.version") if k in names)
    facts += [f"firmware {firmware}"] if firmware else []
    days = sorted({r.time[:10] for r in (*view.valid, *view.invalid) if r.time})
    if days:
        facts.append(f"measured {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else ""))
    return facts


# ----------------------------------------------------------------------
# A fleet.


def card_of_fleet(
    ranks: Sequence[Ranks],
    counts: Mapping[Word, int],
    sentence: str,
    *,
    partial: int,
    without: int,
    configured: int,
    deviating: int,
    generated: datetime.datetime,
) -> Card:
    """Return the card of the hosts of all systems.

    *counts* are the hosts by verdict; *partial* of them lack some results, *without* lack all. The configuration
    of *configured* hosts is known, and *deviating* ones differ from most. *generated* is the time of the report.
    """
    total = sum(counts.values())
    worst = next((word for word in reversed(ORDER) if counts.get(word)), None)
    missing = [f"{count(without, 'host')} without any result"] if without else []
    missing += [f"{count(partial, 'host')} with missing results"] if partial else []
    hosts = "  ".join(f"{SIGNS[w]} {counts[w]}" for w in reversed(ORDER) if counts.get(w))
    return Card(
        key="fleet-card",
        title="the fleet",
        word=worst or "",
        sentence=sentence,
        tiles=(
            Tile("Hosts", hosts, ", ".join(words(counts))),
            _worst_loss(ranks),
            Tile("Complete", f"{total - partial - without} of {total}" if total else "", _age(ranks, generated)),
            _drift(ranks, configured, deviating),
        ),
        warnings=[f"{' and '.join(missing)}: see What is missing, below."] if missing else [],
    )


def _worst_loss(ranks: Sequence[Ranks]) -> Tile:
    worst = (0, 0.0, "")
    for of_system in ranks:
        findings = of_system.findings
        is_worst = (findings.words == findings.words.max(initial=0)) & (findings.words > 0)
        if len(bad := np.flatnonzero(is_worst & np.isfinite(findings.change))):
            group = int(bad[np.argmax(findings.losses[bad])])
            host = findings.samples.hosts[findings.samples.host[group]]
            note = f"{host}, {findings.samples.cases[findings.samples.case[group]].title}"
            worst = max(worst, (int(findings.words[group]), float(findings.losses[group]), note))
    return Tile("Worst loss", percent(worst[1]) if worst[0] else "none", worst[2])


def _age(ranks: Sequence[Ranks], generated: datetime.datetime) -> str:
    """Return how old the newest results of the hosts are, in days before the report."""
    newest = [r.findings.host_newest[r.findings.host_newest > 0] for r in ranks]
    times_of = np.concatenate(newest) if newest else np.array([], dtype=np.int64)
    if not len(times_of):
        return "no time was recorded"
    oldest, youngest = (
        (generated.timestamp() * 1000 - int(t)) / 86_400_000 for t in (times_of.min(), times_of.max())
    )
    if oldest < 0:
        return "measured after the time of this report"
    days = f"{max(0, int(youngest))} to {int(oldest)}" if int(oldest) > int(youngest) else f"{int(oldest)}"
    return f"have all results, {days} {'day' if days == '1' else 'days'} old"


def _drift(ranks: Sequence[Ranks], configured: int, deviating: int) -> Tile:
    divided = sum(len(two.parts) for of_system in ranks for two in of_system.findings.divided)
    groups = f"hosts form two groups in {count(divided, 'part')}" if divided else ""
    if not configured:
        return Tile("Drift", "two groups" if divided else "unknown", groups or "no configuration was recorded")
    note = "deviate from the configuration of most" + (f"; {groups}" if groups else "")
    return Tile("Drift", f"{deviating} of {count(configured, 'host')}", note)
