# SPDX-License-Identifier: Apache-2.0
"""The guideline of a system and an aligner: the scenario to use, its gain, and every alternative."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.advice.costs import LEAST_SECONDS
from firsttouch.benchmarks.measure import WIDE
from firsttouch.documents import attributes
from firsttouch.records.cases import by_key, identifiers
from firsttouch.records.schema import Record
from firsttouch.report.aspect import FEWEST_DRAWN
from firsttouch.report.document import (
    Block,
    Cell,
    Entry,
    Figure,
    Fold,
    Listing,
    Paragraph,
    Section,
    Span,
    Table,
    how_to_read,
)
from firsttouch.report.figures.drawing import Bar, draw_bars
from firsttouch.report.model import HostView, dataset_of, reads_per_thread, whole
from firsttouch.report.text import clean, count, list_names, plain, times
from firsttouch.scenarios.placement import name_of
from firsttouch.statistics import student_quantile
from firsttouch.units import number, quantity

# ----------------------------------------------------------------------
# The data of a guideline: scenarios with their times or rates, and the choice.

#: The notes of the recommended scenario and of the default run.
USE, DEFAULT = "use this", "default"


class Alternative(Struct, frozen=True):
    """A scenario with its time or rate (*value*) and its *gain*, the speed-up over the default run.

    *repetitions* is the number of runs on all *hosts*.
    """

    scenario: str
    shape: str
    policy: str
    value: Interval
    repetitions: int
    gain: Interval | None
    note: str = ""
    hosts: int = 1


class Choice(Struct, frozen=True):
    """The scenario to use for one input: *chosen*, the *reason*, its *gain*, all alternatives and dropped ones.

    *interval* describes the ends of the gain, *quantity* and *unit* the values of the alternatives. *reads* is the
    size of the input (0: unknown).
    """

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
    reads: int = 0
    #: Why no scenario is recommended; empty: one is.
    withheld: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **attributes(self, "title", "default", "reason", "interval", "unit"),
            "recommended": self.chosen,
            "withheld": self.withheld,
            "gain": self.gain and self.gain.to_dict(),
            "alternatives": [
                {
                    **attributes(a, "scenario", "repetitions", "hosts", "note"),
                    "value": a.value.to_dict(),
                    "gain": a.gain and a.gain.to_dict(),
                }
                for a in self.alternatives
            ],
            "dropped": [{"scenario": name, "reason": why} for name, why in self.dropped],
        }


# ----------------------------------------------------------------------
# Choices from records.

#: (system, aligner), and a choice for them.
Keyed = tuple[tuple[str, str], Choice]

#: Instances, threads and policy of a run.
_Run = tuple[str, ...]
#: The records of a run by host (the key of its view).
_ByHost = dict[str, list[Record]]

#: The most hosts without a default run that are named.
_NAMED = 4
_UNSURE = "with one repetition each, the uncertainty is unknown"


def measured_choices(views: Iterable[HostView]) -> Iterator[Keyed]:
    """Yield a choice for each system, aligner and dataset from the records of all hosts."""
    runs: dict[tuple[str, ...], dict[_Run, _ByHost]] = {}
    lost: dict[tuple[str, ...], dict[_Run, Record]] = {}
    names: dict[str, str] = {}
    for view in sorted(views, key=lambda v: v.system):
        names[view.key] = view.host
        for record in view.select("scaling", "placement", metric=METRIC) + view.select("weak_scaling"):
            of_host = runs.setdefault(_input(view.system, record), {}).setdefault(_run(record), {})
            of_host.setdefault(view.key, []).append(record)
        for record in view.invalid:
            if {"aligner", "instances", "threads", "policy"} <= record.parameters.keys():
                lost.setdefault(_input(view.system, record), {})[_run(record)] = record
    single = {v.key for v in views if (nodes := v.metric("topology", "numa_nodes")) and nodes.value == 1}
    busy = {v.key for v in views if v.others_use}
    for key, scenarios in sorted(runs.items()):
        gone = [r for run, r in lost.get(key, {}).items() if run not in scenarios]
        hosts = {host for of_host in scenarios.values() for host in of_host}
        yield (
            (key[0], key[1]),
            _withheld(_of_records(scenarios, names, gone), is_single=hosts <= single, is_busy=bool(hosts & busy)),
        )


def _withheld(choice: Choice, *, is_single: bool, is_busy: bool) -> Choice:
    """Return *choice*, or the default run with the reason if the times do not support a recommendation."""
    usual = next((a for a in choice.alternatives if a.scenario == choice.default), None)
    if usual is None or not usual.value.bounded or not usual.value.value:
        return choice
    if is_single:
        reason = "one NUMA node"
    elif choice.unit == "s" and usual.value.value < LEAST_SECONDS:
        reason = f"the input is too short ({number(usual.value.value)} s)"
    elif is_busy or (
        usual.value.high - usual.value.low > WIDE * usual.value.value and not (choice.gain or SAME).low > 1 + WIDE
    ):
        reason = "the host was not idle"
    else:
        return choice
    notes = tuple(replace(a, note=DEFAULT if a is usual else "") for a in choice.alternatives)
    return replace(choice, chosen=choice.default, gain=SAME, alternatives=notes, withheld=reason)


def _run(record: Record) -> _Run:
    return tuple(plain(record.parameters[name]) for name in ("instances", "threads", "policy"))


def _input(system: str, record: Record) -> tuple[str, ...]:
    p = record.parameters
    names = (plain(p.get("aligner")), dataset_of(record), reads_per_thread(record))
    # With a fixed number of reads per thread, scenarios have different numbers of reads.
    reads = "" if record.check == "weak_scaling" else plain(p.get("reads"))
    return (system, *names, reads, record.metric)


def _of_records(runs: Mapping[_Run, _ByHost], names: Mapping[str, str], gone: Iterable[Record]) -> Choice:
    each = {run: {h: pool_samples(some) for h, some in of_host.items()} for run, of_host in runs.items()}
    default = _default_run(each)
    hosts = _comparable(each, default)
    left_out = sorted({h for of_host in each.values() for h in of_host} - hosts)
    kept = {run: {h: r for h, r in of_host.items() if h in hosts} for run, of_host in each.items()}
    kept = {run: of_host for run, of_host in kept.items() if of_host}
    if len(hosts) == 1 or default is None:
        scenarios = _of_host(
            {run: record for run, of_host in kept.items() for record in of_host.values()}, default
        )
        interval = "between any two repetitions"
    else:
        scenarios = _of_hosts(kept, default)
        interval = f"{100 * CONFIDENCE:.0f} % interval over {len(hosts)} hosts"
    usual = scenarios.get(default) if default else None
    record = next(r for of_host in kept.values() for r in of_host.values())
    lower = record.better == "lower"
    ordered = sorted(scenarios.values(), key=lambda s: s.value.value, reverse=not lower)
    best = ordered[0]
    chosen = best if usual is None or best.gain is None or best.gain.clear else usual
    why = _why(ordered, chosen, usual, interval)
    if left_out:
        hosts_left_out = list_names([names[h] for h in left_out], most=_NAMED)
        why += f"; {hosts_left_out} left out, because hosts are comparable only by their default runs"
    # A scenario without a name may belong to several runs.
    notes = {id(usual): DEFAULT, id(chosen): USE}
    return Choice(
        _title(record, len(hosts)),
        chosen.scenario,
        usual.scenario if usual else "",
        why,
        chosen.gain,
        interval,
        ("time" if lower else "rate") + (" on the mean host" if len(hosts) > 1 else ""),
        record.unit,
        tuple(replace(s, note=notes.get(id(s), "")) for s in ordered),
        tuple(sorted((scenario_name(r), f"invalid: {r.reason}") for r in gone)),
        max(_reads(r) for of_host in kept.values() for r in of_host.values()),
    )


def _reads(record: Record) -> int:
    """Return how many reads a run aligned, 0 if the record does not state it."""
    p = record.parameters
    reads = p.get("reads") or p.get("reads_per_thread", 0) * p["instances"] * p["threads"]
    return int(reads) if isinstance(reads, (int, float)) else 0


def _default_run(runs: Mapping[_Run, Mapping[str, Record]]) -> _Run | None:
    """Return the default run: one instance, the default policy, the most threads."""
    records = {run: next(iter(of_host.values())) for run, of_host in runs.items()}
    singles = [
        run
        for run, r in records.items()
        if whole(r, "instances") == 1 and r.parameters["policy"] == DEFAULT_POLICY
    ]
    return max(singles, key=lambda run: whole(records[run], "threads"), default=None)


def _comparable(runs: Mapping[_Run, Mapping[str, Record]], default: _Run | None) -> set[str]:
    """Return the hosts with comparable times: all with a default run, else the one with the most scenarios."""
    hosts = {h for h, r in runs[default].items() if min(r.samples) > 0} if default is not None else set()
    if hosts:
        return hosts
    counts = Counter(sorted(h for of_host in runs.values() for h in of_host))
    return {host for host, _ in counts.most_common(1)}


def _measured(record: Record, value: Interval, gain: Interval | None, hosts: int = 1) -> Alternative:
    policy = plain(record.parameters["policy"])
    return Alternative(scenario_name(record), shape(record), policy, value, record.repetitions, gain, hosts=hosts)


def _of_host(runs: Mapping[_Run, Record], default: _Run | None) -> dict[_Run, Alternative]:
    """Return the scenarios of one host, by their gains over its default run."""

    def gain(record: Record, base: Record | None) -> Interval | None:
        pair = (record, base) if record.better == "lower" else (base, record)
        ratio = speedup(*pair) if pair[0] and pair[1] else None
        if ratio is None or base is None or record is base:
            return ratio and SAME
        return ratio if min(record.repetitions, base.repetitions) > 1 else Interval(ratio.value)

    base = runs.get(default) if default else None
    return {run: _measured(r, repetitions(r), gain(r, base)) for run, r in runs.items()}


def _of_hosts(runs: Mapping[_Run, Mapping[str, Record]], default: _Run) -> dict[_Run, Alternative]:
    """Return the scenarios of several hosts, which all have the default run, sorted by gain within a host.

    Times are scaled to the same default run, because hosts differ.
    """
    # A time of 0 has no ratio.
    good = {run: {h: r for h, r in of_host.items() if min(r.samples) > 0} for run, of_host in runs.items()}
    seconds = {run: {h: _seconds(r) for h, r in of_host.items()} for run, of_host in good.items() if of_host}
    level = {h: geometric_mean(some) for h, some in seconds[default].items()}
    mean_host = geometric_mean(level.values())
    scenarios = {}
    for run, gain in gains(seconds, default).items():
        record = pool_samples(list(good[run].values()))
        scaled = [x / level[h] * mean_host for h, some in seconds[run].items() for x in some]
        time = Interval(mean_host / gain.value, min(scaled), max(scaled))
        value = time if record.better == "lower" else SAME.over(time)
        scenarios[run] = _measured(record, value, gain, len(good[run]))
    return scenarios


def _seconds(record: Record) -> list[float]:
    """Return the repetitions as times (of a rate: the time per unit)."""
    return [x if record.better == "lower" else 1 / x for x in record.samples]


def _title(record: Record, hosts: int) -> str:
    p = identifiers(record.check, record.parameters)
    reads = reads_per_thread(record) or (f"{plain(p['reads'])} reads" if "reads" in p else "")
    return clean(", ".join(filter(None, ("measured", dataset_of(record), reads, count(hosts, "host")))))


def _why(ordered: Sequence[Alternative], chosen: Alternative, default: Alternative | None, interval: str) -> str:
    best = ordered[0]
    if chosen is not best and best.gain is not None:
        reason = f"{best.scenario} has the best median, {times(best.gain.value)} as fast as the default run, but "
        if not best.gain.bounded:
            return reason + _UNSURE
        ends = f"{times(best.gain.low)} to {times(best.gain.high)}"
        return f"{reason}from {ends} ({interval}): no scenario is clearly faster"
    reason = f"the best median of {count(len(ordered), 'scenario')}"
    if default is None:
        reason += "; its gain is unknown, as there is no valid default run (1 instance, original)"
    return f"{reason}; {_UNSURE}" if best.repetitions == 1 else reason


# ----------------------------------------------------------------------
# Guidelines.


class Guideline(Struct, frozen=True):
    """The choices for an aligner on a system, one for each dataset."""

    system: str
    aligner: str
    choices: tuple[Choice, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **attributes(self, "system", "aligner", "because"),
            "recommended": self.deciding.chosen,
            "choices": [choice.to_dict() for choice in self.choices],
        }

    def lines(self) -> list[str]:
        """Return the lines of a ticket: the recommendation if there are several choices, and each choice."""
        lines = [f"{c.title}: {sentence(c)}" for c in self.choices]
        return [f"{sentence(self.deciding)}; {self.because}", *lines] if self.because else lines

    @property
    def deciding(self) -> Choice:
        """The recommended choice: preferably one with a known gain, then with the most reads."""
        return max(self.choices, key=_weight)

    @property
    def because(self) -> str:
        """Why one of several choices is recommended; empty if there is only one, or no recommendation."""
        first = self.deciding
        if first.withheld:
            return ""
        others = [c for c in self.choices if c.chosen != first.chosen]
        if not others:
            return f"all {len(self.choices)} inputs agree" if len(self.choices) > 1 else ""
        differing = list_names((f"{c.chosen} ({c.title})" for c in others), most=_NAMED)
        return f"by {first.title}, as measured gains of the most reads decide; others differ: {differing}"


def _weight(choice: Choice) -> tuple[bool, int]:
    return choice.gain is not None, choice.reads


def guidelines(views: Sequence[HostView]) -> list[Guideline]:
    """Return the guideline of every system and aligner with measurements, ascending."""
    choices = by_key(measured_choices(views), lambda item: item[0])
    return [Guideline(*key, tuple(choice for _, choice in items)) for key, items in sorted(choices.items())]


def sentence(choice: Choice) -> str:
    """Return the scenario to use, and its gain with the interval, as a sentence."""
    if choice.withheld:
        return f"no recommendation: {choice.withheld}"
    what = f"use {choice.chosen}"
    if choice.gain is None:
        return what
    if choice.chosen == choice.default:
        return f"{what}, the default run"
    gain = f"{times(choice.gain.value)} as fast as {choice.default}"
    ends = f"{times(choice.gain.low)} to {times(choice.gain.high)}"
    return f"{what}: {gain} ({ends if choice.gain.bounded else 'uncertainty unknown'}, {choice.interval})"


def recommendation(guides: Sequence[Guideline]) -> str:
    """Return the recommendation from the most reads, as a sentence without a full stop; "" without any."""
    if not guides:
        return ""
    guide = max(guides, key=lambda g: _weight(g.deciding))
    return f"{guide.aligner}: {sentence(guide.deciding)}"


# ----------------------------------------------------------------------
# The section of a page and of a ticket.

_TITLE = "Which scenario to use"
_EXPLAINED = (
    "A gain is the speed-up over the default run: one instance, no placement options, the most threads that were "
    "run. With several hosts, each host is compared with its own default run, and the interval includes the "
    "differences between hosts. A scenario is recommended only if the whole interval is above 1. Compare times "
    "only for the same input."
)


def sections(guides: Sequence[Guideline]) -> list[Section]:
    """Return the section of a page with every choice, or none without guidelines."""
    blocks: list[Block] = []
    numbers = itertools.count(1)
    for guide in guides:
        text = sentence(guide.deciding)
        which = Paragraph([Span(f"{text[0].upper()}{text[1:]}", "b"), f": {guide.because}."])
        choices = [block for choice in guide.choices for block in _shown(choice, f"guideline-{next(numbers)}")]
        blocks.append(
            Section(f"{guide.aligner} on {guide.system}", [*([which] if guide.because else []), *choices])
        )
    return [Section(_TITLE, [*blocks, how_to_read(_EXPLAINED)], "guidelines")] if guides else []


def short_sections(guides: Sequence[Guideline]) -> list[Section]:
    """Return the section of a ticket with a line for each choice, or none without guidelines."""
    return [Section(_TITLE, [Listing(lines(guides))])] if guides else []


def lines(guides: Sequence[Guideline]) -> list[str]:
    """Return a line for each choice."""
    return [f"{guide.aligner} on {guide.system}, {line}" for guide in guides for line in guide.lines()]


def _shown(choice: Choice, name: str) -> list[Block]:
    summary = count(len(choice.alternatives), "alternative")
    tables: list[Block] = [_alternatives(choice)]
    if choice.dropped:
        summary += f", {len(choice.dropped)} dropped"
        caption = f"{count(len(choice.dropped), 'scenario')} dropped: {choice.title}"
        tables.append(Table(caption, ("scenario", "why"), [(clean(n), clean(why)) for n, why in choice.dropped]))
    why = "" if choice.withheld else f" Why: {choice.reason}."
    stated = Paragraph([f"{choice.title}: ", Span(f"{sentence(choice)}.", "b"), why])
    drawn = figure(choice, name)
    return [stated, *([drawn] if drawn else []), Fold(summary, tables)]


#: The most scenarios in a figure; the table has all.
_BARS = 12
_HOW = (
    "Longer is better. The line at 1 is the default run, without any placement options. A scenario whose error "
    "bar crosses that line is not clearly faster or slower."
)


def figure(choice: Choice, name: str) -> Figure | None:
    """Return the gains of the best scenarios as bars, None if they are too few; *name* is unique in the page."""
    default = next((a for a in choice.alternatives if a.scenario == choice.default), None)
    gains = [(a, a.gain) for a in choice.alternatives if a.gain and a is not default][:_BARS]
    if default is None or len(gains) < FEWEST_DRAWN:
        return None
    bars = [
        Bar(
            f"{a.scenario}\n{a.shape}",
            gain.value,
            *((gain.low, gain.high) if gain.bounded else (gain.value, gain.value)),
            times(gain.value),
            a.policy,
        )
        for a, gain in gains
    ]
    level = quantity(default.value.value, choice.unit)
    title = f"Speedup of the scenarios against the default run: {choice.title}"
    shows = f"The default run is {default.scenario} with {default.shape}: {level}."
    panel = draw_bars(
        bars,
        kinds=sorted({a.policy for a, _ in gains}, key=policy_rank),
        axis=f"speedup over the default run ({level})",
        line=1,
        name=f"{name}-bars",
        title=title,
        description=shows,
    )
    return Figure(name, title, _HOW, [shows], f"Error bars: {choice.interval}.", [panel], ())


def _alternatives(choice: Choice) -> Table:
    """Return every alternative with its time or rate, the best first."""
    header = ("scenario", "instances", "policy", f"{choice.quantity} ({choice.unit})", "from", "to", "n", "hosts")
    rows: list[tuple[Entry, ...]] = []
    for a in choice.alternatives:
        before: tuple[Entry, ...] = (a.scenario, a.shape, a.policy, *_cells(a.value, number))
        rows.append((*before, a.repetitions, a.hosts, *_cells(a.gain, times), a.note))
    return Table(f"Alternatives: {choice.title}", (*header, "gain", "from", "to", ""), rows, kind="compact")


def _cells(interval: Interval | None, form: Callable[[float], str]) -> list[Cell]:
    """Return a value and the ends of its interval, each without text if unknown."""
    ends = interval.to_dict().values() if interval else (None,) * 3
    return [Cell(end, form) for end in ends]


# ----------------------------------------------------------------------
# Runs of scenarios, and their speed-ups over the default run (thesis, section 5.3), with their intervals
#
# Hosts differ, so every time is compared with the default run of the same host: hosts are the blocks of a block
# design, so the level of a host cancels (R. A. Fisher, The design of experiments, 1935; D. C. Montgomery, Design
# and analysis of experiments, chapter 4).


class Interval(Struct, frozen=True):
    """A value, such as a speed-up, with the ends of its interval (unknown: from 0 to infinity)."""

    value: float
    low: float = 0.0
    high: float = math.inf

    @property
    def bounded(self) -> bool:
        """Whether the ends are known."""
        return self.high < math.inf

    @property
    def clear(self) -> bool:
        """Whether a gain is certain: the whole interval is above 1."""
        return self.low > 1

    def over(self, other: Interval) -> Interval:
        """Return the ratio to *other*, whose interval encloses the ratio of any two values."""
        return Interval(self.value / other.value, self.low / other.high, self.high / other.low)

    def to_dict(self) -> dict[str, float | None]:
        """Return the JSON form; unknown ends are None."""
        ends = (self.low, self.high) if self.bounded else (None, None)
        return {"value": self.value, "low": ends[0], "high": ends[1]}


# ----------------------------------------------------------------------
# Runs.

#: The policy of the default run, without a request to the operating system.
DEFAULT_POLICY = "original"
METRIC = "alignment_time"


def pool_samples(records: Sequence[Record]) -> Record:
    """Return the latest of *records* of one run (of both checks, any batch size) with the samples of all."""
    latest = max(records, key=lambda r: r.time)
    return replace(latest, samples=tuple(s for r in records for s in r.samples))


def scenario_name(record: Record) -> str:
    """Return the scenario's name, such as ``2x32-bound``."""
    p = record.parameters
    name = p.get("scenario") or name_of(whole(record, "instances"), whole(record, "threads"), str(p["policy"]))
    return clean(str(name))


def shape(record: Record) -> str:
    """Return instances and threads as in the thesis: ``2 x 32 threads``."""
    threads = whole(record, "threads")
    instances = whole(record, "instances")
    return count(threads, "thread") if instances == 1 else f"{instances} x {count(threads, 'thread')}"


def policy_rank(policy: str) -> tuple[bool, str]:
    """Return a sort key: the default policy first, the others alphabetically."""
    return (policy != DEFAULT_POLICY, policy)


def repetitions(record: Record) -> Interval:
    """Return the median and the range of a record's repetitions."""
    return Interval(record.value, min(record.samples), max(record.samples))


def speedup(run: Record, baseline: Record) -> Interval | None:
    """Return how many times faster *run* is than *baseline*; None if a time is not positive."""
    times = repetitions(run), repetitions(baseline)
    return times[1].over(times[0]) if min(t.low for t in times) > 0 else None


# ----------------------------------------------------------------------
# Gains of scenarios that several hosts measured.

#: The gain of the default run.
SAME = Interval(1.0, 1.0, 1.0)
CONFIDENCE = 0.95

Scenario = TypeVar("Scenario", bound=Hashable)
#: The seconds of each repetition (or seconds per read), by host.
Times = Mapping[str, Sequence[float]]


def gains(times: Mapping[Scenario, Times], default: Scenario) -> dict[Scenario, Interval]:
    """Return the gain of every scenario with its simultaneous interval (:data:`CONFIDENCE`).

    Every host of *times* has the *default*, and all times are above 0. The gain of a scenario is the geometric
    mean over its hosts of the ratio of the geometric means (default / scenario). The variance of a gain is the
    larger of two: of repetitions, pooled over all hosts and scenarios, and of a scenario's gain between hosts,
    pooled over the scenarios of several hosts. Student's t allows for the number of comparisons with one control
    (C. W. Dunnett, A multiple comparison procedure for comparing several treatments with a control, 1955; here by
    Bonferroni's inequality).

    With a single repetition and host the noise is unknown, and so are the ends.
    """
    means = {s: {h: float(np.mean(np.log(some))) for h, some in of_host.items()} for s, of_host in times.items()}
    base = means[default]
    ratios = {s: {h: base[h] - mean for h, mean in of.items()} for s, of in means.items() if s != default}
    level = 1 - (1 - CONFIDENCE) / max(1, len(ratios))
    repeated, of_repeated = _pooled_variance(
        [np.log(some).tolist() for of_host in times.values() for some in of_host.values()]
    )
    between, of_between = _pooled_variance([list(of_host.values()) for of_host in ratios.values()])
    result = {default: SAME}
    for scenario, of_host in ratios.items():
        gain = float(np.mean(list(of_host.values())))
        hosts = len(of_host)
        parts = sum(1 / len(times[default][h]) + 1 / len(times[scenario][h]) for h in of_host)
        variances = [(repeated * parts / hosts**2, of_repeated), (between / hosts, of_between)]
        variance, freedom = max((v for v in variances if v[1]), default=(0.0, 0))
        if not freedom:
            result[scenario] = Interval(math.exp(gain))
            continue
        half = math.sqrt(variance) * student_quantile((1 - level) / 2, freedom)
        result[scenario] = Interval(math.exp(gain), math.exp(gain - half), math.exp(gain + half))
    return result


def _pooled_variance(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the pooled variance within groups, and its degrees of freedom (0: no group has two values)."""
    freedom = sum(len(values) - 1 for values in groups)
    squares = sum(float(np.sum(np.square(np.array(values) - np.mean(values)))) for values in groups)
    return (squares / freedom if freedom else 0.0), freedom
