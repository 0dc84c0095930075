# SPDX-License-Identifier: Apache-2.0
"""The example figures of the manual, drawn by the program.

The latency was measured on a small virtual machine (docs/examples). Thread scaling and
scenarios are published times of BWA-MEM on the AMD system of the thesis. The bandwidth matrix shows the three
rates that the thesis gives for that system (section 3.4), one for each distance. The other figures are of a
simulated host, as in their tests.
"""

from __future__ import annotations

import csv
import functools
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import escape

from firsttouch import paths
from firsttouch.benchmarks import cases
from firsttouch.host import topology
from firsttouch.records import schema
from firsttouch.records.schema import Record
from firsttouch.report import aspects, guidelines, model, render
from firsttouch.report.document import Figure
from firsttouch.systems import definition

_HERE = Path(__file__).resolve().parent.parent
#: The thesis's rates (GB/s) by the firmware's distance: local, one hop, farthest (section 3.4).
_RATES = {10: 11.0, 16: 5.7, 22: 11.0 / 5.25}
_SYSTEM = "amd-opteron"
_STUDY = (_SYSTEM, "bwa-mem", "NA12878")


@dataclass(frozen=True)
class _Source:
    """The data of a figure. *caption* replaces the figure's own, which assumes measured records."""

    records: Callable[[], list[Record]]
    caption: str = ""
    topology: Path | None = None


def html(name: str) -> str:
    """Return a figure with its title, the findings, the drawings, how to read it, and what the data are."""
    figure, source = draw(name)
    shows = " ".join(str(escape(sentence)) for sentence in figure.shows)
    panels = "".join(f"<div>{panel.svg}</div>" for panel in figure.panels)
    lines = (
        f"<p><strong>{escape(figure.title)}.</strong> {shows}</p>",
        panels,
        f"<figcaption><p><strong>How to read it.</strong> {escape(figure.how)}</p>",
        f"<p>{escape(source.caption or figure.measured)}</p></figcaption>",
    )
    return f'<figure class="drawn">{"".join(lines)}</figure>'.replace("\n", " ")


@functools.cache
def draw(name: str) -> tuple[Figure, _Source]:
    """Return the first figure of a kind that the example's records give, and the source of the records."""
    source = _SOURCES[name]
    host = topology.parse_xml(source.topology.read_text(encoding="utf-8")) if source.topology else None
    (view,) = model.split(source.records(), (), host)
    if name == "scenarios":
        (guide,) = guidelines.guidelines([view])
        if (figure := guidelines.figure(guide.deciding, name)) is None:
            raise ValueError(f"figure {name}: too few scenarios")
        return figure, source
    aspect = importlib.import_module(f"{aspects.__name__}.{name}").aspect(view)
    if not aspect.charts:
        raise ValueError(f"figure {name}: {aspect.absent[0].reason}")
    return render.figure(view, aspect.charts[0]), source


def _vm() -> list[Record]:
    return schema.read(_HERE / "examples" / "vm.jsonl")


def _published() -> list[Record]:
    """Return the published times as records of three samples: the mean, and the mean minus and plus its error."""
    file = paths.ROOT / "studies" / "published" / "lenis2017_execution_times.csv"
    with file.open(encoding="utf-8", newline="") as stream:
        rows = [r for r in csv.DictReader(stream) if (r["system"], r["aligner"], r["dataset"]) == _STUDY]
    return [
        Record(
            "scaling" if row["instances"] == "1" else "placement",
            "alignment_time",
            "s",
            "lower",
            samples=tuple(
                float(row["mean_s"]) * (1 + sign * float(row["error_pct"]) / 100) for sign in (-1, 0, 1)
            ),
            parameters={
                "aligner": row["aligner"],
                "dataset": row["dataset"],
                "instances": int(row["instances"]),
                "threads": int(row["threads_per_instance"]),
                "policy": row["policy"],
            },
            host="published",
            system=_SYSTEM,
        )
        for row in rows
    ]


def _matrix() -> list[Record]:
    host = cases.topology_of(definition.load(_SYSTEM).facts)
    return [
        Record(
            "bandwidth",
            "copy_bandwidth",
            "GB/s",
            "higher",
            samples=(_RATES[host.distances[pus, bank]],),
            parameters={"program": "stream", "kernel": "copy", "pu_nodes": [pus], "bank": bank, "threads": 8},
            host="published",
            system=_SYSTEM,
        )
        for pus, bank in itertools.product(range(8), range(8))
    ]


@functools.cache
def _simulated() -> list[Record]:
    """Return the records of a host of two NUMA nodes whose memory saturates early, and of a run with counters."""
    sys.path.insert(0, str(paths.ROOT / "tests"))
    try:
        from factories import memory_records  # noqa: PLC0415 - the tests are not on the path of the manual
    finally:
        sys.path.pop(0)
    host = memory_records.Host("simulated", at_once=True, noise=0.015, fault=memory_records.early_saturation)
    run = {"aligner": "bwa-mem", "dataset": "NA12878", "scenario": "1x16-default", "instances": 1, "threads": 16}
    return [
        *host.topology(),
        *host.loaded(),
        *host.pairs(),
        *host.add("topology", "numa_nodes", "1", "neither", host.nodes),
        *host.add("counters", "alignment_time", "s", "lower", 60.0, **run),
        *host.add("counters", "cache_misses", "1", "neither", 38e9, **run),
        *(record for threads in (1, 2, 4, 6, 8) for record in _contention(host, threads)),
    ]


def _contention(host: Any, threads: int) -> Iterator[Record]:
    """Yield the rates of some threads that share a bank, which 4 threads saturate."""
    place = {"program": "firsttouch-probe", "kernel": "random", "threads": threads, "bank": 0}
    total = min(3.0 * threads, 11.0)
    yield from host.add("contention", "thread_bandwidth", "GB/s", "higher", total / threads, **place)
    yield from host.add("contention", "total_bandwidth", "GB/s", "higher", total, **place)


_SIMULATED = _Source(
    _simulated,
    "A simulated host of two NUMA nodes, whose memory saturates early: the figure shows the form of such results, "
    "not values of a processor.",
)
_VM = _Source(_vm, topology=_HERE / "examples" / "vm.xml")
_MATRIX = _Source(
    _matrix,
    "Three published rates, one for each distance (Lenis 2018, section 3.4), filled in for all pairs of NUMA "
    "nodes. The 64 cells were not measured one by one.",
)
_PUBLISHED = _Source(
    _published,
    "Published means of ten runs of BWA-MEM with the reads NA12878 on the AMD system; bars show the published "
    "error (Lenis and Senar 2017, appendix).",
)
#: The source of the manual's figure of each kind: the module of its aspect has the same name, except scenarios.
_SOURCES = {
    "latency": _VM,
    "bandwidth": _MATRIX,
    "contention": _SIMULATED,
    "scaling": _PUBLISHED,
    "scenarios": _PUBLISHED,
    "loaded_latency": _SIMULATED,
    "core_to_core": _SIMULATED,
}
