# SPDX-License-Identifier: Apache-2.0
"""Compares whole runs of any program under policies and memory options, and recommends one.

The first round has every policy, and every set of memory options under the default policy. Later rounds have the
default run and the few scenarios that are expected to be the fastest, among them combinations of policies and
options that did well alone. The scenarios of a round run in turn, and only differences within rounds are used,
because other programs may slow a whole round down.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from firsttouch.advice.posterior import Belief, Load, Prior, Trial, update
from firsttouch.errors import RunFailed
from firsttouch.execution.process_runner import Job, Outcome, run_together
from firsttouch.execution.progress import Steps, time_left
from firsttouch.execution.threads import WorkerThread
from firsttouch.genomics.pipe_writer import PIPE_BYTES, Stopped, StopRequest, enlarge_pipe, splice
from firsttouch.host.pages import Memory
from firsttouch.scenarios import evidence
from firsttouch.scenarios.evidence import LEAST_MEMORY, wrong_memory
from firsttouch.scenarios.memory_options import option, option_of_kind
from firsttouch.scenarios.placement import Scenario
from firsttouch.units import format_bytes

#: A scenario is dropped after this number of runs whose placement did not hold.
CHANCES = 2
#: This number of scenarios stays in a round after the first one, in addition to the default run.
KEPT = 3
#: Relative standard deviation of a whole run before any is repeated, and the weight of this guess in repeats.
#: Whole runs vary less than trials of a second.
NOISE = (0.05, 2.0)
# ----------------------------------------------------------------------
# Findings of runs about memory options: options that cannot affect a program, and options that never hold

#: A program with this part of its memory in transparent huge pages gains nothing by requesting them.
_ALL_HUGE = 0.95
#: After an option did not hold this many times, all scenarios with it are dropped.
_CHANCES = 2


def same_pages(a: Sequence[str], b: Sequence[str], name: str) -> bool:
    """Return whether option *name* is expected to have the same effect with the options *a* and *b*.

    The allocator requests huge pages, so another allocator may get some.
    """
    other_allocator = option_of_kind(a, "allocator") is not option_of_kind(b, "allocator")
    return name in b and not (option(name).kind == "pages" and other_allocator)


def needless(names: Sequence[str], run_with: Sequence[str], memory: Memory) -> str:
    """Return why the options *names* cannot affect a program with *memory*, or an empty string.

    *memory* belongs to a run with the options *run_with*. Without an option for the page size among them, it shows
    which pages the program gets anyway. If these include no huge page, the kernel grants them on request only, and
    no allocator requests them.
    """
    asked = option_of_kind(names, "pages")
    if asked is None or option_of_kind(run_with, "pages"):
        return ""
    total = memory.anonymous + memory.hugetlb
    if total < LEAST_MEMORY:
        return f"{asked.name}: the program has only {format_bytes(total)} of anonymous memory"
    least, most = asked.huge or (0.0, 1.0)
    if not most and not memory.huge:
        return f"{asked.name}: no memory is in transparent huge pages without it"
    same_allocator = option_of_kind(names, "allocator") is option_of_kind(run_with, "allocator")
    if least and same_allocator and memory.huge >= _ALL_HUGE * memory.anonymous:
        shown = f"{format_bytes(memory.huge)} of {format_bytes(memory.anonymous)}"
        return f"{asked.name}: {shown} are in transparent huge pages without it"
    return ""


class OptionFindings:
    """The findings of scenarios' runs about their memory options; *sets* are the options of each scenario.

    *memory* belongs to the last valid run of each scenario. *needless* has the reason why a scenario needs no run,
    and *failed* why it cannot have one: an option did not hold in another scenario.
    """

    def __init__(self, sets: Sequence[Sequence[str]]) -> None:
        self._sets = sets
        self.memory: dict[int, Memory] = {}
        self.needless: dict[int, str] = {}
        self.failed: dict[int, str] = {}
        self._broken: list[tuple[str, Sequence[str]]] = []

    def valid(self, number: int, memories: Iterable[Memory]) -> None:
        """Add a valid run of scenario *number*, whose instances had *memories*."""
        self.memory[number] = memory = Memory.total(memories)
        for i, names in enumerate(self._sets):
            if i not in self.memory and (reason := needless(names, self._sets[number], memory)):
                self.needless[i] = reason

    def invalid(self, number: int, memories: Iterable[Memory], reason: str) -> bool:
        """Add a run that is invalid for *reason*; return whether this makes an option fail for good."""
        names, memories = self._sets[number], list(memories)
        for name in names:
            faults = (wrong_memory([name], memory) for memory in memories)
            if not (fault := next((f for f in faults if f and f in reason), "")):
                continue
            self._broken.append((name, names))
            if sum(broken == name and same_pages(of, names, name) for broken, of in self._broken) < _CHANCES:
                continue
            for i, others in enumerate(self._sets):
                if i not in self.memory and same_pages(names, others, name):
                    self.failed[i] = f"invalid, {fault}"
            return True
        return False


# ----------------------------------------------------------------------
# Rounds of runs


class ProgramComparison(Struct):
    """Costs of a program under *scenarios* of one instance: times (s).

    *best* is the number of the recommended one. *clear*: it costs less than the default run at a level of 90 %.
    *dropped* has the reason why a scenario has no cost, *needless* why a scenario with memory options was not
    needed. *memory* belongs to each scenario's last valid run, and *runs* counts all runs.
    """

    scenarios: tuple[Scenario, ...]
    costs: tuple[tuple[float, ...], ...]
    belief: Belief
    best: int
    clear: bool
    runs: int
    dropped: dict[int, str] = field(default_factory=dict)
    needless: dict[int, str] = field(default_factory=dict)
    memory: dict[int, Memory] = field(default_factory=dict)

    @property
    def compared(self) -> bool:
        """Whether at least two scenarios have costs."""
        return sum(map(bool, self.costs)) > 1


def compare(
    argv: Sequence[str],
    scenarios: Sequence[Scenario],
    prior: Prior,
    *,
    usual: int,
    rounds: int,
    timeout: float | None,
    say: Callable[[str], None],
) -> ProgramComparison:
    """Run *argv* under *scenarios* in *rounds* rounds, discard its output, and return the costs and the choice.

    The output goes into a pipe, because some programs do less work if standard output is /dev/null.

    *usual* is the number of the default run. A run whose placement or memory options did not hold is not used.
    Raises RunFailed if the program fails, or if no placement holds.
    """
    with Steps() as steps, tempfile.TemporaryDirectory(prefix="firsttouch-") as folder, discard_output() as out:

        def run(scenario: Scenario, left: int) -> Outcome:
            job = Job(argv, out, Path(folder) / "err", scenario.placements[0])
            steps.begin(scenario.name, left)
            try:
                return run_together([job], timeout=timeout)[0]
            finally:
                steps.end()

        return _Rounds(scenarios, prior, usual, run, say).all(rounds)


@contextlib.contextmanager
def discard_output() -> Iterator[Path]:
    """Yield the writing end of a pipe whose content is discarded."""
    stop = StopRequest()
    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_WRONLY)

    def drain() -> None:
        with contextlib.suppress(Stopped):
            while splice(reading, null, None, PIPE_BYTES, stop):
                pass

    thread = WorkerThread("discard", drain)
    try:
        enlarge_pipe(writing)
        thread.start()
        yield Path(f"/proc/self/fd/{writing}")
    finally:
        stop.set()  # a process that the program left behind may still write
        thread.join()
        stop.close()
        for fd in (reading, writing, null):
            os.close(fd)


class _Rounds:
    """The runs so far: *costs* (with the numbers of their rounds) and *misplaced* (reasons) of each scenario."""

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        prior: Prior,
        usual: int,
        run: Callable[[Scenario, int], Outcome],
        say: Callable[[str], None],
    ) -> None:
        self.scenarios, self.prior, self.usual = scenarios, prior, usual
        self._run, self.say = run, say
        self.costs: list[list[float]] = [[] for _ in scenarios]
        self._rounds: list[list[int]] = [[] for _ in scenarios]
        self._turn = 0
        self.misplaced: list[list[str]] = [[] for _ in scenarios]
        self.options = OptionFindings([s.options for s in scenarios])
        self.runs = 0

    def all(self, rounds: int) -> ProgramComparison:
        """Run all rounds."""
        policy = self.scenarios[self.usual].policy
        first = [i for i, s in enumerate(self.scenarios) if not s.options or s.policy == policy]
        left = len(first) + (rounds - 1) * (1 + KEPT)
        self.say(f"the program runs up to about {1 + left} times; its first run shows how long that takes")
        # The first run reads the program and its files from disk.
        began = time.monotonic()
        self._once(self.usual, left)
        expected = time_left(left * (time.monotonic() - began))
        self.say(f"{self.scenarios[self.usual].name}: warm-up, not used; up to about {left} runs, {expected}")
        self.costs[self.usual].clear()
        self._rounds[self.usual].clear()
        self.misplaced[self.usual].clear()
        self._round(first, 0, rounds)
        if not any(self.costs):
            # A short run may end between two samples of its placement.
            self._round(first, 0, rounds)
        for turn in range(1, rounds):
            self._round(self._promising(), turn, rounds)
        # The best of many is partly lucky, so it is confirmed by further runs next to the default run.
        confirmed = self.usual
        for turn in range(rounds, 2 * rounds):
            best = self._best()
            if best == confirmed and len(self.costs[best]) >= rounds:
                break
            self._round([self.usual, best], turn, rounds)
            confirmed = best
        dropped = self.options.failed | {i: f"invalid, {m[-1]}" for i, m in enumerate(self.misplaced) if m}
        best = self._best()
        belief = self._belief()
        clear = best != self.usual or not self.costs[self.usual]
        return ProgramComparison(
            tuple(self.scenarios),
            tuple(map(tuple, self.costs)),
            belief,
            best,
            clear,
            self.runs,
            {i: reason for i, reason in dropped.items() if not self.costs[i]},
            self.options.needless,
            self.options.memory,
        )

    def _out(self, number: int) -> bool:
        findings = self.options
        tried = bool(self.costs[number])
        return len(self.misplaced[number]) >= CHANCES or (
            not tried and (number in findings.failed or number in findings.needless)
        )

    def _round(self, numbers: Sequence[int], turn: int, rounds: int) -> None:
        # The order alternates, so that a drift in time favours no scenario.
        order = list(numbers)[:: 1 if turn % 2 == 0 else -1]
        self._turn = turn
        for place, number in enumerate(order):
            if not self._out(number):
                self._once(number, len(order) - place + max(0, rounds - turn - 1) * (1 + KEPT))

    def _once(self, number: int, left: int) -> None:
        scenario = self.scenarios[number]
        outcome = self._run(scenario, left)
        self.runs += 1
        memories = [outcome.observed.memory]
        if reason := outcome.misplaced:
            self.misplaced[number].append(reason)
            self.options.invalid(number, memories, reason)
            self.say(f"{scenario.name}: the run is invalid and not used: {reason}")
            return
        self.costs[number].append(outcome.seconds)
        self._rounds[number].append(self._turn)
        self.options.valid(number, memories)
        count, state = len(self.costs[number]), evidence.describe(outcome)
        self.say(f"{scenario.name} ({count}): {outcome.seconds:.3f} s, {state}")

    def _belief(self) -> Belief:
        if not any(self.costs):
            reasons = [m[-1] for m in self.misplaced if m]
            raise RunFailed("no run's placement held: " + "; ".join(dict.fromkeys(reasons)))
        trials = [[Trial(1.0, s) for s in own] for own in self._levelled()]
        return update(self.prior, trials, Load(), NOISE)

    def _levelled(self) -> list[list[float]]:
        """Return the costs with the effects of the rounds removed.

        The log times are fitted by least squares as the sum of a scenario's and a round's effect. Round effects
        are shrunk towards 0 (ridge regression), assuming that they are as large as the noise of a run.
        """
        runs = [(i, *run) for i, own in enumerate(self.costs) for run in zip(self._rounds[i], own, strict=True)]
        numbers = sorted({turn for _, turn, _ in runs})
        rows = np.zeros((len(runs) + len(numbers), len(self.costs) + len(numbers)))
        logs = np.zeros(len(rows))
        for row, (i, turn, cost) in enumerate(runs):
            rows[row, [i, len(self.costs) + numbers.index(turn)]] = 1
            logs[row] = math.log(cost)
        for row in range(len(numbers)):
            rows[len(runs) + row, len(self.costs) + row] = 1
        effects = np.linalg.lstsq(rows, logs)[0][len(self.costs) :]
        level = dict(zip(numbers, effects, strict=True))
        # The fitted effects use up degrees of freedom of the noise.
        free = sum(max(0, len(own) - 1) for own in self.costs)
        wider = math.sqrt(free / max(1, free - len(numbers) + 1)) if free else 1.0
        levelled = []
        for turns, own in zip(self._rounds, self.costs, strict=True):
            left = [math.log(s) - level[turn] for turn, s in zip(turns, own, strict=True)]
            mean = math.fsum(left) / max(1, len(left))
            levelled.append([math.exp(mean + wider * (x - mean)) for x in left])
        return levelled

    def _promising(self) -> list[int]:
        """Return the default run, and the scenarios with the best expected costs that may be the fastest."""
        belief = self._belief()
        order = (int(i) for i in np.argsort(belief.mean, kind="stable"))
        may_be = [
            i
            for i in order
            if i != self.usual and not self._out(i) and not (self.costs[i] and belief.faster(belief.best, i))
        ]
        return sorted([self.usual, *may_be[:KEPT]])

    def _best(self) -> int:
        """Return the simplest scenario that is not clearly slower than the fastest one.

        If a difference may be chance, the simpler scenario is preferred.
        """
        belief = self._belief()
        fastest = belief.best
        simpler = (
            i
            for i, s in enumerate(self.scenarios)
            if self.costs[i]
            and set(s.options) <= set(self.scenarios[fastest].options)
            and s.policy in {self.scenarios[self.usual].policy, self.scenarios[fastest].policy}
            and not (belief.replaces if i == self.usual else belief.faster)(fastest, i)
        )
        return min(simpler, key=lambda i: (self._parts(i), float(belief.mean[i])), default=fastest)

    def _parts(self, number: int) -> int:
        scenario = self.scenarios[number]
        return len(scenario.options) + (scenario.policy != self.scenarios[self.usual].policy)
