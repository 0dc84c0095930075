# SPDX-License-Identifier: Apache-2.0
"""Figures that have no test of their own: the topology, the summary of scenarios, and tables as in the thesis."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.textpath import TextPath
from test_report_page import local, page_of, tree

from factories import topologies
from factories.host_records import Machine
from firsttouch.host import topology
from firsttouch.report import model
from firsttouch.report.figures import drawing as charts
from firsttouch.report.figures import summary
from firsttouch.report.figures import topology as drawing
from firsttouch.report.model import Panel
from firsttouch.report.speedups import pivot

STORED = Path(__file__).parents[1] / "golden"
#: A topology as lstopo wrote it, or the shape of a made-up machine.
MACHINES = (*sorted(f.name for f in STORED.glob("*.xml")), *topologies.SHAPES)


def drawn(name: str) -> tuple[topology.Topology, tuple[Panel, ...]]:
    made_up = name in topologies.SHAPES
    host = topology.parse_xml(topologies.made_up(name)) if made_up else topology.load(xml=STORED / name)
    (view,) = model.split(Machine().topology(), [], host)
    (figure,) = drawing.figures(view)
    return host, figure.panels


def shapes(root: ET.Element, kind: str) -> list[ET.Element]:
    """Return the outlines in the groups of the class *kind*."""
    return [e for g in root.iter() if g.get("class") == kind for e in g if local(e) == "path"]


def extent(path: ET.Element) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of an outline, px."""
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.get("d", ""))]
    return min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_is_drawn_whole(name: str) -> None:
    host, panels = drawn(name)
    root = ET.fromstring(str(panels[0].svg))  # noqa: S314
    boxes = shapes(root, "box")
    assert len(boxes) == len(host.numa_nodes)
    owned = sum(len(n.pus) for n in host.numa_nodes)
    usable, barred = shapes(root, "pu"), shapes(root, "pu barred")
    assert len(usable) + len(barred) == owned
    assert len(usable) == len(host.allowed_pus & {p for n in host.numa_nodes for p in n.pus})
    headings = [e.text for g in root.iter() if g.get("class") == "heading" for e in g]
    assert sorted(headings) == sorted(f"NUMA node {n.index}" for n in host.numa_nodes)
    # Nothing lies outside the drawing, and every PU and cache lies inside a box.
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    frames = [extent(box) for box in boxes]
    for left, top, right, bottom in frames:
        assert min(left, top) >= 0
        assert right <= width + 0.5
        assert bottom <= height + 0.5
    for left, top, right, bottom in map(extent, (*usable, *barred, *shapes(root, "cache"))):
        assert any(a <= left and b <= top and right <= c and bottom <= d for a, b, c, d in frames)


@pytest.mark.parametrize("name", MACHINES)
def test_distances_are_drawn_where_there_are_any(name: str) -> None:
    host, panels = drawn(name)
    assert len(panels) == 1 + bool(host.distances and len(host.numa_nodes) > 1)
    if len(panels) > 1:
        root = ET.fromstring(str(panels[1].svg))  # noqa: S314
        cells = [e.text for g in root.iter() if g.get("class") == "cells" for e in g if local(e) == "text"]
        order = [n.index for n in host.numa_nodes]
        assert cells == [str(host.distance(a, b)) for a in order for b in order]


def test_the_opteron_of_the_thesis() -> None:
    _, panels = drawn("opteron")
    root = ET.fromstring(str(panels[0].svg))  # noqa: S314
    caches = [round(right - left) for left, _, right, _ in map(extent, shapes(root, "cache"))]
    # In each of the eight boxes: an L1d per PU, an L2 for two, an L3 for all eight.
    assert {width: caches.count(width) for width in set(caches)} == {24: 64, 50: 32, 206: 8}
    description = next(e.text or "" for e in root if local(e) == "desc")
    assert "8 NUMA nodes in 4 packages, 64 cores, 64 PUs" in description
    assert "NUMA node 5: 8 GiB, PUs 40-47." in description


def test_pus_that_may_not_be_used_are_marked() -> None:
    host, panels = drawn("partial-cpuset")
    barred = {pu.index for pu in host.pus} - host.allowed_pus
    assert barred
    assert len(shapes(ET.fromstring(str(panels[0].svg)), "pu barred")) == len(barred)  # noqa: S314


def test_a_host_without_a_topology_has_no_drawing(tmp_path: Path) -> None:
    page = page_of(tmp_path, Machine(2, 4).topology())
    assert "The host as hwloc sees it" not in page
    assert "No topology (hwloc XML) of this host was given." in page


def test_the_summary_has_the_three_runs_of_each_dataset(tmp_path: Path) -> None:
    machine = Machine(2, 4)
    runs = machine.scaling("bowtie2", "GCAT") + machine.placement("bowtie2", "GCAT")
    runs = [replace(r, samples=(40.0, 41.0, 42.0)) for r in runs]

    def timed(scenario: str, threads: int, *samples: float) -> None:
        for i, r in enumerate(runs):
            if (r.parameters["scenario"], r.parameters["threads"]) == (scenario, threads):
                runs[i] = replace(r, samples=samples)

    timed("1Inst_Interleave", 8, 19.0, 20.0, 21.0)
    timed("2Inst_Original", 4, 9.0, 10.0, 11.0)
    (view,) = model.split(runs, [], None)
    (figure,) = summary.figures(view)
    assert figure.shows == (
        "GCAT, 10000 reads: default run 41 s; best policy 20 s (1Inst_Interleave, 8 threads: 2.05x); "
        "best partition 10 s (2Inst_Original, 2 x 4 threads: 4.10x).",
    )
    policies, partitions = figure.tables
    assert policies.header == ("threads", *("median", "spread (%)") * 3)
    assert policies.groups == (
        (("", 1), ("GCAT, 10000 reads", 6)),
        (("", 1), ("original", 2), ("interleave", 2), ("localalloc", 2)),
    )
    (widest,) = [row for row in policies.rows if row[0] == "8"]
    assert widest == ("8", "41", "4.9", "20", "10.0", "41", "4.9")
    assert ("2Inst_Original", "4", "10", "20.0") in partitions.rows
    page = page_of(tmp_path, runs)
    above = [e for e in tree(page).iter() if local(e) == "th" and e.get("scope") == "colgroup"]
    assert {"".join(e.itertext()) for e in above} >= {"original", "interleave", "localalloc"}


@pytest.mark.parametrize("label", ["lambda", "HG002 chromosome 20\n100000 pairs per thread"])
@pytest.mark.parametrize("values", [(0.51, 0.5, 0.49), (0.51, 0.3, 0.1), (0.1, 0.1, 0.51)])
@pytest.mark.parametrize("text", ["{} s", "{} s, 1Inst_Localalloc", "{} s, 2Inst_Localalloc"])
def test_the_texts_beside_bars_end_within_the_drawing(label: str, values: tuple[float, ...], text: str) -> None:
    bars = [
        charts.Bar(label, v, 0.95 * v, 1.1 * v, text.format(f"{v:.3f}"), kind)
        for v, kind in zip(values, "abc", strict=True)
    ]
    panel = charts.draw_bars(
        *(bars,), kinds=("a", "b", "c"), axis="time (s)", name="x", title="x", description="x", thin=True
    )
    texts = re.findall(r'font-size: 11px; text-anchor: start[^>]*? x="([\d.]+)"[^>]*>([^<]+)', panel.svg)
    assert len(texts) == len(bars)
    for x, shown in texts:
        assert float(x) + TextPath((0, 0), shown, size=11).get_extents().width <= panel.width


def test_a_line_crosses_no_text_beside_a_bar() -> None:
    bars = [charts.Bar(f"b{v}", v, v, v, f"{v:.2f}x", "a") for v in (0.55, 0.7, 0.9, 0.98, 1.6)]
    panel = charts.draw_bars(
        bars, kinds=("a",), axis="speedup (times)", name="x", title="x", description="x", line=1
    )
    (at,) = re.findall(r'<path d="M (\S+) [^>]*stroke-dasharray', panel.svg)
    texts = re.findall(r'text-anchor: start[^>]*? x="([\d.]+)"[^>]*>([\d.]+x)<', panel.svg)
    assert len(texts) == len(bars)
    for x, shown in texts:
        width = TextPath((0, 0), shown, size=13).get_extents().width
        assert not float(x) < float(at) < float(x) + width
        assert float(x) + width <= panel.width


def test_one_run_alone_is_no_summary() -> None:
    (run,) = [
        r for r in Machine(1, 2).scaling() if r.parameters == {**r.parameters, "policy": "original", "threads": 2}
    ]
    (view,) = model.split([run], [], None)
    assert summary.figures(view) == []


def test_a_pivot_has_its_headings_above_their_columns() -> None:
    table = pivot(
        "caption",
        corner=("row",),
        rows=[("1",), ("2",)],
        columns=[("A", "x"), ("A", "y"), ("B", "x")],
        cells={(("1",), ("A", "y")): ("5", "6"), (("2",), ("B", "x")): ("7", "8")},
        heads=("v", "e"),
    )
    assert table.groups == ((("", 1), ("A", 4), ("B", 2)), (("", 1), ("x", 2), ("y", 2), ("x", 2)))
    assert table.header == ("row", "v", "e", "v", "e", "v", "e")
    assert list(table.rows) == [("1", "", "", "5", "6", "", ""), ("2", "", "", "", "", "7", "8")]
    assert table.numeric == frozenset(range(1, 7))
