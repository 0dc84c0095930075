# SPDX-License-Identifier: Apache-2.0
"""The card at the top of a page: the verdict of a host or of a fleet, four results, and warnings."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

import numpy as np

from firsttouch.benchmarks.measure import WIDE
from firsttouch.judge.verdict import ORDER, HostVerdict, Word
from firsttouch.report import render, verdicts
from firsttouch.report.aspects import Aspects, topology
from firsttouch.report.document import Card, Tile
from firsttouch.report.fleet.ranks import Ranks
from firsttouch.report.model import HostView, Problem
from firsttouch.report.text import SIGNS, count, listed, plain
from firsttouch.units import percent

# ----------------------------------------------------------------------
# A host.


def of_host(
    view: HostView,
    title: str,
    aspects: Aspects,
    verdict: HostVerdict | None,
    problems: Sequence[Problem],
) -> Card:
    """Return the card of a host; *problems* are its checks without a result."""
    if verdict is None:
        sentence = "No references judge it: name its system (--system), or report five hosts or more together."
    else:
        passed = sum(f.verdict == "pass" for f in verdict.findings)
        sentence = f"{passed} of {count(len(verdict.findings), 'judged metric')} pass."
        if reason := verdict.reason() or (f"missing: {verdict.missing[0]}" if verdict.missing else ""):
            sentence += f" {reason}."
    return Card(
        key=f"{view.key}-card",
        title=title,
        word=verdict.verdict if verdict else "",
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


def of_fleet(
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
    hosts = "  ".join(f"{SIGNS[w]} {counts[w]}" for w in reversed(ORDER) if counts.get(w))
    return Card(
        key="fleet-card",
        title="the fleet",
        word=worst or "",
        sentence=sentence,
        tiles=(
            Tile("Hosts", hosts, ", ".join(verdicts.words(counts))),
            _worst_loss(ranks),
            Tile(
                "Complete",
                f"{total - partial - without} of {total}" if total else "",
                _age(ranks, generated),
            ),
            _drift(ranks, configured, deviating),
        ),
        warnings=_missing(partial, without),
    )


def _worst_loss(ranks: Sequence[Ranks]) -> Tile:
    name, worst = "Worst loss", (0, 0.0, "")
    for of_system in ranks:
        findings = of_system.findings
        if not len(findings.words):
            continue
        bad = np.flatnonzero(
            (findings.words == findings.words.max()) & (findings.words > 0) & np.isfinite(findings.change)
        )
        if len(bad):
            group = int(bad[np.argmax(findings.losses[bad])])
            host = findings.samples.hosts[findings.samples.host[group]]
            note = f"{host}, {findings.samples.cases[findings.samples.case[group]].title}"
            worst = max(worst, (int(findings.words[group]), float(findings.losses[group]), note))
    return Tile(name, percent(worst[1]) if worst[0] else "none", worst[2])


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
    divided = sum(len(of_system.findings.divided) for of_system in ranks)
    groups = f"hosts form two groups in {count(divided, 'metric')}" if divided else ""
    if not configured:
        return Tile("Drift", "two groups" if divided else "unknown", groups or "no configuration was recorded")
    note = "deviate from the configuration of most" + (f"; {groups}" if groups else "")
    return Tile("Drift", f"{deviating} of {count(configured, 'host')}", note)


def _missing(partial: int, without: int) -> list[str]:
    parts = [f"{count(without, 'host')} without any result"] if without else []
    parts += [f"{count(partial, 'host')} with missing results"] if partial else []
    return [f"{' and '.join(parts)}: see What is missing, below."] if parts else []
