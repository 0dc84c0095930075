# SPDX-License-Identifier: Apache-2.0
"""Compares each part of each host with its siblings, with itself, and with equal parts of the host.

(:mod:`firsttouch.judge.judging` compares it with references, which needs no fleet.) Each answer has a loss, the
limit of what noise and the spread of good hosts explain, and the smallest visible loss (sight).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from firsttouch.judge import constants
from firsttouch.judge.levels import SeriesLosses, Timeline
from firsttouch.judge.updates import Update, may_be_update
from firsttouch.records.cases import by_key
from firsttouch.records.groups import Bools, Floats, mean_of_hosts
from firsttouch.records.parts import kind_of
from firsttouch.records.sessions import Sessions
from firsttouch.statistics import FloatOrFloats, as_fraction, student_quantile
from firsttouch.systems.expectation import Expectation, HostParts, Measured, Stated


class Spread(Struct, frozen=True):
    """The level of *good* hosts (a mask): its *centre*, and its *deviation* with the degrees of *freedom*."""

    centre: float
    deviation: float
    freedom: float
    good: Bools

    @property
    def of_another(self) -> float:
        """The deviation of a good host that did not contribute to the centre."""
        return self.deviation * math.sqrt(1 + 1 / max(int(np.count_nonzero(self.good)), 1))


def spread_of(levels: Floats, prior: float, freedom: float, step: float = 0.0) -> Spread:
    """Return the spread of the good ones among hosts with these *levels*.

    Up to :data:`MOST_BAD` of them may be bad. The shortest interval that holds the others gives a first centre and
    deviation (P. J. Rousseeuw and A. M. Leroy, Robust regression and outlier detection, 1987, 4.3), and hosts
    within :data:`OUTLIER` deviations the final ones. The variance is shrunk towards the *prior* deviation with its
    degrees of *freedom* (G. K. Smyth, Linear models and empirical Bayes methods, 2004), because few hosts have few
    degrees of freedom. With fewer than :data:`FEWEST_HOSTS`, all are good. Levels that are rounded to a *step* and
    equal may differ by a step.
    """
    count = len(levels)
    if count < constants.FEWEST_HOSTS:
        variance = (freedom * prior**2 + count * float(levels.var())) / (freedom + count - 1)
        good = np.ones(count, dtype=np.bool_)
        return Spread(float(levels.mean()), math.sqrt(variance), freedom + count - 1, good)
    ordered = np.sort(levels)
    half = count - int(constants.MOST_BAD * count + 1e-9)
    widths = ordered[half - 1 :] - ordered[: count - half + 1]
    begin = int(np.argmin(widths))
    centre = float(np.median(ordered[begin : begin + half]))
    share = (half - 0.3) / (count + 0.4)
    deviation = max(float(widths[begin]), step) / 2 / NormalDist().inv_cdf(0.5 + share / 2)
    inside = max(half - 1, 1) / 2
    moderated = math.sqrt((freedom * prior**2 + inside * deviation**2) / (freedom + inside))
    for _ in range(6):
        reach = constants.OUTLIER * (1 + 2 / (inside + freedom)) * moderated
        good = np.abs(ordered - centre) <= reach
        size = int(np.count_nonzero(good))
        if size < half:
            break
        previous = centre, moderated
        centre, deviation = float(ordered[good].mean()), float(ordered[good].std(ddof=min(1, size - 1)))
        inside = max(size - 1, 1)
        moderated = math.sqrt((freedom * prior**2 + inside * deviation**2) / (freedom + inside))
        if previous == (centre, moderated):
            break
    inside = max(inside - 0.5 * (count - size), 1.0)  # because the excluded hosts were chosen by their level
    reach = constants.OUTLIER * (1 + 2 / (inside + freedom)) * moderated
    return Spread(centre, moderated, inside + freedom, np.abs(levels - centre) <= reach)


class Answer(Struct, frozen=True):
    """The answers to one question, a value per host.

    *loss* is NaN where the question cannot be asked. Beyond *limit* a host fails, beyond *unusual* it is suspect.
    *sight* is the smallest loss that fails in 95 % of cases.
    """

    loss: Floats
    limit: Floats
    unusual: Floats
    sight: Floats

    @classmethod
    def none(cls, hosts: int) -> Answer:
        """Return the answer where the data do not suffice for a question."""
        return cls(*(np.full(hosts, value) for value in (np.nan, np.inf, np.inf, np.inf)))


def limits(
    deviation: FloatOrFloats, freedom: float, tests: float, least: float
) -> tuple[FloatOrFloats, FloatOrFloats, FloatOrFloats]:
    """Return the limits of a fail and of a suspicion, and the sight, for losses with these deviations.

    The probabilities that a good host exceeds a limit in any of *tests* tests are :data:`FAIL_TAIL` and
    :data:`SUSPECT_TAIL`.
    """
    tails = constants.FAIL_TAIL / tests, constants.SUSPECT_TAIL / tests
    fail, unusual = (np.maximum(student_quantile(tail, freedom) * deviation, least) for tail in tails)
    return fail, unusual, fail + constants.DETECTED * deviation


class TwoGroups(Struct, frozen=True):
    """Two groups of hosts: a mask of the *worse* group, and the distance between them (*apart*, a logarithm)."""

    worse: Bools
    apart: float

    @property
    def is_minority(self) -> bool:
        """Whether the worse group is small enough to be bad hosts instead of another generation."""
        return float(np.mean(self.worse)) <= constants.MOST_BAD


def two_groups(levels: Floats, deviation: float) -> TwoGroups | None:
    """Return the two groups that hosts form, None if no gap between them is clear.

    *deviation* is the deviation between metrics of one host, the least width of a group.
    """
    count = len(levels)
    ordered = np.sort(levels)
    fewest = 2 if count < 20 else math.ceil(count / 10)
    if count < constants.FEWEST_HOSTS or count < 2 * fewest:
        return None
    gaps = np.diff(ordered)[fewest - 1 : count - fewest]
    place = fewest + int(np.argmax(gaps))
    low, high = ordered[:place], ordered[place:]
    # Medians, so that an outlier does not hide a group.
    distances = np.concatenate([np.abs(side - np.median(side)) for side in (low, high)])
    variance = (float(np.median(distances)) / constants.NORMAL_MEDIAN) ** 2
    prior = constants.PRIOR_FREEDOM
    within = math.sqrt((prior * deviation**2 + (count - 2) * variance) / (prior + count - 2))
    apart = float(np.median(high) - np.median(low))
    # The hosts of a small group must be near each other: an outlier and its neighbour are not a group.
    few = min(low, high, key=len)
    if len(few) < constants.FEWEST_HOSTS and few[-1] - few[0] > gaps.max():
        return None
    far = constants.GROUPS_APART * (1 + 4 / count) * within
    if apart < max(far, constants.LEAST_LOSS) or float(gaps.max()) < 0.5 * constants.GROUPS_APART * within:
        return None
    return TwoGroups(levels >= ordered[place], apart)


def compared_with_itself(
    timeline: Timeline, sessions: Sessions, losses: SeriesLosses, updated: Sequence[Update], tests: float
) -> Answer:
    """Return how much more each host lost since its best stable period than other hosts (if any) in this time."""
    answer = Answer.none(len(timeline.size))
    places = np.flatnonzero(np.isfinite(timeline.best) & (timeline.size >= constants.BAD_SESSIONS))
    if not len(places):
        return answer
    common, wide = np.zeros(len(timeline.size)), np.zeros(len(timeline.size))
    for update in updated:
        # Among few hosts, the largest change stands out more than among many.
        freedom = max(len(update.hosts) - 1, 1)
        wide[update.hosts] = update.deviation * (1 + 2 / freedom)
    own = timeline.level[places] - timeline.best[places]
    noise = timeline.noise[places]
    deviation = noise * np.sqrt(1 / timeline.size[places] + 1 / timeline.best_size[places])
    deviation = np.hypot(deviation, wide[places])
    # The change may be at any session, and the clearest one was chosen.
    tests *= float(np.max(timeline.size[places] + timeline.best_size[places]))
    fail, unusual, sight = limits(deviation, timeline.freedom, tests, max(constants.LEAST_LOSS, losses.step))
    fail, sight = (np.maximum(bounds, constants.LEAST_OWN_LOSS) for bounds in (fail, sight))
    lossy = places[own > unusual]
    # When the best period of a host began and ended, and its newest one began, in half intervals: hosts that were
    # measured at about the same times have the same window.
    halves = sessions.time / (sessions.interval / 2)
    ends = np.rint(halves)[[timeline.best_begin[lossy], timeline.best_end[lossy], timeline.begin[lossy]]]
    windows, numbers = np.unique(ends, axis=1, return_inverse=True)
    for number, (begin, end, now) in enumerate(windows.T.tolist()):
        hosts = lossy[numbers.ravel() == number]
        is_before = (halves >= begin - 2) & (halves <= end + 2) & (halves < now - 0.5)
        sides = is_before, halves >= now - 1
        before, after = (mean_of_hosts(losses.loss, side, sessions.host, sessions.hosts) for side in sides)
        changes = after - before
        own_changes, ordered = changes[hosts], np.sort(changes[np.isfinite(changes)])
        # Hosts that lost about as much at the time are an update, whether it was at once or not.
        count = len(ordered) - np.searchsorted(ordered, own_changes / 2)
        shared = np.append(ordered, np.nan)[len(ordered) - np.maximum((count + 1) // 2, 1)]
        is_shared = count > max(constants.UPDATED_HOSTS, 2 * constants.UPDATED_SHARE * len(ordered))
        is_shared &= may_be_update(shared, count, len(ordered))
        common[hosts] = np.where(is_shared, shared, 0.0)
    answer.loss[places], answer.limit[places] = own - common[places], fail
    answer.unusual[places], answer.sight[places] = unusual, sight
    return answer


def generations(divided: Sequence[TwoGroups]) -> Bools | None:
    """Return the hosts of one of the two generations that most *divided* parts show, None if no two parts agree.

    A bad host of the better generation is in the worse group only for its bad parts, so if half of the parts
    disagree, the better group decides.
    """
    if not divided:
        return None
    worse = np.array([two.worse for two in divided])
    # The better generation of one part may be the worse one of another.
    is_flipped = (worse == worse[0]).mean(axis=1) < 0.5
    sides = np.where(is_flipped[:, None], ~worse, worse)
    usual = np.median(sides, axis=0) >= 0.5
    agrees = (sides == usual).mean(axis=1) >= 1 - constants.MOST_BAD / 2
    if np.count_nonzero(agrees) < 2:
        return None
    weights = np.where(worse, 1.0, 1.5)[agrees]
    share: Floats = (sides[agrees] * weights).sum(axis=0) / weights.sum(axis=0)
    return share > 0.5


def compared_with_siblings(
    timeline: Timeline, losses: SeriesLosses, prior: tuple[float, float], tests: float, generation: Bools | None
) -> tuple[Answer, Spread | None, TwoGroups | None]:
    """Return how much worse each host is than its siblings.

    *prior* is the expected deviation between good hosts with its degrees of freedom. *generation* marks the hosts
    of one of two generations; where these differ, hosts are compared within their generation. Disturbed hosts do
    not show what is usual.
    """
    levels, variances, is_disturbed, step = timeline.level, timeline.variance, losses.is_disturbed, losses.step
    answer = Answer.none(len(levels))
    measured = np.flatnonzero(np.isfinite(levels) & ~is_disturbed)
    if len(measured) < constants.FEWEST_HOSTS:
        return answer, None, None
    values = levels[measured]
    divided = two_groups(values, prior[0])
    groups = [np.ones(len(values), dtype=np.bool_)]
    if generation is not None and 0 < np.count_nonzero(generation[measured]) < len(measured):
        of_one = generation[measured]
        apart = float(np.median(values[of_one]) - np.median(values[~of_one]))
        if abs(apart) >= constants.LEAST_LOSS:
            groups, divided = [of_one, ~of_one], TwoGroups(of_one == (apart > 0), abs(apart))
    elif divided is not None and not divided.is_minority:
        groups = [divided.worse, ~divided.worse]
    first: Spread | None = None
    for group in groups:
        if np.count_nonzero(group) < constants.FEWEST_HOSTS:
            continue
        members = measured[group]
        spread = spread_of(levels[members], *prior, step)
        usual = float(np.median(variances[members]))
        # A host that is less well known than the others may differ by more.
        deviation = np.sqrt(spread.of_another**2 + np.maximum(variances[members] - usual, 0))
        fail, unusual, sight = limits(deviation, spread.freedom, tests, max(constants.LEAST_LOSS, 1.5 * step))
        answer.loss[members] = levels[members] - spread.centre
        answer.limit[members], answer.unusual[members], answer.sight[members] = fail, unusual, sight
        first = first or spread
    if first and is_disturbed.any():
        answer.loss[is_disturbed] = levels[is_disturbed] - first.centre
        for bounds in (answer.limit, answer.unusual, answer.sight):
            bounds[is_disturbed] = np.median(bounds[np.isfinite(bounds)])
    worse = np.zeros(len(levels), dtype=np.bool_)
    if divided is not None:
        worse[measured] = divided.worse
        divided = TwoGroups(worse, divided.apart)
    return answer, first, divided


# ----------------------------------------------------------------------
# Equal parts of one host


def ratios(host: HostParts) -> Iterator[Stated]:
    """Yield how the equal parts of a *host* compare with each other, and its caches with the next level.

    Equal parts are its banks, both directions of a link, and links of the same distance. The ratios need neither
    references nor other hosts. In a fleet, siblings decide instead, unless most hosts are low in the same part: a
    batch that is bad in the same way does not define what is good.
    """
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
        deviation = math.hypot(constants.PRIOR_SPREAD, constants.PRIOR_NOISE / math.sqrt(len(shared)))
        deviation *= math.sqrt(1 + 1 / (len(ways) - 1))
        freedom = constants.PRIOR_FREEDOM + len(ways) - 2
        _, limit, _ = limits(deviation, freedom, len(ways), constants.LEAST_LOSS)
        usual = np.median if not name.startswith("slowest") else np.max if kind == "latency" else np.min
        for number, (part, of_part) in enumerate(ways.items()):
            others = usual(np.delete(logs, number, axis=0), axis=0)
            ratio = 100 * math.exp(float(np.mean(logs[number] - others)))
            basis = f"as a share of the other {name}"
            stated = Expectation.for_part(part, kind, ratio, 100.0, as_fraction(limit), unit="%", basis=basis)
            yield stated, [m for way in shared for m in of_part[way]]
