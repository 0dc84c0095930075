# SPDX-License-Identifier: Apache-2.0
"""Figures, tables and headlines of loaded memory, core-to-core latency, page sizes, stores and locks."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from factories import drawings
from factories.host_records import Machine, built_report, invalid
from factories.memory_records import SATURATION, THEORY, Host, slow_accesses, slow_caches
from firsttouch.records.schema import Record
from firsttouch.report import model
from firsttouch.report.aspects import core_to_core, cores, correctness, host_aspects, loaded_latency
from firsttouch.report.document import Figure
from firsttouch.report.model import Absent, HostView


def memory_records(**more: Any) -> list[Record]:
    host = Host("n1", at_once=True, **more)
    return [*host.topology(), *host.loaded(), *host.pairs(4), *host.pages(), *host.stores()]


def view_of(records: list[Record]) -> HostView:
    (view,) = model.split(records, (), None)
    return view


def loads_of(view: HostView) -> list[Figure | Absent]:
    return drawings.figures(view, loaded_latency.aspect(view))


@pytest.fixture(scope="module")
def view() -> HostView:
    return view_of([*memory_records()])


def texts(panel: model.Panel) -> list[str]:
    return [e.text or "" for e in ET.fromstring(str(panel.svg)).iter() if e.tag.endswith("text")]  # noqa: S314


def test_a_panel_for_each_load_has_curves_by_read_share_and_marks(view: HostView) -> None:
    (figure,) = loads_of(view)
    assert isinstance(figure, Figure)
    assert len(figure.panels) == 3
    local = texts(figure.panels[0])
    for label in ("reads 100 %", "reads 75 %", "reads 50 %", "saturation", "theoretical bandwidth"):
        assert label in local
    assert "bandwidth of the load (GB/s)" in local
    share = 100 * SATURATION["local"] / THEORY
    (stated,) = re.findall(r"saturate; ([\d.]+) % of theory", figure.shows[0])
    assert float(stated) == pytest.approx(share, abs=1.5)
    merits = figure.tables[0]
    assert len(merits.rows) == 2 * 3 * 3


def test_without_theory_the_figure_says_so() -> None:
    records = [
        r for r in memory_records(nodes=1) if r.check == "loaded_latency" and r.parameters["read_share"] == 1
    ]
    (figure,) = loads_of(view_of(records))
    assert isinstance(figure, Figure)
    assert len(figure.panels) == 1
    assert "theoretical bandwidth" not in texts(figure.panels[0])
    assert "reads 100 %: 39" in figure.shows[0]
    assert "theory" not in figure.shows[0]


def test_curves_that_cannot_be_drawn_are_absent_with_the_reason() -> None:
    (absent,) = loads_of(view_of(Machine().topology()))
    assert isinstance(absent, Absent)
    records = [invalid(r, "9 % of the pages lie elsewhere") for r in Host("n1").loaded((1.0,))]
    (absent,) = loads_of(view_of(records))
    assert isinstance(absent, Absent)
    assert "9 % of the pages lie elsewhere" in absent.reason
    (wrong,) = list(
        Host("n1", nodes=1, at_once=True).add("loaded_latency", "peak_bandwidth", "GB/s", "higher", 1.0)
    )
    assert [p.kind for p in view_of([wrong]).problems] == ["invalid"]


WRONG = (None, "x", [], [1, "a"], {"a": 1}, -1, True, 10**30, 0.5)


def test_parameters_of_any_kind_and_values_of_zero_make_a_page(tmp_path: Path) -> None:
    """Records of other programs may have any parameters; a page shows the others, or says what it cannot show."""
    host = Host("n1", nodes=1, at_once=True, repetitions=2)
    records = [*host.loaded((1.0,)), *host.pairs(2), *host.pages(), *host.stores(), *host.locks(1)]
    records += [*host.cores(), *host.add("correctness", "wrong_answers", "1", "lower", 1.0, work="copy", units=5)]
    zero = [replace(r, samples=(0.0, 0.0), host="zero") for r in records]
    names = (
        *("rate", "load_bank", "load", "read_share", "pus", "shared", "pairs", "pages", "instructions"),
        *("stores", "bank", "lock", "parsing", "batch", "work_ns", "threads", "placement"),
        *("slowest", "curve", "sustain_s", "chain", "running", "slowest_pu", "units", "work"),
    )
    wrong = [
        replace(r, parameters={**r.parameters, name: value}, host="n2")
        for r in {r.metric: r for r in records}.values()
        for name in names
        if name in r.parameters
        for value in WRONG
    ]
    agree = [
        replace(r, parameters={"contradictions": "x", "contradicting": 3}, samples=(0.0,), host="n3")
        for r in records
        if r.metric in {"clusters_agree", "pair_latency"} or r.check == "loaded_latency"
    ]
    for some in (zero, wrong, agree):
        built_report(tmp_path / some[0].host, some)


def test_pairs_are_a_symmetric_matrix_or_numa_nodes_of_a_large_host(view: HostView) -> None:
    (figure,) = drawings.figures(view, core_to_core.aspect(view))
    assert isinstance(figure, Figure)
    for shown, name in zip(figure.shows, ("core: ", "L3 cache: 2", "NUMA node: 4", "host: 11"), strict=True):
        assert shown.startswith(f"Transfer latency, same {name}")
    numbers = [t for t in texts(figure.panels[0]) if re.fullmatch(r"\d+\.\d+|\d{3}", t)]
    assert len(numbers) == 8 * 7
    machine = Machine(2, 16)
    few = [
        replace(r, parameters={**r.parameters, "pairs": 3}) if r.metric == "transfer_latency" else r
        for r in Host("n1", at_once=True, repetitions=1).pairs(16)
    ]
    (large,) = model.split(few, (), _topology(machine))
    (figure,) = drawings.figures(view, core_to_core.aspect(large))
    assert isinstance(figure, Figure)
    assert "PU of NUMA node" in texts(figure.panels[0])
    assert all(shown.endswith("; 3 of 8 pairs.") for shown in figure.shows)


def _topology(machine: Machine) -> Any:
    from firsttouch.host import topology  # noqa: PLC0415 - one test needs it

    return topology.parse_xml(machine.xml())


@pytest.mark.parametrize(
    ("check", "captions", "header", "first", "best"),
    [
        (
            "pages",
            ["random latency", "copy bandwidth", "triad bandwidth", "prefetch ratio", "huge pages free"],
            ("pu nodes", "bank", "pages"),
            ("0", "0", "base"),
            "pages huge",
        ),
        (
            "stores",
            ["copy bandwidth", "triad bandwidth"],
            ("instructions", "stores"),
            ("avx2", "regular"),
            "instructions avx2, stores streaming",
        ),
        (
            "locks",
            ["lock records", "lock waiting"],
            ("lock", "parsing", "batch", "threads", "placement"),
            ("atomic", "blocked", "48", "1", "compact"),
            "parsing blocked",
        ),
    ],
)
def test_a_check_without_figures_has_a_table_of_each_metric_and_the_best_of_it(
    check: str, captions: list[str], header: tuple[str, ...], first: tuple[str, ...], best: str
) -> None:
    shown = host_aspects(view_of([*memory_records(), *Host("n1", at_once=True).locks()]))[check]
    (chart,) = shown.charts
    assert [t.caption.partition(": ")[2].partition(" (")[0] for t in chart.tables] == captions
    assert tuple(chart.tables[0].header[: len(header)]) == header
    assert chart.tables[0].texts[0][: len(first)] == first
    assert best in shown.results[0].compared
    assert chart.shows == [result.sentence for result in shown.results]
    assert all(r.value.endswith(("ns", "GB/s", " Mrecords/s")) for r in shown.results)


def test_a_check_with_tables_and_no_record_states_why() -> None:
    shown = host_aspects(view_of(Machine().topology()))["locks"]
    assert shown.absent == [Absent("Locks", "the records of this report contain none of this check")]


def test_a_sustained_load_states_how_far_the_clock_fell() -> None:
    shown = cores.aspect(view_of([*Host("n1", at_once=True).cores()]))
    result = shown.results[1]
    assert result.label == "clock of the cores, after 120 s of load"
    assert re.match(r"[5-7][.\d]* % below the first sample; the slowest PU [23][.\d]* GHz", result.compared)


def test_the_slowest_pu_of_each_chain_is_a_table_and_slow_ones_come_first() -> None:
    shown = cores.aspect(view_of([*Host("n1", at_once=True).cores()]))
    (chains,) = shown.charts[0].tables
    running = ("all PUs at once", "each PU alone")
    chain = ("clock", "first cache", "second cache", "memory")
    assert [row[:2] for row in chains.rows] == [*itertools.product(chain, running)]
    assert {str(row[4]) for row in chains.rows} == {"3"}
    slow, _ = cores.aspect(view_of([*Host("n1", at_once=True, fault=slow_caches).cores()])).charts[0].tables
    assert [row[:2] for row in slow.rows] == [
        ("PU 3", "first cache"),
        ("PU 3", "second cache"),
        ("PU 3", "memory"),
    ]


def test_the_best_and_the_worst_of_the_slowest_accesses_are_results() -> None:
    view = view_of([*Host("n1", at_once=True, fault=slow_accesses).tails()])
    shown = host_aspects(view)["tails"]
    place = r"pu nodes \d, bank \d, load (none|local)"
    for result in shown.results:
        assert re.fullmatch(rf"{place}; the worst [\d.]+ (ns|µs), {place}", result.compared)
    assert [len(table.rows) for table in shown.charts[0].tables] == [6] * 4


def test_the_address_of_a_wrong_word_is_stated() -> None:
    place = {"bank": 1, "physical_address": "0x4e600ef38", "units": 5}
    words = Host("n1", at_once=True).add("correctness", "wrong_words", "1", "lower", 1.0, **place)
    (table,) = correctness.aspect(view_of([*words])).charts[0].tables
    assert table.rows[0][0] == "patterns in bank 1, first at 0x4e600ef38"
