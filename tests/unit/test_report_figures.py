# SPDX-License-Identifier: Apache-2.0
"""Figures that no other test is about: the topology drawn, the summary of scenarios, tables laid out as there."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from test_report_page import local, page_of, tree

from factories.host_records import Machine
from firsttouch.host import topology
from firsttouch.report import model
from firsttouch.report.figures import summary
from firsttouch.report.figures import topology as drawing
from firsttouch.report.model import Panel
from firsttouch.report.speedups import pivot

pytestmark = pytest.mark.unit
STORED = Path(__file__).parents[1] / "golden"
MACHINES = sorted(f.name for f in STORED.glob("*.xml"))


def drawn(name: str) -> tuple[topology.Topology, tuple[Panel, ...]]:
    known = topology.load(xml=STORED / name)
    (view,) = model.split(Machine().topology(), [], known)
    (figure,) = drawing.figures(view)
    return known, figure.panels


@pytest.mark.parametrize("name", MACHINES)
def test_every_stored_machine_is_drawn_whole(name: str) -> None:
    known, panels = drawn(name)
    root = ET.fromstring(str(panels[0].svg))  # noqa: S314
    kinds = [e.get("class") or "" for e in root.iter() if local(e) == "rect"]
    assert kinds.count("box") == len(known.numa_nodes)
    owned = sum(len(n.pus) for n in known.numa_nodes)
    assert kinds.count("pu") + kinds.count("pu barred") == owned
    assert kinds.count("pu") == len(known.allowed_pus & {p for n in known.numa_nodes for p in n.pus})
    headings = [e.text for e in root.iter() if e.get("class") == "heading"]
    assert sorted(headings) == sorted(f"NUMA node {n.index}" for n in known.numa_nodes)
    # Nothing is outside of the drawing: the offsets of the boxes, and the sizes within them.
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for group in (e for e in root if local(e) == "g"):
        x, y = map(float, group.attrib["transform"].removeprefix("translate(").removesuffix(")").split())
        for part in (e for e in group if local(e) == "rect"):
            inner = {k: float(part.get(k, "0")) for k in ("x", "y", "width", "height")}
            assert x + inner["x"] + inner["width"] <= width + 0.5
            assert y + inner["y"] + inner["height"] <= height + 0.5


@pytest.mark.parametrize("name", MACHINES)
def test_distances_are_drawn_where_there_are_any(name: str) -> None:
    known, panels = drawn(name)
    assert len(panels) == 1 + bool(known.distances and len(known.numa_nodes) > 1)
    if len(panels) > 1:
        cells = [e.text for e in ET.fromstring(str(panels[1].svg)) if "middle " in (e.get("class") or "")]  # noqa: S314
        order = [n.index for n in known.numa_nodes]
        assert cells == [str(known.distance(a, b)) for a in order for b in order]


def test_the_opteron_of_the_thesis() -> None:
    _, panels = drawn("hwloc_64amd64-4s2n4ca2co.xml")
    root = ET.fromstring(str(panels[0].svg))  # noqa: S314
    caches = [float(e.get("width", "0")) for e in root.iter() if e.get("class") == "cache"]
    # In each of the eight boxes: an L1d per PU, an L2 for two, an L3 for all eight.
    assert {width: caches.count(width) for width in set(caches)} == {24.0: 64, 50.0: 32, 206.0: 8}
    description = next(e.text or "" for e in root if local(e) == "desc")
    assert "8 NUMA nodes in 4 packages, 64 cores, 64 PUs" in description
    assert "NUMA node 5: 8 GiB, PUs 40-47." in description


def test_pus_that_may_not_be_used_are_told_from_others() -> None:
    known, panels = drawn("hwloc_16amd64-8n2c-cpusets.xml")
    barred = {pu.index for pu in known.pus} - known.allowed_pus
    assert barred
    assert str(panels[0].svg).count('class="pu barred"') == len(barred)


def test_a_host_without_a_topology_has_no_drawing(tmp_path: Path) -> None:
    page = page_of(tmp_path, Machine(2, 4).everything())
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
