# SPDX-License-Identifier: Apache-2.0
"""Copy and triad by instruction set, with regular and with streaming stores."""

from __future__ import annotations

from collections.abc import Sequence

from firsttouch.records.schema import Record
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, Figure, HostView
from firsttouch.report.tables import measured, value_table
from firsttouch.report.text import clean, quantity, times

CHECK = "stores"
_TITLE = "Bandwidth by instruction set and kind of stores"
_HOW = (
    "A streaming store does not read the line that it writes, so less is moved for the same bytes. The longest "
    "bar is what a program should use; bars that overlap are alike."
)
#: In the order of the bars.
_INSTRUCTIONS = ("plain", "sse2", "avx2", "avx512", "neon", "sve")
_STORES = ("regular", "streaming")


def figures(view: HostView) -> list[Figure | Absent]:
    """Return the figure of the stores, or why there is none."""
    records = [
        r
        for r in view.of(CHECK)
        if r.parameters.get("instructions") in _INSTRUCTIONS and r.parameters.get("stores") in _STORES
    ]
    if not records:
        return [Absent(_TITLE, view.why_absent(CHECK))]
    by_metric: dict[str, list[Record]] = {}
    for record in sorted(records, key=_order):
        by_metric.setdefault(record.metric, []).append(record)
    name = f"{view.key}-stores"
    shows = [_shows(metric, some) for metric, some in by_metric.items()]
    return [
        Figure(
            name=name,
            title=_TITLE,
            how=_HOW,
            shows=tuple(shows),
            measured=measured(records, "the bars show all of them"),
            panels=tuple(
                drawing.draw_records(
                    some,
                    label=lambda r: clean(str(r.parameters["instructions"])),
                    kind="stores",
                    kinds=_STORES,
                    what=metric.removesuffix("_bandwidth"),
                    name=f"{name}-{i}",
                    title=_TITLE,
                    description=" ".join(shows),
                )
                for i, (metric, some) in enumerate(by_metric.items(), start=1)
            ),
            tables=tuple(
                value_table(
                    f"{metric.replace('_', ' ')} ({some[0].unit})",
                    ("instructions", "stores"),
                    [((r.parameters["instructions"], r.parameters["stores"]), r) for r in some],
                )
                for metric, some in by_metric.items()
            ),
        )
    ]


def _order(record: Record) -> tuple[str, int, int]:
    p = record.parameters
    return (record.metric, _INSTRUCTIONS.index(p["instructions"]), _STORES.index(p["stores"]))


def _shows(metric: str, records: Sequence[Record]) -> str:
    fastest = {
        stores: max((r for r in records if r.parameters["stores"] == stores), key=lambda r: r.value, default=None)
        for stores in _STORES
    }
    regular, streaming = fastest["regular"], fastest["streaming"]
    texts = [
        f"fastest {stores} stores {quantity(r.value, r.unit)} ({clean(r.parameters['instructions'])})"
        for stores, r in reversed(fastest.items())
        if r is not None
    ]
    if regular is not None and streaming is not None and regular.value > 0:
        texts.append(f"streaming {times(streaming.value / regular.value)}")
    return f"{metric.removesuffix('_bandwidth').capitalize()}: {', '.join(texts)}."
