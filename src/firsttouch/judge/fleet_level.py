# SPDX-License-Identifier: Apache-2.0
"""The level that most hosts of a fleet reach for a metric, the spread among good hosts, and the outliers.

The estimate starts from the shortest half of the hosts (P. J. Rousseeuw, Least median of squares regression,
1984), so up to half of the hosts may be bad, in any direction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firsttouch.host.host_lists import folded
from firsttouch.judge import sprt
from firsttouch.judge.sprt import Floats, Groups
from firsttouch.records.schema import Better

#: The fewest hosts of a fleet from which a level is learnt.
FEWEST_HOSTS = 5
#: The loss that must be detected.
LOSS = 0.05
#: Standard deviations beyond which a host is an outlier, and those between the level and the limit: of a million
#: good hosts, one is beyond 4.9.
_BEYOND = 4.0
_WITHIN = 4.3
#: The largest standard error of the level, as a share of the loss that must be detected.
_DOUBT = 1 / 16
#: Median of the absolute value of a standard normal variable.
_NORMAL = 0.6745
#: The fewest hosts measured twice that separate the error of a repetition from the difference between hosts.
_TWICE = 5
#: A fleet is divided if its hosts form two groups and the larger one has less than this share: nothing shows which
#: group is right. The fewest hosts of a divided fleet, and of a group, and the least share of a group follow.
_MAJORITY, _FEWEST_DIVIDED, _FEWEST, _SHARE = 0.6, 8, 3, 0.1
#: The least distance of the groups' medians: as a share of the value, and in standard deviations within a group
#: (more if there are few hosts).
_APART, _FAR, _FAR_OF_FEW = LOSS / 2, 6.0, 1500.0


@dataclass(frozen=True)
class Divided:
    """A metric in which a fleet's hosts form two groups, neither of them a clear majority.

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

    def text(self, unit: str) -> str:
        """Return both groups as text without the metric's name; *unit* is that of the values."""
        of_unit = "" if unit == "1" else f" {unit}"
        groups = zip((self.better, self.worse), self.values, strict=True)
        texts = [f"{len(hosts)} hosts at {value:.4g}{of_unit} ({folded(hosts)})" for hosts, value in groups]
        return f"{' and '.join(texts)}, {100 * self.apart:.1f} % apart"


def divided(samples: Groups, hosts: Sequence[str], better: Better) -> Divided | None:
    """Return the two groups that hosts form, None if most hosts are alike or there are too few.

    The largest gap between the hosts' medians divides them, if the groups are clearly apart. A clear minority is
    set aside (outliers), and the rest is searched again. Of 79,000 simulated fleets of 8 to 1000 hosts with
    normally distributed levels, 4 were taken for divided.
    """
    if len(samples) < _FEWEST_DIVIDED or samples.values.min() <= 0:
        return None
    levels = samples.medians()
    order = np.argsort(levels, kind="stable")
    ordered = levels[order]
    begin, end = 0, len(ordered)
    while (count := end - begin) >= _FEWEST_DIVIDED:
        least = max(_FEWEST, math.ceil(_SHARE * count))
        gaps = np.diff(ordered[begin:end])[least - 1 : count - least]
        middle = begin + least + int(np.argmax(gaps))
        low, high = ordered[begin:middle], ordered[middle:end]
        values = float(np.median(low)), float(np.median(high))
        within = math.sqrt(_variance(np.concatenate([low - values[0], high - values[1]])))
        far = (_FAR + _FAR_OF_FEW / count**2) * within
        if values[1] - values[0] < max(far, _APART * values[1]):
            return None
        if max(len(low), len(high)) < _MAJORITY * count:
            names = [
                [hosts[i] for i in order[part].tolist()] for part in (slice(begin, middle), slice(middle, end))
            ]
            first = 0 if better == "lower" or (better == "neither" and len(low) > len(high)) else 1
            return Divided(sorted(names[first]), sorted(names[1 - first]), (values[first], values[1 - first]))
        begin, end = (begin, middle) if len(low) > len(high) else (middle, end)
    return None


@dataclass(frozen=True)
class Level:
    """The *value* that good hosts of a fleet reach for a metric, in the metric's unit.

    All other figures but counts are relative to it: *limit* is the difference beyond which a host is bad, *error*
    that of one repetition (see :func:`firsttouch.judge.sprt.fitted`), *spread* the standard deviation among good
    hosts, *doubt* the standard error of *value*. *hosts* is the number of good hosts, *repetitions* how many
    each has on average, *outliers* the other hosts with their differences. *more_repetitions* is how many more of
    each host are needed to know the value well enough.
    """

    value: float
    limit: float
    error: float
    spread: float
    doubt: float
    hosts: int
    repetitions: float
    outliers: Mapping[str, float]
    more_repetitions: int


def level(samples: Groups, hosts: Sequence[str], better: Better, loss: float = LOSS) -> Level | None:
    """Return the level of a metric from a group of samples for each of *hosts*, oldest first.

    Its limit detects *loss* (a fraction). None for fewer than :data:`FEWEST_HOSTS` hosts, and for values of 0 or
    less.
    """
    if len(samples) < FEWEST_HOSTS or samples.values.min() <= 0:
        return None
    unit = float(np.median(samples.medians()))
    relative = Groups(samples.values / unit, samples.counts)
    error = _error(relative)
    levels = relative.apply(lambda rows: _location(rows, error or 0.0))
    centre, scale = _half(np.sort(levels))
    for _ in range(3):
        beyond = max(_BEYOND * scale * _few(len(levels)), loss / 2)
        good = np.abs(levels - centre) <= beyond
        # All repetitions weigh the same: a host that was measured again because it was slow is not slow for that.
        chosen = relative.chosen(good)
        own = _deviation(levels[good] - centre) if error is None else error
        centre = float(_location(chosen.values[None, :], own)[0])
        scale = _deviation(levels[good] - centre)
    pooled = chosen.values
    typical = float(np.median(chosen.counts))
    spread = 0.0 if error is None else _spread(chosen, own)
    # If good hosts differ by as much as the loss, a larger loss is detected.
    wanted = max(loss, 2 * _WITHIN * spread)
    centre, moving, fitted, wanted = _centred(pooled, centre, own * _few(len(chosen)), better, wanted)
    steady = spread / math.sqrt(len(chosen))
    return Level(
        value=centre * unit,
        limit=wanted / 2,
        error=fitted,
        spread=spread,
        doubt=math.hypot(moving, steady),
        hosts=len(chosen),
        repetitions=len(pooled) / len(chosen),
        outliers={hosts[i]: float(levels[i]) / centre - 1 for i in np.flatnonzero(~good).tolist()},
        more_repetitions=max(0, math.ceil(typical * ((moving / (wanted * _DOUBT)) ** 2 - 1))),
    )


def _centred(
    pooled: Floats, centre: float, error: float, better: Better, loss: float
) -> tuple[float, float, float, float]:
    """Return the value around which samples are no evidence, its standard error, the samples' error, and the loss.

    The distribution of samples is not symmetric: their mean may be far from what most of them reach. The loss
    grows until some number of such samples detects it.
    """
    fitted = None
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
    """Return the error in the worse direction, or the larger one of both directions if both are bad."""
    losses = {"higher": [-changes], "lower": [changes]}.get(better, [-changes, changes])
    errors = [sprt.fitted(side, error, loss) for side in losses]
    return None if None in errors else max(e for e in errors if e is not None)


def _half(ordered: Floats) -> tuple[float, float]:
    """Return middle and standard deviation of the shortest half of *ordered* values."""
    size = len(ordered) // 2 + 1
    begin = int(np.argmin(ordered[size - 1 :] - ordered[: len(ordered) - size + 1]))
    first, last = float(ordered[begin]), float(ordered[begin + size - 1])
    return (first + last) / 2, (last - first) / 2 / _NORMAL


def _location(rows: Floats, error: float) -> Floats:
    """Return Huber's location of each row: its mean after values far off for this *error* are drawn near."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    centre: Floats = np.median(rows, axis=1)
    if rows.shape[1] > 2:
        for _ in range(5):
            near = np.maximum(rows, (centre - 1.5 * error)[:, None])
            centre = np.minimum(near, (centre + 1.5 * error)[:, None]).mean(axis=1)
    return centre


def _deviation(differences: Floats) -> float:
    return float(np.median(np.abs(differences))) / _NORMAL


def _error(samples: Groups) -> float | None:
    """Return the standard deviation of a repetition from differences of neighbours, None if few are repeated."""
    if np.count_nonzero(samples.counts > 1) < _TWICE:
        return None
    steps = [np.diff(rows, axis=1).ravel() for _, rows in samples.blocks()]
    return _deviation(np.concatenate(steps)) / math.sqrt(2)


def _spread(samples: Groups, error: float) -> float:
    """Return the standard deviation among good hosts.

    A host's samples are halved: the halves' mean is the host's level, their difference is chance. Four standard
    deviations of what chance contributes to the mean are not counted as differences between hosts.
    """
    halves = [
        (_location(rows[:, ::2], error), _location(rows[:, 1::2], error))
        for _, rows in samples.blocks()
        if rows.shape[1] > 1
    ]
    if not halves:
        return 0.0
    first, second = (np.concatenate(half) for half in zip(*halves, strict=True))
    common, chance = _variance((first + second) / 2), _variance((first - second) / 2)
    return math.sqrt(max(0.0, common - chance * math.exp(4 * math.sqrt(2 * 2.2 / len(first)))))


def _variance(values: Floats) -> float:
    """Return the variance around the median, with outliers drawn near."""
    distances = np.abs(values - np.median(values))
    far = 2.5 * float(np.median(distances)) / _NORMAL
    return float((np.minimum(distances, far) ** 2).mean())


def _few(count: int) -> float:
    """Return the factor by which the standard deviation of so few values may be too small."""
    return 1 + 3 / count
