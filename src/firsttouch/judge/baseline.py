# SPDX-License-Identifier: Apache-2.0
"""Learns a system's references from a fleet's records, and writes them into the system's file."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttouch.errors import BadInput
from firsttouch.judge import fleet_level, host_level
from firsttouch.judge.fleet_level import FEWEST_HOSTS, LOSS, Level, divided, level
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.judge.sprt import Groups
from firsttouch.systems.cases import Case, case_in_words, case_name
from firsttouch.systems.definition import System
from firsttouch.systems.metrics import checks

#: The lines around learnt references. A later run finds the block by them, and blocks of earlier versions too.
BEGIN = "  # Learnt by `firsttouch baseline`, which writes these lines anew: do not change them."
END = "  # End of what was learnt."
#: A reference that detects only losses larger than this many times the requested one is not written.
_LARGEST = 2.0
#: The line before the list of references, empty or not.
_EMPTY, _LIST = "references: []", "references:"


@dataclass(frozen=True)
class Learnt:
    """A learnt reference: the parameters that name its case, a sample of the case, and the fleet's level."""

    case: Mapping[str, Any]
    sample: Case
    level: Level

    @property
    def name(self) -> str:
        """The metric with the parameters of its case."""
        return case_name(self.sample.check, self.sample.metric, self.case, self.sample.distinctive)

    @property
    def title(self) -> str:
        """The same in words."""
        return case_in_words(self.sample.check, self.sample.metric, self.case, self.sample.distinctive)

    def line(self) -> str:
        """Return the reference as an item of the list in the system's file."""
        sample, level = self.sample, self.level
        value = f"{level.value:.6g}" if sample.unit == "1" else json.dumps(f"{level.value:.6g} {sample.unit}")
        share = f"{100 * level.limit:.3f} %"
        sides = {"lower": f"-{share}"} if sample.better != "lower" else {}
        sides |= {"upper": share} if sample.better != "higher" else {}
        today = datetime.date.today().isoformat()
        fields = {
            "check": sample.check,
            "metric": sample.metric,
            "parameters": json.dumps(dict(self.case)),
            "value": value,
            "tolerance": json.dumps(sides),
            "error": f'"{100 * level.error:.4f} %"',
            "source": f'"fleet of {level.hosts} hosts, {level.repetitions:.1f} repetitions each, {today}"',
        }
        return "- {" + ", ".join(f"{k}: {v}" for k, v in fields.items() if v != "{}") + "}"


@dataclass(frozen=True)
class Baseline:
    """References, cases *not_learnt* with the reason, and *outliers* (case, relative difference) by host.

    Cases have the names of :attr:`Learnt.name`; *titles* are these in words.
    """

    learnt: tuple[Learnt, ...]
    not_learnt: Mapping[str, str]
    outliers: Mapping[str, Sequence[tuple[str, float]]]
    titles: Mapping[str, str]

    def weak(self, loss: float) -> dict[str, float]:
        """Return, by name, the smallest loss that each reference detects if that is more than *loss*."""
        return {r.name: r.level.visible for r in self.learnt if r.level.visible > loss * 1.001}


def learnt(samples: SamplesTable, system: System, *, loss: float = LOSS) -> Baseline:
    """Learn references from *samples*: what good hosts reach, with limits that detect *loss* (a fraction).

    *system* is without earlier learnt references. Its own references stay: no other is learnt for their cases.
    """
    alike: dict[str, list[int]] = {}
    for number, case in enumerate(samples.cases):
        check = checks().get(case.check)
        if check and case.metric in check.metrics and case.metric not in check.limits:
            key = json.dumps([case.check, case.metric, _parameters(case)], sort_keys=True)
            alike.setdefault(key, []).append(number)
    references, not_learnt, titles = [], {}, {}
    outliers: dict[str, list[tuple[str, float]]] = {}
    teachers = [
        teacher
        for numbers in _ends_of_curves(list(alike.values()), samples.cases)
        if (teacher := _teacher(samples, numbers)) is not None
    ]
    spreads = fleet_level.pooled_spreads(
        [((t.sample.check, t.sample.metric), fleet_level.host_levels(t.values), t.hosts) for t in teachers],
        len(samples.hosts),
    )
    for teacher, spread in zip(teachers, spreads, strict=True):
        sample, good = teacher.sample, teacher.values
        names = [samples.hosts[h] for h in teacher.hosts]
        reached = level(
            good,
            names,
            sample.better,
            loss,
            metrics=len(teachers),
            spread=spread,
            session=teacher.session,
        )
        why = _why_not(reached, sample, len(good), system)
        if not why and (two := divided(good, names, sample.better)) is not None:
            why = f"two groups of hosts, name the right one with --hosts: {two.text(sample.unit)}"
        elif not why and reached is not None and reached.visible > _LARGEST * loss:
            why = _too_wide(reached)
        if reached is None or why:
            naming = (sample.check, sample.metric, _parameters(sample), sample.distinctive)
            not_learnt[case_name(*naming)] = why
            titles[case_name(*naming)] = case_in_words(*naming)
            continue
        references.append(Learnt(_parameters(sample), sample, reached))
        titles[references[-1].name] = references[-1].title
        for host, share in reached.outliers.items():
            outliers.setdefault(host, []).append((references[-1].name, share))
    return Baseline(tuple(references), not_learnt, outliers, titles)


def _parameters(case: Case) -> dict[str, Any]:
    """Return the parameters of a case that a reference may name."""
    return {k: case.parameters[k] for k in checks()[case.check].parameters if k in case.parameters}


def _ends_of_curves(alike: Sequence[Sequence[int]], cases: Sequence[Case]) -> list[Sequence[int]]:
    """Return the cases, but only the ends of a curve over sizes: at a cache's edge, hosts differ."""
    sizes: dict[str, list[tuple[int, Sequence[int]]]] = {}
    kept = []
    for numbers in alike:
        case = cases[numbers[0]]
        if (size := case.parameters.get("size_bytes")) is None:
            kept.append(numbers)
        else:
            rest = {k: v for k, v in _parameters(case).items() if k != "size_bytes"}
            key = json.dumps([case.check, case.metric, rest], sort_keys=True)
            sizes.setdefault(key, []).append((size, numbers))
    for curve in sizes.values():
        ordered = [numbers for _, numbers in sorted(curve, key=lambda c: c[0])]
        kept += ordered if len(ordered) == 1 else [ordered[0], ordered[-1]]
    return kept


def _why_not(reached: Level | None, sample: Case, hosts: int, system: System) -> str:
    """Return why there is no reference of a case, or an empty string."""
    parameters = _parameters(sample)
    own = system.reference(sample.check, sample.metric, parameters)
    if own is not None and len(own.parameters) >= len(parameters):
        return f"the system's file already has a reference for it (line {own.line})"
    if reached is None and hosts < FEWEST_HOSTS:
        return f"{hosts} hosts have it, {FEWEST_HOSTS} are needed"
    if reached is None:
        return "its values are not above 0"
    return ""


def _too_wide(reached: Level) -> str:
    """Return why a reference would only find large losses."""
    visible = f"only a loss of {100 * reached.visible:.0f} % would be detected"
    if reached.more_repetitions:
        return (
            f"its repetitions differ too much: {visible}; {reached.more_repetitions} more of each host are needed"
        )
    return f"good hosts differ too much, or {reached.hosts} hosts are too few to tell: {visible}"


@dataclass(frozen=True)
class _Teacher:
    """The repetitions since each host's last change of some cases taken as one, of which *sample* is one.

    *hosts* are the numbers of the hosts, and *session* are the variance of a single session beyond a level, and
    its degrees of freedom.
    """

    sample: Case
    values: Groups
    hosts: NDArray[np.int32]
    session: tuple[float, float]


def _teacher(samples: SamplesTable, numbers: Sequence[int]) -> _Teacher | None:
    """Return the repetitions of some cases that a reference can be learnt from, None if there are none."""
    good, hosts, session, times = samples.good(numbers)
    if not len(good):
        return None
    newest = host_level.newest(good, session, times)
    counts = good.sums(newest.rows.astype(np.int64))
    current = Groups(good.values[newest.rows], counts)
    return _Teacher(samples.cases[numbers[0]], current, hosts, newest.session_variance)


def without(text: str) -> str:
    """Return the text of a system's file without the references that were learnt before."""
    lines = text.split("\n")
    if BEGIN not in lines or END not in lines:
        return text
    begin, end = lines.index(BEGIN), lines.index(END)
    following = next((line for line in lines[end + 1 :] if line.strip() and line.strip()[0] != "#"), "")
    if lines[begin - 1] == _LIST and following.strip()[:1] != "-":  # nothing else is in the list
        lines[begin - 1] = _EMPTY
    return "\n".join([*lines[:begin], *lines[end + 1 :]])


def put(text: str, learnt: Baseline) -> str:
    """Return the text of a system's file, :func:`without` earlier learnt references, with those of *learnt*.

    Raises BadInput if the file's own references are on one line.
    """
    if not learnt.learnt:
        return text
    lines = text.rstrip("\n").split("\n")
    begin = next((i for i, line in enumerate(lines) if line.startswith(_LIST)), None)
    if begin is None:
        lines.append(_LIST)
        begin = len(lines) - 1
    rest = lines[begin].removeprefix(_LIST).split("#")[0].strip()
    if rest not in {"", "[]"}:
        raise BadInput(
            "its references are on one line: write each on a separate line, so that others can be added"
        )
    if rest:
        lines[begin] = _LIST
    # First in the list, indented as the others are.
    after = next((line for line in lines[begin + 1 :] if line.lstrip().startswith("- ")), "  - ")
    indent = after[: len(after) - len(after.lstrip())] if rest == "" else "  "
    block = [BEGIN, *(indent + reference.line() for reference in learnt.learnt), END]
    return "\n".join([*lines[: begin + 1], *block, *lines[begin + 1 :]]) + "\n"
