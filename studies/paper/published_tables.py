# SPDX-License-Identifier: Apache-2.0
"""The published tables of studies: rows of cells, and tables in the layout that a study's file describes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct

import csv_rows
from firsttouch.errors import BadInput
from firsttouch.records.cases import by_key
from firsttouch.report.document import Cell, Entry, Table
from firsttouch.scenarios.placement import parse_name
from study_files import Layout, Sheet, Study
from study_files import Table as Planned

# ----------------------------------------------------------------------
# Rows

#: A row: its cells by column, and its ``label``, which names its place in a paper.
Row = dict[str, Any]


class Sheets(Struct, frozen=True):
    """The rows of each sheet of some studies by its name, and what the studies say of the sheets (*specs*)."""

    rows: Mapping[str, Sequence[Row]]
    specs: Mapping[str, Sheet]

    def __getitem__(self, name: str) -> Sequence[Row]:
        return self.rows[name]

    def __contains__(self, name: str) -> bool:
        return name in self.rows


def read(folder: Path, having: Sequence[Study]) -> Sheets:
    """Return the sheets of the studies, whose files are in *folder* or beside the file of a study.

    Raises BadInput with file, line and reason.
    """
    rows = {}
    for study in having:
        for name, sheet in study.sheets.items():
            file, beside = folder / sheet.file, study.file.parent / sheet.file
            rows[name] = list(_rows(beside if beside.exists() and not file.exists() else file, sheet, study))
    return Sheets(rows, {name: sheet for study in having for name, sheet in study.sheets.items()})


def _rows(file: Path, sheet: Sheet, study: Study) -> Iterable[Row]:
    wanted = (*sheet.text, *sheet.numbers)
    have, rows = csv_rows.read(file)
    if lacking := [c for c in wanted if c not in have]:
        raise BadInput(f"no column {', '.join(lacking)}: needed are {', '.join(wanted)}", file=file, line=1)
    seen: dict[str, int] = {}
    for row in rows:
        cells: dict[str, Any] = {c: row.cells[c] for c in sheet.text} | {c: _number(row, c) for c in sheet.numbers}
        if {"instances", "threads_per_instance", "policy"} <= cells.keys():
            cells |= _of_scenario(cells, study)
        label = sheet.label.format_map(cells)
        if label in seen:
            raise BadInput(f"{label}: line {seen[label]} has it already", file=file, line=row.line)
        seen[label] = row.line
        yield {**cells, "label": label}
    if not seen:
        raise BadInput("no rows below the first line", file=file, line=1)


def papers_name(instances: int, policy: str) -> str:
    """Return the name of a scenario as the thesis writes it: 8Inst_Original."""
    return f"{instances}Inst_{policy.capitalize()}"


def _of_scenario(cells: Row, study: Study) -> Row:
    """Return the columns that follow from instances, threads per instance and policy."""
    instances, each, policy = (cells[c] for c in ("instances", "threads_per_instance", "policy"))
    scenario = papers_name(instances, policy)
    name = parse_name(f"{instances}x{each}-{policy}")
    configuration = next((c.name for c in study.configurations.values() if name and c.has(name, instances)), "")
    shape = f"{scenario} ({instances} x {each})"
    return {"scenario": scenario, "threads": instances * each, "shape": shape, "configuration": configuration}


def _number(row: csv_rows.Row, column: str) -> float:
    """Return a cell as a number, an integer if it is whole; raises BadInput if it is empty."""
    value = row.number(column)
    if value is None:
        raise BadInput(f"column {column} is empty", file=row.file, line=row.line)
    return int(value) if value.is_integer() else value


def matches(row: Row, wanted: Mapping[str, Any]) -> bool:
    """Return whether each column has its wanted value, one of a list, or not the value of ``{"not": ...}``."""
    return all(_matches(row, column, value) for column, value in wanted.items())


def _matches(row: Row, column: str, value: Any) -> bool:
    if column not in row:
        raise BadInput(f"there is no column '{column}': there are {', '.join(row)}")
    if isinstance(value, Mapping):
        return not _matches(row, column, value["not"])
    return row[column] in (value if isinstance(value, list) else [value])


def groups(rows: Iterable[Row], columns: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Return *rows* by their cells in *columns*, in the order of first appearance."""
    return by_key(rows, lambda row: tuple(row[c] for c in columns))


# ----------------------------------------------------------------------
# Tables

#: The marks replace the colours of the publications.
MARKED = " ((1) and (2): highest and second highest of the aligner)"


def caption(described: Planned) -> str:
    """Return the caption of a table, with its number and that in the thesis."""
    thesis = f" (thesis: {described.thesis})" if described.thesis else ""
    return f"Table {described.number}{thesis}. {described.title}" if described.number else described.title


def marked(form: Callable[[float], str], place: int | None) -> Callable[[float], str]:
    """Return the format of a number with its *place* behind it, if it has one."""
    return form if place is None else lambda value: f"{form(value)} ({place})"


def places(rivals: Sequence[tuple[Key, float]]) -> dict[Key, int]:
    """Return the place, 1 or 2, of the highest two values; equal values share a place, and one has no rival."""
    ranks = {key: 1 + sum(other > value for _, other in rivals) for key, value in rivals}
    return {key: rank for key, rank in ranks.items() if rank <= 2 and len(rivals) > 1}


def tables(study: Study, described: Planned, sheets: Sheets) -> Iterable[Table]:
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
    places_of = _places_of(study, layout, rows)
    cells: dict[tuple[Key, Key], Sequence[Cell]] = {}
    for row in rows:
        place = places_of.get(row["label"])
        values = [
            Cell(
                row[v.column], marked(partial(printed, form=v.format), place if v.column == layout.best else None)
            )
            for v in layout.cells
        ]
        above = tuple(heading(study, column, row[column]) for column in layout.columns)
        cells[_names(layout, row), above] = values
    return pivot(
        title,
        corner=tuple(layout.rows),
        rows=_row_order(described, layout, rows),
        columns=_in_order([above for _, above in cells]),
        cells=cells,
        heads=tuple(cell.head for cell in layout.cells),
    )


#: The name of a row (threads, or scenario and threads) or of a column (its headings, outermost first).
Key = tuple[str, ...]


def pivot(
    caption: str,
    *,
    corner: Key,
    rows: Sequence[Key],
    columns: Sequence[Key],
    cells: Mapping[tuple[Key, Key], Sequence[Entry]],
    heads: Key,
) -> Table:
    """Return the table of *cells* by (row, column); each has an entry for each of *heads*, or is missing.

    *corner* heads the columns of the row's key. *columns* with the same first headings must be adjacent.
    """
    depth = len(columns[0]) if columns else 0
    groups = []
    for level in range(depth):
        spans = [("", len(corner))]
        for path, members in groupby(columns, key=lambda c: c[: level + 1]):
            spans.append((path[-1], len(list(members)) * len(heads)))
        groups.append(tuple(spans))
    none = ("",) * len(heads)
    body = [(*row, *(entry for c in columns for entry in cells.get((row, c), none))) for row in rows]
    return Table(caption, (*corner, *heads * len(columns)), body, tuple(groups))


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


def _places_of(study: Study, layout: Layout, rows: Sequence[Row]) -> Mapping[str, int]:
    """Return the place of each row, by its label, that is the best or the second of its aligner in a column."""
    if not layout.best:
        return {}
    families = study.families
    beside = {f.published: families[f.beside].published for f in families.values() if f.beside}

    def rival(row: Row) -> Key:
        aligner = str(beside.get(row["aligner"], row["aligner"]))
        return (aligner, *(str(row[column]) for column in layout.columns))

    values = [[((row["label"],), row[layout.best]) for row in rivals] for rivals in by_key(rows, rival).values()]
    return {label: place for of_rivals in values for (label,), place in places(of_rivals).items()}


def rows_of(described: Planned, sheets: Sheets) -> list[Row]:
    """Return the published rows of a table."""
    return [row for row in sheets[described.sheet] if matches(row, described.select)]


def heading(study: Study, column: str, value: object) -> str:
    """Return the heading of a value of a column: the title that the study gives it, or its text."""
    if column == "system" and value in study.systems:
        return study.systems[str(value)][0]
    text = str(value)
    return text[:1].upper() + text[1:]


def printed(value: float, form: str = "") -> str:
    """Return a number in the format *form*, else as the tables print it: with at least two decimals."""
    if form:
        return format(int(value) if form.endswith("d") else value, form)
    text = f"{value:.6f}".rstrip("0")
    return text if len(text.partition(".")[2]) > 2 else f"{value:.2f}"
