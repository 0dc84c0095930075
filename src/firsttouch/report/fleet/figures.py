# SPDX-License-Identifier: Apache-2.0
"""The heat map of a fleet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

import numpy as np

from firsttouch.host.host_lists import natural
from firsttouch.judge.constants import FEWEST_HOSTS
from firsttouch.judge.verdict import ORDER
from firsttouch.records import catalogue
from firsttouch.report.document import (
    Block,
    Cell,
    Fold,
    Listing,
    Span,
    Table,
    how_to_read,
    not_shown,
    word_span,
)
from firsttouch.report.fleet.ranks import Ranks
from firsttouch.report.text import NOT_MEASURED, SIGNS, count
from firsttouch.systems.definition import Undescribed
from firsttouch.systems.references import Reference
from firsttouch.units import number, quantity, signed_percent

# ----------------------------------------------------------------------
# Heat map of hosts by metrics; only the worst hosts and metrics have rows and columns.

#: The most rows (hosts) and columns (metrics).
MOST_HOSTS, MOST_METRICS = 60, 30
#: The number of passing hosts that are shown for comparison, if not all hosts have a row.
_PASSING = 8
#: The most columns with larger letters.
_FEW = 15
#: Relative differences at which a cell's colour changes.
STEPS = (0.01, 0.025, 0.05, 0.1, 0.2)


#: Sign in a cell -> its meaning. A pass has no sign, so that the others stand out.
MARKS = {sign: word for word, sign in SIGNS.items() if word != "pass"} | {NOT_MEASURED: "not measured"}


def heat(ranks: Ranks, detailed: Collection[str] | None = None) -> list[Block]:
    """Return the map of a fleet with its key, or the reason for its absence.

    Columns are in the order of their checks. Hosts link to their places in a page; *detailed* are those with a
    line of their own. Without *detailed*, there are no links.
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
    better = [samples.cases[c].better for c in cases]
    column = {c: i for i, c in enumerate(cases)}
    map_rows: list[Sequence[Cell]] = []
    for host in hosts:
        cells = [_empty(NOT_MEASURED)] * len(cases)
        rows = findings.groups(host)
        differences = ranks.from_reference(rows).tolist()
        for place, group in enumerate(rows.tolist()):
            case = int(samples.case[group])
            if case not in column:
                continue
            word = ORDER[findings.words[group]]
            # A cell and its tooltip use the same expected value: the column's, or the one that decided.
            change = differences[place] if word == "pass" else float(findings.change[group])
            sign = "" if word == "pass" else SIGNS[word]
            cells[column[case]] = _cell(change, better[column[case]], sign, _tip(ranks, host, group))
        word = ORDER[ranks.words[host]]
        name = Cell(host, tone=f"word-{word}", sign=SIGNS[word])
        if detailed is not None:
            key = ranks.host_keys[host]
            name = name._replace(link=f"#{key}", key="" if host in detailed else key)
        map_rows.append([name, *cells])
    of_checks = [(check, len(list(columns))) for check, columns in groupby(samples.cases[c].check for c in cases)]
    catalogued = catalogue.checks()
    headings = [(catalogued[c].title if c in catalogued else c, columns) for c, columns in of_checks]
    names = [samples.cases[c].title for c in cases]
    table = Table(
        "Difference from the expected value, %",
        ["host", *(Cell(n, tip=name) for n, name in enumerate(names, start=1))],
        map_rows,
        [[("", 1), *headings]],
        "heat few" if len(names) <= _FEW else "heat",
    )
    return [
        table,
        Listing(names, "key", numbered=True),
        _explained(len(samples.hosts) - len(hosts), len(ranks.cases) - len(cases)),
    ]


def _explained(hosts: int, metrics: int) -> Fold:
    """Return how to read the map; *hosts* and *metrics* are the numbers of those that it omits."""
    marks: list[str] = []
    for word in (*(w for w in SIGNS if w != "pass"), "not measured"):
        mark = word_span(word) if word in SIGNS else Span(word, sign=NOT_MEASURED)
        marks += [", " if marks else "", mark]
    left_out = [count(number, what) for number, what in ((hosts, "host"), (metrics, "metric")) if number]
    rest = (
        " The map has the worst hosts and the metrics with the worst hosts; findings.parquet has "
        f"{' and '.join(left_out)} more."
    )
    return how_to_read(
        [
            "A row is a host, a column a metric (see the key below; a cell's tooltip has its values). A cell is "
            "the difference from the expected value in percent. Red is worse, blue is better, and a stronger "
            f"colour is more (from {100 * STEPS[0]:g} % on). ",
            *marks,
            f".{rest if left_out else ''}",
        ]
    )


def _empty(sign: str = "") -> Cell:
    return Cell(sign=sign, meaning=MARKS[sign]) if sign else Cell()


def _tip(ranks: Ranks, host: str, group: int) -> str:
    """Return the tooltip of a cell; the header of its column names the metric.

    The reference is the column's, or the one by which this host does not pass.
    """
    findings = ranks.findings
    number_of_case = int(findings.samples.case[group])
    case = findings.samples.cases[number_of_case]
    # Nothing judged a metric whose decider is NONE, the last one.
    deciders = (*findings.references[number_of_case], None)
    reference = deciders[findings.by[group]] if findings.words[group] else ranks.reference(number_of_case)
    if reference is None or not np.isfinite(findings.change[group]):
        return host
    value = quantity(float(findings.value[group]), case.unit)
    expected = f"expected {number(reference.value)}{_limit_text(reference, case.better)}"
    return f"{host}: {value}, {expected}, n {findings.n[group]}"


def _columns(ranks: Ranks, hosts: Sequence[str]) -> list[int]:
    """Return the cases with a column: one or more reasons per host, then the cases with the worst hosts.

    They are in the order of their checks, so that faults of one kind form a block of the map.
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


def _limit_text(reference: Reference, better: str) -> str:
    """Return the limits of a reference on the worse sides, after a comma; "" if it has none."""
    ends = {"higher": (reference.minimum,), "lower": (reference.maximum,)}
    limits = ends.get(better, (reference.minimum, reference.maximum))
    text = " to ".join(number(end) for end in limits if end is not None)
    return f", limit {text}" if text else ""
