# SPDX-License-Identifier: Apache-2.0
"""The guideline of each system and aligner: which scenario to use, what it gains, and every alternative.

It rests on measured scenarios, stored advice and published times, each by itself: their inputs are not the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttouch.report import alternatives
from firsttouch.report.choices import Alternative, Choice, Interval
from firsttouch.report.hosts import HostView
from firsttouch.report.model import Table
from firsttouch.report.text import clean, count, number, times


@dataclass(frozen=True)
class Guideline:
    """What is known of an aligner on a system: a choice for each dataset and source, the surest source first."""

    system: str
    aligner: str
    choices: tuple[Choice, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "system": self.system,
            "aligner": self.aligner,
            "choices": [_choice(choice) for choice in self.choices],
        }

    def lines(self) -> list[str]:
        """Return a line for each choice, for a ticket."""
        return [f"{c.title}: {said(c)}" for c in self.choices]


def guidelines(views: Sequence[HostView], advice: Sequence[Mapping[str, Any]]) -> list[Guideline]:
    """Return the guideline of every system and aligner that was measured or advised on, ascending.

    Published times are shown beside these where they are of the same system and aligner.
    """
    found: dict[tuple[str, str], list[Choice]] = {}
    for key, choice in (*alternatives.measured(views), *alternatives.advised(advice)):
        found.setdefault(key, []).append(choice)
    known = alternatives.published()
    return [Guideline(*key, (*choices, *known.get(key, ()))) for key, choices in sorted(found.items())]


def said(choice: Choice) -> str:
    """Return what to use, and the gain with its uncertainty, as a sentence."""
    what = f"use {choice.chosen}"
    if choice.gain is None:
        return what
    if choice.chosen == choice.default:
        return f"{what}, the default run"
    gain = f"{times(choice.gain.value)} as fast as {choice.default}"
    low, high = choice.gain.low, choice.gain.high
    ends = "how sure that is is not known" if low is None or high is None else f"{times(low)} to {times(high)}"
    return f"{what}: {gain} ({ends}, {choice.interval})"


def table(choice: Choice) -> Table:
    """Return every alternative with its time or rate, the best first."""
    rows = [_row(one) for one in choice.alternatives]
    header = ("scenario", "instances", "policy", f"{choice.quantity} ({choice.unit})", "from", "to", "n", "hosts")
    told = ("gain", "from", "to", "")
    return Table(f"Alternatives: {choice.title}", (*header, *told), rows, frozenset(range(3, 11)))


def dropped(choice: Choice) -> Table | None:
    """Return what is no alternative, and why; None where nothing was dropped."""
    if not choice.dropped:
        return None
    caption = f"{count(len(choice.dropped), 'scenario')} dropped: {choice.title}"
    return Table(caption, ("scenario", "why"), [(clean(n), clean(why)) for n, why in choice.dropped])


def _row(one: Alternative) -> tuple[str, ...]:
    runs = "" if one.repetitions is None else str(one.repetitions)
    hosts = "" if one.repetitions is None else str(one.hosts)
    values, gains = _cells(one.value, number), _cells(one.gain, times)
    return (one.scenario, one.shape, one.policy, *values, runs, hosts, *gains, one.note)


def _cells(interval: Interval | None, shown: Callable[[float], str]) -> tuple[str, ...]:
    """Return a value and the ends of its interval, each "" where it is not known."""
    ends = (None,) * 3 if interval is None else (interval.value, interval.low, interval.high)
    return tuple("" if end is None else shown(end) for end in ends)


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "source": choice.source,
        "title": choice.title,
        "recommended": choice.chosen,
        "default": choice.default,
        "reason": choice.reason,
        "gain": choice.gain.to_dict() if choice.gain else None,
        "interval": choice.interval,
        "unit": choice.unit,
        "alternatives": [
            {
                "scenario": one.scenario,
                "value": one.value.to_dict() if one.value else None,
                "repetitions": one.repetitions,
                "hosts": one.hosts,
                "gain": one.gain.to_dict() if one.gain else None,
                "note": one.note,
            }
            for one in choice.alternatives
        ],
        "dropped": [{"scenario": name, "reason": why} for name, why in choice.dropped],
    }
