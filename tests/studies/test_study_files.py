# SPDX-License-Identifier: Apache-2.0
"""Studies: the files, their runs for a host of any size, and messages for wrong files."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_repeat_study import STUDY as TEMPLATE

import study_files
from factories.topologies import host_of
from firsttouch.errors import BadInput
from firsttouch.genomics.aligners import aligner
from firsttouch.genomics.command_line import with_options
from firsttouch.scenarios.placement import parse_name, plan

#: The study of test_repeat_study.py by a variant of the aligner with options.
STUDY = (
    TEMPLATE.format(aligner="bowtie2{variant}", limit="20 min")
    .replace('"unpaired", "paired"', '"unpaired"')
    .replace("reads_per_thread", 'options = ["-I", "250"]\nreads_per_thread')
    .replace("scenario =", 'variant = "-spin"\nscenario =')
)


def host(pus, nodes=1):
    distances = {(a, b): 10 if a == b else 20 for a in range(nodes) for b in range(nodes)}
    places = ((i, 0, i * nodes // pus) for i in range(pus))
    return host_of(places, dict.fromkeys(range(nodes), 1 << 40), distances=distances)


@pytest.fixture
def small(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(STUDY)
    return study_files.read(file)


def test_studies_have_their_published_tables(opteron):
    assert study_files.names() == ["lenis2017", "locks-today", "scaling2018"]
    scaling, lenis = study_files.study("scaling2018"), study_files.study("lenis2017")
    assert [t.number for t in scaling.tables.values()] == ["2", "3", "4", "S2"]
    assert len(list(scaling.pairs())) == 28  # nine configurations of three aligners, and BWA-MEM
    cases, left_out = lenis.cases(opteron)
    # Tables A1 to D1: 4 aligners x 3 policies x 5 thread counts. A2 to D2: 7 + 7 + 3 + 3 partitions.
    assert (len(cases), left_out) == (4 * 3 * 5 + 20, {})
    assert {c.threads for c in cases} == {8, 16, 32, 48, 64}


@pytest.mark.parametrize("name", study_files.names())
def test_names_in_a_study_are_those_of_the_study(name):
    study = study_files.study(name)
    for family in study.families.values():
        having = {c.name for f, c in study.pairs() if f is family}
        assert family.beside in {"", *study.families}
        assert family.default in {"", *having}
        assert {c.build for f, c in study.pairs() if f is family} <= {"", *family.tags}
    for table in study.tables.values():
        assert set(table.families) <= set(study.families)
        assert set(table.configurations) <= set(study.configurations)
        assert {table.sheet, table.planned} <= {"", *study.sheets}
    assert {name for figure in study.figures for name in figure.tables} <= set(study.tables)


@pytest.mark.parametrize("name", study_files.names())
def test_aligners_of_studies_are_described(name, aligners_of_studies):
    for family, configuration in study_files.study(name).pairs():
        case = study_files.Case(family, configuration, "unpaired", 1, "")
        program = with_options(aligner(case.aligner), case.options)
        assert program.label == " ".join([case.aligner, *case.options])
        assert bool(program.index.mapped.words) or not configuration.scenario.endswith("+shared"), case.aligner


@settings(max_examples=20)
@given(pus=st.integers(1, 300), nodes=st.sampled_from([1, 2, 8]))
def test_no_run_has_more_threads_than_the_host_has_pus(pus, nodes):
    machine = host(pus, min(nodes, pus))
    for name in ("scaling2018", "lenis2017"):
        cases, left_out = study_files.study(name).cases(machine)
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


def test_runs_of_some_threads_and_configurations(small):
    cases, _ = small.cases(host(64), threads=[48, 3], patterns=["mp*"])
    assert [(c.scenario, c.aligner, c.options, c.reads_per_thread) for c in cases] == [
        ("3x16-unbound+shared", "bowtie2-spin", ("-I", "250"), 1500)
    ]
    assert cases[0].name == "bowtie-2.unpaired.48t.mp-baseline"
    assert len(small.cases(host(64), threads=[3], patterns=["bowtie 2"])[0]) == 1
    assert small.cases(host(64), threads=[3], patterns=["MP baseline"]) == (
        [],
        {"Bowtie 2: MP baseline": "none of the thread counts is a multiple of 16"},
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("time_limit", "time_limt", 5, "unknown key 'time_limt'"),
        ('"20 min"', '"20 minutes"', 5, "'20 minutes' is not a quantity of seconds"),
        ("repetitions = 1", 'repetitions = "1"', 4, "repetitions: '1'"),
        ('scenario = "1x{threads}-unbound"\n', "", 14, "key 'scenario' is missing in configuration[0]"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path, old, new, line, message):
    file = tmp_path / "wrong.toml"
    file.write_text(STUDY.replace(old, new, 1))
    with pytest.raises(BadInput) as raised:
        study_files.read(file)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"{file}:{line}: ")


def test_an_unknown_study_is_named_with_those_there_are():
    with pytest.raises(BadInput, match=r"'scaling': .*'scaling2018'"):
        study_files.study("scaling")
