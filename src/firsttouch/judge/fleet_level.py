# SPDX-License-Identifier: Apache-2.0
"""The level that good hosts of a fleet reach for a metric, how far they differ, and the outliers.

A limit is as wide as the natural spread and the number of hosts that show it require (see
:mod:`firsttouch.judge.natural_spread`): a good host is beyond it with a stated probability.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from firsttouch.host.host_lists import folded
from firsttouch.judge import natural_spread, sprt
from firsttouch.judge.natural_spread import Spread
from firsttouch.judge.sprt import Floats, Groups, medians
from firsttouch.judge.statistics import (
    decimal_step,
    robust_deviation,
    robust_location,
    robust_variance,
    student_quantile,
)
from firsttouch.units import Better, percent, quantity

#: The fewest hosts of a fleet from which a level is learnt.
FEWEST_HOSTS = 5
#: The loss that must be detected.
LOSS = 0.05
#: The largest share of good hosts that fail by their natural difference from others, and the share of those that
#: are suspect for it. All metrics of a host share both.
TAIL, SUSPECT_TAIL = 5e-4, 1e-2
#: Standard deviations that a host may be better by nature and still be found in 95 % of cases, and in 99 %.
_FOUND, _SURELY_FOUND = 1.645, 2.326
#: The fewest hosts measured twice that separate the error of a repetition from the difference between hosts.
_TWICE = 5
#: A fleet is divided if its hosts form two groups and the larger one has less than this share: nothing shows which
#: group is right. The fewest hosts of a divided fleet, and of a group, and the least share of a group follow.
_MAJORITY, _FEWEST_DIVIDED, _FEWEST, _SHARE = 0.6, 8, 3, 0.1
#: The least distance of the groups' medians: as a share of the value, and in standard deviations within a group
#: (more if there are few hosts).
_APART, _FAR, _FAR_OF_FEW = LOSS / 2, 5.0, 1500.0
#: The least share of either side of a gap. The widest gap between neighbours, in standard deviations within both
#: sides, has about the quantiles of Student's distribution times a factor and a power of the number of hosts
#: (fitted to 200,000 fleets of 8 to 50 hosts with normal natures). Gaps of other natures are this much wider.
_GAP_SHARE, _GAP, _GAP_POWER, _GAP_OF_OTHERS = 0.2, 5.2, -0.63, 1.25
#: A limit is at least so many steps in which values are given. The last decimal is a step if it is less than this
#: share of the values; so many values are looked at.
_STEPS, _FINE_STEP, _FEW_VALUES = 2.1, 0.04, 256


def rounding_limit(samples: Groups) -> float:
    """Return the least difference that rounded *samples* can tell, relative to their median; 0 if they are not."""
    return _STEPS * _step_of(samples)


def _step_of(samples: Groups) -> float:
    """Return the step in which *samples* are given, relative to their median; 0 if none shows.

    Measured values seldom repeat unless they are rounded: their last decimal is then the step. A coarse step must
    show in changes: values in steps go up and down by the same step on many hosts, while a fault or an update
    changes a host once.
    """
    median = float(medians(samples.values))
    if median <= 0:
        return 0.0
    rounded = decimal_step(samples.values[:_FEW_VALUES]) / median
    if 0 < rounded < _FINE_STEP:
        return rounded
    changes = np.diff(samples.values)
    changes[samples.begins[1:] - 1] = 0.0  # from one group to the next
    sizes = np.abs(changes)
    step = float(sizes.min(where=sizes > 0, initial=math.inf))
    if math.isinf(step):
        return 0.0
    smallest = np.flatnonzero((sizes > 0) & (sizes < 1.5 * step))
    owners = np.searchsorted(samples.begins, smallest, side="right") - 1
    up, down = owners[changes[smallest] > 0], owners[changes[smallest] < 0]
    many = np.union1d(up, down) if rounded and min(len(up), len(down)) > 1 else np.intersect1d(up, down)
    return 0.0 if 4 * len(many) < len(samples) else step / median


class Divided(Struct, frozen=True):
    """A metric in which a fleet's hosts form two groups, and nothing shows which one is right.

    *better* and *worse* are names of hosts, *values* the median of each group in the metric's unit. If neither
    direction is better, the larger group is first.
    """

    better: Sequence[str]
    worse: Sequence[str]
    values: tuple[float, float]

    @property
    def apart(self) -> float:
        """The difference as a share of the better group's median."""
        return abs(self.values[1] / self.values[0] - 1)

    @property
    def is_minority(self) -> bool:
        """Whether the worse hosts are so few that they may be bad ones."""
        return len(self.worse) <= (1 - _MAJORITY) * (len(self.better) + len(self.worse))

    def text(self, unit: str) -> str:
        """Return both groups as text without the metric's name; *unit* is that of the values."""
        groups = zip((self.better, self.worse), self.values, strict=True)
        texts = [f"{len(hosts)} hosts at {quantity(value, unit)} ({folded(hosts)})" for hosts, value in groups]
        return f"{' and '.join(texts)}, {percent(self.apart)} apart"


def divided(samples: Groups, hosts: Sequence[str], better: Better, least: float = 0.0) -> Divided | None:
    """Return the two groups that hosts form, None if most hosts are alike or there are too few.

    The largest gap between the hosts' medians divides them, if the groups are clearly apart. A clear minority is
    set aside (outliers), and the rest is searched again. Of 44,300 simulated fleets of 8 to 1000 hosts with
    normally distributed levels, 4 were taken for divided. *least* is the least difference between groups that
    rounding does not explain (see :func:`rounding_limit`).
    """
    if len(samples) < _FEWEST_DIVIDED or samples.values.min() <= 0:
        return None
    levels = samples.medians
    order = np.argsort(levels, kind="stable")
    ordered = levels[order]
    begin, end = 0, len(ordered)
    while (count := end - begin) >= _FEWEST_DIVIDED:
        fewest = max(_FEWEST, math.ceil(_SHARE * count))
        gaps = np.diff(ordered[begin:end])[fewest - 1 : count - fewest]
        middle = begin + fewest + int(np.argmax(gaps))
        low, high = ordered[begin:middle], ordered[middle:end]
        values = float(np.median(low)), float(np.median(high))
        within = math.sqrt(robust_variance(np.concatenate([low - values[0], high - values[1]])))
        far = (_FAR + _FAR_OF_FEW / count**2) * within
        if values[1] - values[0] < max(far, _APART * values[1]):
            return None
        if max(len(low), len(high)) < _MAJORITY * count:
            names = [
                [hosts[i] for i in order[part].tolist()] for part in (slice(begin, middle), slice(middle, end))
            ]
            first = 0 if better == "lower" or (better == "neither" and len(low) > len(high)) else 1
            groups = Divided(sorted(names[first]), sorted(names[1 - first]), (values[first], values[1 - first]))
            return groups if groups.apart >= least else None
        begin, end = (begin, middle) if len(low) > len(high) else (middle, end)
    return None


def separated(
    samples: Groups, hosts: Sequence[str], better: Better, metrics: int, least: float = 0.0
) -> Divided | None:
    """Return the two groups on both sides of a clear gap between hosts, None if the worse side is no minority.

    Few hosts show their spread badly, so several bad ones may be taken for good ones of a wide nature. Good hosts,
    however, have no gap between them: in one of *metrics* with a probability below :data:`SUSPECT_TAIL`. The
    medians of the groups are at least :data:`LOSS` and *least* apart (see :func:`divided`).
    """
    count = len(samples)
    if count < _FEWEST_DIVIDED or samples.values.min() <= 0 or better == "neither":
        return None
    levels = samples.medians
    order = np.argsort(levels, kind="stable")
    ordered = levels[order] / levels[order[count // 2]]
    fewest = max(_FEWEST, math.ceil(_GAP_SHARE * count))
    sizes = np.arange(fewest, count - fewest + 1)
    sums, squares = np.cumsum(ordered - 1), np.cumsum((ordered - 1) ** 2)
    low, high = sums[sizes - 1], sums[-1] - sums[sizes - 1]
    within = squares[-1] - low**2 / sizes - high**2 / (count - sizes)
    gaps = (ordered[sizes] - ordered[sizes - 1]) / np.sqrt(np.maximum(within, 1e-18) / (count - 2))
    place = int(np.argmax(gaps))
    widest = student_quantile(SUSPECT_TAIL / metrics, count - 2) * _GAP * count**_GAP_POWER
    if gaps[place] < _GAP_OF_OTHERS * widest:
        return None
    middle = int(sizes[place])
    sides = order[:middle], order[middle:]
    bad, good = sides if better == "higher" else sides[::-1]
    values = float(np.median(levels[good])), float(np.median(levels[bad]))
    groups = Divided(sorted(hosts[i] for i in good), sorted(hosts[i] for i in bad), values)
    return groups if groups.is_minority and groups.apart >= max(LOSS, least) else None


class Level(Struct, frozen=True):
    """The *value* that good hosts of a fleet reach for a metric, in the metric's unit.

    All other figures but counts are relative to it: *limit* is the difference beyond which a host is bad,
    *unusual* that beyond which it is suspect, *error* that of one repetition (see
    :func:`firsttouch.judge.sprt.fitted`), *spread* the standard deviation among good hosts, *doubt* the standard
    error of *value*. *hosts* is the number of good hosts, *repetitions* how many each has on average. *outliers*
    are the other hosts with their differences. *more_repetitions* of each host let 99 % of the losses that must be
    detected be found, or as many as nature leaves.
    """

    value: float
    limit: float
    unusual: float
    error: float
    spread: float
    doubt: float
    hosts: int
    repetitions: float
    outliers: Mapping[str, float]
    more_repetitions: int

    @property
    def visible(self) -> float:
        """The smallest loss that is found in 95 % of cases, given enough repetitions."""
        return self.limit + _FOUND * self.spread


class HostLevels(Struct, frozen=True):
    """What each of some hosts reaches: *levels* relative to *unit*, and the *spread* among good ones.

    *relative* are the samples in that unit, *error* is the standard deviation of a repetition (None: unknown).
    """

    unit: float
    relative: Groups
    error: float | None
    levels: Floats
    spread: Spread


def host_levels(samples: Groups) -> HostLevels | None:
    """Return the levels of hosts; None for fewer than :data:`FEWEST_HOSTS`, and for values of 0 or less."""
    if len(samples) < FEWEST_HOSTS or samples.values.min() <= 0:
        return None
    unit = float(medians(samples.medians))
    relative = Groups(samples.values / unit, samples.counts)
    error = _error(relative)
    levels = relative.apply(lambda rows: robust_location(rows, error or 0.0))
    chance = (error or 0.0) * math.sqrt(float((1 / samples.counts).mean()))
    return HostLevels(unit, relative, error, levels, natural_spread.spread_of(levels, chance))


def pooled_spreads(
    metrics: Sequence[tuple[str, HostLevels | None, NDArray[np.int32]]], hosts: int
) -> list[tuple[float, float] | None]:
    """Return deviation and degrees of freedom of the spread of each metric, from all metrics of its check.

    A metric is its check, what hosts reach, and the numbers of these hosts, of *hosts* in all. None: too few hosts
    have it.
    """
    spreads: list[tuple[float, float] | None] = [None] * len(metrics)
    for check in dict.fromkeys(check for check, _, _ in metrics):
        members = [
            (i, reached, numbers) for i, (of, reached, numbers) in enumerate(metrics) if reached and of == check
        ]
        levels = np.full((len(members), hosts), np.nan)
        for row, (_, reached, numbers) in zip(levels, members, strict=True):
            row[numbers] = reached.levels
        pooled = natural_spread.pooled([reached.spread for _, reached, _ in members], list(levels))
        for (i, _, _), spread in zip(members, pooled, strict=True):
            spreads[i] = spread
    return spreads


def level(
    samples: Groups,
    hosts: Sequence[str],
    better: Better,
    loss: float = LOSS,
    *,
    metrics: int = 1,
    spread: tuple[float, float] | None = None,
    session: tuple[float, float] = (0.0, 1.0),
    least: float = 0.0,
) -> Level | None:
    """Return the level of a metric from a group of samples for each of *hosts*, oldest first.

    Its limit detects *loss* (a fraction). Of all *metrics* of a good host, one is beyond its limit with the
    probability :data:`TAIL`. *spread* are the standard deviation between hosts and its degrees of freedom if they
    are known better than from this metric (see :func:`firsttouch.judge.natural_spread.pooled`), and
    *session* are the variance by which a host with a single session differs beyond that,
    and its degrees of freedom. No limit is below *least*. None for fewer than
    :data:`FEWEST_HOSTS` hosts, and for values of 0 or less.
    """
    reached = host_levels(samples)
    if reached is None:
        return None
    between, freedom = spread or (reached.spread.deviation, reached.spread.freedom)
    good, relative, levels = reached.spread.good, reached.relative, reached.levels
    # All repetitions weigh the same: a host that was measured again because it was slow is not slow for that.
    chosen = relative.chosen(good)
    centre = reached.spread.centre
    repetition = robust_deviation(levels[good] - centre) if reached.error is None else reached.error
    centre = float(robust_location(chosen.values[None, :], repetition)[0]) if len(chosen.values) > 1 else centre
    chance = (reached.error or 0.0) ** 2 * float((1 / chosen.counts).mean())
    variance = natural_spread.variance_without(between, freedom, chance)
    natural = math.sqrt(variance + session[0])
    if natural > 0:  # the degrees of freedom of a sum of variances (F. E. Satterthwaite, 1946)
        freedom = natural**4 / (variance**2 / freedom + session[0] ** 2 / max(session[1], 1.0))
    wide = math.sqrt(1 + 1 / len(chosen))
    limits = [student_quantile(tail / metrics, freedom) * wide * natural for tail in (TAIL, SUSPECT_TAIL)]
    wanted = max(loss, 2 * limits[0])
    pooled = chosen.values
    centre, moving, fitted, wanted = _centred(pooled, centre, repetition * _few(len(chosen)), better, wanted)
    unusual = max(loss / 2, limits[1])
    changes = levels / centre - 1
    # The levels of these hosts have chance in them.
    furthest = max(loss / 2, student_quantile(TAIL / metrics, freedom) * wide * between)
    outliers = np.flatnonzero(~good & (np.abs(changes) > furthest)).tolist()
    return Level(
        value=centre * reached.unit,
        limit=max(wanted / 2, least),
        unusual=max(unusual, least),
        error=fitted,
        spread=natural,
        doubt=math.hypot(moving, natural / math.sqrt(len(chosen))),
        hosts=len(levels) - len(outliers),
        repetitions=len(pooled) / len(chosen),
        outliers={hosts[i]: float(changes[i]) for i in outliers},
        more_repetitions=_more_repetitions(
            chosen, reached.error, natural, loss / (limits[0] / max(natural, 1e-12) + _SURELY_FOUND)
        ),
    )


def _more_repetitions(samples: Groups, error: float | None, natural: float, wanted: float) -> int:
    """Return how many more repetitions of each host bring chance down to *wanted*, or to the rest of *natural*."""
    count = float(np.median(samples.counts))
    chance = min(natural**2, (natural if error is None else error) ** 2 / count)
    target = max(natural**2 - chance, wanted**2)
    return max(0, math.ceil(round(count * (chance / target - 1), 6))) if natural > wanted else 0


def _centred(
    pooled: Floats, centre: float, error: float, better: Better, loss: float
) -> tuple[float, float, float, float]:
    """Return the value around which samples are no evidence, its standard error, the samples' error, and the loss.

    The distribution of samples is not symmetric: their mean may be far from what most of them reach. The loss
    grows until some number of such samples detects it.
    """
    fitted, pooled = None, np.sort(pooled)
    for _ in range(4):
        changes = pooled / centre - 1
        fitted = _fitted(changes, error, better, loss)
        most = sprt.reach(loss / 2, fitted or error)
        near = np.clip(changes, -most, most)
        centre *= 1 + float(near.mean())
        doubt = float(near.std()) / math.sqrt(len(near))
    while (fitted := _fitted(pooled / centre - 1, error, better, loss)) is None:
        loss *= 1.25
    return centre, doubt, fitted, loss


def _fitted(changes: Floats, error: float, better: Better, loss: float) -> float | None:
    """Return the error in the worse direction, or the larger one of both directions if both are bad.

    *changes* are in ascending order.
    """
    mirrored = -changes[::-1]
    losses = {"higher": [mirrored], "lower": [changes]}.get(better, [mirrored, changes])
    errors = [sprt.fitted(side, error, loss) for side in losses]
    return None if None in errors else max(e for e in errors if e is not None)


def _error(samples: Groups) -> float | None:
    """Return the standard deviation of a repetition from differences of neighbours, None if few are repeated."""
    if np.count_nonzero(samples.counts > 1) < _TWICE:
        return None
    steps = [np.diff(rows, axis=1).ravel() for _, rows in samples.blocks()]
    return robust_deviation(np.concatenate(steps)) / math.sqrt(2)


def _few(count: int) -> float:
    """Return the factor by which the standard deviation of so few values may be too small."""
    return 1 + 3 / count
