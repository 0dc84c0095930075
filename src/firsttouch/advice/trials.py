# SPDX-License-Identifier: Apache-2.0
"""Trials on this host: of an aligner on samples of its reads, or of any program."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from firsttouch.advice.posterior import LEAST_WORK, Belief, Load, Prior, Trial, update
from firsttouch.advice.search import Rules, Stop, costs, search
from firsttouch.errors import RunFailed
from firsttouch.execution.process_runner import Job, run_together
from firsttouch.genomics import fastq, feed, launch
from firsttouch.genomics.fastq import Reads
from firsttouch.genomics.feed import Part
from firsttouch.genomics.launch import Work
from firsttouch.scenarios.placement import Scenario

# ----------------------------------------------------------------------
# Samples of reads: pieces spread over the whole input, written to files that a scenario is tried on.

#: Pieces of a sample: reads of one tile of a sequencer are alike, and files are often sorted by it.
PIECES = 16
#: Batches of each instance in a trial at least, so that none waits for a single one.
_BATCHES = 2


@dataclass(frozen=True)
class Sample:
    """Some of the reads, in files: *fraction* of all records, *records* and *bases* of them."""

    files: tuple[Path, ...]
    fraction: float
    records: int
    bases: int


def write(whole: Reads, fraction: float, folder: Path) -> Sample:
    """Write about *fraction* of the records to files in *folder*, one for each mate, packed as the input is."""
    wanted = max(1, round(fraction * whole.records))
    packed = whole.layouts[0].source.packed
    names = tuple(folder / f"sample-{wanted}-{m + 1}.fq{'.gz' if packed else ''}" for m in range(whole.mates))
    with contextlib.ExitStack() as stack:
        outs = [stack.enter_context(_writing(name, packed=packed)) for name in names]
        for part, count in _pieces(whole, wanted):
            _copy(whole, part, count, outs)
    found = fastq.inspect(names)
    return Sample(names, found.records / whole.records, found.records, found.bases)


def work(of: Work, sample: Sample, instances: int) -> Work:
    """Return the work of a trial on *sample* with so many instances.

    Every instance gets some batches, smaller ones than the whole run's where the sample has too few.
    """
    batch = min(of.reads.batch_bases, max(1, sample.bases // (_BATCHES * instances)))
    # Where parts begin changes the output of some aligners; a trial's is not kept.
    return replace(of, reads=fastq.inspect(sample.files, batch_bases=batch), summed=False, counted=False)


def _writing(name: Path, *, packed: bool) -> io.BufferedIOBase:
    return gzip.GzipFile(name, "wb", compresslevel=1) if packed else name.open("wb")


def _pieces(whole: Reads, wanted: int) -> Iterator[tuple[Part, int]]:
    """Yield the parts in which pieces begin, and how many records to take of each."""
    marks = whole.marks
    last = len(marks.records) - 1
    count = min(PIECES, last, wanted)
    # The middle of equal shares, as far as marks go; each piece ends before the next one begins.
    begins = sorted({int(i) for i in np.linspace(0, last, 2 * count + 1)[1::2]})
    ends = [*begins[1:], last]
    left = wanted
    for number, (a, b) in enumerate(zip(begins, ends, strict=True)):
        part = Part(
            int(marks.records[a]),
            int(marks.records[b]),
            tuple(int(o[a]) for o in marks.offsets),
            tuple(int(o[b]) for o in marks.offsets),
        )
        take = min(part.records, -(-left // (len(begins) - number)))
        left -= take
        if take:
            yield part, take


def _copy(whole: Reads, part: Part, count: int, outs: Sequence[io.BufferedIOBase]) -> None:
    """Write the first *count* records of a part, each mate to its file."""
    feeder = feed.Static(whole, 1, [part])
    with contextlib.ExitStack() as stack:
        ends = [os.pipe() for _ in outs]
        sources = [stack.enter_context(os.fdopen(reading, "rb", 1 << 20)) for reading, _ in ends]
        feeder.start([[writing for _, writing in ends]])
        try:
            for source, out in zip(sources, outs, strict=True):
                out.writelines(itertools.islice(source, 4 * count))
        except BaseException:
            stack.close()
            feeder.stop()
            raise
    # Nobody reads on: the feeder ends.
    feeder.join()


# ----------------------------------------------------------------------
# Advice for a program that is no aligner: all of it, under every policy, in rounds.

#: A policy is out after so many runs whose placement did not hold.
PROGRAM_CHANCES = 2


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
                if len(misplaced[i]) >= PROGRAM_CHANCES:
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


# ----------------------------------------------------------------------
# Trials on this host: scenarios on samples of the reads, placement verified, within a budget of time.

Say = Callable[[str], None]

#: A trial has at least this part of the reads.
LEAST = 0.001
#: The second trial has so many times the reads of the first: from both follows what is spent on loading.
STEP = 3
#: A trial's work takes at least so many times as long as its loading, and so many seconds: a program that ends
#: at once cannot be looked at.
WORK_PER_LOAD, SECONDS = 3.0, 1.0
#: By so much a larger trial must take longer, for load and work to be told apart.
GROWTH = 1.3
#: So many trials the rest of the budget should hold, before they are made longer for the load's sake.
TRIALS = 6
#: What is known of the load after two trials: to this part of it, and of the shorter trial.
LOAD_SD, TRIAL_SD = 0.3, 0.1
#: A scenario whose placement did not hold so many times in a row is out.
CHANCES = 3


@dataclass
class Advice:
    """What came of the trials: *belief* is None where not one was made, *dropped* says why a scenario is out.

    *seconds* is the budget, *spent* the wall seconds that went on samples and trials. *stop* is as
    :class:`firsttouch.advice.search.Outcome` has it, or ``short``: the reads are too few for any trial.
    """

    scenarios: tuple[Scenario, ...]
    prior: Prior
    best: int
    trials: tuple[tuple[Trial, ...], ...]
    belief: Belief | None
    stop: Stop | str
    budget: float
    seconds: float
    spent: float
    dropped: dict[int, str] = field(default_factory=dict)


class Trials:
    """Makes trials of *scenarios* on samples of *work*'s reads, in a folder that goes at the end."""

    def __init__(self, work: Work, scenarios: Sequence[Scenario], folder: Path, say: Say) -> None:
        self._work, self.scenarios, self._folder, self.say = work, scenarios, folder, say
        self._start = time.monotonic()
        self._samples: dict[float, Sample] = {}
        self._works: dict[tuple[float, int], Work] = {}
        self.dropped: dict[int, str] = {}
        self.longest: float | None = None
        self.brief = False

    @property
    def spent(self) -> float:
        """Wall seconds so far."""
        return time.monotonic() - self._start

    def smallest(self) -> float:
        """Return the fraction of a first trial: LEAST, or one read for each thread."""
        most = max(s.instances * s.threads for s in self.scenarios)
        return min(1.0, max(LEAST, most / self._work.reads.records))

    def make(self, number: int, fraction: float) -> Trial | None:
        """Make one trial, or return None where it does not count.

        The reason is in *dropped* then; *brief* tells whether it was only too short to be looked at: the first
        ones, of which none knows how long they take, are not repeated then.
        """
        scenario = self.scenarios[number]
        self.brief = False
        for chance in range(CHANCES):
            try:
                work, part = self._of(fraction, scenario.instances)
                result = launch.run(work, scenario, None, timeout=self.longest)
            except RunFailed as error:
                self.dropped[number] = str(error)
                self.say(f"{scenario.name}: the trial failed: {error}")
                return None
            if not result.misplaced:
                self.say(f"{scenario.name}: {result.seconds:.3f} s for {part:.3%} of the reads")
                self.dropped.pop(number, None)
                return Trial(part, result.seconds)
            self.brief = any(not o.found.pages for step in result.steps for o in step)
            last = chance + 1 == CHANCES or (self.brief and self.longest is None)
            again = "" if last else ", tried again"
            self.say(f"{scenario.name}: the trial is invalid and does not count{again}: {result.misplaced}")
            self.dropped[number] = f"invalid, {result.misplaced}"
            if last:
                break
        return None

    def _of(self, fraction: float, instances: int) -> tuple[Work, float]:
        if fraction not in self._samples:
            self._samples[fraction] = write(self._work.reads, fraction, self._folder)
        found = self._samples[fraction]
        if (fraction, instances) not in self._works:
            self._works[fraction, instances] = work(self._work, found, instances)
        return self._works[fraction, instances], found.fraction


def advise(
    work: Work, scenarios: Sequence[Scenario], prior: Prior, budget: float, *, default: int, say: Say
) -> Advice:
    """Try *scenarios* within *budget* (a part of the whole run) and return what to use.

    *default* is the number of the scenario that the gain is over. Raises RunFailed where every one fails.
    """
    with tempfile.TemporaryDirectory(prefix="firsttouch-") as folder:
        trials = Trials(work, scenarios, Path(folder), say)
        return _advise(trials, tuple(scenarios), prior, budget, default)


def _advise(trials: Trials, scenarios: tuple[Scenario, ...], prior: Prior, budget: float, default: int) -> Advice:
    small = trials.smallest()
    if small * (2 + STEP) > budget:
        # Even a program that loads nothing takes more than the budget for the first trials.
        trials.say(f"too few reads: the first trials take {small * (2 + STEP):.1%}, the budget is {budget:.1%}")
        none: tuple[tuple[Trial, ...], ...] = ((),) * len(scenarios)
        return Advice(scenarios, prior, int(prior.mean.argmin()), none, None, "short", budget, 0.0, 0.0)
    first, own, fraction = _calibrate(trials, prior, small, budget)
    load, work = split(own)
    whole = load.seconds + work
    trials.say(
        f"the whole run is expected to take {whole:.1f} s as {scenarios[first].name}, {load.seconds:.2f} s of it "
        f"for loading: the budget is {budget * whole:.1f} s, {trials.spent:.1f} s of it are spent"
    )
    fraction = _fraction((small, fraction), load, work, budget * whole - trials.spent)
    rules = Rules(fraction, budget, load)

    def told(belief: Belief) -> None:
        # Whatever was expected of it, no trial runs over the budget.
        left = budget * math.exp(float(belief.mean[belief.best])) - trials.spent
        trials.longest = max(left, SECONDS)

    made = [own if i == first else [] for i in range(len(scenarios))]
    outcome = search(
        prior,
        lambda number: trials.make(number, fraction),
        rules,
        trials=made,
        out=trials.dropped,
        spent=lambda _: trials.spent,
        told=told,
    )
    made, belief = [list(o) for o in outcome.trials], outcome.belief
    left = budget * math.exp(float(belief.mean[belief.best])) - trials.spent
    # The gain is over the default run: it is measured, where what is left of the budget suffices.
    if not made[default] and default not in trials.dropped and float(costs(belief, rules)[1][default]) <= left:
        if (trial := trials.make(default, fraction)) is not None:
            made[default].append(trial)
        belief = update(prior, made, load)
    return Advice(
        scenarios,
        prior,
        belief.best,
        tuple(map(tuple, made)),
        belief,
        outcome.stop,
        budget,
        budget * math.exp(float(belief.mean[belief.best])),
        trials.spent,
        trials.dropped,
    )


def _calibrate(trials: Trials, prior: Prior, small: float, budget: float) -> tuple[int, list[Trial], float]:
    """Try the scenario that is expected to be best on growing samples, until its work is told from its loading.

    Returns its number, its trials and the last one's fraction as it was asked for; where it cannot be tried,
    the next one's. Raises RunFailed where none can.
    """
    warm = False
    for first in map(int, prior.mean.argsort(kind="stable")):
        own: list[Trial] = []
        fraction = small
        while True:
            trial = trials.make(first, fraction)
            if trial is None and (not trials.brief or fraction >= 1):
                break
            if trial is not None and not warm:
                # The program and its index come from the disk once only: that is no trial's time.
                trials.say(f"{trials.scenarios[first].name}: that was to warm up, and does not count")
                warm = True
                continue
            if trial is not None:
                own.append(trial)
                told = len(own) > 1 and trial.seconds >= max(SECONDS, GROWTH * own[-2].seconds)
                # The whole run takes this long at most, where nothing of it is load.
                most = trial.seconds / trial.fraction
                full = len(own) > 1 and trials.spent + STEP * trial.seconds > budget * most / 2
                if told or full or (fraction >= 1 and len(own) > 1):
                    return first, own, fraction
            fraction = min(1.0, STEP * fraction)
    raise RunFailed("no scenario can be tried: " + "; ".join(dict.fromkeys(trials.dropped.values())))


def split(own: Sequence[Trial]) -> tuple[Load, float]:
    """Return load and whole work (s) by the last two trials of one scenario, of which the last is the larger."""
    before, last = own[-2:]
    slope = (last.seconds - before.seconds) / (last.fraction - before.fraction)
    work = max(slope, LEAST_WORK * last.seconds / last.fraction)
    load = min(max(0.0, last.seconds - work * last.fraction), before.seconds)
    return Load(load, max(LOAD_SD * load, TRIAL_SD * before.seconds)), work


def _fraction(there: Sequence[float], load: Load, work: float, left: float) -> float:
    """Return the fraction of all further trials; *there* are those of samples, *left* the budget's rest (s)."""
    wanted = max(WORK_PER_LOAD * load.seconds, SECONDS) / work
    most = (left / TRIALS - load.seconds) / work
    fraction = min(1.0, max(LEAST, min(wanted, most)))
    # Near enough: the trials that were made count as repeats, and the sample is there.
    return next((f for f in there if f / 1.5 <= fraction <= 1.5 * f), max(fraction, there[0]))
