# SPDX-License-Identifier: Apache-2.0
"""Figures of a fleet: heat map and spread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import groupby

import numpy as np
from markupsafe import Markup

from firsttouch.judge.constants import FEWEST_HOSTS
from firsttouch.judge.groups import Floats
from firsttouch.judge.verdict import ORDER, natural, worse
from firsttouch.records import catalogue
from firsttouch.report.document import (
    Block,
    Cell,
    Drawing,
    Drawings,
    Entry,
    Fold,
    Listing,
    Paragraph,
    Span,
    Table,
    anchored,
    how_to_read,
    not_shown,
    word_span,
)
from firsttouch.report.figures.drawing import Scale, steps, zero_based_scale
from firsttouch.report.figures.svg import GRID, MUTED, SERIES, WARN, Canvas
from firsttouch.report.fleet.ranks import Ranks
from firsttouch.report.text import NOT_MEASURED, SIGNS, count, listed
from firsttouch.systems.definition import Undescribed
from firsttouch.systems.references import Reference
from firsttouch.units import number, quantity, signed_percent

# ----------------------------------------------------------------------
# Heat map of hosts by metrics: the worst of both have rows and columns, the others are summarised beside them.

#: The most rows (hosts) and columns (metrics).
MOST_HOSTS, MOST_METRICS = 60, 30
#: Rows of hosts that pass, for comparison, if not all hosts have a row.
_PASSING = 8
#: The most columns that are printed in larger letters.
_FEW = 15
#: Relative differences at which a cell's colour changes.
STEPS = (0.01, 0.025, 0.05, 0.1, 0.2)


#: Sign in a cell -> what it means. A pass has none, so that the others stand out.
MARKS = {sign: word for word, sign in SIGNS.items() if word != "pass"} | {NOT_MEASURED: "not measured"}


def heat(ranks: Ranks, detailed: Collection[str] | None = None) -> list[Block]:
    """Return the map of a fleet with its key, or why there is none.

    The columns are in the order of their checks. The last column is the median of the metrics without a column,
    the last row that of the hosts without a row. Hosts and metrics link to what a page has about them: *detailed*
    are the hosts with a line of their own; without it, nothing links.
    """
    findings = ranks.findings
    samples = findings.samples
    hosts = [h for h in ranks.hosts if h in findings.number]
    if len(hosts) > MOST_HOSTS:
        hosts = hosts[: min(MOST_HOSTS, sum(ranks.words[h] > 0 for h in hosts) + _PASSING)]
    cases = _columns(ranks, hosts)
    if not cases or not hosts:
        why = [f"system {findings.system.name} has no reference for these metrics"]
        if isinstance(findings.system, Undescribed):
            use = Span("--system S", "code")
            why = [f"no file describes system {findings.system.name} (use ", use, " for another one)"]
        return [
            not_shown(
                ["nothing is judged: ", *why, f", and a comparison of the hosts needs {FEWEST_HOSTS} of them."]
            )
        ]
    summed = len(ranks.cases) > len(cases)
    better = [samples.cases[c].better for c in cases]
    column = {c: i for i, c in enumerate(cases)}
    map_rows: list[Sequence[Cell]] = []
    for host in hosts:
        cells = [_empty(NOT_MEASURED)] * len(cases)
        others: list[float] = []
        rows = findings.groups(host)
        differences = findings.from_reference(rows).tolist()
        for place, group in enumerate(rows.tolist()):
            case = int(samples.case[group])
            word = ORDER[findings.words[group]]
            # A cell and its tooltip have the same expected value: that of the column, or the one that decided.
            change = differences[place] if word == "pass" else float(findings.change[group])
            if case in column:
                sign = "" if word == "pass" else SIGNS[word]
                tip = _tip(ranks, host, group)
                cells[column[case]] = _cell(change, better[column[case]], sign, tip)
            elif np.isfinite(differences[place]):
                others.append(-worse(differences[place], samples.cases[case].better))
        word = ORDER[ranks.words[host]]
        name = Cell(host, tone=f"word-{word}", sign=SIGNS[word])
        if detailed is not None:
            key = ranks.host_keys[host]
            name = name._replace(link=f"#{key}", key="" if host in detailed else key)
        map_rows.append([name, *cells, *([_median(others)] if summed else [])])
    left_out = len(samples.hosts) - len(hosts)
    if left_out:
        row = [Cell(count(left_out, "other")), *_others(ranks, hosts, cases), *([Cell()] if summed else [])]
        map_rows.append([cell._replace(tone=f"{cell.tone} others".strip()) for cell in row])
    of_checks = [(check, len(list(columns))) for check, columns in groupby(samples.cases[c].check for c in cases)]
    catalogued = catalogue.checks()
    headings = [(catalogued[c].title if c in catalogued else c, columns) for c, columns in of_checks]
    names = [samples.cases[c].title for c in cases]
    linked = [[Span(name, link=f"#{ranks.metric_keys[name]}")] for name in names]
    table = Table(
        "Difference from the expected value, %",
        ["host", *(Cell(n, tip=name) for n, name in enumerate(names, start=1)), *(["others"] if summed else [])],
        map_rows,
        [[("", 1), *headings, *([("", 1)] if summed else [])]],
        "heat few" if len(names) <= _FEW else "heat",
    )
    return [
        _explained(left_out, len(ranks.cases) - len(cases)),
        table,
        Listing(linked if detailed is not None else names, "key", numbered=True),
    ]


def _explained(hosts: int, metrics: int) -> Paragraph:
    """Return how to read the map; so many *hosts* have no row and *metrics* no column."""
    marks: list[str] = []
    for word in (*(w for w in SIGNS if w != "pass"), "not measured"):
        mark = word_span(word) if word in SIGNS else Span(word, sign=NOT_MEASURED)
        marks += [", " if marks else "", mark]
    summed = [f"the last row is the median of the {hosts} other hosts"] if hosts else []
    summed += [f"the last column is that of the {metrics} other metrics (above 0 is better)"] if metrics else []
    rest = (
        f" The map has the worst hosts and the metrics with the worst hosts; {', '.join(summed)}. "
        "findings.parquet has every cell."
    )
    return how_to_read(
        [
            "A row is a host, a column a metric (see the key below; a cell's tooltip has its values). A cell is "
            "the difference from the expected value in percent. Red is worse, blue is better, and a stronger "
            f"colour is more (from {100 * STEPS[0]:g} % on). ",
            *marks,
            f".{rest if summed else ''}",
        ]
    )


def _empty(sign: str = "") -> Cell:
    return Cell(sign=sign, meaning=MARKS[sign]) if sign else Cell()


def _tip(ranks: Ranks, host: str, group: int) -> str:
    """Return the tooltip of a cell; the header of its column names the metric.

    The reference is that of the column, or the one by which this host does not pass.
    """
    findings = ranks.findings
    number_of_case = int(findings.samples.case[group])
    case = findings.samples.cases[number_of_case]
    reference = findings.decider(group) if findings.words[group] else findings.reference(number_of_case)
    if reference is None or not np.isfinite(findings.change[group]):
        return host
    value = quantity(float(findings.value[group]), case.unit)
    expected = f"expected {number(reference.value)}{_limit_text(reference, case.better)}"
    return f"{host}: {value}, {expected}, n {findings.n[group]}"


def _columns(ranks: Ranks, hosts: Sequence[str]) -> list[int]:
    """Return the cases with a column: one or more reasons of each host, then the cases with the worst hosts.

    They are in the order of their checks, so that a fault of one kind is a block of the map.
    """
    chosen: set[int] = set()
    for host in hosts:
        reasons = ranks.reason(host)
        if reasons and len(chosen) < MOST_METRICS and chosen.isdisjoint(reasons):
            chosen.add(reasons[0])
    for case in ranks.cases:
        if len(chosen) == MOST_METRICS:
            break
        chosen.add(case)
    cases = ranks.findings.samples.cases
    return sorted(chosen, key=lambda case: (catalogue.order(cases[case].check), natural(cases[case].name)))


def _others(ranks: Ranks, hosts: Sequence[str], cases: Sequence[int]) -> list[Cell]:
    """Return the median change of the hosts without a row in each case."""
    findings = ranks.findings
    samples = findings.samples
    named = np.zeros(len(samples.hosts), dtype=np.bool_)
    named[[findings.number[h] for h in hosts]] = True
    cells = []
    for case in cases:
        where = samples.groups(case)
        changes = findings.from_reference(where)[~named[samples.host[where]]]
        cells.append(_median(changes[np.isfinite(changes)], samples.cases[case].better))
    return cells


def _median(changes: Sequence[float] | Floats, better: str = "higher") -> Cell:
    """Return the median of *changes*, without text if there are none."""
    return _cell(float(np.median(changes)), better, "") if len(changes) else Cell()


def _cell(change: float, better: str, sign: str, tip: str = "") -> Cell:
    """Return the cell of a change: in percent, with the *sign* of its verdict and the colour of its size."""
    if not np.isfinite(change):
        return _empty(sign or NOT_MEASURED)._replace(tip=tip)
    step = sum(abs(change) >= s for s in STEPS)
    good = change > 0 if better == "higher" else change < 0
    tone = f"{'g' if good and better != 'neither' else 'b'}{step}" if step else ""
    return Cell(change, _percent, tone, sign, MARKS[sign] if sign else "", tip)


def _percent(change: float) -> str:
    return signed_percent(change).removesuffix(" %").replace("-", "\N{MINUS SIGN}")


# ----------------------------------------------------------------------
# How a metric is distributed over the hosts: a drawing with the outliers named, or a line of a table.

#: Metrics that are drawn; the others have a line in the table.
MOST_DRAWN = 24
#: Outliers that are named.
_NAMED = 6
_BINS, _WIDTH, _HEIGHT, _SMALL = 41, 330, 116, 11
#: Room (px) around the axes of a drawing, and the least height of a bar.
_LEFT, _RIGHT, _ABOVE, _BELOW, _LEAST_HEIGHT = 34, 18, 16, 20, 2
#: The least end of the axis as a fraction, and the largest as a multiple of the widest limit.
_LEAST_REACH, _MOST_LIMITS = 0.02, 10
_HOW = (
    "Bars count the hosts by their difference from the expected value. Better is to the right, and all drawings "
    "have the same axis. Hosts left of the dashed line are worse than the limit, and a marker stands above them."
)
HEADER = ("metric", "hosts", "expected", "lowest", "5 %", "median", "95 %", "highest", "not pass", "worst host")


def spreads(ranks: Ranks, key: str = "", most: int = MOST_DRAWN) -> list[Block]:
    """Return the distributions of the metrics that stand out most, and the table of all metrics that judge hosts.

    *key* is in the names of the drawings.
    """
    drawn = ranks.cases[:most]
    reach = _reach(ranks, drawn)
    drawings = [_spread(ranks, case, f"spread{key}{i}", reach) for i, case in enumerate(drawn)]
    if not drawings:
        return [not_shown("no metric is judged.")]
    table = Table(
        f"Metrics over the hosts of system {ranks.findings.system.name}",
        HEADER,
        [_row(ranks, case, is_drawn=place < most) for place, case in enumerate(ranks.cases)],
    )
    which = f" The drawings show the {len(drawings)} metrics with the worst hosts, the table has all "
    which += f"{len(table.rows)}."
    return [
        how_to_read(_HOW + (which if len(table.rows) > len(drawings) else "")),
        Drawings(drawings),
        Fold(f"All {count(len(table.rows), 'metric')} as a table", [table]),
    ]


def _values(ranks: Ranks, case: int) -> tuple[Floats, list[int], Reference | None]:
    """Return the deviations of the hosts, the numbers of their groups of samples, and their reference."""
    where = ranks.findings.samples.groups(case)
    deviations = ranks.findings.from_reference(where)
    measured = np.isfinite(deviations)
    groups = np.arange(where.start, where.stop)[measured].tolist()
    return deviations[measured], groups, ranks.findings.reference(case)


def _row(ranks: Ranks, number_of_case: int, *, is_drawn: bool) -> tuple[Entry, ...]:
    changes, groups, reference = _values(ranks, number_of_case)
    samples = ranks.findings.samples
    case = samples.cases[number_of_case]
    key = ranks.metric_keys[case.title]
    title = Cell(case.title, link=f"#{key}") if is_drawn else anchored(case.title, key)
    bad = np.count_nonzero(ranks.findings.words[samples.groups(number_of_case)])
    if not len(changes) or reference is None:
        return (title, len(groups), *[""] * 6, int(bad), "")
    values = np.quantile(ranks.findings.value[groups], (0, 0.05, 0.5, 0.95, 1)).tolist()
    at = int(np.argmax(worse(changes, case.better)))
    worst = f"{samples.hosts[samples.host[groups[at]]]} ({signed_percent(float(changes[at]))})"
    expected = Cell(reference.value, partial(quantity, unit=case.unit))
    return (title, len(groups), expected, *(Cell(x, number) for x in values), int(bad), worst)


def _spread(ranks: Ranks, number_of_case: int, name: str, reach: tuple[float, float]) -> Drawing:
    changes, groups, reference = _values(ranks, number_of_case)
    findings = ranks.findings
    case = findings.samples.cases[number_of_case]
    key = ranks.metric_keys[case.title]
    where = findings.samples.groups(number_of_case)
    words = np.bincount(findings.words[where], minlength=len(ORDER)).tolist()
    counts = [f"{n} {w}" for w, n in zip(ORDER, words, strict=True) if n]
    sentences = [f"{count(where.stop - where.start, 'host')}: {', '.join(counts)}."]
    if reference is None or not len(changes):
        return Drawing(case.title, Markup(""), [*sentences, *_invalid(ranks, where)], key)
    limit = _limit(reference)
    losses = worse(changes, case.better)
    order = np.argsort(-losses, kind="stable")
    beyond = order[(findings.words[groups] > 0)[order] | (losses[order] > limit)].tolist()
    outliers = [_outlier(ranks, groups[i], float(changes[i])) for i in beyond]
    if outliers:
        sentences.append(f"Outside: {listed(outliers, most=_NAMED)}.")
    sentences += _invalid(ranks, where)
    expected = quantity(reference.value, case.unit)
    sentences.append(f"Expected {expected}{_limit_text(reference, case.better)} ({reference.source}).")
    drawn = _histogram(changes, limit, case.better, reach, name=name, texts=(case.title, *sentences))
    return Drawing(case.title, drawn, sentences, key)


def _outlier(ranks: Ranks, group: int, change: float) -> str:
    """Return a host with its value, the change and its verdict."""
    findings = ranks.findings
    value = quantity(float(findings.value[group]), findings.samples.cases[findings.samples.case[group]].unit)
    word = ORDER[findings.words[group]]
    host = findings.samples.hosts[findings.samples.host[group]]
    return f"{host} {value} ({signed_percent(change)}, {word})"


def _invalid(ranks: Ranks, where: slice) -> list[str]:
    """Return the sentence that names the hosts without a valid sample; an empty list if every host has one."""
    findings = ranks.findings
    wrong = np.flatnonzero(findings.words[where] == ORDER.index("invalid")) + where.start
    hosts = [findings.samples.hosts[findings.samples.host[group]] for group in wrong.tolist()]
    return [f"Invalid: {listed(hosts, most=_NAMED)}."] if hosts else []


def _gains(changes: Floats, better: str) -> Floats:
    """Return *changes* as they are drawn: above 0 is better, or higher if neither direction is better."""
    return -changes if better == "lower" else changes


def _reach(ranks: Ranks, cases: Sequence[int]) -> tuple[float, float]:
    """Return the ends of the axis of all distributions: it has room for all hosts, up to a few times the limit."""
    ends, widest = [0.0, 0.0], 0.0
    for number_of_case in cases:
        changes, _, reference = _values(ranks, number_of_case)
        if reference is not None and len(changes):
            gains = _gains(changes, ranks.findings.samples.cases[number_of_case].better)
            ends = [min(ends[0], float(gains.min())), max(ends[1], float(gains.max()))]
            widest = max(widest, _limit(reference))
    least, most = max(1.5 * widest, _LEAST_REACH), max(_MOST_LIMITS * widest, _LEAST_REACH)
    low, high = (min(max(1.05 * abs(end), least), most) for end in ends)
    return -low, high


def _limit_text(reference: Reference, better: str) -> str:
    """Return the limits of a reference on the sides that are worse, behind a comma; "" if it has none."""
    ends = {"higher": (reference.minimum,), "lower": (reference.maximum,)}
    limits = ends.get(better, (reference.minimum, reference.maximum))
    text = " to ".join(number(end) for end in limits if end is not None)
    return f", limit {text}" if text else ""


def _limit(reference: Reference) -> float:
    return max(abs(reference.lower or 0.0), abs(reference.upper or 0.0))


def _histogram(
    changes: Floats, limit: float, better: str, reach: tuple[float, float], *, name: str, texts: Sequence[str]
) -> Markup:
    """Return a histogram of the hosts between the ends *reach*; a marker stands above those beyond the *limit*."""
    low, high = reach
    gains = np.clip(_gains(changes, better), low, high)
    counts, edges = np.histogram(gains, bins=_BINS, range=reach)
    across = Scale(low, high, steps(low, high, 6))
    upward = zero_based_scale(1.15 * float(counts.max()), 3)
    length, floor = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BELOW
    canvas = Canvas(_WIDTH, _HEIGHT, name)
    small = partial(canvas.text, fill=MUTED, size=_SMALL)

    def x(gain: float) -> float:
        return _LEFT + length * across.share(gain)

    def y(hosts: float) -> float:
        return floor - (floor - _ABOVE) * upward.share(hosts)

    for value, label in upward.ticks:
        if value.is_integer():
            canvas.line([(_LEFT, y(value)), (_WIDTH - _RIGHT, y(value))], GRID)
            small((_LEFT - 5, y(value) + 4), label, "end")
    small((0, 11), "hosts")
    sign = -1 if better == "lower" else 1
    for value, _ in across.ticks:
        small((x(value), _HEIGHT - 4), f"{100 * sign * value:+.3g} %" if value else "0", "middle")
    for i in np.flatnonzero(counts).tolist():
        middle = float(edges[i] + edges[i + 1]) / 2
        is_outside = (abs(middle) if better == "neither" else -middle) > limit
        ends = sorted((100 * sign * float(edges[i]), 100 * sign * float(edges[i + 1])))
        tip = f"{count(int(counts[i]), 'host')}, {ends[0]:+.1f} to {ends[1]:+.1f} %"
        height = max(floor - y(float(counts[i])), _LEAST_HEIGHT)
        colour, kind = (WARN, "out") if is_outside else (SERIES[0], "in")
        corner = (x(float(edges[i])), floor - height)
        canvas.rectangle(corner, (length / _BINS - 1, height), colour, class_=kind, tip=tip)
        if is_outside:
            canvas.marker("down", (x(middle), floor - height - 6), 4, colour, tip=tip)
    canvas.line([(_LEFT, floor), (_WIDTH - _RIGHT, floor)], MUTED)
    canvas.line([(x(0), _ABOVE), (x(0), floor)], MUTED)
    for at in (-limit, limit) if better == "neither" else (-limit,):
        canvas.line([(x(at), _ABOVE), (x(at), floor)], WARN, stroke_dasharray="4 3")
    return canvas.panel(texts[0], " ".join(texts[1:]), "spread").svg
