# SPDX-License-Identifier: Apache-2.0
"""When parts of hosts changed, and by how much.

The sessions of each part are divided into stretches by the change detector of verdicts
(:func:`firsttouch.judge.levels.timeline`). A change needs three sessions on both sides, so one or two disturbed
sessions are not a change. The probability that chance causes a listed change is at most
:data:`firsttouch.judge.constants.CHANGE_TAIL`. Hosts that change together are one change. Updates, which verdicts
ignore because many hosts have them, are merged and named in the same way.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.documents import attributes
from firsttouch.host.host_lists import named, natural
from firsttouch.judge import constants
from firsttouch.judge.findings import Findings
from firsttouch.judge.part_judge import Judged
from firsttouch.records.drift import changed_settings
from firsttouch.records.groups import Bools, Floats, Ints
from firsttouch.records.parts import Series
from firsttouch.statistics import chance_of_change
from firsttouch.units import day, iso, percent, text_range

#: The fewest sessions on each side of a change.
FEWEST_SESSIONS = 3
#: Smaller changes are not listed, because no error is known that precisely.
_LEAST = constants.LEAST_LOSS / 5


class Change(Struct, frozen=True):
    """A change of one *part* (with its kind of metrics) on *hosts*, which are several if they changed together.

    It happened between the times *after* and *before* of two sessions (ms since 1970). *change* is relative.
    *others* are the parts that changed at the same time in the same direction. *of* counts the hosts that have the
    part. *causes* are changes of settings shortly before, as text.
    """

    system: str
    part: str
    hosts: Sequence[str]
    of: int
    after: int
    before: int
    change: float
    worse: bool
    others: Sequence[str] = ()
    causes: Sequence[str] = ()

    @property
    def when(self) -> str:
        """The days (UTC) between which it happened, or the day."""
        return text_range(day(self.after), day(self.before))

    @property
    def who(self) -> str:
        """The host, or the number of hosts."""
        return self.hosts[0] if len(self.hosts) == 1 else f"{len(self.hosts)} of {self.of} hosts"

    @property
    def parts(self) -> str:
        """The part, and how many others changed with it."""
        return self.part + (f" and {len(self.others)} more" if self.others else "")

    def text(self) -> str:
        """Return the change of several hosts as one line."""
        details = [named(self.hosts), self.parts, *(self.causes or ["no recorded setting changed"])]
        return (
            f"{'an update' if self.causes else 'changed together'}: {self.who} "
            f"{'lost' if self.worse else 'gained'} {percent(abs(self.change))}, {self.when} ({'; '.join(details)})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return {
            **attributes(self, "system", "part", "of", "change", "worse"),
            **{name: list(getattr(self, name)) for name in ("hosts", "others", "causes")},
            **{"after": iso(self.after), "before": iso(self.before)},
        }


# ----------------------------------------------------------------------
# The changes of each part


def changes(findings: Findings) -> list[Change]:
    """Return the changes of the parts of all hosts: changes of many hosts first, then the newest first."""
    sessions = findings.fleet.sessions
    tests = len(findings.fleet.series) * len(findings.samples.hosts)
    listed: list[tuple[Series, Change]] = []
    for judged in findings.fleet.series:
        if all(findings.samples.cases[number].better == "neither" for number in judged.series.cases):
            continue
        of = int(np.count_nonzero(np.isfinite(judged.level)))
        (steps, sizes, is_sure), stretches = _steps(judged, tests), judged.timeline.stretches
        host, last, first = stretches.host[steps], stretches.last[steps - 1], stretches.first[steps]
        waves = _waves(sessions.time[first], sizes, sessions.interval)
        # A host that changed far more than the others has a separate change.
        near = (w[np.abs(sizes[w]) < 2 * np.abs(np.median(sizes[w]))] for w in waves)
        fewest = max(constants.UPDATED_HOSTS, constants.UPDATED_SHARE * of)
        groups = [wave for wave in near if len(np.unique(host[wave])) >= fewest]
        alone = np.setdiff1d(np.flatnonzero(is_sure), np.concatenate([np.zeros(0, dtype=np.int64), *groups]))
        for group in (*groups, *alone[:, None]):
            times = sessions.time[last[group]].min(), sessions.time[first[group]].max()
            size = float(np.median(sizes[group]))
            listed.append(_change(findings, judged.series, np.unique(host[group]), of, size, *times))
        listed += _shared(findings, judged)
    return _merged(findings, listed)


def updates(findings: Findings) -> list[Change]:
    """Return the changes of many hosts that the verdicts leave out: updates and drifts."""
    listed = [_shared(findings, judged) for judged in findings.fleet.series]
    return _merged(findings, itertools.chain.from_iterable(listed))


def _shared(findings: Findings, judged: Judged) -> Iterator[tuple[Series, Change]]:
    """Yield the changes of many hosts that their losses do not show: updates, and the drift of all hosts."""
    trend, sessions = judged.trend, findings.fleet.sessions
    of = int(np.count_nonzero(np.isfinite(judged.level)))
    for update in (u for u in judged.updates if len(u.hosts) >= constants.UPDATED_HOSTS):
        times = update.after, update.before
        yield _change(findings, judged.series, update.hosts, of, update.change, *times)
    _, first, week = sessions.weeks
    since = int(np.abs(trend[first]).argmax())
    if (size := -float(trend[first][since])) and abs(size) > constants.LEAST_LOSS:
        hosts = np.flatnonzero(np.isfinite(judged.level))
        times = sessions.time[week == since].min(), sessions.time[week == len(first) - 1].max()
        yield _change(findings, judged.series, hosts, of, size, *times)


def _waves(times: Ints, changes: Floats, interval: float) -> Iterator[Ints]:
    """Yield the indexes of changes of a few hosts or more in one direction, without a pause of 1.6 *interval*."""
    for sign in (1.0, -1.0):
        places = np.flatnonzero(sign * changes > 0)
        places = places[np.argsort(times[places], kind="stable")]
        for wave in np.split(places, np.flatnonzero(np.diff(times[places]) > 1.6 * interval) + 1):
            if len(wave) >= constants.UPDATED_HOSTS:
                yield wave


def _steps(judged: Judged, tests: int) -> tuple[Ints, Floats, Bools]:
    """Return the stretches (numbers) that begin with a change, its size (a loss), and whether it is sure alone."""
    timeline, of = judged.timeline, judged.timeline.stretches
    place = np.flatnonzero(np.diff(of.host) == 0) + 1
    before, after, size = of.size[place - 1], of.size[place], of.level[place] - of.level[place - 1]
    strength = np.abs(size) / (timeline.noise[of.host[place]] * np.sqrt(1 / after + 1 / before))
    chance = chance_of_change(strength, timeline.freedom, after + before)
    is_listed = (chance <= constants.CHANGE_TAIL) & (np.abs(size) >= max(_LEAST, judged.losses.step))
    is_listed &= np.minimum(after, before) >= FEWEST_SESSIONS
    return place[is_listed], size[is_listed], (chance * tests <= constants.CHANGE_TAIL)[is_listed]


def _change(  # noqa: PLR0917
    findings: Findings, series: Series, hosts: Ints, of: int, size: float, after: int, before: int
) -> tuple[Series, Change]:
    """Return the change of some hosts (numbers) by *size* (a loss)."""
    case = findings.samples.cases[series.cases[0]]
    names = [findings.samples.hosts[host] for host in hosts.tolist()]
    times = int(after), int(before)
    return series, Change(
        case.system, series.title, names, of, *times, math.expm1(case.loss_sign * size), worse=size > 0
    )


def _naming_order(item: tuple[Series, Change]) -> tuple[bool, float]:
    """Return a key that sorts changes of many hosts first, then the part that names a change best.

    That part changed most. Sums over all parts of a name, and links to a changed memory, change as much but are
    sorted behind it.
    """
    series, change = item
    weight = (4 / 3 if series.is_together else 1.0) / (1.3 if series.part.name == "link" else 1.0)
    return len(change.hosts) == 1, -abs(math.log1p(change.change)) * weight


def _merged(findings: Findings, listed: Iterable[tuple[Series, Change]]) -> list[Change]:
    """Return one change for all parts that changed in one direction on the same hosts at the same time.

    A single host's change that is smaller than an update of the host belongs to the update. The settings that
    changed shortly before are its causes.
    """
    events: dict[tuple[str, bool], list[tuple[Change, set[str], list[str]]]] = defaultdict(list)
    for _, change in sorted(listed, key=_naming_order):
        hosts = {*change.hosts}
        keys = dict.fromkeys([(change.hosts[0] if len(hosts) == 1 else "", change.worse), ("", change.worse)])
        for first, of_first, parts in itertools.chain.from_iterable(events[key] for key in keys):
            common, most = len(hosts & of_first), max(len(hosts), len(of_first))
            is_within = common == len(hosts) and abs(change.change) < abs(first.change)
            is_at_once = change.after <= first.before and first.after <= change.before
            if is_at_once and (2 * common >= most or is_within):
                of_first.update(hosts)
                parts.append(change.part)
                break
        else:
            events[next(iter(keys))].append((change, hosts, []))
    merged = []
    for first, of_first, parts in itertools.chain.from_iterable(events.values()):
        causes = changed_settings(findings.newest_configurations, first.hosts, first.after, first.before)
        others = tuple(dict.fromkeys(part for part in parts if part != first.part))
        merged.append(replace(first, hosts=sorted(of_first, key=natural), others=others, causes=causes))
    return sorted(merged, key=lambda c: (len(c.hosts) == 1, -c.before, -abs(c.change)))
