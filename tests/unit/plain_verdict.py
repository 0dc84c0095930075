# SPDX-License-Identifier: Apache-2.0
"""The rules of the verdict applied value by value, to check the judging in columns.

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
from firsttouch.judge.verdict import ORDER, Finding, HostVerdict, figure
from firsttouch.systems.metrics import checks
from firsttouch.systems.references import Reference

# The sequential test: evidence for fail and for pass, the most evidence of a repetition, the evidence of a change,
# the smallest error (as a share of the limit), and the number of values that represent a sample.
FAIL_AT, PASS_AT = math.log((1 - 2e-3) / 1e-7), -math.log((1 - 1e-7) / 2e-3)
MOST = FAIL_AT / 5 * (1 + 1e-9)
CHANGED = -PASS_AT / 2
# The largest share of good hosts with a suspect metric, and the middles of 32 equal shares of normal values.
CHANCE = 0.01
NORMALS = [statistics.NormalDist().inv_cdf((i + 0.5) / 32) for i in range(32)]
LEAST_ERROR, VALUES = 0.05, 96
# Learning from a fleet: the loss to detect, the fewest hosts, the fewest hosts with repetitions, and factors
# of deviations.
LOSS, FEWEST_HOSTS, TWICE = 0.05, 5, 5
BEYOND, WITHIN, DOUBT, NORMAL = 4.0, 4.3, 1 / 16, 0.6745
# Milliseconds without a record that end a session, and parameters of a case besides those of references.
GAP = 3_600_000
BESIDE = ("effort", "division", "reads")


def weight(losses, limit, error):
    """Return the evidence of some repetitions: FAIL_AT or more is a fail, PASS_AT or less a pass.

    *losses* are fractions of the expected value (above 0: worse); *error* is the relative standard deviation
    of one repetition, or its replacement by :func:`fitted`.
    """
    gain = 2 * limit / max(error, LEAST_ERROR * limit) ** 2
    return sum(_bounded(gain * (loss - limit)) for loss in losses)


def reach(limit, error):
    """Return the loss above which a repetition adds no more evidence."""
    return limit + MOST * max(error, LEAST_ERROR * limit) ** 2 / (2 * limit)


def fitted(losses, error, loss):
    """Return the error with which repetitions such as *losses* of good hosts detect *loss*, twice the limit.

    *error* is their standard deviation without outliers. The result is the standard deviation of the normal
    distribution whose repetitions give as much evidence; None if no number of repetitions detects the loss.
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
    """Return the values of a sample with their shares: single values at the ends, means in between."""
    ordered = sorted(values)
    ends = VALUES // 4
    if len(ordered) <= VALUES:
        return [(v, 1 / len(ordered)) for v in ordered]
    inner, size = (ordered[ends:-ends], math.ceil((len(ordered) - 2 * ends) / (2 * ends)))
    parts = [[v] for v in (*ordered[:ends], *ordered[-ends:])]
    parts += [inner[i : i + size] for i in range(0, len(inner), size)]
    return [(statistics.fmean(part), len(part) / len(ordered)) for part in parts]


def _holds(sample, gain, limit, sign):
    """Return whether the mean of exp(evidence) of good repetitions is at most 1 (sign -1: of bad ones)."""
    return sum((share * math.exp(sign * _bounded(sign * gain * (x - limit))) for x, share in sample)) <= 1


def learn(repetitions, better, loss=LOSS):
    """Return the level of a metric from the *repetitions* of each host, with a limit that detects *loss*.

    None for too few hosts, and for values of 0 or less.
    """
    values_by_host = {host: list(values) for host, values in repetitions.items() if values}
    if len(values_by_host) < FEWEST_HOSTS or any(v <= 0 for values in values_by_host.values() for v in values):
        return None
    unit = statistics.median(statistics.median(values) for values in values_by_host.values())
    relative = {host: [v / unit for v in values] for host, values in values_by_host.items()}
    error = _error(relative)
    levels = {host: _location(values, error or 0.0) for host, values in relative.items()}
    centre, scale = _half(sorted(levels.values()))
    for _ in range(3):
        beyond = max(BEYOND * scale * _few(len(levels)), loss / 2)
        good = [host for host, level in levels.items() if abs(level - centre) <= beyond]
        pooled = [v for host in good for v in relative[host]]
        own = _deviation([levels[host] - centre for host in good]) if error is None else error
        centre = _location(pooled, own)
        scale = _deviation([levels[host] - centre for host in good])
    typical = statistics.median(len(relative[host]) for host in good)
    spread = 0.0 if error is None else _spread({host: relative[host] for host in good}, own)
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
    """Return the value that is evidence neither way, its uncertainty, the error of a repetition, and the loss.

    The distribution of repetitions is skewed: their mean may be far from the value of most of them. The loss
    grows until some number of repetitions detects it.
    """
    fitted_error = None
    for _ in range(4):
        changes = [v / centre - 1 for v in pooled]
        fitted_error = _fitted(changes, error, better, loss)
        most = reach(loss / 2, fitted_error or error)
        near = [min(max(c, -most), most) for c in changes]
        centre *= 1 + statistics.fmean(near)
        doubt = statistics.pstdev(near) / math.sqrt(len(near))
    while (fitted_error := _fitted([v / centre - 1 for v in pooled], error, better, loss)) is None:
        loss *= 1.25
    return (centre, doubt, fitted_error, loss)


def _fitted(changes, error, better, loss):
    """Return the error of the worse direction, or the larger one of two if both directions are bad."""
    errors = []
    if better != "lower":
        errors.append(fitted([-c for c in changes], error, loss))
    if better != "higher":
        errors.append(fitted(changes, error, loss))
    return None if None in errors else max(f for f in errors if f is not None)


def _half(ordered):
    """Return middle and standard deviation of the shortest half of *ordered* values."""
    size = len(ordered) // 2 + 1
    begin = min(range(len(ordered) - size + 1), key=lambda i: ordered[i + size - 1] - ordered[i])
    first, last = (ordered[begin], ordered[begin + size - 1])
    return ((first + last) / 2, (last - first) / 2 / NORMAL)


def _location(values, error):
    """Return Huber's location: the mean after values farther than 1.5 *error* from the centre are clipped."""
    centre = statistics.median(values)
    if len(values) > 2:
        for _ in range(5):
            low, high = (centre - 1.5 * error, centre + 1.5 * error)
            centre = statistics.fmean(min(max(v, low), high) for v in values)
    return centre


def _deviation(differences):
    return statistics.median(map(abs, differences)) / NORMAL


def _error(values_by_host):
    """Return the standard deviation of a repetition from successive differences; None if few hosts repeated."""
    steps = [b - a for values in values_by_host.values() for a, b in pairwise(values)]
    if sum(len(values) > 1 for values in values_by_host.values()) < TWICE:
        return None
    return _deviation(steps) / math.sqrt(2)


def _spread(values_by_host, error):
    """Return the standard deviation of good hosts' own levels.

    Each host's repetitions are split into two halves: their mean holds the host's level, their difference is
    chance. Four standard deviations of what chance adds to the means are not counted as a spread of hosts.
    """
    halves = [
        (_location(values[::2], error), _location(values[1::2], error))
        for values in values_by_host.values()
        if len(values) > 1
    ]
    if not halves:
        return 0.0
    common = _variance([(a + b) / 2 for a, b in halves])
    chance = _variance([(a - b) / 2 for a, b in halves])
    return math.sqrt(max(0.0, common - chance * math.exp(4 * math.sqrt(2 * 2.2 / len(halves)))))


def _variance(values):
    """Return the variance about the median, with outliers clipped."""
    middle = statistics.median(values)
    far = 2.5 * _deviation([v - middle for v in values])
    return statistics.fmean(min(abs(v - middle), far) ** 2 for v in values)


def _few(count):
    """Return the factor by which the deviation of so few values may be too small."""
    return 1 + 3 / count


def judge(records, system, *, missing=None):
    """Return the verdicts, sorted by name, of the hosts that have records of *system* or that *missing* names.

    *missing* holds the results that each host lacks. A metric that judges other hosts and that a host does not
    have is missing, too. A metric without a reference, or whose reference has no error of a repetition, is judged
    by what the majority of the hosts reach, if there are enough hosts.
    """
    own_records = [r for r in records if r.system == system.name]
    by_host = {host: {} for host in missing or ()}
    for record in own_records:
        if record.metric not in SETTINGS:
            by_host.setdefault(record.host, {}).setdefault(_key(record), []).append(record)
    seen = {host: _Seen([r for r in own_records if r.host == host]) for host in by_host}
    expected = _fleet(by_host, system, seen)
    judged = {}
    unjudged = {}
    names = {}
    for host, cases in by_host.items():
        findings = {
            key: _finding(host, repetitions, system, seen[host], expected.get(key, (None, None, ())))
            for key, repetitions in cases.items()
        }
        findings = _with_suspects(findings)
        judged[host] = [f for f in findings.values() if f.reference or f.verdict != "pass"]
        unjudged[host] = len(findings) - len(judged[host])
        names[host] = {key: f.name for key, f in findings.items() if f.reference}
    fleet = {key: name for host_names in names.values() for key, name in host_names.items()}
    return [
        _explained(
            HostVerdict(
                host,
                system.name,
                tuple(judged[host]),
                unjudged[host],
                (*(missing or {}).get(host, ()), *_absent(fleet, by_host[host])),
            ),
            seen[host].settings,
            system,
        )
        for host in sorted(by_host)
    ]


def _with_suspects(findings):
    """Return the findings of a host; undecided ones are suspect if chance does not explain them."""
    weights = sorted((f.evidence for f in findings.values() if f.evidence is not None), reverse=True)
    least = min(
        (w for k, w in enumerate(weights, start=1) if w >= math.log(len(weights) / (k * CHANCE))), default=math.inf
    )
    return {
        key: replace(f, verdict="suspect", why=f.why.split(", needs ")[0] + ", over 99 % certain")
        if f.verdict == "undecided" and f.evidence is not None and f.evidence >= least
        else f
        for key, f in findings.items()
    }


class _Seen:
    """The sessions of a host, its settings, and when it was busy."""

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
    """Return the verdict, with its causes if a finding is a fail."""
    if all(f.verdict != "fail" for f in verdict.findings):
        return verdict
    return replace(verdict, causes=tuple(causes(Signs(verdict.findings, values, system.facts))))


def _absent(fleet, cases):
    for key, name in fleet.items():
        if cases and key not in cases:
            yield f"{name}: other hosts were judged by it"


def _case(record):
    check = checks().get(record.check)
    names = record.parameters if check is None else (*check.parameters, *BESIDE)
    return {name: record.parameters[name] for name in names if name in record.parameters}


def _key(record):
    return json.dumps([record.check, record.metric, _case(record)], sort_keys=True, default=str)


def _fleet(by_host, system, seen):  # noqa: PLR0912
    """Return the references by the fleet's majority, of the cases that have no learnt reference.

    The values of each host's newest session count; if these are too few, all values do.
    """
    samples = {}
    examples = {}
    for host, cases in by_host.items():
        for key, case_records in cases.items():
            ordered = sorted(case_records, key=lambda r: (_instant(r), r.value))
            now = seen[host].session(_instant(ordered[-1]))
            for r in ordered:
                if r.status == "valid" and r.judged:
                    examples.setdefault(key, r)
                    value_and_new = (r.value, seen[host].session(_instant(r)) == now)
                    samples.setdefault(key, {}).setdefault(host, []).append(value_and_new)
    expected = {}
    for key, values_by_host in samples.items():
        example = examples[key]
        learnt = system.reference(example.check, example.metric, example.parameters)
        if learnt is not None and learnt.error is not None:
            continue
        now = {host: [v for v, new in values if new] for host, values in values_by_host.items()}
        now = {host: values for host, values in now.items() if values}
        if example.check == "topology" and example.unit == "1":
            last = [values[-1] for values in now.values()]
            if len(last) >= FEWEST_HOSTS and min(v for values in now.values() for v in values) > 0:
                (value, hosts), *_ = Counter(last).most_common(1)
                if hosts > len(last) / 2:
                    source = f"{hosts} of {len(last)} hosts of this fleet"
                    expected[key] = (_learnt(example, value, 0.0, source, None), None, ())
            continue
        if (groups := _divided(now, example.better)) is not None:
            references = []
            for group in groups:
                level = learn({host: now[host] for host in group}, example.better)
                fine = level is not None and level.doubt <= level.limit / 4
                source = f"{level.hosts} of {len(now)} hosts of this fleet" if fine else ""
                references.append(
                    _learnt(example, level.value, level.limit, source, level.error) if fine else None
                )
            if None not in references:
                expected[key] = (*references, groups[1])
            continue
        for chosen in (now, {host: [v for v, _ in values] for host, values in values_by_host.items()}):
            level = learn(chosen, example.better)
            if level is not None and level.doubt <= level.limit / 4:
                source = f"{level.hosts} of {len(chosen)} hosts of this fleet"
                expected[key] = (_learnt(example, level.value, level.limit, source, level.error), None, ())
                break
    return expected


def _divided(values_by_host, better):
    """Return the hosts of the better and of the worse of two groups, None if there is a clear majority."""
    if len(values_by_host) < 8 or min(v for values in values_by_host.values() for v in values) <= 0:
        return None
    ordered = sorted((statistics.median(values), host) for host, values in values_by_host.items())
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


def _learnt(example, value, limit, source, error):
    return Reference(
        example.check, example.metric, _case(example), value, -limit, limit, example.unit, source, 0, error
    )


def _finding(host, repetitions, system, seen, learnt):
    """Return the finding of one case; its reference is None if nothing judges it."""
    fleet, other, worse = learnt
    ordered = sorted(repetitions, key=lambda r: (_instant(r), r.value))
    last = ordered[-1]
    now = seen.session(_instant(last))
    valid = [r for r in ordered if r.status == "valid"]
    reference_of_system = system.reference(last.check, last.metric, last.parameters) if last.judged else None
    judging = [r for r in (reference_of_system, fleet) if r is not None]
    make = functools.partial(Finding, last.check, last.metric, _case(last), last.unit, better=last.better)
    if not any(seen.session(_instant(r)) == now for r in valid):
        why = (last.reason or "its placement did not hold") if last.status != "valid" else "?"
        return make((), next(iter(judging), None), "invalid", why, more=1)
    if not judging:
        return make(tuple(r.value for r in valid), None, "pass", "no reference")
    findings = []
    for reference in judging:
        values, word, why, weighed, more = _by_reference(valid, reference, seen, now)
        # A host as good as the worse group does not fail for not being in the better one.
        grouped = (
            reference is fleet
            and other is not None
            and (word == "fail" or (word == "undecided" and host in worse))
        )
        if grouped and _by_reference(valid, other, seen, now)[1] != "fail":
            word, more = "suspect", 0
            why = (
                why.split(", needs ")[0].removesuffix(", certain")
                + ", the host is in the worse of two groups of hosts"
            )
        findings.append(replace(make(values, reference, word, why, weighed), more=more))
    return max(
        findings,
        key=lambda f: (ORDER.index(f.verdict), f.verdict == "undecided" and f.evidence is not None),
    )


def _by_reference(valid, reference, seen, now):  # noqa: PLR0912
    """Return the values that count, verdict, reason, evidence (None: unknown error) and the repetitions to decide.

    Better than the tolerance is never a fail; the measurement or the reference may be wrong.
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
        word = "fail" if weighed >= FAIL_AT else "undecided" if weighed > 0 else "pass"
        if word == "undecided":
            limit = max(abs(end) for end in (reference.lower, reference.upper) if end)
            losses = [2 * limit + reference.error * n for n in NORMALS]
            each = weight(losses, limit, reference.error) / len(losses)
            most = math.ceil(count * (FAIL_AT - weighed) / max(weighed, 1e-9))
            more = min(999, max(1, min(most, math.ceil((FAIL_AT - weighed) / each))))
    else:
        word = "fail" if outside == count > 1 else "undecided" if 2 * outside >= count else "pass"
        if word == "undecided":
            more = 1 if count == 1 else 2 * outside - count + 1
    middle = statistics.median(values)
    change = middle / reference.value - 1
    unit = "" if reference.unit == "1" else f" {reference.unit}"
    learnt = not reference.line or reference.source.startswith("fleet")
    whose = "the fleet" if learnt else f"the reference of {valid[0].system}"
    why = f"{figure(middle)}{unit}, {100 * abs(change):.1f} % {'below' if change < 0 else 'above'} {whose}"
    why += f" ({figure(reference.value)}), {count} repetition{'s' * (count > 1)}"
    if word == "fail":
        why += ", certain" if weighed is not None or count == 1 else ", all outside the limits"
    elif word == "undecided" and weighed is None:
        why += f", outside the limits in {outside} of {count}"
    if word == "pass" and 2 * sum(good[i] for i in kept) >= count and reference.line:
        word = "suspect"
        why += ", better than it can be: a wrong measurement or reference"
    if more:
        shown = "over 998" if more == 999 else f"about {more}"
        why += f", needs {shown} more repetition{'s' * (more != 1)}"
    return (values, word, why, weighed, more)


def _newest(evidence, sessions, least):
    """Return the index of the first repetition that counts: the first one after the last change."""
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
    """Return the evidence of each value for each bad direction; empty if the error of a repetition is unknown."""
    if reference.error is None:
        return []
    changes = [v / reference.value - 1 for v in values]
    sides = []
    if better != "lower" and reference.lower:
        sides.append([weight([-c], -reference.lower, reference.error) for c in changes])
    if better != "higher" and reference.upper:
        sides.append([weight([c], reference.upper, reference.error) for c in changes])
    return sides
