# SPDX-License-Identifier: Apache-2.0
"""Judges records by a system's references: tolerance, better direction, and never by a single noisy pass.

Records of one host and case are passes: the same thing measured again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from firsttouch.records import Record
from firsttouch.systems import Reference, System
from firsttouch.systems.vocabulary import PARAMETERS
from firsttouch.verdict.model import Finding, HostVerdict, Word

#: Parameters that name a case beside those that a reference may name.
_BESIDE = ("effort", "division", "reads")
#: A metric is measured this often before it stays suspect.
MOST_PASSES = 3


def judge(
    records: Iterable[Record], system: System, *, missing: Mapping[str, Sequence[str]] | None = None
) -> list[HostVerdict]:
    """Return the verdict of every host that has records of *system*, or that is among *missing*, by name.

    *missing* holds, by host, what should have been measured and was not. What some hosts were measured and
    judged by and another one was not is missing of that one, too.
    """
    by_host: dict[str, dict[str, list[Record]]] = {host: {} for host in missing or ()}
    for record in records:
        if record.system == system.name:
            by_host.setdefault(record.host, {}).setdefault(_key(record), []).append(record)
    found: dict[str, list[Finding]] = {}
    unjudged: dict[str, int] = {}
    names: dict[str, dict[str, str]] = {}
    for host, cases in by_host.items():
        every = {key: _finding(passes, system) for key, passes in cases.items()}
        found[host] = [f for f in every.values() if f.reference or f.verdict != "pass"]
        unjudged[host] = len(every) - len(found[host])
        names[host] = {key: f.name for key, f in every.items() if f.reference}
    fleet = {key: name for mine in names.values() for key, name in mine.items()}
    return [
        HostVerdict(
            host,
            system.name,
            tuple(found[host]),
            unjudged[host],
            (*(missing or {}).get(host, ()), *_absent(fleet, by_host[host])),
        )
        for host in sorted(by_host)
    ]


def undecided(passes: Sequence[Record], system: System) -> bool:
    """Tell whether the passes of one case leave it suspect, and one more may decide."""
    return len(passes) < MOST_PASSES and _finding(passes, system).verdict == "suspect"


def cases(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield the passes of each case of one host's records."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(_key(record), []).append(record)
    yield from grouped.values()


def _absent(fleet: Mapping[str, str], mine: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    for key, name in fleet.items():
        if mine and key not in mine:
            yield f"{name}: other hosts were judged by it"


def _case(record: Record) -> dict[str, Any]:
    known = PARAMETERS.get(record.check)
    names = record.parameters if known is None else (*known, *_BESIDE)
    return {name: record.parameters[name] for name in names if name in record.parameters}


def _key(record: Record) -> str:
    return json.dumps([record.check, record.metric, _case(record)], sort_keys=True, default=str)


def _finding(passes: Sequence[Record], system: System) -> Finding:
    """Return the finding of one case; its reference is None where nothing judges it."""
    ordered = sorted(passes, key=lambda r: r.time)
    valid = [r for r in ordered if r.status == "valid"]
    last = ordered[-1]
    judging = system.reference(last.check, last.metric, last.parameters) if last.judged else None
    word: Word
    if not valid:
        word, why = "invalid", last.reason or "its placement did not hold"
    elif judging is None:
        word, why = "pass", "no reference"
    else:
        word, why = _by_reference(valid, judging)
    values = tuple(r.value for r in valid)
    return Finding(last.check, last.metric, _case(last), last.unit, values, judging, word, why)


def _by_reference(passes: Sequence[Record], reference: Reference) -> tuple[Word, str]:
    """Return the verdict of some passes, and why.

    Outside in at least two passes and in all of them: fail. Outside in less than half of them: pass. Anything
    between is suspect. Better than the tolerance is never a fail, but something is wrong with the measurement
    or with the reference.
    """
    minimum, maximum, better = reference.minimum, reference.maximum, passes[0].better
    low = [r for r in passes if minimum is not None and r.value < minimum]
    high = [r for r in passes if maximum is not None and r.value > maximum]
    bad = {"higher": low, "lower": high, "neither": [*low, *high]}[better]
    good = {"higher": high, "lower": low, "neither": []}[better]
    shown = ", ".join(f"{r.value:.4g}" for r in passes) + f" {reference.unit}"
    limits = [f"at least {minimum:.4g}"] if minimum is not None else []
    limits += [f"at most {maximum:.4g}"] if maximum is not None else []
    why = f"{shown}, {' and '.join(limits) or 'any value'} expected ({reference.source})"
    if len(bad) == len(passes) > 1:
        return "fail", why
    if 2 * len(bad) >= len(passes):
        return "suspect", f"{why}; outside in {len(bad)} of {len(passes)} passes"
    if 2 * len(good) >= len(passes):
        return "suspect", f"{why}; better than it can be: a wrong measurement or reference"
    return "pass", why
