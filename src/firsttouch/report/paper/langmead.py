# SPDX-License-Identifier: Apache-2.0
"""Tables 2 to 4 and S2 of the thread-scaling article and its supplement, in their layout."""

from __future__ import annotations

from collections.abc import Sequence

from firsttouch.report.model import Table
from firsttouch.report.paper.sheets import MACHINES, READS, Row, Sheets
from firsttouch.report.speedups import Key, pivot

#: Table -> its title.
TITLES = {
    "T2": "Table 2. Peak throughputs for four lock types and the multiprocessing baseline",
    "T3": "Table 3. Peak throughputs for three parsing strategies and the multiprocessing baseline",
    "T4": "Table 4. Peak throughputs for B-parsing, L-parsing (1 and 16 outputs), the MP baseline and BWA-MEM",
}
_S2 = "Table S2. Peak throughputs for all experimental series, and minutes for a 40x human genome"
#: The marks replace the colours of the papers.
_MARKED = " ((1) and (2): highest and second highest of the aligner)"


def tables(sheets: Sheets) -> list[Table]:
    """Return tables 2, 3, 4 and S2; a cell has the threads at the peak and thousands of reads per second."""
    peaks = [
        _table(caption, [r for r in sheets["main_peaks"] if r.text("table") == table], ("Th", "Krd/s"))
        for table, caption in TITLES.items()
    ]
    return [*peaks, _table(_S2, sheets["peaks"], ("Th", "Krd/s", "Whole human (min)"))]


def _table(caption: str, rows: Sequence[Row], heads: Key) -> Table:
    places = _places(rows)
    cells: dict[tuple[Key, Key], tuple[str, ...]] = {}
    for row in rows:
        mark = f" ({place})" if (place := places[row.label]) else ""
        texts = [row.text("threads_at_peak"), f"{row.number('peak_kreads_per_s') or 0.0:,.2f}{mark}"]
        if len(heads) > len(texts):
            texts.append(f"{row.number('whole_human_40x_min') or 0.0:,.2f}")
        cells[_name(row), (MACHINES[row.text("system")], row.text("reads").capitalize())] = tuple(texts)
    return pivot(
        caption + _MARKED,
        corner=("Aligner", "Configuration"),
        rows=list(dict.fromkeys(map(_name, rows))),
        columns=[(machine, reads.capitalize()) for machine in MACHINES.values() for reads in READS],
        cells=cells,
        heads=heads,
    )


def _name(row: Row) -> Key:
    return row.text("aligner"), row.text("configuration")


def _places(rows: Sequence[Row]) -> dict[str, int]:
    """Return 1 for the highest peak of an aligner, system and kind of reads, 2 for the next, 0 for others."""
    places: dict[str, int] = {}
    for row in rows:
        rivals = [
            r.number("peak_kreads_per_s") or 0.0
            for r in rows
            if all(r.text(c) == row.text(c) for c in ("aligner", "system", "reads"))
        ]
        place = 1 + sum(value > (row.number("peak_kreads_per_s") or 0.0) for value in rivals)
        places[row.label] = place if place <= 2 and len(rivals) > 1 else 0
    return places
