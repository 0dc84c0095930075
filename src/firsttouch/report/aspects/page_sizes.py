# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth by page size, whether prefetchers work, and the huge pages that banks could give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firsttouch.records.cases import grouped
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Result, bank_text, metric_title, value, value_table
from firsttouch.report.model import Absent, HostView, banks
from firsttouch.report.text import clean, nodes, times
from firsttouch.units import percent

CHECK = "pages"
LATENCY, PREFETCH, FREE = "random_latency", "prefetch_ratio", "huge_pages_free"
_TITLE = "Latency and bandwidth by page size"
_HOW = (
    "Base pages, transparent huge pages (thp) and reserved ones (huge) side by side. Random accesses gain from "
    "huge pages, because the processor finds the address of a page in its table buffers; copies gain less."
)
#: In the order of the tables.
_PAGES = ("base", "thp", "huge")
#: A ratio of random to sequential latency below this means that prefetchers are off or limited.
_PREFETCHES = 1.5


def aspect(view: HostView) -> Aspect:
    """Return the latency with base pages beside that with other pages, and the tables of all page sizes."""
    states = [r for r in view.of(CHECK) if r.metric in {PREFETCH, FREE}]
    sized = [r for r in view.of(CHECK) if r.parameters.get("pages") in _PAGES and r.metric not in {PREFETCH, FREE}]
    if not sized:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    by_metric = {
        metric.replace("_", " "): records
        for metric, records in grouped(sorted(sized, key=_order), lambda r: r.metric).items()
    }
    by_bank = [
        {str(r.parameters["pages"]): r for r in records}
        for records in grouped(by_metric.get("random latency", []), banks).values()
    ]
    shows = [*filter(None, map(_gain, by_bank)), *map(_state, states)]
    tables = []
    for metric, records in by_metric.items():
        cells = [((bank_text(r), r.parameters["pages"]), r) for r in records]
        tables.append(value_table(f"{_TITLE}: {metric} ({records[0].unit})", ("bank", "pages"), cells))
    if states:
        rows = [((bank_text(r), r.metric.replace("_", " "), clean(r.unit)), r) for r in states]
        tables.append(value_table("Prefetchers and free huge pages", ("bank", "metric", "unit"), rows))
    compared = [latencies for latencies in by_bank if "base" in latencies]
    results = [_result(compared[0], states, len(compared))] if compared else []
    return Aspect(results, tables=tables, note=" ".join([*shows, _HOW]))


def _order(record: Record) -> tuple[bool, str, tuple[int, ...], int]:
    return (record.metric != LATENCY, record.metric, banks(record), _PAGES.index(record.parameters["pages"]))


def _others(latencies: Mapping[str, Record]) -> dict[str, Record]:
    return {pages: record for pages, record in latencies.items() if pages != "base"}


def _result(latencies: Mapping[str, Record], states: Sequence[Record], of: int) -> Result:
    """Return the latency of the first *of* banks with base pages beside that with others, and its *states*."""
    base = latencies["base"]
    compared = [f"{pages} {value(r)}" for pages, r in _others(latencies).items()]
    of_bank = {r.metric: r for r in states if banks(r) == banks(base)}
    if ratio := of_bank.get(PREFETCH):
        compared.append(f"sequential {times(ratio.value)} as fast")
    if free := of_bank.get(FREE):
        compared.append(f"{value(free)} free in huge pages")
    if of > 1:
        compared.append(f"the first of {of} banks")
    return Result(f"{metric_title(base)}, bank {bank_text(base)}, base pages", base, "; ".join(compared))


def _gain(latencies: Mapping[str, Record]) -> str:
    """Return what a bank gains by huge pages at random accesses, nothing if base pages were not measured."""
    base = latencies.get("base")
    if base is None:
        return ""
    text = f"{nodes(banks(base))}: {value(base)} with base pages"
    if base.value > 0:
        for pages, record in _others(latencies).items():
            text += f", {value(record)} with {pages} ({percent(1 - record.value / base.value)} less)"
    return f"{text}."


def _state(record: Record) -> str:
    where = nodes(banks(record)) if banks(record) else "All banks"
    if record.metric == FREE:
        return f"{where}: {value(record)} could be had as huge pages."
    verdict = "prefetchers work" if record.value >= _PREFETCHES else "prefetchers seem to be off or limited"
    return f"{where}: sequential loads are {times(record.value)} as fast as random ones, so {verdict}."
