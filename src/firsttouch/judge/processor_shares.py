# SPDX-License-Identifier: Apache-2.0
"""Learns from hosts the share of the theoretical bandwidth that reads reach on their processors."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct

from firsttouch.documents import Percentage
from firsttouch.errors import BadInput
from firsttouch.judge import equal_parts, questions
from firsttouch.judge.constants import FEWEST_HOSTS, PRIOR_FREEDOM, PRIOR_SPREAD
from firsttouch.records.drift import Configuration
from firsttouch.records.groups import group_medians, group_sums
from firsttouch.records.samples_table import SamplesTable
from firsttouch.statistics import as_fraction, as_logarithm
from firsttouch.systems import processors
from firsttouch.systems.expectation import SHARE_TOLERANCES, HostParts, processor_name, settled
from firsttouch.systems.processors import Family, Model
from firsttouch.units import percent

#: A share that is this much below the known one may come from hosts that are all slow.
_LESS = SHARE_TOLERANCES["model"]


class LearntProcessor(Struct, frozen=True):
    """A *family* with one model, and the new knowledge in one line."""

    family: Family
    text: str


def learnt(
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
            parts = HostParts(samples, medians, number, None, settings)
            expected = [*settled(parts.from_sources()), *equal_parts.ratios(parts)]
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
    spread = questions.spread_of(-np.log([*shares.values()]), PRIOR_SPREAD, PRIOR_FREEDOM)
    share, good, tolerance = math.exp(-spread.centre), int(spread.good.sum()), None
    for host, is_good in zip(shares, spread.good.tolist(), strict=True):
        if not is_good:
            left_out[host] = f"its reads reach {percent(shares[host])}, the reads of most hosts {percent(share)}"
    if good >= FEWEST_HOSTS:
        wide, freedom = np.array([spread.of_another]), np.array([spread.freedom])
        tolerance = Percentage(as_fraction(float(questions.limits(wide, freedom, 1, as_logarithm(loss))[1][0])))
    measured = f"{good} host{'s' * (good > 1)} of this site, {datetime.date.today().isoformat()}"
    model = Model(
        processors.pattern_of(names[0]), read_share=Percentage(share), tolerance=tolerance, measured=measured
    )
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
