# SPDX-License-Identifier: Apache-2.0
"""The figures of the site, drawn by the program: <!-- figure NAME --> in a page becomes the figure.

<!-- figure fleet NAME --> becomes a part of a fleet's page, of a simulated fleet.

Of a small virtual machine (docs/examples) are latency, contention and throughput. Thread scaling and scenarios
are the published times of BWA-MEM on the thesis's AMD system. The bandwidth matrix is put together of the three
rates that the thesis gives for that system (section 3.4), one for each distance.
"""

from __future__ import annotations

import csv
import functools
import itertools
import re
from pathlib import Path
from typing import Any

import fleet
from markupsafe import escape
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from firsttouch import paths
from firsttouch.benchmarks import cases
from firsttouch.host import topology
from firsttouch.records import schema
from firsttouch.records.schema import Record
from firsttouch.report import model
from firsttouch.report.figures import bandwidth, contention, latency, placement, scaling, summary, throughput
from firsttouch.report.figures import topology as drawing
from firsttouch.report.fleet import fleet_pages
from firsttouch.report.model import Absent, Figure
from firsttouch.systems import definition

_HERE = Path(__file__).resolve().parent.parent
_PLACE = re.compile(r"^<!-- figure (fleet )?(\w+) -->$", re.MULTILINE)
#: The thesis's rates (GB/s) by the firmware's distance: local, one hop, farthest (section 3.4).
_RATES = {10: 11.0, 16: 5.7, 22: 11.0 / 5.25}
_SYSTEM = "amd-opteron"
#: hwloc's test machine with the same packages, one generation earlier.
_OPTERON = paths.ROOT / "tests" / "golden" / "hwloc_64amd64-4s2n4ca2co.xml"
_STUDY = (_SYSTEM, "bwa-mem", "NA12878")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the style sheet of reports, which the figures need and the pages take for their own."""
    files.append(File.generated(config, "report.css", content=fleet_pages.style()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with its figures."""
    return _PLACE.sub(lambda found: fleet.html(found[2]) if found[1] else html(found[2]), markdown)


@functools.cache
def html(name: str) -> str:
    """Return a figure: its title, what it shows, its drawings, and the program's own words on how to read it."""
    figure = drawn(name)
    shows = " ".join(str(escape(sentence)) for sentence in figure.shows)
    panels = "".join(f"<div>{panel.svg}</div>" for panel in figure.panels)
    lines = (
        f"<p><strong>{escape(figure.title)}.</strong> {shows}</p>",
        panels,
        f"<figcaption><p><strong>How to read it.</strong> {escape(figure.how)}</p>",
        f"<p>{escape(figure.measured)}</p></figcaption>",
    )
    return f'<figure class="drawn">{"".join(lines)}</figure>'.replace("\n", " ")


@functools.cache
def drawn(name: str) -> Figure:
    """Return the first figure of a kind that the example's records give."""
    draw, made = {
        "topology": (drawing.figures, _opteron),
        "latency": (latency.figures, _vm),
        "bandwidth": (bandwidth.figures, _matrix),
        "contention": (contention.figures, _vm),
        "scaling": (scaling.figures, _published),
        "placement": (placement.figures, _published),
        "summary": (summary.figures, _published),
        "throughput": (throughput.figures, _vm),
    }[name]
    file = {_vm: _HERE / "examples" / "vm.xml", _opteron: _OPTERON}.get(made)
    known = topology.parse_xml(file.read_text(encoding="utf-8")) if file else None
    (view,) = model.split(made(), (), known)
    found = draw(view)[0]
    if isinstance(found, Absent):
        raise ValueError(f"figure {name}: {found.reason}")
    return found


def _opteron() -> list[Record]:
    """Return a record of the host that the topology is of: nothing is drawn of it."""
    return [Record("topology", "numa_nodes", "1", "neither", samples=(8.0,), host="published", system=_SYSTEM)]


def _vm() -> list[Record]:
    return schema.read(_HERE / "examples" / "vm.jsonl")


def _published() -> list[Record]:
    """Return the published times of BWA-MEM as records: the mean, and the mean less and plus its error."""
    with (paths.TABLES / "lenis2017_execution_times.csv").open(encoding="utf-8", newline="") as stream:
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


def _ends(mean: float, error: float) -> tuple[float, ...]:
    return (mean * (1 - error), mean, mean * (1 + error))


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
