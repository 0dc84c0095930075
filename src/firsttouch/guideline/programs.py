# SPDX-License-Identifier: Apache-2.0
"""Advice for a program that is no aligner: all of it, under every policy, in rounds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from firsttouch.errors import RunFailed
from firsttouch.guideline.belief import Belief, Load, Trial, update
from firsttouch.guideline.prior import Prior
from firsttouch.placement import Scenario
from firsttouch.supervise import Job, run_together

#: A policy is out after so many runs whose placement did not hold.
CHANCES = 2


@dataclass
class Comparison:
    """Times of a program under *scenarios* of one instance each; *dropped* says why one has none."""

    scenarios: tuple[Scenario, ...]
    seconds: tuple[tuple[float, ...], ...]
    belief: Belief
    dropped: dict[int, str] = field(default_factory=dict)


def compare(
    argv: Sequence[str],
    scenarios: Sequence[Scenario],
    prior: Prior,
    *,
    rounds: int,
    timeout: float | None,
    say: Callable[[str], None],
) -> Comparison:
    """Run *argv* under every scenario, *rounds* times in turn, its output not kept.

    A run whose placement did not hold does not count. Raises RunFailed where the program fails, or its
    placement holds under none.
    """
    seconds: list[list[float]] = [[] for _ in scenarios]
    misplaced: list[list[str]] = [[] for _ in scenarios]
    with tempfile.TemporaryDirectory(prefix="firsttouch-") as folder:
        for turn in range(rounds):
            # In turn forward and backward, so that what changes with time favours none.
            for i, scenario in list(enumerate(scenarios))[:: 1 if turn % 2 == 0 else -1]:
                if len(misplaced[i]) >= CHANCES:
                    continue
                place = scenario.placements[0]
                job = Job(argv, Path(folder) / "out", Path(folder) / "err", place)
                outcome = run_together([job], timeout=timeout)[0]
                if reason := outcome.misplaced():
                    misplaced[i].append(reason)
                    say(f"{scenario.name}: the run is invalid and does not count: {reason}")
                    continue
                seconds[i].append(outcome.seconds)
                say(f"{scenario.name} ({turn + 1}/{rounds}): {outcome.seconds:.3f} s, placement verified")
    dropped = {i: f"invalid, {m[-1]}" for i, m in enumerate(misplaced) if m and not seconds[i]}
    if not any(seconds):
        raise RunFailed("no run's placement held: " + "; ".join(dict.fromkeys(dropped.values())))
    belief = update(prior, [[Trial(1.0, s) for s in own] for own in seconds], Load())
    return Comparison(tuple(scenarios), tuple(map(tuple, seconds)), belief, dropped)
