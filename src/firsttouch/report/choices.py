# SPDX-License-Identifier: Apache-2.0
"""What a guideline is made of: scenarios to choose from with their times or rates, and the choice."""

from __future__ import annotations

from dataclasses import dataclass

#: What is said of the scenario to use, and of the default run.
USE, DEFAULT = "use this", "default"


@dataclass(frozen=True)
class Interval:
    """A value, and the ends of where it may as well lie (None: nothing tells how sure it is)."""

    value: float
    low: float | None
    high: float | None

    @property
    def clear(self) -> bool:
        """Tell whether a gain is one for sure: the whole interval is above 1."""
        return self.low is not None and self.low > 1

    def to_dict(self) -> dict[str, float | None]:
        """Return the JSON form."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Alternative:
    """A scenario with its time or rate and its *gain*, how many times as fast as the default run it is.

    *repetitions* are runs, or trials (None: not told), on as many *hosts*; the value of a scenario that was not
    tried is what is expected of it.
    """

    scenario: str
    shape: str
    policy: str
    value: Interval | None
    repetitions: int | None
    gain: Interval | None
    note: str = ""
    hosts: int = 1


@dataclass(frozen=True)
class Choice:
    """What to use for one input: *chosen*, the *reason*, its *gain*, every alternative, and the dropped ones.

    *interval* says what the ends of the gain are; *quantity* and *unit* those of the alternatives' values.
    """

    source: str
    title: str
    chosen: str
    default: str
    reason: str
    gain: Interval | None
    interval: str
    quantity: str
    unit: str
    alternatives: tuple[Alternative, ...]
    dropped: tuple[tuple[str, str], ...] = ()


def mark(name: str, chosen: str, default: str) -> str:
    """Return what is said of a scenario by its name: that it is the one to use, or the default run."""
    return USE if name == chosen else DEFAULT if name == default else ""
