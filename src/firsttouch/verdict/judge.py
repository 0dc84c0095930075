# SPDX-License-Identifier: Apache-2.0
"""Judges records by a system's references and by the fleet: better direction, and never by a single noisy pass.

Records of one host and case are passes: the same thing measured again. Where the error of a pass is known, the
verdict says how sure it is.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from firsttouch.records import Record
from firsttouch.settings import METRICS as SETTINGS
from firsttouch.systems import Reference, System
from firsttouch.systems.vocabulary import PARAMETERS
from firsttouch.verdict import sure
from firsttouch.verdict.causes import Signs, causes
from firsttouch.verdict.fleet import learn
from firsttouch.verdict.model import ORDER, Finding, HostVerdict, Word

#: Parameters that name a case beside those that a reference may name.
_BESIDE = ("effort", "division", "reads")
#: A metric is measured this often before it stays as it is, and this often where its error is known and one more
#: pass makes the verdict surer.
_MOST_TOLD = 3
MOST_PASSES = 12


def judge(
    records: Iterable[Record], system: System, *, missing: Mapping[str, Sequence[str]] | None = None
) -> list[HostVerdict]:
    """Return the verdict of every host that has records of *system*, or that is among *missing*, by name.

    *missing* holds, by host, what should have been measured and was not. What some hosts were measured and
    judged by and another one was not is missing of that one, too. A metric whose reference tells no error of a
    pass, or that has none, is judged by what the majority of the hosts reach, if they are enough.
    """
    by_host: dict[str, dict[str, list[Record]]] = {host: {} for host in missing or ()}
    settings: dict[str, dict[str, float]] = {}
    for record in records:
        if record.system != system.name:
            continue
        if record.check == "topology":
            settings.setdefault(record.host, {})[record.metric] = record.value
        if record.metric not in SETTINGS:
            by_host.setdefault(record.host, {}).setdefault(_key(record), []).append(record)
    expected = _fleet(by_host, system)
    found: dict[str, list[Finding]] = {}
    unjudged: dict[str, int] = {}
    names: dict[str, dict[str, str]] = {}
    for host, cases in by_host.items():
        every = {key: _finding(passes, system, expected.get(key)) for key, passes in cases.items()}
        found[host] = [f for f in every.values() if f.reference or f.verdict != "pass"]
        unjudged[host] = len(every) - len(found[host])
        names[host] = {key: f.name for key, f in every.items() if f.reference}
    fleet = {key: name for mine in names.values() for key, name in mine.items()}
    return [
        _explained(
            HostVerdict(
                host,
                system.name,
                tuple(found[host]),
                unjudged[host],
                (*(missing or {}).get(host, ()), *_absent(fleet, by_host[host])),
            ),
            settings.get(host, {}),
            system,
        )
        for host in sorted(by_host)
    ]


def _explained(verdict: HostVerdict, values: Mapping[str, float], system: System) -> HostVerdict:
    """Return a verdict with its causes, where it is not good."""
    if all(f.verdict == "pass" for f in verdict.findings):
        return verdict
    return replace(verdict, causes=tuple(causes(Signs(verdict.findings, values, system.facts))))


def undecided(passes: Sequence[Record], system: System, most: int = MOST_PASSES) -> bool:
    """Tell whether the passes of one case, *most* at most, leave it suspect or unsure, and one more may decide."""
    found = _finding(passes, system)
    if found.evidence is None:
        return len(passes) < _MOST_TOLD and found.verdict == "suspect"
    return len(passes) < most and (sure.PASS_AT < found.evidence < sure.FAIL_AT or found.verdict == "suspect")


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


def _fleet(by_host: Mapping[str, Mapping[str, Sequence[Record]]], system: System) -> dict[str, Reference]:
    """Return, by case, what to expect by the fleet's majority, where nothing was learnt of a fleet before."""
    values: dict[str, dict[str, list[float]]] = {}
    sample: dict[str, Record] = {}
    for host, cases in by_host.items():
        for key, passes in cases.items():
            if valid := [r for r in passes if r.status == "valid" and r.judged]:
                sample[key] = valid[0]
                values.setdefault(key, {})[host] = [r.value for r in sorted(valid, key=lambda r: r.time)]
    found = {}
    for key, mine in values.items():
        one = sample[key]
        told = system.reference(one.check, one.metric, one.parameters)
        if told is not None and told.error is not None:
            continue
        level = learn(mine, one.better)
        if level is not None and level.doubt <= level.limit / 4:
            source = f"{level.hosts} of {len(mine)} hosts of this fleet"
            learnt = (level.value, -level.limit, level.limit, one.unit, source, 0, level.error)
            found[key] = Reference(one.check, one.metric, _case(one), *learnt)
    return found


def _finding(passes: Sequence[Record], system: System, fleet: Reference | None = None) -> Finding:
    """Return the finding of one case; its reference is None where nothing judges it."""
    ordered = sorted(passes, key=lambda r: r.time)
    valid = [r for r in ordered if r.status == "valid"]
    last = ordered[-1]
    told = system.reference(last.check, last.metric, last.parameters) if last.judged else None
    judging = [r for r in (told, fleet) if r is not None]
    values = tuple(r.value for r in valid)
    make = functools.partial(Finding, last.check, last.metric, _case(last), last.unit, values, better=last.better)
    if not valid:
        return make(next(iter(judging), None), "invalid", last.reason or "its placement did not hold")
    if not judging:
        return make(None, "pass", "no reference")
    found = [make(r, *_by_reference(valid, r)) for r in judging]
    return max(found, key=lambda f: ORDER.index(f.verdict))


def _by_reference(passes: Sequence[Record], reference: Reference) -> tuple[Word, str, float | None]:
    """Return the verdict of some passes, why, and the evidence where the error of a pass is known.

    Better than the tolerance is never a fail, but something is wrong with the measurement or with the reference.
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
    weighed = _weighed(passes, reference)
    if weighed is not None:
        word: Word = "fail" if weighed >= sure.FAIL_AT else "suspect" if weighed > 0 else "pass"
        why += f"; {sure.certainty(weighed):.2%} sure"
    else:
        word, why = _counted(len(bad), len(passes), why)
    if word == "pass" and 2 * len(good) >= len(passes) and reference.line:
        return "suspect", f"{why}; better than it can be: a wrong measurement or reference", weighed
    return word, why, weighed


def _counted(bad: int, passes: int, why: str) -> tuple[Word, str]:
    """Return the verdict by how many passes are outside.

    Outside in at least two passes and in all of them: fail. Outside in less than half of them: pass. Anything
    between is suspect.
    """
    if bad == passes > 1:
        return "fail", why
    if 2 * bad >= passes:
        return "suspect", f"{why}; outside in {bad} of {passes} passes"
    return "pass", why


def _weighed(passes: Sequence[Record], reference: Reference) -> float | None:
    """Return the evidence against the passes, on the worse side; None where the error of a pass is unknown."""
    if reference.error is None:
        return None
    changes = [r.value / reference.value - 1 for r in passes]
    sides = []
    if passes[0].better != "lower" and reference.lower:
        sides.append(sure.weight([-c for c in changes], -reference.lower, reference.error))
    if passes[0].better != "higher" and reference.upper:
        sides.append(sure.weight(changes, reference.upper, reference.error))
    return max(sides, default=None)
