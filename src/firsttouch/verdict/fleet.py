# SPDX-License-Identifier: Apache-2.0
"""What the majority of a fleet's hosts reach of one metric, how far good hosts differ, and which ones are no such.

Robust by construction: it starts from the shortest half of the hosts (P. J. Rousseeuw, Least median of squares
regression, 1984), so that up to half of the hosts may be bad, and in any direction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firsttouch.records import Better
from firsttouch.verdict import sure
from firsttouch.verdict.columns import Floats, Groups

#: Fewer hosts than these say nothing about a fleet.
FEWEST_HOSTS = 5
#: The loss that has to be found.
LOSS = 0.05
#: Standard deviations beyond which a host is no good one, and within which good hosts have to be of the limit:
#: of a million good ones, as many as 1 lie beyond 4.9.
_BEYOND = 4.0
_WITHIN = 4.3
#: The value's doubt may be as large a share of the loss that has to be found.
_DOUBT = 1 / 16
#: Median of the absolute value of a standard normal variable.
_NORMAL = 0.6745
#: As many hosts measured twice tell the error of a pass from the difference between hosts.
_TWICE = 5


@dataclass(frozen=True)
class Level:
    """A metric of a fleet: the *value* that good hosts reach, in the metric's unit.

    A host is no good one beyond the relative difference *limit*; *error* is that of one pass (see
    :func:`firsttouch.verdict.sure.fitted`). *spread* is the relative standard deviation of good hosts' own
    levels, *doubt* that of *value*. *hosts* are as many good ones with so many *passes* each on average,
    *outliers* the others with their relative differences from the value. *more_passes* per host are missing until
    the value is known well enough.
    """

    value: float
    limit: float
    error: float
    spread: float
    doubt: float
    hosts: int
    passes: float
    outliers: Mapping[str, float]
    more_passes: int


def learn(passes: Mapping[str, Sequence[float]], better: Better, loss: float = LOSS) -> Level | None:
    """Return the level of a metric from its *passes* by host, and how to find a *loss* of it.

    None for too few hosts, or for values of which none can be a share (0 or less).
    """
    mine = {host: values for host, values in passes.items() if len(values)}
    if not mine:
        return None
    values = np.concatenate([np.asarray(v, dtype=float) for v in mine.values()])
    return level(Groups(values, np.array([len(v) for v in mine.values()])), list(mine), better, loss)


def level(passes: Groups, hosts: Sequence[str], better: Better, loss: float = LOSS) -> Level | None:
    """Return what :func:`learn` does, of the *passes* of each of *hosts* (oldest first) in columns."""
    if len(passes) < FEWEST_HOSTS or passes.values.min() <= 0:
        return None
    unit = float(np.median(passes.medians()))
    found = Groups(passes.values / unit, passes.counts)
    error = _error(found)
    levels = _locations(found, error or 0.0)
    centre, scale = _half(np.sort(levels))
    for _ in range(3):
        beyond = max(_BEYOND * scale * _few(len(levels)), loss / 2)
        good = np.abs(levels - centre) <= beyond
        # All passes count alike: who was measured again because he was slow at first does not count as slow.
        known = found.chosen(good)
        own = _deviation(levels[good] - centre) if error is None else error
        centre = float(_location(known.values[None, :], own)[0])
        scale = _deviation(levels[good] - centre)
    pooled = known.values
    typical = float(np.median(known.counts))
    spread = 0.0 if error is None else _spread(known, own)
    # Where good hosts differ so much that the loss would be one of theirs, a larger one is looked for.
    wanted = max(loss, 2 * _WITHIN * spread)
    centre, moving, fitted, wanted = _centred(pooled, centre, own * _few(len(known)), better, wanted)
    steady = spread / math.sqrt(len(known))
    return Level(
        value=centre * unit,
        limit=wanted / 2,
        error=fitted,
        spread=spread,
        doubt=math.hypot(moving, steady),
        hosts=len(known),
        passes=len(pooled) / len(known),
        outliers={hosts[i]: float(levels[i]) / centre - 1 for i in np.flatnonzero(~good).tolist()},
        more_passes=max(0, math.ceil(typical * ((moving / (wanted * _DOUBT)) ** 2 - 1))),
    )


def _centred(
    pooled: Floats, centre: float, error: float, better: Better, loss: float
) -> tuple[float, float, float, float]:
    """Return the value about which passes are no evidence either way, its doubt, their error, and the loss.

    Passes are not alike on both sides: of what most of them reach, their mean may be far. The loss is a larger
    one where no number of such passes would tell it.
    """
    found = None
    for _ in range(4):
        changes = pooled / centre - 1
        found = _fitted(changes, error, better, loss)
        most = sure.reach(loss / 2, found or error)
        near = np.clip(changes, -most, most)
        centre *= 1 + float(near.mean())
        doubt = float(near.std()) / math.sqrt(len(near))
    while (found := _fitted(pooled / centre - 1, error, better, loss)) is None:
        loss *= 1.25
    return centre, doubt, found, loss


def _fitted(changes: Floats, error: float, better: Better, loss: float) -> float | None:
    """Return the error that counts in the worse direction, or the larger one where both are bad."""
    found = []
    if better != "lower":
        found.append(sure.fitted(-changes, error, loss))
    if better != "higher":
        found.append(sure.fitted(changes, error, loss))
    return None if None in found else max(f for f in found if f is not None)


def _half(ordered: Floats) -> tuple[float, float]:
    """Return middle and standard deviation of the shortest half of *ordered* values."""
    size = len(ordered) // 2 + 1
    begin = int(np.argmin(ordered[size - 1 :] - ordered[: len(ordered) - size + 1]))
    first, last = float(ordered[begin]), float(ordered[begin + size - 1])
    return (first + last) / 2, (last - first) / 2 / _NORMAL


def _locations(found: Groups, error: float) -> Floats:
    return found.of(lambda rows: _location(rows, error))


def _location(rows: Floats, error: float) -> Floats:
    """Return Huber's location of each row: its mean, with what is far off for this *error* drawn near."""
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


def _error(found: Groups) -> float | None:
    """Return the standard deviation of a pass, by differences of neighbours; None where few were repeated."""
    if np.count_nonzero(found.counts > 1) < _TWICE:
        return None
    steps = [np.diff(rows, axis=1).ravel() for _, rows in found.blocks()]
    return _deviation(np.concatenate(steps)) / math.sqrt(2)


def _spread(found: Groups, error: float) -> float:
    """Return the standard deviation of good hosts' own levels.

    A host's passes are halved: what both halves have in common is the host's, what they differ by is chance. What
    chance may also make of the halves' sum, four of its standard deviations, is no difference between hosts.
    """
    halves = [
        (_location(rows[:, ::2], error), _location(rows[:, 1::2], error))
        for _, rows in found.blocks()
        if rows.shape[1] > 1
    ]
    if not halves:
        return 0.0
    first, second = (np.concatenate(half) for half in zip(*halves, strict=True))
    common, chance = _variance((first + second) / 2), _variance((first - second) / 2)
    return math.sqrt(max(0.0, common - chance * math.exp(4 * math.sqrt(2 * 2.2 / len(first)))))


def _variance(values: Floats) -> float:
    """Return the variance about the median, of far values that of nearer ones."""
    distances = np.abs(values - np.median(values))
    far = 2.5 * float(np.median(distances)) / _NORMAL
    return float((np.minimum(distances, far) ** 2).mean())


def _few(count: int) -> float:
    """Return by how much a deviation of so few values may be too small."""
    return 1 + 3 / count
