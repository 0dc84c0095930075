# SPDX-License-Identifier: Apache-2.0
"""Reports of studies of threads: figures, peaks, and sentences, from real records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from test_report import built_report

from firsttouch.records import schema
from firsttouch.records.schema import Record
from firsttouch.report import guidelines, model, render
from firsttouch.report.aspects import study, throughput
from firsttouch.report.document import Figure
from firsttouch.report.model import HostView, Problem

STORED = schema.read(Path(__file__).parents[1] / "golden" / "study_records.jsonl")
MANY = [1, 2, 4, 8, *range(16, 273, 8)]


def view_of(records: Sequence[Record]) -> HostView:
    (view,) = model.split(records, [], None)
    return view


def figures(records: Sequence[Record]) -> list[Figure]:
    return [render.figure(view, chart) for view in [view_of(records)] for chart in study.aspect(view).charts]


def run(configuration: str, threads: int, *rates: float, **parameters: Any) -> Record:
    """Return a record of Bowtie 2 with unpaired reads; *rates* are thousands of reads per second."""
    case = {
        "aligner": f"bowtie2-2018-{configuration}",
        "scenario": f"1x{threads}-unbound",
        "instances": 1,
        "threads": threads,
        "policy": "unbound",
        "dataset": "hg38",
        "reads_per_thread": 200_000,
        "reads": 200_000 * threads,
    }
    return Record(
        "weak_scaling", "throughput", "kreads/s", "higher", rates, case | parameters, host="big", time="2026-01-01"
    )


def test_real_records_are_drawn_as_the_figures_of_the_study() -> None:
    drawn = figures(STORED)
    assert [f.title for f in drawn] == [
        f"Time and throughput by threads, as in figure {number} of Langmead et al. 2018: Comparison of {what}: "
        f"{reads} reads"
        for reads, numbers in (("unpaired", "345"), ("paired", ("S1", "S2", "S4")))
        for number, what in zip(
            numbers,
            (
                "four lock types and the multiprocessing baseline",
                "three parsing strategies and the multiprocessing baseline",
                "B-parsing, L-parsing, the multiprocessing baseline and BWA-MEM",
            ),
            strict=True,
        )
    ]
    # Seconds and throughput of Bowtie 2, with BWA-MEM beside it.
    assert all(len(f.panels) == 2 for f in drawn)
    assert "BWA-MEM, 2 threads:" in drawn[2].panels[1].svg
    assert "5,000 pairs per thread" in drawn[3].panels[0].svg
    rows = {row[:2]: row for f in drawn for t in f.tables for row in t.texts if "unpaired" in f.title}
    stored = next(r for r in STORED if r.parameters["aligner"] == "bwa-mem" and r.parameters["reads"] == 10_000)
    seconds = sorted(stored.parameters["aligning_seconds"])
    assert float(rows["BWA-MEM", "2"][2]) == pytest.approx(seconds[1], rel=0.01)


def test_each_run_is_shown_once() -> None:
    view = view_of(STORED)
    assert not throughput.aspect(view).charts
    assert not throughput.aspect(view).absent
    assert list(guidelines.measured([view])) == []
    labels = [line.label for line in study.aspect(view).results]
    assert labels == [f"Bowtie 2, lambda, {reads} reads: highest throughput" for reads in ("paired", "unpaired")]
    # A single configuration is no study: there is nothing to compare.
    alone = view_of([r for r in STORED if r.parameters["aligner"] == "bwa-mem"])
    assert study.aspect(alone).charts == []
    # Paired and unpaired runs are different cases.
    titles = [chart.title for chart in throughput.aspect(alone).charts]
    assert [title.split(", ")[-1] for title in titles] == ["5000 pairs per thread", "5000 reads per thread"]
    assert len(list(guidelines.measured([alone]))) == 2


def test_a_table_has_the_peaks_of_what_ran_on_this_host() -> None:
    first, second, last = study.aspect(view_of(STORED)).tables
    assert first.caption.startswith("Table 2 on this host. Peak throughputs for four lock types")
    assert [name for name, _ in first.groups[0]] == ["", "This host"]
    assert {len(row) for row in second.texts} == {len(second.header)} == {2 + 2 * 4}
    rows = {row[1]: row for row in second.texts}
    best = max(
        (r for r in STORED if r.parameters["aligner"].endswith("batched") and r.parameters["instances"] == 1),
        key=lambda r: r.value,
    )
    assert rows["B-parsing"][6:8] == (str(best.parameters["threads"]), f"{best.value:,.2f} (1)")
    # Paired reads count once, so the peak is half of the record's reads.
    pairs = [r for r in STORED if r.parameters["reads"] == 20_000 and r.parameters["aligner"] == "bwa-mem"]
    assert {row[1]: row for row in last.texts}["default"][3] == f"{pairs[0].value / 2:,.2f} (1)"
    assert "O-parsing, TBB spin" not in {row[1] for row in first.texts}


def test_sentences_on_many_threads() -> None:
    lines = {"tbb-queuing": 96, "deferred": 272, "batched": 264}
    records = [
        run(name, t, *(place * (min(t, peak) - 0.1 * max(0, t - peak)) * factor for factor in (0.99, 1.0, 1.01)))
        for place, (name, peak) in enumerate(lines.items(), start=1)
        for t in MANY
    ]
    (figure,) = figures(records)
    assert figure.shows == (
        "Bowtie 2: B-parsing peaks highest, 792 thousand reads per second with 264 threads; D-parsing is second, "
        "31.3 % behind. This is the default of Bowtie 2. More threads than at the peak slow down O-parsing, TBB "
        "queueing (peak with 96 of 272 threads).",
    )
    assert figure.title.startswith("Time and throughput by threads, as in figure 4 ")


@pytest.mark.parametrize(
    ("deferred", "sentence"),
    [
        ((20.0, 21.0, 22.0), "The default, B-parsing, is 52.4 % behind."),
        (
            (9.5, 12.0, 13.0),
            "but its repetitions overlap with those of B-parsing. The default, B-parsing, is not ",
        ),
        ((20.0,), "50.0 % before B-parsing (single repetitions). The default, B-parsing, is not clearly slower."),
    ],
)
def test_the_default_is_behind_only_if_no_repetitions_overlap(deferred: tuple[float, ...], sentence: str) -> None:
    default = (9.0, 10.0, 11.0) if len(deferred) > 1 else (10.0,)
    figure = figures([run("deferred", 2, *deferred), run("batched", 2, *default)])[0]
    assert sentence in figure.shows[0]


def test_runs_over_the_time_limit_are_left_out_and_named() -> None:
    # 200,000 reads at 0.1 thousand per second take 2,000 s.
    slow = run("deferred", 2, 0.1, 0.2, 0.2)
    records = [run("deferred", 1, 5.0, 5.1, 5.2), replace(slow, samples=(0.2, 0.2, 0.2)), run("batched", 2, 9.0)]
    figure = figures(records)[0]
    assert figure.shows[-1] == (
        "Left out, because they took longer than 20 min: Bowtie 2, D-parsing (threads: 2)."
    )
    assert [row[:2] for row in figure.tables[0].texts] == [("D-parsing", "1"), ("B-parsing", "2")]


def test_the_section_is_on_the_page(tmp_path: Path) -> None:
    unpaired = [
        r for r in STORED if r.parameters["reads"] == r.parameters["instances"] * r.parameters["threads"] * 5000
    ]
    _, page, _ = built_report(tmp_path, unpaired)
    section = page.split('weak_scaling-section">Thread scaling study</h3>')[1].split("<h3 ")[0]
    assert section.count("<table") == 3 + 3
    assert section.count("<svg") == 6
    assert section.index("Table 4 on this host") < section.index("as in figure 4 of Langmead et al. 2018")
    assert "counts pairs, as the scripts of the study did" in section


def test_a_study_without_tables_compares_all_its_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "studies"
    folder.mkdir()
    (folder / "own.toml").write_text(
        """title = "Locks of ours"
reads = ["unpaired"]
threads = [1, 2]
repetitions = 1

[family.Mapper]
aligner = "mapper-{variant}"
reads_per_thread = { unpaired = 10 }
"""
        + "".join(
            f"""
[[configuration]]
name = "{name}"
families = ["Mapper"]
variant = "{name}"
scenario = "1x{{threads}}-unbound"
"""
            for name in ("spin", "queue")
        )
    )
    monkeypatch.setenv("FIRSTTOUCH_SITE", str(tmp_path))
    records = [run("", 2, rate, aligner=f"mapper-{lock}") for lock, rate in (("spin", 1.0), ("queue", 2.0))]
    view = replace(
        view_of(records),
        problems=(
            Problem("mapper.unpaired.1t.spin", "skipped", "omitted: it took too long", check="weak_scaling"),
        ),
    )
    assert [chart.title for chart in study.aspect(view).charts] == [
        "Time and throughput by threads: Locks of ours: unpaired reads"
    ]
    (table,), note = (aspect := study.aspect(view)).tables, aspect.note
    assert table.caption.startswith("Peak throughputs, on this host")
    assert [row[1:4] for row in table.texts] == [("spin", "2", "1.00 (2)"), ("queue", "2", "2.00 (1)")]
    assert note.endswith("Left out: mapper.unpaired.1t.spin (omitted: it took too long).")
