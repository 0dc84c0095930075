# SPDX-License-Identifier: Apache-2.0
"""When parts of hosts changed, and by how much.

The sessions of each part are divided into stretches by the change detector of verdicts
(:func:`firsttouch.judge.levels.stretches`). A change needs three sessions on both sides, so one or two disturbed
sessions are not a change. Chance makes any of the listed changes with a probability of at most
:data:`firsttouch.judge.constants.CHANGE_TAIL`. Hosts that change together are one change.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.documents import attributes
from firsttouch.judge import questions
from firsttouch.judge.constants import CHANGE_TAIL, LEAST_LOSS, UPDATED_HOSTS, UPDATED_SHARE
from firsttouch.judge.drift import Configuration, changed_settings
from firsttouch.judge.findings import Findings
from firsttouch.judge.levels import Sessions
from firsttouch.judge.part_judge import Judged
from firsttouch.judge.statistics import chance_of_change
from firsttouch.records.groups import group_medians
from firsttouch.records.parts import Series
from firsttouch.records.samples_table import SamplesTable
from firsttouch.units import day, iso

if TYPE_CHECKING:
    import polars as pl

#: The fewest sessions on each side of a change.
FEWEST_SESSIONS = 3
#: Smaller changes are not listed: no error is known so well.
_LEAST = LEAST_LOSS / 5


class Change(Struct, frozen=True):
    """A change of one *part* (with its kind of metrics) of *hosts*: of more than one if they changed together.

    It happened after one session and before a later one: *after*, *before* (ms since 1970). *change* is the
    relative one of the part's values, *strength* the same in standard deviations. *others* are the parts that
    changed at the same time in the same direction. *of* counts the hosts that have the part. *causes* are changes
    of configuration shortly before, as text.
    """

    system: str
    part: str
    hosts: Sequence[str]
    of: int
    after: int
    before: int
    change: float
    worse: bool
    strength: float
    others: Sequence[str] = ()
    causes: Sequence[str] = ()

    @property
    def when(self) -> str:
        """The days (UTC) between which it happened, or the day."""
        first, last = day(self.after), day(self.before)
        return last if first == last else f"{first} to {last}"

    @property
    def who(self) -> str:
        """The host, or the number of hosts."""
        return self.hosts[0] if len(self.hosts) == 1 else f"{len(self.hosts)} of {self.of} hosts"

    @property
    def parts(self) -> str:
        """The part, and how many others changed with it."""
        return self.part + (f" and {len(self.others)} more" if self.others else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return {
            **attributes(self, "system", "part", "of", "change", "worse"),
            **{name: list(getattr(self, name)) for name in ("hosts", "others", "causes")},
            **{"after": iso(self.after), "before": iso(self.before)},
        }


# ----------------------------------------------------------------------
# The changes of each part


def changes(findings: Findings, configurations: Mapping[str, Configuration] | None = None) -> list[Change]:
    """Return the changes of the parts of all hosts: changes of many hosts first, then the newest first.

    *configurations* are the newest ones of hosts, with their changes.
    """
    fleet, samples = findings.fleet, findings.samples
    if fleet is None:
        return []
    tests = len(fleet.series) * len(samples.hosts)
    listed: list[Change] = []
    for judged in fleet.series:
        cases = [samples.cases[number] for number in judged.series.cases]
        if any(case.better != "neither" for case in cases):
            for steps in _together_or_sure(_steps(judged, fleet.sessions), fleet.sessions, tests):
                listed.append(_change(samples, fleet.sessions, judged.series, steps))
    listed = sorted(_of_parts(listed), key=lambda c: (len(c.hosts) == 1, -c.before, -abs(c.change)))
    if not configurations:
        return listed
    return [replace(c, causes=changed_settings(configurations, c.hosts, c.after, c.before)) for c in listed]


def _steps(judged: Judged, sessions: Sessions) -> pl.DataFrame:
    """Return the changes between the stretches of the sessions of each ``host``, a row each.

    It happened between the sessions ``last`` and ``first``. ``size`` is the loss, ``strength`` it in standard
    deviations, ``chance`` the probability that chance makes it, ``of`` the number of hosts that have the part.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    timeline, losses = judged.prepared.timeline, judged.prepared.losses
    measured = np.flatnonzero(np.isfinite(losses.loss) & sessions.current)
    host, values = sessions.host[measured], losses.loss[measured]
    is_first = np.diff(host, prepend=-1) != 0
    starts = np.flatnonzero(is_first | timeline.starts[measured])
    counts, of_host = np.diff(starts, append=len(measured)), host[starts]
    level = group_medians(values, counts)
    place = np.flatnonzero(np.diff(of_host) == 0) + 1
    before, after, size = counts[place - 1], counts[place], level[place] - level[place - 1]
    strength = np.abs(size) / (judged.prepared.noise[of_host[place]] * np.sqrt(1 / after + 1 / before))
    chance = chance_of_change(strength, timeline.freedom[of_host[place]], after + before)
    kept = (chance <= CHANGE_TAIL) & (np.abs(size) >= max(_LEAST, losses.step))
    kept &= np.minimum(after, before) >= FEWEST_SESSIONS
    columns = {
        "host": of_host[place],
        "last": measured[starts[place] - 1],
        "first": measured[starts[place]],
        **{"size": size, "strength": strength, "chance": chance},
    }
    return pl.DataFrame(columns).filter(kept).with_columns(of=int(np.count_nonzero(is_first)))


def _together_or_sure(steps: pl.DataFrame, sessions: Sessions, tests: int) -> Iterator[pl.DataFrame]:
    """Yield the changes that hosts have together, and each that one host certainly has."""
    import polars as pl  # noqa: PLC0415 - a large import

    steps = steps.with_row_index()
    together: list[int] = []
    for sign in (1, -1):
        of_sign = steps.filter(pl.col("size").sign() == sign)
        for wave in questions.waves(sessions.time[of_sign["first"].to_numpy()], sessions.interval):
            # A host that changed by far more has a separate change.
            near = of_sign[wave].filter(pl.col("size").abs() < 2 * pl.col("size").median().abs())
            if near["host"].n_unique() >= max(UPDATED_HOSTS, UPDATED_SHARE * steps["of"][0]):
                together += near["index"].to_list()
                yield near
    sure = steps.filter(~pl.col("index").is_in(together), pl.col("chance") * tests <= CHANGE_TAIL)
    yield from sure.iter_slices(1)


def _change(samples: SamplesTable, sessions: Sessions, part: Series, steps: pl.DataFrame) -> Change:
    """Return the change of some hosts."""
    column = {name: steps[name].to_numpy() for name in steps.columns}
    case, size = samples.cases[part.cases[0]], float(np.median(column["size"]))
    return Change(
        system=case.system,
        part=part.title,
        hosts=tuple(sorted(samples.hosts[h] for h in np.unique(column["host"]).tolist())),
        of=int(column["of"][0]),
        after=int(sessions.time[column["last"]].min()),
        before=int(sessions.time[column["first"]].max()),
        change=math.expm1(case.loss_sign * size),
        worse=size > 0,
        strength=float(np.median(column["strength"])) * len(steps) ** 0.5,
    )


def _of_parts(listed: Iterable[Change]) -> list[Change]:
    """Return one change, the surest, for all parts that changed equally on the same hosts at the same time.

    A change of a single host that is smaller than an update that includes it belongs to the update.
    """
    events: dict[tuple[str, bool], list[tuple[Change, list[str]]]] = defaultdict(list)
    for change in sorted(listed, key=lambda c: (len(c.hosts) == 1, -c.strength)):
        hosts = {*change.hosts}
        keys = dict.fromkeys([(change.hosts[0] if len(hosts) == 1 else "", change.worse), ("", change.worse)])
        for first, others in itertools.chain.from_iterable(events[key] for key in keys):
            common, most = len(hosts.intersection(first.hosts)), max(len(hosts), len(first.hosts))
            is_within = common == len(hosts) and abs(change.change) < abs(first.change)
            is_at_once = change.after <= first.before and first.after <= change.before
            if is_at_once and (2 * common >= most or is_within):
                others.append(change.part)
                break
        else:
            events[next(iter(keys))].append((change, []))
    return [
        replace(first, others=tuple(dict.fromkeys(p for p in others if p != first.part)))
        for of_hosts in events.values()
        for first, others in of_hosts
    ]
