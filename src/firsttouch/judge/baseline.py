# SPDX-License-Identifier: Apache-2.0
"""Learns a system's references from a fleet's records, and writes them into the system's file."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from firsttouch.errors import BadInput
from firsttouch.judge import fleet_level, host_level
from firsttouch.judge.fleet_level import FEWEST_HOSTS, LOSS, Level, divided, level, separated
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.judge.sprt import Groups
from firsttouch.records.cases import Case, distinguished, grouped
from firsttouch.records.catalogue import checks
from firsttouch.systems.definition import System

#: The lines around learnt references. A later run finds the block by them, and blocks of earlier versions too.
BEGIN = "  # Learnt by `firsttouch baseline`, which writes these lines anew: do not change them."
END = "  # End of what was learnt."
#: A reference that detects only losses larger than this many times the requested one is not written.
_LARGEST = 2.0
#: The line before the list of references, empty or not.
_EMPTY, _LIST = "references: []", "references:"


class Learnt(Struct, frozen=True):
    """A learnt reference: its case as references name it, and the fleet's level."""

    case: Case
    level: Level

    def line(self) -> str:
        """Return the reference as an item of the list in the system's file."""
        case, level = self.case, self.level
        value = f"{level.value:.6g}" if case.unit == "1" else json.dumps(f"{level.value:.6g} {case.unit}")
        share = f"{100 * level.limit:.3f} %"
        sides = {"lower": f"-{share}"} if case.better != "lower" else {}
        sides |= {"upper": share} if case.better != "higher" else {}
        today = datetime.date.today().isoformat()
        fields = {
            "check": case.check,
            "metric": case.metric,
            "parameters": json.dumps(dict(case.parameters)),
            "value": value,
            "tolerance": json.dumps(sides),
            "error": f'"{100 * level.error:.4f} %"',
            "source": f'"fleet of {level.hosts} hosts, {level.repetitions:.1f} repetitions each, {today}"',
        }
        return "- {" + ", ".join(f"{k}: {v}" for k, v in fields.items() if v != "{}") + "}"


class Baseline(Struct, frozen=True):
    """References, cases *not_learnt* with the reason, and *outliers* (case, relative difference) by host.

    Cases have the names of :attr:`Case.name`; *titles* are these in words.
    """

    learnt: tuple[Learnt, ...]
    not_learnt: Mapping[str, str]
    outliers: Mapping[str, Sequence[tuple[str, float]]]
    titles: Mapping[str, str]

    def weak(self, loss: float) -> dict[str, float]:
        """Return, by name, the smallest loss that each reference detects if that is more than *loss*."""
        return {r.case.name: r.level.visible for r in self.learnt if r.level.visible > loss * 1.001}


def learnt(samples: SamplesTable, system: System, *, loss: float = LOSS) -> Baseline:
    """Learn references from *samples*: what good hosts reach, with limits that detect *loss* (a fraction).

    *system* is without earlier learnt references. Its own references stay: no other is learnt for their cases.
    """
    numbers_of: dict[str, list[int]] = {}
    by_key: dict[str, Case] = {}
    for number, measured in enumerate(samples.cases):
        check, case = checks().get(measured.check), measured.of_references
        if check and case.metric in check.metrics and case.metric not in check.limits:
            numbers_of.setdefault(case.key, []).append(number)
            by_key.setdefault(case.key, case)
    references, not_learnt, titles = [], {}, {}
    outliers: dict[str, list[tuple[str, float]]] = {}
    teachers = [
        teacher
        for case in _ends_of_curves(distinguished([*by_key.values()]))
        if (teacher := _teacher(samples, case, numbers_of[case.key])) is not None
    ]
    spreads = fleet_level.pooled_spreads(
        [(t.case.check, fleet_level.host_levels(t.values), t.hosts) for t in teachers], len(samples.hosts)
    )
    for teacher, spread in zip(teachers, spreads, strict=True):
        case, good = teacher.case, teacher.values
        names, least = [samples.hosts[h] for h in teacher.hosts], fleet_level.rounding_limit(good)
        reached = level(
            good,
            names,
            case.better,
            loss,
            metrics=len(teachers),
            spread=spread,
            session=teacher.session,
            least=least,
        )
        why = _why_not(reached, case, len(good), system)
        if not why:
            groups = divided(good, names, case.better, least)
            too_wide = reached is not None and reached.visible > _LARGEST * loss
            if too_wide and groups is None:
                groups = separated(good, names, case.better, len(teachers), least)
            if groups is not None:
                why = f"two groups of hosts, name the right one with --hosts: {groups.text(case.unit)}"
            elif reached is not None and too_wide:
                why = _too_wide(reached)
        titles[case.name] = case.title
        if reached is None or why:
            not_learnt[case.name] = why
            continue
        references.append(Learnt(case, reached))
        for host, share in reached.outliers.items():
            outliers.setdefault(host, []).append((case.name, share))
    return Baseline(tuple(references), not_learnt, outliers, titles)


def _ends_of_curves(cases: Sequence[Case]) -> list[Case]:
    """Return the cases, but only the ends of a curve over sizes: at a cache's edge, hosts differ."""

    def curve_of(case: Case) -> str:
        return replace(case, parameters={k: v for k, v in case.parameters.items() if k != "size_bytes"}).key

    kept = [case for case in cases if case.parameters.get("size_bytes") is None]
    sized = (case for case in cases if case.parameters.get("size_bytes") is not None)
    for curve in grouped(sized, curve_of).values():
        ordered = sorted(curve, key=lambda case: case.parameters["size_bytes"])
        kept += ordered if len(ordered) == 1 else [ordered[0], ordered[-1]]
    return kept


def _why_not(reached: Level | None, case: Case, hosts: int, system: System) -> str:
    """Return why there is no reference of a case, or an empty string."""
    own = system.reference(case.check, case.metric, case.parameters)
    if own is not None and len(own.parameters) >= len(case.parameters):
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


class _Teacher(Struct, frozen=True):
    """The repetitions since each host's last change of some cases that are one for references, *case*.

    *hosts* are the numbers of the hosts, and *session* are the variance of a single session beyond a level, and
    its degrees of freedom.
    """

    case: Case
    values: Groups
    hosts: NDArray[np.int32]
    session: tuple[float, float]


def _teacher(samples: SamplesTable, case: Case, numbers: Sequence[int]) -> _Teacher | None:
    """Return the repetitions of some cases that a reference can be learnt from, None if there are none."""
    good, hosts, session, times = samples.good(numbers)
    if not len(good):
        return None
    newest = host_level.newest(good, session, times)
    counts = good.sums(newest.rows.astype(np.int64))
    current = Groups(good.values[newest.rows], counts)
    return _Teacher(case, current, hosts, newest.session_variance)


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
