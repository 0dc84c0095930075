# SPDX-License-Identifier: Apache-2.0
"""The tables of the papers in their layout, as the files of the studies describe them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from firsttouch.benchmarks.studies import Layout, Study
from firsttouch.benchmarks.studies import Table as Planned
from firsttouch.report.model import Table
from firsttouch.report.paper import claims
from firsttouch.report.paper.sheets import Row, Sheets, groups, matches
from firsttouch.report.speedups import Key, pivot

#: The marks replace the colours of the papers.
MARKED = " ((1) and (2): highest and second highest of the aligner)"


def tables(study: Study, sheets: Sheets) -> list[tuple[Table, Planned]]:
    """Return the published tables of a study in the order of its file, each with its description."""
    built: list[tuple[Table, Planned]] = []
    for described in study.tables.values():
        if described.planned:
            built.append((_scenarios(study, described, sheets), described))
        elif described.sheet:
            built += [(table, described) for table in published(study, described, sheets)]
    return built


def rows_of(described: Planned, sheets: Sheets) -> list[Row]:
    """Return the published rows of a table."""
    return [row for row in sheets[described.sheet] if matches(row, described.select)]


def caption(described: Planned) -> str:
    """Return the caption of a table, with its number and that in the thesis."""
    thesis = f" (thesis: {described.thesis})" if described.thesis else ""
    return f"Table {described.number}{thesis}. {described.title}" if described.number else described.title


def heading(study: Study, column: str, value: object) -> str:
    """Return the heading of a value of a column: the title that the study gives it, or its text."""
    if column == "system" and value in study.systems:
        return study.systems[str(value)][0]
    text = str(value)
    return text[:1].upper() + text[1:]


def places(rivals: Sequence[tuple[Key, float]]) -> dict[Key, int]:
    """Return the place, 1 or 2, of the highest two values; equal values share a place, and one has no rival."""
    ranks = {key: 1 + sum(other > value for _, other in rivals) for key, value in rivals}
    return {key: rank for key, rank in ranks.items() if rank <= 2 and len(rivals) > 1}


def printed(value: float, form: str = "") -> str:
    """Return a number in the format *form*, else as the tables print it: with at least two decimals."""
    if form:
        return format(int(value) if form.endswith("d") else value, form)
    text = f"{value:.6f}".rstrip("0")
    return text if len(text.partition(".")[2]) > 2 else f"{value:.2f}"


# ----------------------------------------------------------------------
# Published values


def published(study: Study, described: Planned, sheets: Sheets) -> Iterable[Table]:
    """Yield a table with its published values, one for each value of the column *each* of its layout."""
    layout = study.layouts[described.layout]
    rows = rows_of(described, sheets)
    title = caption(described) + (MARKED if layout.best else "")
    if not layout.each:
        yield _table(study, described, layout, rows, title)
        return
    for (value,), selected in groups(rows, (layout.each,)).items():
        yield _table(study, described, layout, selected, f"{title}: {heading(study, layout.each, value)}")


def _table(study: Study, described: Planned, layout: Layout, rows: Sequence[Row], title: str) -> Table:
    marks = _marks(study, layout, rows)
    cells = {}
    for row in rows:
        texts = [
            printed(row[column], form) + (marks.get(row["label"], "") if column == layout.best else "")
            for _, column, form in layout.cells
        ]
        above = tuple(heading(study, column, row[column]) for column in layout.columns)
        cells[_names(layout, row), above] = tuple(texts)
    return pivot(
        title,
        corner=tuple(layout.rows),
        rows=_row_order(described, layout, rows),
        columns=_in_order([above for _, above in cells]),
        cells=cells,
        heads=tuple(head for head, _, _ in layout.cells),
    )


def _names(layout: Layout, row: Row) -> Key:
    return tuple(str(row[column]) for column in layout.rows.values())


def _row_order(described: Planned, layout: Layout, rows: Sequence[Row]) -> list[Key]:
    """Return the rows in the order of their first appearance, of one aligner in that of its configurations."""
    ordered = list(dict.fromkeys(_names(layout, row) for row in rows))
    if "configuration" in layout.rows.values() and len({row["aligner"] for row in rows}) == 1:
        of_row = {_names(layout, row): row["configuration"] for row in rows}
        listed = {name: place for place, name in enumerate(described.configurations)}
        ordered.sort(key=lambda key: listed.get(of_row[key], len(listed)))
    return ordered


def _in_order(columns: Sequence[Key]) -> list[Key]:
    """Return the columns so that those with the same first headings are adjacent."""
    unique = list(dict.fromkeys(columns))
    first = [list(dict.fromkeys(key[level] for key in unique)) for level in range(len(unique[0]))]
    return sorted(unique, key=lambda key: [first[level].index(part) for level, part in enumerate(key)])


def _marks(study: Study, layout: Layout, rows: Sequence[Row]) -> Mapping[str, str]:
    """Return the mark of each row, by its label, that is the best or the second of its aligner in a column."""
    if not layout.best:
        return {}
    families = study.families
    beside = {f.published: families[f.beside].published for f in families.values() if f.beside}
    rivals: dict[Key, list[tuple[Key, float]]] = {}
    for row in rows:
        aligner = str(beside.get(row["aligner"], row["aligner"]))
        key = (aligner, *(str(row[column]) for column in layout.columns))
        rivals.setdefault(key, []).append(((row["label"],), row[layout.best]))
    return {label: f" ({place})" for values in rivals.values() for (label,), place in places(values).items()}


# ----------------------------------------------------------------------
# Which scenarios fit the systems (table 2 of Lenis and Senar 2017)


def _scenarios(study: Study, described: Planned, sheets: Sheets) -> Table:
    """Return the scenarios of several instances as planned: which fit into memory, and which were run."""
    runs = rows_of(described, sheets)
    ran = {(r["aligner"], r["scenario"]): r["table"] for r in runs}
    policies = list(dict.fromkeys(r["policy"] for r in runs))
    most = claims.most_run(runs)
    rows: list[tuple[str, ...]] = []
    for family in study.families.values():
        index = claims.index_of(family.published, sheets[described.planned])
        fits_of = {s: {f.name: f for f in claims.whole_host(index, s)} for s in study.systems}
        first = next(iter(fits_of.values()))
        for policy in map(str.capitalize, policies):
            for scenario in first.values():
                if not scenario.name.endswith(policy) or not 1 < scenario.instances <= most:
                    continue
                shape = f"{scenario.instances} x {scenario.threads}t"
                table = ran.get((family.published, scenario.name), "no")
                fits = [f.reason or "fits" for s in study.systems if (f := fits_of[s].get(scenario.name))]
                rows.append((family.name, shape, policy, scenario.name, table, *fits))
    memory = (f"{title} memory" for title, _ in study.systems.values())
    return Table(caption(described), ("Aligner", "#Inst x Threads", "Policy", "Name", "In table", *memory), rows)
