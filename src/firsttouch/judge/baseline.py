# SPDX-License-Identifier: Apache-2.0
"""Learns from a fleet: references of a system, and the share of theory that reads on a processor reach."""

from __future__ import annotations

import datetime
import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.documents import Percentage
from firsttouch.errors import BadInput
from firsttouch.host.host_lists import fold
from firsttouch.judge import constants, questions
from firsttouch.judge.part_judge import Fleet, judge_parts
from firsttouch.records.cases import Case, by_key, with_distinct_names
from firsttouch.records.catalogue import checks
from firsttouch.records.drift import Configuration
from firsttouch.records.groups import Ints, group_medians, group_sums, middles
from firsttouch.records.parts import part_of
from firsttouch.records.samples_table import SamplesTable
from firsttouch.statistics import as_fraction, as_logarithm
from firsttouch.systems import processors
from firsttouch.systems.definition import System
from firsttouch.systems.expectation import SHARE_TOLERANCES, HostParts, processor_name, settled
from firsttouch.systems.processors import Family, Model
from firsttouch.systems.references import Reference
from firsttouch.units import percent

#: A share that is this much below the known one may come from hosts that are all slow.
_LESS = SHARE_TOLERANCES["model"]


class Learnt(Struct, frozen=True):
    """A learnt *reference* of a *case*: what good hosts reach, with a tolerance of *limit* on the bad side."""

    case: Case
    reference: Reference
    limit: float


class Baseline(Struct, frozen=True):
    """References, cases *not_learnt* with the reason, and *outliers* (case, relative difference) by host."""

    learnt: Sequence[Learnt]
    not_learnt: Sequence[tuple[Case, str]]
    outliers: Mapping[str, Sequence[tuple[Case, float]]]

    def weak(self, loss: float) -> list[Learnt]:
        """Return the references whose tolerance allows more than *loss*, the largest one first."""
        weak = (reference for reference in self.learnt if reference.limit > loss * 1.001)
        return sorted(weak, key=lambda reference: -reference.limit)


def learnt(samples: SamplesTable, system: System, *, loss: float = constants.DOUBTFUL_LOSS) -> Baseline:
    """Learn references from *samples*: the levels of good hosts, with a tolerance of *loss* (a fraction) or more.

    *system* excludes references that were learnt earlier. Cases with another reference are not learnt.
    """
    numbers_of: dict[str, list[int]] = {}
    by_key: dict[str, Case] = {}
    for number, measured in enumerate(samples.cases):
        check, case = checks().get(measured.check), measured.of_references
        if check and not case.exact and case.metric in check.metrics and case.metric not in check.limits:
            numbers_of.setdefault(case.key, []).append(number)
            by_key.setdefault(case.key, case)
    cases = _one_for_each_part(with_distinct_names([*by_key.values()]))
    fleet = judge_parts(samples, [number for case in cases for number in numbers_of[case.key]], fleet=True)
    references: list[Learnt] = []
    not_learnt: list[tuple[Case, str]] = []
    outliers: dict[str, list[tuple[Case, float]]] = {}
    for case in cases:
        reached: tuple[Learnt, dict[str, float]] | str
        stated = system.reference(case.check, case.metric, case.parameters)
        if stated is not None and len(stated.parameters) >= len(case.parameters):
            reached = f"the system's file already has a reference for it (line {stated.line})"
        else:
            places = np.searchsorted(fleet.cases, numbers_of[case.key])
            reached = _reached(case, places, fleet, samples.hosts, (len(cases), loss))
        if isinstance(reached, str):
            not_learnt.append((case, reached))
            continue
        references.append(reached[0])
        for host, share in reached[1].items():
            outliers.setdefault(host, []).append((case, share))
    return Baseline(references, not_learnt, outliers)


def _reached(
    case: Case, places: Ints, fleet: Fleet, names: Sequence[str], wanted: tuple[int, float]
) -> tuple[Learnt, dict[str, float]] | str:
    """Return the reference of a *case* and the hosts that it leaves out, or the reason for the lack of one.

    *places* are the measured places of the case in the *fleet*; *wanted* has the number of references and the loss
    that each should detect.
    """
    rows = (fleet.case_levels[places] + fleet.centres[places][:, None]).astype(np.float32)
    of_fleet = middles(rows).astype(np.float64)
    hosts = np.flatnonzero(np.isfinite(of_fleet))
    if not len(hosts):
        return "its values are not above 0"
    if len(hosts) < constants.FEWEST_HOSTS:
        return f"measured on {len(hosts)} host{'s' * (len(hosts) > 1)}, {constants.FEWEST_HOSTS} are needed"
    level, part = of_fleet[hosts], fleet.series_of[int(fleet.cases[places[0]])]
    prior = math.hypot(part.losses.spread, part.deviation)
    groups = questions.two_groups(level, prior)
    if groups is not None and not groups.is_minority:
        better, worse = (fold([names[h] for h in hosts[side]]) for side in (~groups.worse, groups.worse))
        apart = f"{100 * as_fraction(groups.apart):.1f} % apart"
        return f"two groups of hosts, {apart}, name the right one with --hosts: {better} or {worse}"
    spread = questions.spread_of(level, prior, constants.PRIOR_FREEDOM)
    good = int(np.count_nonzero(spread.good))
    limits = questions.limits(spread.of_another, spread.freedom, wanted[0], as_logarithm(wanted[1]))
    limit = as_fraction(float(limits[0]))
    if limit > constants.PASS_SIGHT:
        detected = f"only a loss of {100 * limit:.0f} % would be detected"
        return f"good hosts differ too much, or {good} hosts are too few: {detected}"
    noises = fleet.noise[places][np.isfinite(fleet.noise[places])]
    repetitions = np.nansum(fleet.repetitions[places][:, hosts[spread.good]]) / max(good, 1)
    sign = case.loss_sign
    error = max(float(np.median(noises)), constants.LEAST_NOISE) if len(noises) else constants.PRIOR_NOISE
    source = f"fleet of {good} hosts, {repetitions:.1f} repetitions each, {datetime.date.today().isoformat()}"
    sides = None if case.better == "lower" else -limit, None if case.better == "higher" else limit
    stated = case.check, case.metric, case.parameters, math.exp(sign * spread.centre)
    reference = Learnt(case, Reference(*stated, *sides, case.unit, source, 0, error), limit)
    left_out = np.flatnonzero(~spread.good).tolist()
    return reference, {names[hosts[h]]: math.expm1(sign * (level[h] - spread.centre)) for h in left_out}


def _one_for_each_part(cases: Sequence[Case]) -> list[Case]:
    """Return the cases, with only one per part of a curve over sizes, because hosts differ at a cache's edge."""

    def curve_of(case: Case) -> str:
        return replace(case, parameters={k: v for k, v in case.parameters.items() if k != "size_bytes"}).key

    kept: list[Case] = []
    for curve in by_key(cases, curve_of).values():
        ordered = sorted(curve, key=lambda case: case.parameters.get("size_bytes", 0))
        first, *others = by_key(ordered, part_of).values()
        kept += [first[0], *(of_part[len(of_part) // 2] for of_part in others[:-1]), *ordered[1:][-1:]]
    return kept


class LearntProcessor(Struct, frozen=True):
    """A *family* with one model, and the new knowledge in one line."""

    family: Family
    text: str


def learnt_processor(
    fleets: Iterable[SamplesTable], configurations: Mapping[str, Configuration], *, loss: float
) -> tuple[LearntProcessor, dict[str, str]]:
    """Return the share that reads reach on the processor of hosts, and why some of them were left out.

    A host is used if its modules were read and none of its other parts is low. With four hosts or more, their
    spread sets the tolerance, which is at least *loss* (a fraction). Raises BadInput for no host, or several
    processors.
    """
    shares: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for samples in fleets:
        # What other processes disturbed teaches nothing.
        kept = samples.valid & (samples.value > 0) & ~samples.is_busy(slice(0, len(samples.value)))
        counts = group_sums(kept, samples.begins)
        medians = np.full(len(counts), np.nan)
        medians[counts > 0] = group_medians(samples.value[kept], counts[counts > 0])
        for number, host in enumerate(samples.hosts):
            settings = configurations[host].settings if host in configurations else {}
            parts = HostParts(samples, medians[samples.groups_of_host(number)], number, None, settings)
            expected = [*settled(itertools.chain(parts.from_sources(), questions.ratios(parts)))]
            of_banks = [e for e in expected if e.theory > 0]
            stated = next((e for e in expected if e.answer == "low" and e not in of_banks), None)
            if of_banks and stated is None and settings.get("cpu.model"):
                shares[host] = statistics.median(e.reaches / e.theory for e in of_banks)
            else:
                unknown = (e for e in expected if (e.kind, e.answer) == ("bandwidth", "unknown"))
                stated = stated or next(unknown, None)
                left_out[host] = stated.text() if stated else "its processor or its modules are unknown"
    names = sorted({processor_name(configurations[host].settings) for host in shares})
    if len(names) != 1:
        models = "; ".join(name.rstrip(", ") for name in names)
        reasons = [f"{len(names)} processors, name the hosts of one with --hosts: {models}"] if names else []
        reasons += [f"{host}: {why}" for host, why in left_out.items()]
        raise BadInput(f"nothing was learnt: {'; '.join(reasons[:3]) or 'no record of a host'}")
    spread = questions.spread_of(-np.log([*shares.values()]), constants.PRIOR_SPREAD, constants.PRIOR_FREEDOM)
    share, good, tolerance = math.exp(-spread.centre), int(spread.good.sum()), None
    for host, is_good in zip(shares, spread.good.tolist(), strict=True):
        if not is_good:
            left_out[host] = f"its reads reach {percent(shares[host])}, the reads of most hosts {percent(share)}"
    if good >= constants.FEWEST_HOSTS:
        _, limit, _ = questions.limits(spread.of_another, spread.freedom, 1, as_logarithm(loss))
        tolerance = Percentage(as_fraction(float(limit)))
    measured = f"{good} host{'s' * (good > 1)} of this site, {datetime.date.today().isoformat()}"
    pattern = processors.pattern_of(names[0])
    model = Model(pattern, read_share=Percentage(share), tolerance=tolerance, measured=measured)
    settings = configurations[next(iter(shares))].settings
    family = processors.family_of(names[0], settings, model)
    processor = processors.find(names[0])
    before = processors.read_share(processor) if processor else None
    text = f"{family.description}: reads reach {percent(share)} of theory ({measured}), "
    if before is None:
        return LearntProcessor(family, f"{text}nothing was known before"), left_out
    text += f"{percent(before.value)} before ({before.source})"
    less = 1 - share / before.value
    text += f": {percent(less)} less, look for what slows all these hosts" if less > _LESS else ""
    return LearntProcessor(family, text), left_out
