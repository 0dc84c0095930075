# SPDX-License-Identifier: Apache-2.0
"""Learns from hosts what share of the theoretical bandwidth reads reach on their processors."""

from __future__ import annotations

import datetime
import math
import re
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.documents import Regex, Share
from firsttouch.host.configuration import MODULE
from firsttouch.judge import expectation, questions
from firsttouch.judge.constants import FEWEST_HOSTS, PRIOR_FREEDOM, PRIOR_SPREAD, SHARE_TOLERANCES
from firsttouch.judge.drift import Configuration
from firsttouch.judge.findings import Findings
from firsttouch.judge.statistics import as_fraction, as_logarithm
from firsttouch.systems import processors
from firsttouch.systems.processors import Family, Memory, Model, ReadShare

#: A share that is so much smaller than what was known may be that of hosts which are all slow.
_LESS = SHARE_TOLERANCES["model"]


class LearntProcessor(Struct, frozen=True):
    """A *family* with one *model*, learnt from a number of *hosts*; *before* is the share known until now."""

    family: Family
    hosts: int
    before: ReadShare | None

    @property
    def model(self) -> Model:
        """The learnt model."""
        return self.family.models[0]

    @property
    def text(self) -> str:
        """What was learnt, and what was known, as one line."""
        share = self.model.read_share or 0.0
        stated = f"{self.family.description}: reads reach {100 * share:.0f} % of theory ({self.model.measured})"
        if self.before is None:
            return f"{stated}, nothing was known before"
        stated += f", {100 * self.before.value:.0f} % before ({self.before.source})"
        less = 1 - share / self.before.value
        return stated + (f": {100 * less:.0f} % less, look for what slows all these hosts" if less > _LESS else "")


def learnt(
    fleets: Sequence[Findings], configurations: Mapping[str, Configuration], *, loss: float
) -> tuple[list[LearntProcessor], dict[str, str]]:
    """Return what reads reach on each model of processor, and why hosts were left out.

    A host is used if its modules were read and no other part of it is low. From four hosts on, their spread gives
    the model's tolerance, which is *loss* (a fraction) or more.
    """
    shares: dict[str, dict[str, float]] = {}
    left_out: dict[str, str] = {}
    for findings in fleets:
        for number, host in enumerate(findings.samples.hosts):
            settings = configurations[host].settings if host in configurations else {}
            expected = expectation.of_host(findings.samples, findings.value, number, None, settings)
            of_banks = [e for e in expected if e.theory > 0]
            low = next((e for e in expected if e.answer == "low" and e not in of_banks), None)
            unknown = next((e for e in expected if (e.kind, e.answer) == ("bandwidth", "unknown")), None)
            if low or not of_banks or not settings.get("cpu.model"):
                stated = low or unknown
                left_out[host] = stated.text() if stated else "its processor or its modules are unknown"
                continue
            share = statistics.median(e.reaches / e.theory for e in of_banks)
            shares.setdefault(expectation.processor_name(settings), {})[host] = share
    processors_of = []
    for name, of_hosts in shares.items():
        levels = -np.log([*of_hosts.values()])
        spread = questions.spread_of(levels, PRIOR_SPREAD, PRIOR_FREEDOM)
        good = [host for host, is_good in zip(of_hosts, spread.good.tolist(), strict=True) if is_good]
        share, tolerance = math.exp(-spread.centre), None
        for host in of_hosts.keys() - {*good}:
            left_out[host] = f"its reads reach {of_hosts[host]:.1%}, those of most hosts {share:.1%}"
        if len(good) >= FEWEST_HOSTS:
            wide, freedom = np.array([spread.of_another]), np.array([spread.freedom])
            tolerance = as_fraction(float(questions.limits(wide, freedom, 1, as_logarithm(loss))[1][0]))
        settings = configurations[good[0]].settings
        count = f"{len(good)} host{'s' * (len(good) > 1)} of this site"
        measured = f"{count}, {datetime.date.today().isoformat()}"
        model = Model(
            _pattern(name),
            read_share=Share(share),
            tolerance=Share(tolerance) if tolerance else None,
            measured=measured,
        )
        processors_of.append(_family(name, settings, model, len(good)))
    return processors_of, left_out


def _pattern(name: str) -> Regex:
    """Return the pattern of a processor's *name*; the vendor of the board only matters to the numbers of Arm."""
    model = name if name.startswith("MIDR") else name.rpartition(", ")[0]
    escaped = re.escape(model).replace(r"\ ", " ").replace(r"\-", "-")
    return Regex(f"^{escaped}(,|$)")


def _family(name: str, settings: Mapping[str, str], model: Model, hosts: int) -> LearntProcessor:
    """Return the family of the processor with this *name* and this *model* only, from its file or its modules."""
    description = settings["cpu.model"]
    if processor := processors.find(name):
        stated = replace(
            processor.model,
            pattern=model.pattern,
            **{key: getattr(model, key) for key in ("read_share", "tolerance", "measured")},
        )
        family = replace(processor.family, description=description, models=(stated,))
        return LearntProcessor(family, hosts, processors.read_share(processor))
    modules = (text.split() for key, text in settings.items() if key.startswith(MODULE))
    kind = next((words[2] for words in modules if len(words) > 2), "unknown")
    memory = Memory(kind.split("-")[0].rstrip(","), "the modules of hosts of this site")
    return LearntProcessor(Family("", description, description, memory, (model,)), hosts, None)
