# SPDX-License-Identifier: Apache-2.0
"""The rules of the verdict written down a value at a time: judging in columns must give the same.

It is slow (a fleet of 10,000 hosts takes seconds per metric) and has its own constants and formulas.
It shares only the data classes, the texts and the causes with the code that it checks.
"""

import datetime
import functools
import json
import math
import statistics
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from firsttouch.benchmarks.kernel_settings import BUSY
from firsttouch.benchmarks.kernel_settings import METRICS as SETTINGS
from firsttouch.judge.causes import Signs, causes
from firsttouch.judge.fleet_level import Level
from firsttouch.judge.verdict import ORDER, Finding, HostVerdict
from firsttouch.systems.facts import PARAMETERS
from firsttouch.systems.references import Reference

# The test: evidence that fails and that passes, the most that a repetition adds, and what a sample is reduced to.
FAIL_AT, PASS_AT = math.log((1 - 2e-3) / 1e-7), -math.log((1 - 1e-7) / 2e-3)
MOST = FAIL_AT / 5 * (1 + 1e-9)
CHANGED = -PASS_AT / 2
LEAST_ERROR, VALUES = 0.05, 96
# What is learnt of a fleet: the loss to detect, the fewest hosts, and standard deviations.
LOSS, FEWEST_HOSTS, TWICE = 0.05, 5, 5
BEYOND, WITHIN, DOUBT, NORMAL = 4.0, 4.3, 1 / 16, 0.6745
# Milliseconds without a record that end a session, and parameters that name a case beside those of references.
GAP = 3_600_000
BESIDE = ("effort", "division", "reads")


def weight(losses, limit, error):
    """Return the evidence of some passes: at FAIL_AT or above it is a fail, at PASS_AT or below a pass.

    *losses* are fractions of what is expected (above 0: worse); the *error* is the relative standard deviation
    of one pass, or what takes its place (see :func:`fitted`).
    """
    gain = 2 * limit / max(error, LEAST_ERROR * limit) ** 2
    return sum(_bounded(gain * (loss - limit)) for loss in losses)


def reach(limit, error):
    """Return the loss from which on a pass adds no more evidence."""
    return limit + MOST * max(error, LEAST_ERROR * limit) ** 2 / (2 * limit)


def fitted(losses, error, loss):
    """Return the error with which passes such as *losses* of good hosts find *loss*, half of which is the limit.

    *error* is their standard deviation, far ones aside. What is returned is that of a normal distribution of which
    a pass would tell as much; None where no number of passes would tell.
    """
    normal = statistics.NormalDist(0, max(error, LEAST_ERROR * loss / 2))
    sample = _summed([*losses, *(normal.inv_cdf((i + 0.5) / 32) for i in range(32))])
    mirrored = [(-x, share) for x, share in sample]
    best, gain = (0.0, loss / normal.stdev**2)
    step = gain / 2
    for _ in range(10):
        if _holds(sample, gain, loss / 2, 1) and _holds(mirrored, gain, loss / 2, -1):
            best = gain
            gain += step
        else:
            gain -= step
        step /= 2
        if best == loss / normal.stdev**2:
            break
    return math.sqrt(loss / best) if best else None


def _bounded(evidence):
    return min(max(evidence, PASS_AT), MOST)


def _summed(values):
    """Return (value, share) of a sample; those at the ends, which matter most, one by one."""
    ordered = sorted(values)
    ends = VALUES // 4
    if len(ordered) <= VALUES:
        return [(v, 1 / len(ordered)) for v in ordered]
    inner, size = (ordered[ends:-ends], math.ceil((len(ordered) - 2 * ends) / (2 * ends)))
    parts = [[v] for v in (*ordered[:ends], *ordered[-ends:])]
    parts += [inner[i : i + size] for i in range(0, len(inner), size)]
    return [(statistics.fmean(part), len(part) / len(ordered)) for part in parts]


def _holds(sample, gain, limit, sign):
    """Tell whether exp(evidence) of good passes is at most 1 on average (sign -1: exp(-evidence) of bad ones)."""
    return sum((share * math.exp(sign * _bounded(sign * gain * (x - limit))) for x, share in sample)) <= 1


def learn(passes, better, loss=LOSS):
    """Return the level of a metric from its *passes* by host, and how to find a *loss* of it.

    None for too few hosts, or for values of which none can be a share (0 or less).
    """
    mine = {host: list(values) for host, values in passes.items() if values}
    if len(mine) < FEWEST_HOSTS or any(v <= 0 for values in mine.values() for v in values):
        return None
    unit = statistics.median(statistics.median(values) for values in mine.values())
    found = {host: [v / unit for v in values] for host, values in mine.items()}
    error = _error(found)
    levels = {host: _location(values, error or 0.0) for host, values in found.items()}
    centre, scale = _half(sorted(levels.values()))
    for _ in range(3):
        beyond = max(BEYOND * scale * _few(len(levels)), loss / 2)
        good = [host for host, level in levels.items() if abs(level - centre) <= beyond]
        pooled = [v for host in good for v in found[host]]
        own = _deviation([levels[host] - centre for host in good]) if error is None else error
        centre = _location(pooled, own)
        scale = _deviation([levels[host] - centre for host in good])
    typical = statistics.median(len(found[host]) for host in good)
    spread = 0.0 if error is None else _spread({host: found[host] for host in good}, own)
    wanted = max(loss, 2 * WITHIN * spread)
    centre, moving, fitted, wanted = _centred(pooled, centre, own * _few(len(good)), better, wanted)
    steady = spread / math.sqrt(len(good))
    return Level(
        value=centre * unit,
        limit=wanted / 2,
        error=fitted,
        spread=spread,
        doubt=math.hypot(moving, steady),
        hosts=len(good),
        repetitions=len(pooled) / len(good),
        outliers={host: level / centre - 1 for host, level in levels.items() if host not in set(good)},
        more_repetitions=max(0, math.ceil(typical * ((moving / (wanted * DOUBT)) ** 2 - 1))),
    )


def _centred(pooled, centre, error, better, loss):
    """Return the value about which passes are no evidence either way, its doubt, their error, and the loss.

    Passes are not alike on both sides: of what most of them reach, their mean may be far. The loss is a larger
    one where no number of such passes would tell it.
    """
    found = None
    for _ in range(4):
        changes = [v / centre - 1 for v in pooled]
        found = _fitted(changes, error, better, loss)
        most = reach(loss / 2, found or error)
        near = [min(max(c, -most), most) for c in changes]
        centre *= 1 + statistics.fmean(near)
        doubt = statistics.pstdev(near) / math.sqrt(len(near))
    while (found := _fitted([v / centre - 1 for v in pooled], error, better, loss)) is None:
        loss *= 1.25
    return (centre, doubt, found, loss)


def _fitted(changes, error, better, loss):
    """Return the error that counts in the worse direction, or the larger one where both are bad."""
    found = []
    if better != "lower":
        found.append(fitted([-c for c in changes], error, loss))
    if better != "higher":
        found.append(fitted(changes, error, loss))
    return None if None in found else max(f for f in found if f is not None)


def _half(ordered):
    """Return middle and standard deviation of the shortest half of *ordered* values."""
    size = len(ordered) // 2 + 1
    begin = min(range(len(ordered) - size + 1), key=lambda i: ordered[i + size - 1] - ordered[i])
    first, last = (ordered[begin], ordered[begin + size - 1])
    return ((first + last) / 2, (last - first) / 2 / NORMAL)


def _location(values, error):
    """Return Huber's location: the mean, with what is far from the middle for this *error* drawn near."""
    centre = statistics.median(values)
    if len(values) > 2:
        for _ in range(5):
            low, high = (centre - 1.5 * error, centre + 1.5 * error)
            centre = statistics.fmean(min(max(v, low), high) for v in values)
    return centre


def _deviation(differences):
    return statistics.median(map(abs, differences)) / NORMAL


def _error(found):
    """Return the standard deviation of a pass, by differences of neighbours; None where few were repeated."""
    steps = [b - a for values in found.values() for a, b in pairwise(values)]
    if sum(len(values) > 1 for values in found.values()) < TWICE:
        return None
    return _deviation(steps) / math.sqrt(2)


def _spread(found, error):
    """Return the standard deviation of good hosts' own levels.

    A host's passes are halved: what both halves have in common is the host's, what they differ by is chance. What
    chance may also make of the halves' sum, four of its standard deviations, is no difference between hosts.
    """
    halves = [
        (_location(values[::2], error), _location(values[1::2], error))
        for values in found.values()
        if len(values) > 1
    ]
    if not halves:
        return 0.0
    common = _variance([(a + b) / 2 for a, b in halves])
    chance = _variance([(a - b) / 2 for a, b in halves])
    return math.sqrt(max(0.0, common - chance * math.exp(4 * math.sqrt(2 * 2.2 / len(halves)))))


def _variance(values):
    """Return the variance about the median, of far values that of nearer ones."""
    middle = statistics.median(values)
    far = 2.5 * _deviation([v - middle for v in values])
    return statistics.fmean(min(abs(v - middle), far) ** 2 for v in values)


def _few(count):
    """Return by how much a deviation of so few values may be too small."""
    return 1 + 3 / count


def judge(records, system, *, missing=None):
    """Return the verdict of every host that has records of *system*, or that is among *missing*, by name.

    *missing* holds, by host, what should have been measured and was not. What some hosts were measured and
    judged by and another one was not is missing of that one, too. A metric whose reference tells no error of a
    pass, or that has none, is judged by what the majority of the hosts reach, if they are enough.
    """
    mine = [r for r in records if r.system == system.name]
    by_host = {host: {} for host in missing or ()}
    for record in mine:
        if record.metric not in SETTINGS:
            by_host.setdefault(record.host, {}).setdefault(_key(record), []).append(record)
    seen = {host: _Seen([r for r in mine if r.host == host]) for host in by_host}
    expected = _fleet(by_host, system, seen)
    found = {}
    unjudged = {}
    names = {}
    for host, cases in by_host.items():
        every = {
            key: _finding(passes, system, seen[host], *expected.get(key, (None, None)))
            for key, passes in cases.items()
        }
        found[host] = [f for f in every.values() if f.reference or f.verdict != "pass"]
        unjudged[host] = len(every) - len(found[host])
        names[host] = {key: f.name for key, f in every.items() if f.reference}
    fleet = {key: name for mine in names.values() for key, name in mine.items()}
    return [
        _explained(
            HostVerdict(
                host,
                system.name,
                tuple(found[host]),
                unjudged[host],
                (*(missing or {}).get(host, ()), *_absent(fleet, by_host[host])),
            ),
            seen[host].settings,
            system,
        )
        for host in sorted(by_host)
    ]


class _Seen:
    """What a host's records tell beside their values: its sessions, its settings, and when it was busy."""

    def __init__(self, records):
        times = sorted({_instant(r) for r in records})
        self.begins = [
            t for t, before in zip(times, [None, *times], strict=False) if before is None or t - before > GAP
        ]
        topology = sorted((r for r in records if r.check == "topology"), key=lambda r: (_instant(r), r.value))
        self.settings = {r.metric: r.value for r in topology}
        self.looks = [(_instant(r), r.value) for r in topology if r.metric == "busy_pus"]

    def session(self, time):
        return sum(begin <= time for begin in self.begins)

    def busy(self, time):
        before = [(t, busy) for t, busy in self.looks if t <= time and self.session(t) == self.session(time)]
        return before[-1][1] if before else 0.0


def _instant(record):
    time = datetime.datetime.fromisoformat(record.time)
    return int((time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp() * 1000 + 0.5)


def _explained(verdict, values, system):
    """Return a verdict with its causes, where it is not good."""
    if all(f.verdict == "pass" for f in verdict.findings):
        return verdict
    return replace(verdict, causes=tuple(causes(Signs(verdict.findings, values, system.facts))))


def _absent(fleet, mine):
    for key, name in fleet.items():
        if mine and key not in mine:
            yield f"{name}: other hosts were judged by it"


def _case(record):
    known = PARAMETERS.get(record.check)
    names = record.parameters if known is None else (*known, *BESIDE)
    return {name: record.parameters[name] for name in names if name in record.parameters}


def _key(record):
    return json.dumps([record.check, record.metric, _case(record)], sort_keys=True, default=str)


def _fleet(by_host, system, seen):  # noqa: PLR0912
    """Return, by case, what to expect by the fleet's majority, where nothing was learnt of a fleet before.

    What hosts reach now counts, in the newest session of each; where that is too little, all that they reached.
    """
    passes = {}
    sample = {}
    for host, cases in by_host.items():
        for key, mine in cases.items():
            ordered = sorted(mine, key=lambda r: (_instant(r), r.value))
            now = seen[host].session(_instant(ordered[-1]))
            for r in ordered:
                if r.status == "valid" and r.judged:
                    sample.setdefault(key, r)
                    told = (r.value, seen[host].session(_instant(r)) == now)
                    passes.setdefault(key, {}).setdefault(host, []).append(told)
    found = {}
    for key, mine in passes.items():
        one = sample[key]
        told = system.reference(one.check, one.metric, one.parameters)
        if told is not None and told.error is not None:
            continue
        now = {host: [v for v, new in values if new] for host, values in mine.items()}
        now = {host: values for host, values in now.items() if values}
        if one.check == "topology" and one.unit == "1":
            last = [values[-1] for values in now.values()]
            if len(last) >= FEWEST_HOSTS and min(v for values in now.values() for v in values) > 0:
                (value, hosts), *_ = Counter(last).most_common(1)
                if hosts > len(last) / 2:
                    source = f"{hosts} of {len(last)} hosts of this fleet"
                    found[key] = (_learnt(one, value, 0.0, source, None), None)
            continue
        if (two := _divided(now, one.better)) is not None:
            made = []
            for group in two:
                level = learn({host: now[host] for host in group}, one.better)
                fine = level is not None and level.doubt <= level.limit / 4
                source = f"{level.hosts} of {len(now)} hosts of this fleet" if fine else ""
                made.append(_learnt(one, level.value, level.limit, source, level.error) if fine else None)
            if None not in made:
                found[key] = tuple(made)
            continue
        for some in (now, {host: [v for v, _ in values] for host, values in mine.items()}):
            level = learn(some, one.better)
            if level is not None and level.doubt <= level.limit / 4:
                source = f"{level.hosts} of {len(some)} hosts of this fleet"
                found[key] = (_learnt(one, level.value, level.limit, source, level.error), None)
                break
    return found


def _divided(passes, better):
    """Return the hosts of the better and of the worse of two groups, None if there is a clear majority."""
    if len(passes) < 8 or min(v for values in passes.values() for v in values) <= 0:
        return None
    ordered = sorted((statistics.median(values), host) for host, values in passes.items())
    while len(ordered) >= 8:
        least = max(3, math.ceil(0.1 * len(ordered)))
        places = range(least, len(ordered) - least + 1)
        middle = max(places, key=lambda i: (ordered[i][0] - ordered[i - 1][0], -i))
        low, high = ordered[:middle], ordered[middle:]
        values = [statistics.median(v for v, _ in group) for group in (low, high)]
        inside = [v - values[0] for v, _ in low] + [v - values[1] for v, _ in high]
        far = (6 + 1500 / len(ordered) ** 2) * math.sqrt(_variance(inside))
        if values[1] - values[0] < max(far, 0.025 * values[1]):
            return None
        if max(len(low), len(high)) < 0.6 * len(ordered):
            groups = [host for _, host in low], [host for _, host in high]
            lower_first = better == "lower" or (better == "neither" and len(low) > len(high))
            return groups if lower_first else groups[::-1]
        ordered = max(low, high, key=len)
    return None


def _learnt(one, value, limit, source, error):
    return Reference(one.check, one.metric, _case(one), value, -limit, limit, one.unit, source, 0, error)


def _finding(passes, system, seen, fleet=None, other=None):
    """Return the finding of one case; its reference is None where nothing judges it."""
    ordered = sorted(passes, key=lambda r: (_instant(r), r.value))
    last = ordered[-1]
    now = seen.session(_instant(last))
    valid = [r for r in ordered if r.status == "valid"]
    told = system.reference(last.check, last.metric, last.parameters) if last.judged else None
    judging = [r for r in (told, fleet) if r is not None]
    make = functools.partial(Finding, last.check, last.metric, _case(last), last.unit, better=last.better)
    if not any(seen.session(_instant(r)) == now for r in valid):
        why = (last.reason or "its placement did not hold") if last.status != "valid" else "?"
        return make((), next(iter(judging), None), "invalid", why, more=1)
    if not judging:
        return make(tuple(r.value for r in valid), None, "pass", "no reference")
    found = []
    for reference in judging:
        values, word, why, weighed, more = _by_reference(valid, reference, seen, now)
        # A host as good as the worse group does not fail for not being in the better one.
        grouped = reference is fleet and other is not None and word == "fail"
        if grouped and _by_reference(valid, other, seen, now)[1] != "fail":
            word = "suspect"
            why += "; the host is in the worse of two groups of hosts"
        found.append(replace(make(values, reference, word, why, weighed), more=more))
    return max(found, key=lambda f: ORDER.index(f.verdict))


def _by_reference(valid, reference, seen, now):  # noqa: PLR0912
    """Return the values that count, verdict, why, evidence (None: no error is known), and how many more decide.

    Better than the tolerance is never a fail, but something is wrong with the measurement or with the reference.
    """
    minimum, maximum, better = (reference.minimum, reference.maximum, valid[0].better)
    low = [minimum is not None and r.value < minimum for r in valid]
    high = [maximum is not None and r.value > maximum for r in valid]
    both = [a or b for a, b in zip(low, high, strict=True)]
    bad = {"higher": low, "lower": high, "neither": both}[better]
    good = {"higher": high, "lower": low, "neither": [False] * len(valid)}[better]
    exact = valid[0].check == "topology"
    busy = [0.0 if exact else seen.busy(_instant(r)) for r in valid]
    kept = [i for i in range(len(valid)) if not (bad[i] and busy[i] >= BUSY)]
    sessions = [seen.session(_instant(valid[i])) for i in kept]
    if now not in sessions:
        why = f"disturbed: other processes used {max(busy):.2g} PUs; measure it again"
        return ((), "invalid", why, None, 1)
    weighed = None
    if exact:
        begin = len(kept) - 1
    elif sides := _sides([valid[i].value for i in kept], better, reference):
        begins = [_newest(side, sessions, CHANGED) for side in sides]
        weighed, begin = max(
            ((sum(side[b:]), b) for side, b in zip(sides, begins, strict=True)), key=lambda m: m[0]
        )
    else:
        begin = _newest([1.0 if bad[i] else -1.0 for i in kept], sessions, 1.0)
    kept = kept[begin:]
    values = tuple(valid[i].value for i in kept)
    count, outside = len(kept), sum(bad[i] for i in kept)
    more = 0
    if exact:
        word = "fail" if outside else "pass"
    elif weighed is not None:
        word = "fail" if weighed >= FAIL_AT else "suspect" if weighed > 0 else "pass"
        if word == "suspect":
            more = min(999, max(1, math.ceil(count * (FAIL_AT - weighed) / max(weighed, 1e-9))))
    else:
        word = "fail" if outside == count > 1 else "suspect" if 2 * outside >= count else "pass"
        if word == "suspect":
            more = 1 if count == 1 else 2 * outside - count + 1
    limits = [f"at least {minimum:.4g}"] if minimum is not None else []
    limits += [f"at most {maximum:.4g}"] if maximum is not None else []
    middle = statistics.median(values)
    change = middle / reference.value - 1
    unit = "" if reference.unit == "1" else f" {reference.unit}"
    why = (
        f"{middle:.4g}{unit}, {100 * abs(change):.1f} % {'below' if change < 0 else 'above'} {reference.value:.4g}"
    )
    why += f" ({' and '.join(limits) or 'any value'}; {reference.source}), {count} repetition{'s' * (count > 1)}"
    if weighed is not None:
        why += f"; {_certainty(weighed)}"
    elif word == "suspect":
        why += f"; outside in {outside} of {count} repetitions"
    if word == "pass" and 2 * sum(good[i] for i in kept) >= count and reference.line:
        word = "suspect"
        why += "; better than it can be: a wrong measurement or reference"
    if more:
        shown = "over 998" if more == 999 else str(more)
        why += f"; {shown} more repetition{' decides' if more == 1 else 's decide'}"
    return (values, word, why, weighed, more)


def _certainty(evidence):
    share = 100 / (1 + math.exp(-abs(evidence)))
    return f"{'over 99.9999' if share > 99.9999 else f'{share:.{4 if share > 99.99 else 2}f}'} % sure"


def _newest(evidence, sessions, least):
    """Return the place of the first pass that counts: the one after the last change."""
    begin = 0
    while True:
        best, place = 0.0, None
        for j in range(begin + 1, len(evidence)):
            if sessions[j] == sessions[j - 1]:
                continue
            after, before = sum(evidence[j:]), sum(evidence[begin:j])
            clear = round(min(abs(after), abs(before)), 9)
            if after * before < 0 and clear >= least and clear >= best:
                best, place = clear, j
        if place is None:
            return begin
        begin = place


def _sides(values, better, reference):
    """Return the evidence of each value for each side that may be worse; none where a pass's error is unknown."""
    if reference.error is None:
        return []
    changes = [v / reference.value - 1 for v in values]
    sides = []
    if better != "lower" and reference.lower:
        sides.append([weight([-c], -reference.lower, reference.error) for c in changes])
    if better != "higher" and reference.upper:
        sides.append([weight([c], reference.upper, reference.error) for c in changes])
    return sides
