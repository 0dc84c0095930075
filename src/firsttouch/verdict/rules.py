# SPDX-License-Identifier: Apache-2.0
"""What a reference says of passes: better direction, and never by a single noisy pass.

A verdict is about now. The passes of the newest session decide; older sessions add their evidence as long as
nothing changed between them (:func:`newest`). Better than the tolerance is never a fail, but something is wrong
with the measurement or with the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firsttouch.records import Better
from firsttouch.systems import Reference
from firsttouch.verdict import sure
from firsttouch.verdict.columns import Bools, Floats, Groups, Ints
from firsttouch.verdict.model import ORDER, Word, compared

#: Words as numbers, from good to bad.
PASS, SUSPECT, INVALID, FAIL = range(len(ORDER))
#: More repetitions than these are not counted.
_MANY = 999


@dataclass(frozen=True)
class Said:
    """What a reference says of groups of passes, oldest first.

    *words* are numbers, *evidence* is NaN where no error of a pass is known. *newest* is how many of the newest
    passes of each group the verdict rests on, *more* how many further repetitions decide a suspect one (0: none
    would).
    """

    words: NDArray[np.uint8]
    evidence: Floats
    newest: Ints
    more: Ints


def say(passes: Groups, new: Bools, better: Better, reference: Reference, *, exact: bool) -> Said:
    """Return what *reference* says of each group; *new* marks passes that begin a session.

    An *exact* value is read and not measured: the last one decides. Of others the passes since the last change
    decide. Where no error of a pass is known, they are counted: outside in at least two passes and in all of them
    is a fail, outside in less than half of them a pass, anything between is suspect.
    """
    bad, good = outside(passes.values, better, reference)
    sides = [] if exact else weights(passes.values, better, reference)
    if exact:
        kept = np.ones_like(passes.counts)
    elif sides:
        kept, evidence = _heavier(passes, new, sides)
    else:
        kept = newest(Groups(np.where(bad, 1.0, -1.0), passes.counts), new, 1.0)
    recent = last(passes, kept)
    passes = Groups(passes.values[recent], kept)
    counted = passes.sums(bad[recent].astype(np.int64))
    words = np.full(len(passes), PASS, dtype=np.uint8)
    more = np.zeros(len(passes), dtype=np.int64)
    if exact:
        words[counted > 0] = FAIL
    elif sides:
        words[evidence > 0] = SUSPECT
        words[evidence >= sure.FAIL_AT] = FAIL
        more = repetitions(evidence, kept)
    else:
        words[2 * counted >= kept] = SUSPECT
        words[(counted == kept) & (counted > 1)] = FAIL
        more = np.where(kept == 1, 1, 2 * counted - kept + 1)
    more[words != SUSPECT] = 0
    if reference.line and good.any():
        mostly = 2 * passes.sums(good[recent].astype(np.int64)) >= kept
        words[mostly & (words == PASS)] = SUSPECT
    return Said(words, evidence if sides else np.full(len(passes), np.nan), kept, more)


def _heavier(passes: Groups, new: Bools, sides: Sequence[Floats]) -> tuple[Ints, Floats]:
    """Return how many passes count, and their evidence, of the side (each as weights) that speaks more against."""
    kept, evidence = np.zeros_like(passes.counts), np.full(len(passes), -np.inf)
    for side in sides:
        mine = newest(Groups(side, passes.counts), new, sure.CHANGED)
        chosen = last(passes, mine)
        total = Groups(side[chosen], mine).sums(side[chosen])
        heavier = total > evidence
        kept[heavier], evidence[heavier] = mine[heavier], total[heavier]
    return kept, evidence


def outside(values: Floats, better: Better, reference: Reference) -> tuple[Bools, Bools]:
    """Return which values are worse than *reference* allows, and which are better than it allows."""
    low, high = _beyond(values, reference)
    return {"higher": (low, high), "lower": (high, low)}.get(better, (low | high, np.zeros_like(low)))


def weights(values: Floats, better: Better, reference: Reference) -> list[Floats]:
    """Return the evidence of each value, for each side that may be worse; none where a pass's error is unknown."""
    if reference.error is None:
        return []
    changes = values / reference.value - 1
    sides = []
    if better != "lower" and reference.lower:
        sides.append(sure.weights(-changes, -reference.lower, reference.error))
    if better != "higher" and reference.upper:
        sides.append(sure.weights(changes, reference.upper, reference.error))
    return sides


def newest(evidence: Groups, new: Bools, least: float) -> Ints:
    """Return how many of the newest passes of each group count: those since the last change.

    The *evidence* of a group's passes is oldest first, *new* marks those that begin a session. A host changed
    before a session where the passes from there on speak for one side and those before for the other, with *least*
    each. The clearest such place cuts the older passes off, and the rest is looked at again.

    Over any number of sessions, the evidence that speaks wrongly against a good host reaches *e* with a
    probability of exp(-e) at most (J. Ville, Etude critique de la notion de collectif, 1939), so a long history
    blames no more good hosts than a single campaign.
    """
    found = evidence.counts.copy()
    several = evidence.sums(new.astype(np.int64)) > 0
    if not several.any():
        return found
    chosen = evidence.chosen(several)
    breaks = Groups(new[np.repeat(several, evidence.counts)].astype(float), chosen.counts)
    kept = chosen.counts.copy()
    for (which, rows), (_, marks) in zip(chosen.blocks(), breaks.blocks(), strict=True):
        after = np.cumsum(rows[:, ::-1], axis=1)[:, ::-1]
        begin = np.zeros(len(rows), dtype=np.int64)
        columns, every = np.arange(rows.shape[1]), np.arange(len(rows))
        while True:
            before = after[every, begin][:, None] - after
            clear = np.round(np.minimum(np.abs(after), np.abs(before)), 9)
            clear[(marks == 0) | (columns <= begin[:, None]) | (after * before >= 0)] = 0
            # The newest of equally clear ones.
            place = rows.shape[1] - 1 - np.argmax(clear[:, ::-1], axis=1)
            changed = clear[every, place] >= least
            if not changed.any():
                break
            begin[changed] = place[changed]
        kept[which] = rows.shape[1] - begin
    found[several] = kept
    return found


def last(passes: Groups, kept: Ints) -> Bools:
    """Return which passes are among the last ones of their group, *kept* of each."""
    if (kept == passes.counts).all():
        return np.ones(len(passes.values), dtype=np.bool_)
    place = np.arange(len(passes.values)) - np.repeat(passes.begins, passes.counts)
    return place >= np.repeat(passes.counts - kept, passes.counts)


def repetitions(evidence: Floats, counts: Ints) -> Ints:
    """Return how many more repetitions like these (*counts* so far) make a fail of *evidence* above 0."""
    positive = np.maximum(evidence, 1e-9)
    more = np.ceil(counts * (sure.FAIL_AT - evidence) / positive)
    return np.clip(more, 1, _MANY).astype(np.int64)


def _beyond(values: Floats, reference: Reference) -> tuple[Bools, Bools]:
    minimum, maximum = reference.minimum, reference.maximum
    none = np.zeros(len(values), dtype=np.bool_)
    return none if minimum is None else values < minimum, none if maximum is None else values > maximum


def why(
    values: Sequence[float], better: Better, reference: Reference, word: Word, *, evidence: float | None, more: int
) -> str:
    """Return the evidence of a verdict as a text; *word*, *evidence* and *more* are what :func:`say` says."""
    minimum, maximum = reference.minimum, reference.maximum
    limits = [f"at least {minimum:.4g}"] if minimum is not None else []
    limits += [f"at most {maximum:.4g}"] if maximum is not None else []
    text = compared(values, reference, f"{' and '.join(limits) or 'any value'}; {reference.source}")
    if evidence is not None:
        text += f"; {sure.told(evidence)}"
        fine = evidence <= 0
    else:
        low = sum(minimum is not None and v < minimum for v in values)
        high = sum(maximum is not None and v > maximum for v in values)
        bad = {"higher": low, "lower": high, "neither": low + high}[better]
        fine = 2 * bad < len(values)
        if not fine and word == "suspect":
            text += f"; outside in {bad} of {len(values)} repetitions"
    if fine and word == "suspect":
        text += "; better than it can be: a wrong measurement or reference"
    if more:
        text += f"; {again(more)}"
    return text


def again(more: int) -> str:
    """Return how many more repetitions decide, as a text."""
    count = f"over {_MANY - 1}" if more >= _MANY else str(more)
    return f"{count} more {'repetition decides' if more == 1 else 'repetitions decide'}"
