# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth by page size, whether prefetchers work, and the huge pages that banks could give."""

from __future__ import annotations

from collections.abc import Sequence

from firsttouch.records.schema import Record
from firsttouch.report.aspect import measured, value_table
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, Figure, HostView, Table, banks
from firsttouch.report.text import clean, nodes, percent, quantity, times

CHECK = "pages"
LATENCY, PREFETCH, FREE = "random_latency", "prefetch_ratio", "huge_pages_free"
_TITLE = "Latency and bandwidth by page size"
_HOW = (
    "Base pages, transparent huge pages (thp) and reserved ones (huge) side by side. Random accesses gain from "
    "huge pages, because the processor finds the address of a page in its table buffers; copies gain less."
)
#: In the order of the bars.
_PAGES = ("base", "thp", "huge")
#: A ratio of random to sequential latency below this means that prefetchers are off or limited.
_PREFETCHES = 1.5


def figures(view: HostView) -> list[Figure | Absent]:
    """Return the figure of the page sizes, or why there is none."""
    sized = [r for r in view.of(CHECK) if r.parameters.get("pages") in _PAGES and r.metric not in {PREFETCH, FREE}]
    if not sized:
        return [Absent(_TITLE, view.why_absent(CHECK))]
    by_metric: dict[str, list[Record]] = {}
    for record in sorted(sized, key=_order):
        by_metric.setdefault(record.metric, []).append(record)
    states = [r for r in view.of(CHECK) if r.metric in {PREFETCH, FREE}]
    name = f"{view.key}-pages"
    shows = [*_gains(by_metric.get(LATENCY, [])), *map(_state, states)]
    shows = shows or ["Only one page size was measured."]
    return [
        Figure(
            name=name,
            title=_TITLE,
            how=_HOW,
            shows=tuple(shows),
            measured=measured(sized),
            panels=tuple(
                drawing.draw_records(
                    records,
                    label=lambda r: f"NUMA node {_bank(r)}",
                    kind="pages",
                    kinds=_PAGES,
                    name=f"{name}-{i}",
                    title=f"{_TITLE}: {metric.replace('_', ' ')}",
                    heading=metric.replace("_", " "),
                    description=" ".join(shows),
                )
                for i, (metric, records) in enumerate(by_metric.items(), start=1)
            ),
            tables=(
                *(
                    value_table(
                        f"{metric.replace('_', ' ')} ({records[0].unit})",
                        ("bank", "pages"),
                        [((_bank(r), str(r.parameters["pages"])), r) for r in records],
                    )
                    for metric, records in by_metric.items()
                ),
                *([_states(states)] if states else []),
            ),
        )
    ]


def _order(record: Record) -> tuple[str, tuple[int, ...], int]:
    # Latency first.
    return (
        record.metric if record.metric != LATENCY else "",
        banks(record),
        _PAGES.index(record.parameters["pages"]),
    )


def _bank(record: Record) -> str:
    return ",".join(map(str, banks(record)))


def _gains(latencies: Sequence[Record]) -> list[str]:
    """Return what each bank gains by huge pages at random accesses."""
    texts = []
    by_bank: dict[tuple[int, ...], dict[str, Record]] = {}
    for record in latencies:
        by_bank.setdefault(banks(record), {})[str(record.parameters["pages"])] = record
    for bank, of in by_bank.items():
        base = of.pop("base", None)
        if base is None:
            continue
        text = f"{nodes(bank)}: {quantity(base.value, base.unit)} with base pages"
        text += "".join(
            f", {quantity(r.value, r.unit)} with {pages} ({percent(1 - r.value / base.value)} less)"
            for pages, r in of.items()
            if base.value > 0
        )
        texts.append(f"{text}.")
    return texts


def _state(record: Record) -> str:
    where = nodes(banks(record)) if banks(record) else "All banks"
    if record.metric == FREE:
        return f"{where}: {quantity(record.value, record.unit)} could be had as huge pages."
    verdict = "prefetchers work" if record.value >= _PREFETCHES else "prefetchers seem to be off or limited"
    return f"{where}: sequential loads are {times(record.value)} as fast as random ones, so {verdict}."


def _states(states: Sequence[Record]) -> Table:
    rows = [((_bank(r), r.metric.replace("_", " "), clean(r.unit)), r) for r in states]
    return value_table("Prefetchers and free huge pages", ("bank", "metric", "unit"), rows)
