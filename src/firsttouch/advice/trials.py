# SPDX-License-Identifier: Apache-2.0
"""Trials of an aligner on this host, on samples of its reads.

A sample has pieces from all over the reads, or from the beginning of gzip files. A trial runs a scenario on a
sample and verifies its placement; a trial whose placement did not hold is not used. The budget covers all samples
and trials.
"""

from __future__ import annotations

import bisect
import contextlib
import gzip
import math
import tempfile
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from firsttouch.advice.comparison import OptionFindings
from firsttouch.advice.costs import FASTEST, LEAST_SECONDS, SLOWEST, Z90, interval
from firsttouch.advice.posterior import LEAST_WORK, NOISE, Belief, Load, Prior, Trial, update
from firsttouch.advice.search import Rules, Stop, costs, search
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import RunFailed
from firsttouch.execution.progress import live
from firsttouch.genomics import fastq, launch
from firsttouch.genomics.division import InputPart, parts_between
from firsttouch.genomics.launch import Work
from firsttouch.genomics.reads import BatchRule, Reads
from firsttouch.genomics.sources import mate_lines
from firsttouch.host.pages import Memory
from firsttouch.scenarios.placement import Scenario, distinct

# ----------------------------------------------------------------------
# Samples of reads

#: Pieces of a sample. Neighbouring reads come from one sequencer tile and are similar, so one piece would be
#: biased.
PIECES = 16
#: Gzip files are decompressed up to the last piece, so pieces come from the first reads: this many times the
#: records of the sample.
_PACKED_SPAN = 16
#: The fewest batches of each instance in a trial.
_BATCHES = 2


class Sample(Struct, frozen=True):
    """Files with *records* reads of *bases* bases, which are *fraction* of all reads."""

    files: tuple[Path, ...]
    fraction: float
    records: int
    bases: int


def write_sample(whole: Reads, fraction: float, folder: Path) -> Sample:
    """Write about *fraction* of the reads to files in *folder*, one per mate, compressed if the input is."""
    wanted = max(1, round(fraction * whole.records))
    packed = whole.layouts[0].file.gzipped
    opened = partial(gzip.GzipFile, mode="wb", compresslevel=1) if packed else partial(Path.open, mode="wb")
    names = tuple(folder / f"sample-{wanted}-{m + 1}.fq{'.gz' if packed else ''}" for m in range(whole.mates))
    with contextlib.ExitStack() as stack:
        outs = [stack.enter_context(opened(name)) for name in names]
        pieces = [(part.begins, count) for part, count in _pieces(whole, wanted)]
        for mate, out in enumerate(outs):
            with mate_lines(whole, pieces, mate) as lines:
                out.writelines(lines)
    sample = fastq.inspect(names)
    return Sample(names, sample.records / whole.records, sample.records, sample.bases)


def _sample_work(whole: Work, sample: Sample, instances: int) -> Work:
    """Return the work of a trial on *sample*, with smaller batches if there are too few for all *instances*."""
    # Smaller batches change the output of some aligners, but a trial's output is not kept.
    rule = BatchRule(min(whole.reads.batches.rule.bases, max(1, sample.bases // (_BATCHES * instances))))
    return replace(whole, reads=fastq.inspect(sample.files, rule), summed=False, counted=False)


def _pieces(whole: Reads, wanted: int) -> Iterator[tuple[InputPart, int]]:
    """Yield the parts of the input where pieces begin, and the number of records to take from each."""
    last = len(whole.batches.records) - 1
    if whole.layouts[0].file.gzipped:
        last = min(last, max(1, bisect.bisect_left(whole.batches.records, _PACKED_SPAN * wanted)))
    count = min(PIECES, last, wanted)
    # Pieces begin at the batch nearest to the middle of each equal share, and end before the next piece.
    begins = sorted({int(i) for i in np.linspace(0, last, 2 * count + 1)[1::2]})
    left = wanted
    for number, part in enumerate(parts_between(whole, [*begins, last])):
        share = -(-left // (len(begins) - number))
        take = min(share, part.records)
        left -= take
        if take > 0:
            yield part, take


# ----------------------------------------------------------------------
# Aligners: scenarios on samples of the reads, within a budget of time

Say = Callable[[str], None]

#: Least part of the reads in a trial.
LEAST = 0.001
#: The second trial has this many times the reads of the first; the two times separate load and work.
STEP = 3
#: A trial's work should take this many times its load, and this many seconds, because the placement of a very
#: short program cannot be verified.
WORK_PER_LOAD, SECONDS = 3.0, 1.0
#: Load and work can be separated when the larger trial takes this many times as long as the smaller.
GROWTH = 1.3
#: The rest of the budget should suffice for this many trials, which limits their length.
TRIALS = 6
#: Standard deviation of the load after two trials: a part of the load and a part of the shorter trial.
LOAD_SD, TRIAL_SD = 0.3, 0.1
#: The same with memory options, because there are more scenarios to try.
TRIALS_OF_OPTIONS = 12
#: The best scenario and its rival get at most this many trials while the difference may be chance.
CONFIRMING = 8
#: The *noise_prior* of :func:`update` when repeats decide whether a gain may be chance.
CONFIRMED_NOISE = (NOISE, 1.0)
#: Standard deviation of a program's start-up time (s), which hides gains in trials of milliseconds.
START_SD = 0.02
#: A scenario is dropped when its placement did not hold this many times in a row.
CHANCES = 3


class Advice(Struct):
    """The result of the trials: *best* is the number of the recommended scenario.

    *belief* is None without any trial; *dropped* has the reason why a scenario was dropped, and *needless* why a
    scenario needs no trial. *memory* belongs to the last trial of a scenario. *budget* is a part of the whole run,
    *seconds* the same in seconds, *spent* the wall seconds of samples and trials. *stop* is as in
    :class:`firsttouch.advice.search.SearchResult`, or ``short``: the reads are too few for any trial.
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
    needless: dict[int, str] = field(default_factory=dict)
    memory: dict[int, Memory] = field(default_factory=dict)
    #: Bases of the whole run.
    bases: int = 0
    #: The speed-up of the recommended scenario over the default run (None: there were no trials).
    gain: dict[str, float] | None = None
    #: The least number of reads with which there can be trials, if there are fewer (0: there are not).
    least_reads: int = 0

    @property
    def compared(self) -> bool:
        """Whether at least two scenarios were tried, without which there is no recommendation."""
        return sum(map(bool, self.trials)) > 1


class Head(Struct, frozen=True):
    """Marks that the reads are the first ones of a whole run: *part* is their share (0 to 1).

    The budget is used from *started* on (by the clock of the trials). *strict*: no trial exceeds it.
    """

    part: float
    started: float
    strict: bool = True


class OutOfTime(Exception):
    """A trial does not fit into the rest of the budget."""


class Trials:
    """Makes trials of *scenarios* on samples of *work*'s reads; samples are files in *folder*.

    *dropped* has the reason why a scenario's last trial was not used, and *options* what trials show about memory
    options. *brief* is true if the last trial was too short for its placement to be verified. *longest* is the
    time limit of a trial in seconds (None: unknown). With a strict *head*, no trial exceeds *budget*: it raises
    OutOfTime, even before the time of the run is known.
    """

    def __init__(
        self,
        work: Work,
        scenarios: Sequence[Scenario],
        folder: Path,
        say: Say,
        *,
        head: Head | None = None,
        budget: float = 1.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._work, self.scenarios, self._folder, self.say = work, scenarios, folder, say
        self._clock = clock
        self._start = head.started if head else clock.monotonic()
        self._strict, self._budget = head is not None and head.strict, budget
        self.part = head.part if head else 1.0
        threads = max(s.instances * s.threads for s in scenarios)
        bases = work.reads.bases / self.part / threads
        #: The least and the longest time that the whole run may take (s), and the expected one.
        self._bounds = (bases / FASTEST, bases / SLOWEST)
        self._whole = self._bounds[0]
        self._samples: dict[float, Sample] = {}
        self._works: dict[tuple[float, int], Work] = {}
        self.dropped: dict[int, str] = {}
        self.options = OptionFindings([s.options for s in scenarios])
        if len({node for s in scenarios for p in s.placements for node in p.numa_nodes}) == 1:
            # With one NUMA node, policies have no effect.
            different = set(map(id, distinct(scenarios)))
            reason = "like another policy: all memory is on one NUMA node"
            self.options.needless |= {i: reason for i, s in enumerate(scenarios) if id(s) not in different}
        #: Bases of the whole run.
        self.bases = round(work.reads.bases / self.part)
        batches = int(work.reads.batches.count / self.part)
        self.options.needless |= {
            i: f"its {s.instances} instances need a batch of reads each, and the reads fill {batches}"
            for i, s in enumerate(scenarios)
            if s.instances > max(1, batches)
        }
        self.longest: float | None = None
        self.brief = False

    @property
    def spent(self) -> float:
        """Wall seconds so far."""
        return self._clock.monotonic() - self._start

    def smallest(self) -> float:
        """Return the fraction of the reads in a first trial: LEAST, or one read for each thread."""
        most = max(s.instances * s.threads for s in self.scenarios)
        return min(self.part, max(self._least, most * self.part / self._work.reads.records))

    @property
    def _least(self) -> float:
        """The fraction of the reads in a first trial, however many there are."""
        # The slowest aligner's work must fit into half of the first trial's time limit.
        return min(LEAST, self._budget / 2 * SLOWEST / FASTEST) if self._strict else LEAST

    def lack(self) -> tuple[str, int]:
        """Return why the first trials exceed the budget, even if no data are loaded, and how many reads they need.

        It is an empty string if they do not. The number is 0 if no number of reads suffices.
        """
        part = self.smallest() * (2 + STEP)
        # With a strict head, the shortest possible whole run must have time for a verified trial.
        shortest = (LEAST_SECONDS + self.spent) / self._bounds[0] if self._strict else 0.0
        if max(part, shortest) <= self._budget:
            return "", 0
        needed = "less than a second" if shortest > self._budget else f"{part:.1%}"
        reason = f"too few reads: the first trials take {needed}, the budget is {self._budget:.1%}: "
        if (fixed := self._least * (2 + STEP)) > self._budget:
            return f"{reason}--budget must be at least {fixed:.1%}", 0
        reads = self.reads_for(max(part, shortest))
        return f"{reason}at least {reads:,} reads are needed", reads

    def reads_for(self, part: float | None = None) -> int:
        """Return the reads of a run whose budget suffices for trials that take this *part* of the present run.

        None: the part that they have taken, as far as the time of the run is known.
        """
        part = self.spent / self._whole if part is None else part
        reads = self._work.reads
        return math.ceil(reads.records * reads.mates / self.part * part / self._budget)

    def _limit(self) -> float | None:
        """Return the time limit of the next trial; raises OutOfTime if the budget is used up."""
        if not self._strict:
            return None if self.longest is None else max(self.longest, SECONDS)
        left = self._budget * self._whole - self.spent if self.longest is None else self.longest
        if left <= 0:
            raise OutOfTime
        return left

    def _learn(self, result: launch.ScenarioRun, fraction: float) -> None:
        """Estimate the whole run from one trial, whose instances began to read after loading their index."""
        if self._strict:
            whole = result.seconds - result.aligning + result.aligning / fraction
            self._whole = min(max(whole, self._bounds[0]), self._bounds[1])

    def make(self, number: int, fraction: float) -> Trial | None:
        """Make one trial of scenario *number*; None if it is not used.

        A trial whose placement did not hold is repeated, up to CHANCES times. The first trials, which have no time
        limit yet, are not repeated if they are too short: the caller makes them larger.
        """
        scenario = self.scenarios[number]
        self.brief = False
        for chance in range(CHANCES):
            try:
                live(f"trial of {scenario.name}, {self.spent:.1f} s spent so far")
                work, part = self._sampled(fraction, scenario.instances)
                limit, before = self._limit(), self.spent
                result = launch.run(work, scenario, None, timeout=limit)
            except RunFailed as error:
                if self._strict and limit is not None and self.spent - before >= limit:
                    raise OutOfTime from error
                self.dropped[number] = str(error)
                self.say(f"{scenario.name}: the trial failed: {error}")
                return None
            finally:
                live("")
            self._learn(result, part)
            if not result.misplaced:
                self.say(f"{scenario.name}: {result.seconds:.3f} s for {part:.3%} of the reads")
                self.dropped.pop(number, None)
                self.options.valid(number, _memories(result))
                return Trial(part, result.seconds)
            self.brief = bool(result.unverified)
            last = chance + 1 == CHANCES or (self.brief and self.longest is None)
            last = self.options.invalid(number, _memories(result), result.misplaced) or last
            again = "" if last else ", tried again"
            self.say(f"{scenario.name}: the trial is invalid and not used{again}: {result.misplaced}")
            self.dropped[number] = f"invalid, {result.misplaced}"
            if last:
                break
        return None

    def _sampled(self, fraction: float, instances: int) -> tuple[Work, float]:
        """Return the work of a trial, and the actual part of the reads in its sample."""
        if fraction not in self._samples:
            self._samples[fraction] = write_sample(self._work.reads, fraction / self.part, self._folder)
        sample = self._samples[fraction]
        if (fraction, instances) not in self._works:
            self._works[fraction, instances] = _sample_work(self._work, sample, instances)
        return self._works[fraction, instances], sample.fraction * self.part


def _memories(result: launch.ScenarioRun) -> Iterator[Memory]:
    return (outcome.observed.memory for step in result.steps for outcome in step)


def advise(
    work: Work,
    scenarios: Sequence[Scenario],
    prior: Prior,
    budget: float,
    *,
    default: int,
    say: Say,
    head: Head | None = None,
    scratch: Path | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Advice:
    """Try *scenarios* within *budget* (a part of the whole run) and return the advice.

    *default* is the number of the default run, over which the gain is computed. *head*: the reads of *work* are
    the first ones only. *scratch* is the folder for samples (default: in
    TMPDIR), and *clock* measures the budget. Raises RunFailed if every scenario fails.
    """
    work = work.with_copies()
    assert work.copies is not None  # noqa: S101 - for mypy
    with tempfile.TemporaryDirectory(prefix="firsttouch-", dir=scratch) as folder, work.copies:
        trials = Trials(work, scenarios, Path(folder), say, head=head, budget=budget, clock=clock)
        return _advise(trials, tuple(scenarios), prior, budget, default)


def _advise(trials: Trials, scenarios: tuple[Scenario, ...], prior: Prior, budget: float, default: int) -> Advice:
    small = trials.smallest()
    none: tuple[tuple[Trial, ...], ...] = ((),) * len(scenarios)
    untested = Advice(scenarios, prior, int(prior.mean.argmin()), none, None, "short", budget, 0.0, trials.spent)
    untested.bases = trials.bases
    lack, untested.least_reads = trials.lack()
    if lack:
        trials.say(lack)
        return untested
    try:
        first, own, fraction = _calibrate(trials, prior, small, budget)
    except OutOfTime:
        reads, longer = trials.reads_for(), f"would take longer than {budget:.1%} of the run"
        trials.say(f"too few reads: the first trials {longer}: more than {reads:,} reads are needed")
        return replace(untested, spent=trials.spent, least_reads=reads)
    load, work = split(own)
    whole = load.seconds + work
    times = [own if i == first else [] for i in range(len(scenarios))]
    expected = update(prior, times, load).seconds(first)
    trials.say(
        f"the whole run is expected to take {expected['expected']:.1f} s ({expected['low']:.1f} to "
        f"{expected['high']:.1f} s, 90 % interval) as {scenarios[first].name}, {load.seconds:.2f} s of it for "
        f"loading; trials have taken {trials.spent:.1f} s, and may take {budget:.1%} of the fastest run"
    )
    count = TRIALS_OF_OPTIONS if any(s.options for s in scenarios) else TRIALS
    fraction = _fraction((small, fraction), load, work, budget * whole - trials.spent, count, most=trials.part)
    rules = Rules(fraction, budget, load)

    def seconds_left(belief: Belief) -> float:
        return budget * math.exp(float(belief.mean[belief.best])) - trials.spent

    def limit(belief: Belief) -> None:
        trials.longest = seconds_left(belief)

    def run(number: int) -> Trial | None:
        trial = trials.make(number, fraction)
        times[number] = [] if trial is None else [*times[number], trial]
        return trial

    try:
        # Gains are relative to the default run, so it is tried first, on a smaller sample if it is slow.
        belief = update(prior, times, load)
        limit(belief)
        for part in (fraction, fraction / STEP, small) if not times[default] else ():
            cost = float(costs(belief, replace(rules, fraction=max(part, small)))[1][default])
            if cost <= seconds_left(belief):
                trial = trials.make(default, max(part, small))
                times[default] = [] if trial is None else [trial]
                break
        outcome = search(
            prior,
            run,
            rules,
            trials=times,
            out=ChainMap(trials.dropped, trials.options.failed, trials.options.needless),
            spent=lambda _: trials.spent,
            on_update=limit,
        )
        belief, stop = outcome.belief, outcome.stop
        # The best of many is partly lucky. While its gain may be chance, it and its rival are tried again.
        while (rival := _Gains(prior, times, load).rival(belief.best, scenarios, default)) != belief.best:
            # Trials of one size compare best, because loading is the same part of them.
            again = min(rival, belief.best, key=lambda i: sum(t.fraction > 0.9 * fraction for t in times[i]))
            out = again in trials.dropped or len(times[again]) >= CONFIRMING
            if out or float(costs(belief, rules)[1][again]) > seconds_left(belief) or run(again) is None:
                break
            belief = update(prior, times, load)
    except OutOfTime:
        if not any(times):
            return replace(untested, spent=trials.spent, least_reads=trials.reads_for())
        belief, stop = update(prior, times, load), "budget"
    gains = _Gains(prior, times, load)
    best = gains.rival(belief.best, scenarios, default)
    return Advice(
        scenarios,
        prior,
        best,
        tuple(map(tuple, times)),
        belief,
        stop,
        budget,
        budget * math.exp(float(belief.mean[belief.best])),
        trials.spent,
        trials.options.failed | trials.dropped,
        trials.options.needless,
        trials.options.memory,
        trials.bases,
        gains.interval(best, default),
    )


class _Gains:
    """Gains between scenarios after *times* (trials of each), assuming that all take the same time to load.

    An error of the common load moves the times of all whole runs in one direction, so a gain is computed with the
    shortest, the expected and the longest load.
    """

    def __init__(self, prior: Prior, times: Sequence[Sequence[Trial]], load: Load) -> None:
        loads = {max(0.0, load.seconds + z * load.sd) for z in (-Z90, 0.0, Z90)}
        self._beliefs = [
            update(prior, times, Load(seconds), CONFIRMED_NOISE, START_SD) for seconds in (load.seconds, *loads)
        ]

    def interval(self, fast: int, slow: int) -> dict[str, float]:
        """Return the speed-up of one scenario over another, with its 90 % interval."""
        gains = [interval(*belief.ratio(slow, fast)) for belief in self._beliefs]
        bounds = {"low": min(gain["low"] for gain in gains), "high": max(gain["high"] for gain in gains)}
        return {"expected": gains[0]["expected"], **bounds}

    def rival(self, best: int, scenarios: Sequence[Scenario], default: int) -> int:
        """Return the simplest scenario over which the gain of *best* may be chance; else *best*.

        Such a rival is the default run (even untried), or *best* without some of its memory options.
        """
        options, tried = set(scenarios[best].options), self._beliefs[0].tried
        simpler = [default] + [
            i
            for i, s in enumerate(scenarios)
            if tried[i] and set(s.options) < options and s.base_name == scenarios[best].base_name
        ]
        open_ones = [
            i
            for i in simpler
            if i != best
            and not all(b.replaces(best, i) if i == default else b.faster(best, i) for b in self._beliefs)
        ]
        return min(open_ones, key=lambda i: (i != default, len(scenarios[i].options)), default=best)


def _calibrate(trials: Trials, prior: Prior, small: float, budget: float) -> tuple[int, list[Trial], float]:
    """Try the scenario with the least expected time on growing samples until load and work can be separated.

    Returns its number, its trials and the fraction that was requested last. If it cannot be tried, the next one
    is. Raises RunFailed if none can be tried.
    """
    warm = False
    for first in map(int, prior.mean.argsort(kind="stable")):
        if first in trials.options.needless:
            continue
        own: list[Trial] = []
        fraction = small
        while True:
            trial = trials.make(first, fraction)
            if trial is None and (not trials.brief or fraction >= trials.part):
                break
            if trial is not None and not warm:
                # The first run reads the program and its index from disk.
                trials.say(f"{trials.scenarios[first].name}: warm-up, not used")
                warm = True
                continue
            if trial is not None:
                own.append(trial)
                separated = len(own) > 1 and trial.seconds >= max(SECONDS, GROWTH * own[-2].seconds)
                # An upper bound of the whole run: it assumes no load.
                most = trial.seconds / trial.fraction
                full = len(own) > 1 and trials.spent + STEP * trial.seconds > budget * most / 2
                if separated or full or (fraction >= trials.part and len(own) > 1):
                    return first, own, fraction
            fraction = min(trials.part, STEP * fraction)
    raise RunFailed("no scenario can be tried: " + "; ".join(dict.fromkeys(trials.dropped.values())))


def split(own: Sequence[Trial]) -> tuple[Load, float]:
    """Return load and whole work (s) from the last two trials of a scenario, of which the last is larger."""
    before, last = own[-2:]
    slope = (last.seconds - before.seconds) / (last.fraction - before.fraction)
    work = max(slope, LEAST_WORK * last.seconds / last.fraction)
    load = min(max(0.0, last.seconds - work * last.fraction), before.seconds)
    return Load(load, max(LOAD_SD * load, TRIAL_SD * before.seconds)), work


def _fraction(
    sampled: Sequence[float], load: Load, work: float, left: float, count: int, *, most: float = 1.0
) -> float:
    """Return the fraction of the reads that each further trial gets, at most *most*.

    *sampled* are the fractions with samples, *left* is the budget's rest in seconds, for *count* trials.
    """
    wanted = max(WORK_PER_LOAD * load.seconds, SECONDS) / work
    affordable = (left / count - load.seconds) / work
    fraction = min(most, max(LEAST, min(wanted, affordable)))
    # A similar fraction is reused, because its sample exists and its trials are repeats.
    return next((f for f in sampled if f / 1.5 <= fraction <= 1.5 * f), max(fraction, sampled[0]))
