# SPDX-License-Identifier: Apache-2.0
"""Compares equal parts of one host: its banks, both directions of a link, and links of the same distance.

These ratios need neither references nor other hosts. In a fleet, siblings decide instead, unless most hosts are
low in the same part: a batch that is bad in the same way does not define what is good.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from firsttouch.judge import questions
from firsttouch.judge.constants import LEAST_LOSS, PRIOR_FREEDOM, PRIOR_NOISE, PRIOR_SPREAD
from firsttouch.records.cases import by_key
from firsttouch.records.parts import kind_of
from firsttouch.statistics import as_fraction
from firsttouch.systems.expectation import Expectation, HostParts, Measured, Stated


def ratios(host: HostParts) -> Iterator[Stated]:
    """Yield how the equal parts of a *host* compare with each other, and its caches with the next level."""
    compared = [*_compared({f"memory of bank {bank}": of for (bank,), of in host.banks.items()}, "banks")]
    yield from compared
    low = {(expected.part, expected.kind) for expected, _ in compared if expected.answer == "low"}
    pairs = {(a, b): (of, host.links[b, a]) for (a, b), of in host.links.items() if a < b and (b, a) in host.links}
    uneven: set[tuple[str, ...]] = set()
    for (a, b), (there, back) in pairs.items():
        both = {f"link from NUMA {a} to bank {b}": there, f"link from NUMA {b} to bank {a}": back}
        for expected, measured in _compared(both, "direction"):
            # Links to slow memory are slow, too.
            if not {(f"memory of bank {bank}", expected.kind) for bank in (a, b)} & low:
                yield expected, measured
                if expected.answer == "low":
                    uneven.add((a, b))
    # A link that is slow in both directions is compared with others of its distance.
    sets: dict[tuple[str, bool], dict[str, list[Measured]]] = {}
    for (a, b), (there, back) in pairs.items():
        first, second = sorted(int(node) // host.nodes for node in (a, b))
        is_between = first != second and host.nodes > 1
        name = f"packages {first} and {second}" if is_between else f"NUMA {a} and {b}"
        if (distance := host.distances.get((a, b))) and (a, b) not in uneven:
            of_set = sets.setdefault((distance, is_between), {})
            of_set.setdefault(f"links between {name}", []).extend((*there, *back))
    for of_set in sets.values():
        yield from _compared(of_set, "slowest of equal distance")
    yield from host.caches()


def _compared(parts: Mapping[str, Sequence[Measured]], name: str) -> Iterator[Stated]:
    """Yield how each of several equal parts compares with the others, by the cases that all have.

    Links of equal distance may differ by design, because some share a connection, so each is compared with the
    *slowest* other one. Other parts are compared with the median.
    """
    for kind in ("bandwidth", "latency"):
        ways = {p: by_key((m for m in of if kind_of(m.case) == kind), lambda m: m.way) for p, of in parts.items()}
        shared = set.intersection(*map(set, ways.values())) if len(ways) > 1 else set()
        if not shared:
            continue
        means = (np.mean([math.log(m.value) for m in of_part[w]]) for of_part in ways.values() for w in shared)
        logs = np.fromiter(means, float).reshape(len(ways), len(shared))
        deviation = np.hypot([PRIOR_SPREAD], PRIOR_NOISE / math.sqrt(len(shared)))
        deviation *= math.sqrt(1 + 1 / (len(ways) - 1))
        freedom = np.array([PRIOR_FREEDOM + len(ways) - 2])
        limit = float(questions.limits(deviation, freedom, len(ways), LEAST_LOSS)[1][0])
        usual = np.median if not name.startswith("slowest") else np.max if kind == "latency" else np.min
        for number, (part, of_part) in enumerate(ways.items()):
            others = usual(np.delete(logs, number, axis=0), axis=0)
            ratio = 100 * math.exp(float(np.mean(logs[number] - others)))
            basis = f"as a share of the other {name}"
            stated = Expectation.for_part(part, kind, ratio, 100.0, as_fraction(limit), unit="%", basis=basis)
            yield stated, [m for way in shared for m in of_part[way]]
