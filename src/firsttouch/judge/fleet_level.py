# SPDX-License-Identifier: Apache-2.0
"""What the majority of a fleet's hosts reach of one metric, how far good hosts differ, and which ones are no such.

Robust by construction: it starts from the shortest half of the hosts (P. J. Rousseeuw, Least median of squares
regression, 1984), so that up to half of the hosts may be bad, and in any direction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # type: ignore[import-untyped]

from firsttouch.errors import BadInput
from firsttouch.judge import sprt
from firsttouch.judge.sprt import Floats, Groups
from firsttouch.records.schema import Better

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
#: A range of hosts that is longer is a mistake.
_MOST_HOSTS = 100_000
#: As many hosts measured twice tell the error of a pass from the difference between hosts.
_TWICE = 5
#: A fleet is divided where its hosts form two groups of which the larger one has less than this share of them:
#: which of the two is right is not known then. A fleet that may be divided has at least so many hosts, a group has
#: so many and this share of all.
_MAJORITY, _FEWEST_DIVIDED, _FEWEST, _SHARE = 0.6, 8, 3, 0.1
#: The groups' medians are apart by this part of the value at least, and by so many standard deviations within a
#: group (more where hosts are few).
_APART, _FAR, _FAR_OF_FEW = LOSS / 2, 6.0, 1500.0


@dataclass(frozen=True)
class Divided:
    """A metric of which a fleet's hosts form two groups, neither of them a clear majority.

    *better* and *worse* are the names of hosts, *values* what each group reaches, in the metric's unit. Where
    neither direction is better, the larger group is first.
    """

    better: Sequence[str]
    worse: Sequence[str]
    values: tuple[float, float]

    @property
    def apart(self) -> float:
        """The difference as a share of what the better group reaches."""
        return abs(self.values[1] / self.values[0] - 1)

    def text(self, unit: str) -> str:
        """Return the groups as a text without the metric's name; *unit* is that of the values."""
        of_unit = "" if unit == "1" else f" {unit}"
        groups = zip((self.better, self.worse), self.values, strict=True)
        texts = [f"{len(hosts)} hosts at {value:.4g}{of_unit} ({folded(hosts)})" for hosts, value in groups]
        return f"{' and '.join(texts)}, {100 * self.apart:.1f} % apart"


def folded(hosts: Sequence[str]) -> str:
    """Return host names as Slurm writes them, ``n[1-8],m2``, or one by one where they cannot be written so."""
    try:
        return str(NodeSet.fromlist(list(hosts), resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return ",".join(hosts)


def unfolded(text: str) -> list[str]:
    """Return the host names of a list such as ``n[1-8],m2``; raises BadInput where it is none."""
    if any(int(end) - int(begin) > _MOST_HOSTS for begin, end in re.findall(r"(\d{1,18})-(\d{1,18})", text)):
        raise BadInput(f"{text}: more than {_MOST_HOSTS} hosts")
    try:
        hosts = list(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise BadInput(f"'{text}' is not a list of hosts, such as n[1-8],m2: {error}") from error
    if not hosts:
        raise BadInput(f"'{text}' names no host")
    return hosts


def divided(passes: Groups, hosts: Sequence[str], better: Better) -> Divided | None:
    """Return the two groups that hosts form, None where most hosts are alike or nothing can be said.

    The largest gap between hosts' medians divides them, if the groups are clearly apart. A clear minority is set
    aside (these are outliers), and the others are looked at again. Of simulated fleets of 8 to 1000 hosts that
    differ by a normal deviation, 4 of 79,000 were taken for divided.
    """
    if len(passes) < _FEWEST_DIVIDED or passes.values.min() <= 0:
        return None
    levels = passes.medians()
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
            names = (
                [hosts[i] for i in order[begin:middle].tolist()],
                [hosts[i] for i in order[middle:end].tolist()],
            )
            first = 0 if better == "lower" or (better == "neither" and len(low) > len(high)) else 1
            return Divided(sorted(names[first]), sorted(names[1 - first]), (values[first], values[1 - first]))
        begin, end = (begin, middle) if len(low) > len(high) else (middle, end)
    return None


@dataclass(frozen=True)
class Level:
    """A metric of a fleet: the *value* that good hosts reach, in the metric's unit.

    A host is no good one beyond the relative difference *limit*; *error* is that of one pass (see
    :func:`firsttouch.judge.sprt.fitted`). *spread* is the relative standard deviation of good hosts' own
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
        most = sprt.reach(loss / 2, found or error)
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
        found.append(sprt.fitted(-changes, error, loss))
    if better != "higher":
        found.append(sprt.fitted(changes, error, loss))
    return None if None in found else max(f for f in found if f is not None)


def _half(ordered: Floats) -> tuple[float, float]:
    """Return middle and standard deviation of the shortest half of *ordered* values."""
    size = len(ordered) // 2 + 1
    begin = int(np.argmin(ordered[size - 1 :] - ordered[: len(ordered) - size + 1]))
    first, last = float(ordered[begin]), float(ordered[begin + size - 1])
    return (first + last) / 2, (last - first) / 2 / _NORMAL


def _locations(found: Groups, error: float) -> Floats:
    return found.apply(lambda rows: _location(rows, error))


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
