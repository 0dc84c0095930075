# SPDX-License-Identifier: Apache-2.0
"""Studies: the built-in files, their runs for a host of any size, and messages for wrong files."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttouch.benchmarks import studies
from firsttouch.errors import BadInput
from firsttouch.genomics.aligners import aligner
from firsttouch.genomics.command_line import extended
from firsttouch.host.topology import NumaNode, Pu, Topology
from firsttouch.scenarios.placement import parse_name, plan

STUDY = """\
title = "A small study"
reads = ["unpaired"]
threads = [1, 2, 4, 32]
repetitions = 3
time_limit = "20 min"

[family."Bowtie 2"]
aligner = "bowtie2-{variant}"
options = ["-I", "250"]
reads_per_thread = { unpaired = 1000 }
tags = { release = "v2.5" }

[[configuration]]
name = "B-parsing"
families = ["Bowtie 2"]
variant = "batched"
scenario = "1x{threads}-unbound"
build = "release"

[[configuration]]
name = "MP baseline"
families = ["Bowtie 2"]
variant = "batched"
scenario = "{processes}x{each}-unbound+shared"
threads_each = 16

[[table]]
name = "T1"
title = "Both"
"""


def host(pus, nodes=1):
    numbered = [Pu(i, i, 0, i * nodes // pus) for i in range(pus)]
    banks = tuple(NumaNode(n, tuple(p.index for p in numbered if p.numa_node == n), 1 << 40) for n in range(nodes))
    distances = {(a, b): 10 if a == b else 20 for a in range(nodes) for b in range(nodes)}
    return Topology(banks, tuple(numbered), (), distances, frozenset(range(pus)), frozenset(range(nodes)))


@pytest.fixture
def small(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(STUDY)
    return studies.read(file)


def test_built_in_studies_have_their_published_tables(opteron):
    assert {"scaling2018", "lenis2017", "locks-today"} <= set(studies.studies())
    scaling, lenis = studies.study("scaling2018"), studies.study("lenis2017")
    assert [t.number for t in scaling.tables.values()] == ["2", "3", "4", "S2"]
    assert len(list(scaling.pairs())) == 28  # nine configurations of three aligners, and BWA-MEM
    cases, left_out = lenis.cases(opteron)
    # Tables A1 to D1: 4 aligners x 3 policies x 5 thread counts. A2 to D2: 7 + 7 + 3 + 3 partitions.
    assert (len(cases), left_out) == (4 * 3 * 5 + 20, {})
    assert {c.threads for c in cases} == {8, 16, 32, 48, 64}


@pytest.mark.parametrize("name", ["scaling2018", "lenis2017", "locks-today"])
def test_aligners_of_built_in_studies_are_described(name):
    for family, configuration in studies.study(name).pairs():
        case = studies.Case(family, configuration, "unpaired", 1, "")
        program = extended(aligner(case.aligner), case.options)
        assert program.label == " ".join([case.aligner, *case.options])
        assert bool(program.index_mapped) or not configuration.scenario.endswith("+shared"), case.aligner


def test_names_of_runs_are_unique_parts_of_file_names(opteron):
    for name in studies.studies():
        names = [case.name for case in studies.study(name).cases(opteron)[0]]
        assert len(set(names)) == len(names)
        assert all(n.isascii() and not set(n) & set(" /()") for n in names)


@settings(max_examples=20)
@given(pus=st.integers(1, 300), nodes=st.sampled_from([1, 2, 8]))
def test_no_run_has_more_threads_than_the_host_has_pus(pus, nodes):
    machine = host(pus, min(nodes, pus))
    for name in ("scaling2018", "lenis2017"):
        cases, left_out = studies.study(name).cases(machine)
        planned = plan(machine)
        scenarios = {name: planned.scenario(name.partition("+")[0]) for name in {case.scenario for case in cases}}
        for case in cases:
            scenario = scenarios[case.scenario]
            assert scenario.instances * scenario.threads == case.threads <= pus
            if case.configuration.name == "MP baseline":
                # Processes of 16 threads; a host without room for two of them has two halves.
                assert scenario.threads == min(16, max(1, pus // 2))
                assert parse_name(case.scenario).options == ("shared",)
        assert all(reason for reason in left_out.values())


def test_series_is_clipped_and_ends_with_all_pus(small):
    assert [small.series(pus) for pus in (1, 2, 3, 32, 40)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4, 32],
        [1, 2, 4, 32],
    ]


def test_runs_of_some_threads_and_configurations(small):
    cases, _ = small.cases(host(64), threads=[48, 3], patterns=["mp*"])
    assert [(c.scenario, c.aligner, c.options, c.reads_per_thread) for c in cases] == [
        ("3x16-unbound+shared", "bowtie2-batched", ("-I", "250"), 1000)
    ]
    assert cases[0].name == "bowtie-2.unpaired.48t.mp-baseline"
    assert len(small.cases(host(64), threads=[3], patterns=["bowtie 2"])[0]) == 1
    assert small.cases(host(64), threads=[3], patterns=["MP baseline"]) == (
        [],
        {"Bowtie 2: MP baseline": "none of the thread counts is a multiple of 16"},
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": [3]}, "--threads 3: this host has 2 PUs"),
        ({"patterns": ["B-parsin"]}, "no configuration 'B-parsin': there are .*did you mean 'B-parsing'"),
        ({"reads": ["paired"]}, "study small has no paired reads: it has unpaired"),
    ],
)
def test_wrong_choices_are_refused(small, options, message):
    with pytest.raises(BadInput, match=message):
        small.cases(host(2), **options)


def test_records_are_recognized_by_aligner_scenario_and_reads():
    scaling = studies.study("scaling2018")
    record = {"aligner": "bowtie2-2018-batched", "reads_per_thread": 100}
    several = record | {"scenario": "2Inst_Unbound_16t+shared", "instances": 2, "threads": 16, "reads": 6400}
    single = record | {"scenario": "1Inst_Unbound_32t", "instances": 1, "threads": 32, "reads": 3200}
    recognized = [scaling.recognized(parameters) for parameters in (several, single)]
    assert [(r.family.name, r.configuration.name, r.reads, r.threads) for r in recognized] == [
        ("Bowtie 2", "MP baseline", "paired", 32),
        ("Bowtie 2", "B-parsing", "unpaired", 32),
    ]
    assert scaling.recognized(single | {"aligner": "bowtie2-2018-batched --local"}) is None
    assert scaling.recognized(single | {"scenario": "1Inst_Interleave_32t"}) is None


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("threads = [1, 2, 4, 32]\n", "", 1, "either 'threads', a list of numbers, or 'eighths' of all PUs"),
        ("time_limit", "time_limt", 5, "unknown key 'time_limt'.*did you mean 'time_limit'"),
        ('"20 min"', '"20 minutes"', 5, "time_limit: '20 minutes' is not a quantity of seconds"),
        (
            'variant = "batched"\nscenario = "1x',
            'scenario = "1x',
            13,
            "'bowtie2-{variant}' of family Bowtie 2 needs a",
        ),
        ('families = ["Bowtie 2"]', 'families = ["Bowtie"]', 15, "no family 'Bowtie'.*did you mean 'Bowtie 2'"),
        ("1x{threads}-unbound", "1x{thread}-unbound", 17, "unknown placeholder {thread}"),
        ("1x{threads}-unbound", "{threads}-unbound", 17, "'{threads}-unbound' is not a scenario"),
        ('build = "release"', 'build = "old"', 18, "no tag of Bowtie 2 'old': there are release"),
        ("threads_each = 16\n", "", 24, "need threads_each"),
        ("+shared", "+share", 24, "memory option"),
        ('name = "MP baseline"', 'name = "B-parsing"', 21, "a second configuration 'B-parsing'"),
        ('title = "Both"', 'title = "Both"\nconfigurations = ["C"]', 30, "no configuration 'C'"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path, old, new, line, message):
    file = tmp_path / "wrong.toml"
    file.write_text(STUDY.replace(old, new, 1))
    with pytest.raises(BadInput, match=message) as raised:
        studies.read(file)
    assert str(raised.value).startswith(f"{file}:{line}: ")
    assert "\n" not in str(raised.value)


def test_an_unknown_study_is_named_with_those_there_are():
    with pytest.raises(BadInput, match=r"no study 'scaling': there are .*did you mean 'scaling2018'"):
        studies.study("scaling")
