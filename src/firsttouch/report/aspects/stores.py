# SPDX-License-Identifier: Apache-2.0
"""Copy and triad by instruction set, with regular and with streaming stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firsttouch.records.cases import grouped
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Result, best, metric_title, value, value_table
from firsttouch.report.model import Absent, HostView
from firsttouch.report.text import times

CHECK = "stores"
_TITLE = "Bandwidth by instruction set and kind of stores"
_HOW = (
    "A streaming store does not read the line that it writes, so less is moved for the same bytes. A program "
    "should use the fastest stores; rates whose repetitions overlap are equal."
)
#: In the order of the tables.
_INSTRUCTIONS = ("plain", "sse2", "avx2", "avx512", "neon", "sve")
_STORES = ("regular", "streaming")


def aspect(view: HostView) -> Aspect:
    """Return the fastest stores and the tables of all."""
    records = [
        r
        for r in view.of(CHECK)
        if r.parameters.get("instructions") in _INSTRUCTIONS and r.parameters.get("stores") in _STORES
    ]
    if not records:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    records.sort(key=lambda r: (_INSTRUCTIONS.index(_instructions(r)), _STORES.index(r.parameters["stores"])))
    by_metric = grouped(sorted(records, key=lambda r: r.metric), lambda r: r.metric)
    tables = [
        value_table(
            f"{_TITLE}: {metric.removesuffix('_bandwidth')} ({of_metric[0].unit})",
            ("instructions", "stores"),
            [((_instructions(r), r.parameters["stores"]), r) for r in of_metric],
        )
        for metric, of_metric in by_metric.items()
    ]
    note = " ".join([*(_sentence(metric, of_metric) for metric, of_metric in by_metric.items()), _HOW])
    return Aspect(list(_results(by_metric.get("copy_bandwidth", []))), tables=tables, note=note)


def _instructions(record: Record) -> str:
    return str(record.parameters["instructions"])


def _fastest(records: Sequence[Record], stores: str) -> Record | None:
    return best(r for r in records if r.parameters["stores"] == stores)


def _results(copies: Sequence[Record]) -> Iterator[Result]:
    if streaming := _fastest(copies, "streaming"):
        compared = f"{_instructions(streaming)} instructions"
        if regular := _fastest(copies, "regular"):
            compared += f"; regular {value(regular)} ({_instructions(regular)})"
        yield Result(f"{metric_title(streaming)}, fastest streaming stores", streaming, compared)


def _sentence(metric: str, records: Sequence[Record]) -> str:
    regular, streaming = (_fastest(records, stores) for stores in _STORES)
    texts = [
        f"fastest {r.parameters['stores']} stores {value(r)} ({_instructions(r)})"
        for r in (streaming, regular)
        if r
    ]
    if regular and streaming and regular.value > 0:
        texts.append(f"streaming {times(streaming.value / regular.value)}")
    return f"{metric.removesuffix('_bandwidth').capitalize()}: {', '.join(texts)}."
