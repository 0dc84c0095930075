# SPDX-License-Identifier: Apache-2.0
"""What a reference says of passes: better direction, and never by a single noisy pass.

Better than the tolerance is never a fail, but something is wrong with the measurement or with the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firsttouch.records import Better
from firsttouch.systems import Reference
from firsttouch.verdict import sure
from firsttouch.verdict.columns import Bools, Floats, Groups
from firsttouch.verdict.model import ORDER, Word

#: Words as numbers, from good to bad.
PASS, SUSPECT, INVALID, FAIL = range(len(ORDER))


@dataclass(frozen=True)
class Said:
    """What a reference says of groups of passes: *words* as numbers, the *evidence* (NaN: no error is known)."""

    words: NDArray[np.uint8]
    evidence: Floats


def say(passes: Groups, better: Better, reference: Reference) -> Said:
    """Return what *reference* says of each group.

    Where no error of a pass is known, they are counted. Outside in at least two passes and in all of them: fail.
    Outside in less than half of them: pass. Anything between is suspect.
    """
    low, high = _beyond(passes.values, reference)
    bad, good = {"higher": (low, high), "lower": (high, low)}.get(better, (low | high, np.zeros_like(low)))
    evidence = _weighed(passes, better, reference)
    words = np.full(len(passes), PASS, dtype=np.uint8)
    if evidence is None:
        counted = passes.sums(bad.astype(np.int64))
        words[2 * counted >= passes.counts] = SUSPECT
        words[(counted == passes.counts) & (counted > 1)] = FAIL
    else:
        words[evidence > 0] = SUSPECT
        words[evidence >= sure.FAIL_AT] = FAIL
    if reference.line and good.any():
        mostly = 2 * passes.sums(good.astype(np.int64)) >= passes.counts
        words[mostly & (words == PASS)] = SUSPECT
    return Said(words, np.full(len(passes), np.nan) if evidence is None else evidence)


def _beyond(values: Floats, reference: Reference) -> tuple[Bools, Bools]:
    minimum, maximum = reference.minimum, reference.maximum
    none = np.zeros(len(values), dtype=np.bool_)
    return none if minimum is None else values < minimum, none if maximum is None else values > maximum


def _weighed(passes: Groups, better: Better, reference: Reference) -> Floats | None:
    """Return the evidence against each group, on the worse side; None where the error of a pass is unknown."""
    if reference.error is None:
        return None
    changes = passes.values / reference.value - 1
    sides = []
    if better != "lower" and reference.lower:
        sides.append(passes.sums(sure.weights(-changes, -reference.lower, reference.error)))
    if better != "higher" and reference.upper:
        sides.append(passes.sums(sure.weights(changes, reference.upper, reference.error)))
    return np.maximum.reduce(sides) if sides else None


def why(values: Sequence[float], better: Better, reference: Reference, word: Word, evidence: float | None) -> str:
    """Return the evidence of a verdict as a text; *word* and *evidence* are what :func:`say` says."""
    minimum, maximum = reference.minimum, reference.maximum
    shown = ", ".join(f"{v:.4g}" for v in values) + f" {reference.unit}"
    limits = [f"at least {minimum:.4g}"] if minimum is not None else []
    limits += [f"at most {maximum:.4g}"] if maximum is not None else []
    text = f"{shown}, {' and '.join(limits) or 'any value'} expected ({reference.source})"
    if evidence is not None:
        text += f"; {sure.told(evidence)}"
        fine = evidence <= 0
    else:
        low = sum(minimum is not None and v < minimum for v in values)
        high = sum(maximum is not None and v > maximum for v in values)
        bad = {"higher": low, "lower": high, "neither": low + high}[better]
        fine = 2 * bad < len(values)
        if not fine and word == "suspect":
            text += f"; outside in {bad} of {len(values)} passes"
    if fine and word == "suspect":
        text += "; better than it can be: a wrong measurement or reference"
    return text
