# SPDX-License-Identifier: Apache-2.0
"""Draws a new order of measurements in each round, because earlier measurements change later ones.

The order of the tests changes 1,042 of 1,198 memory configurations significantly, by 8 % in the mean (D. Duplyakin
et al., Avoiding the Ordering Trap in Systems Performance Measurement, USENIX ATC 2023). All measurements of
several cases are ordered by :func:`shuffle`, and the probe uses the same seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

from firsttouch.errors import BadInput

T = TypeVar("T")
#: The seed of all orders, and the place of a step in its round; processes that measure inherit both.
VARIABLE, STEP = "FIRSTTOUCH_SEED", "FIRSTTOUCH_STEP"
#: The largest seed.
MOST = 2**31 - 1


def seed(given: int | None = None) -> int:
    """Return the seed of this process: *given*, else the environment's, else a new one, which is kept.

    Raises BadInput for a text in the environment that is not a whole number from 1 to MOST.
    """
    if given is None:
        text = os.environ.get(VARIABLE) or str(random.SystemRandom().randint(1, MOST))
        if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST):
            raise BadInput(f"{VARIABLE} is '{text}', not a whole number from 1 to {MOST}")
        given = int(text)
    os.environ[VARIABLE] = str(given)
    return given


def round_seed(number: int, host: str = "") -> int:
    """Return the seed of a round (0, 1, ...) of a *host*; the first round has the seed of this process."""
    first = seed()
    return first if not number and not host else random.Random(f"{first} {host} {number}").randint(1, MOST)  # noqa: S311


def shuffle(items: Iterable[T], by: int | None = None) -> list[T]:
    """Return *items* in an order drawn by a seed (default: the seed of this process)."""
    listed = list(items)
    return random.Random(seed() if by is None else by).sample(listed, len(listed))  # noqa: S311


def sentence(by: int) -> str:
    """Return a sentence with the seed and how to repeat the order."""
    return f"order of the measurements: seed {by} ({VARIABLE}={by} repeats it)"


def for_record(position: int = 0) -> dict[str, int]:
    """Return the keys of a record: the seed, the step's place in its round, and its own *position* in the step."""
    step = os.environ.get(STEP, "")
    places = {"step": int(step) if step.isdecimal() else 0, "position": position}
    return {"seed": seed(), **{name: place for name, place in places.items() if place}}
