# SPDX-License-Identifier: Apache-2.0
"""The identity of a measurement in verdicts and reports, and the names of cases."""

import functools
import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from factories import memory_records
from factories.fleet_records import records_by_host, simulated
from factories.host_records import Machine, matrix_records
from firsttouch.benchmarks import probe
from firsttouch.benchmarks.site_checks import ProgramSpec
from firsttouch.judge.judging import judged, undecided_cases
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records import catalogue, samples_table
from firsttouch.records.cases import Case, identifiers, with_distinct_names
from firsttouch.records.catalogue import checks
from firsttouch.records.schema import Record, read
from firsttouch.report import model, pages
from firsttouch.report.aspects import topology
from firsttouch.report.fleet import figures
from firsttouch.report.text import case
from firsttouch.systems.definition import Undescribed

PLACE = {"program": "firsttouch-probe", "pu_nodes": [0], "bank": 0, "threads": 4, "kernel": "copy"}


def record(check, metric, unit="1", value=1.0, day=1, *, host="n1", better="neither", **parameters):
    time = f"2026-11-{day:02}T10:00:00.000+00:00"
    return Record(check, metric, unit, better, (value,), parameters=parameters, host=host, system="s", time=time)


@pytest.mark.parametrize(
    ("check", "metric", "parameters", "results"),
    [
        ("health", "corrected_errors", {"module": "DIMM_A1"}, [{"seconds": 12.1}, {"seconds": 13.2}]),
        ("core_to_core", "transfer_latency", {"shared": "cache"}, [{"pairs": 8}, {"pairs": 12}]),
        ("pages", "prefetch_ratio", {"bank": 0}, [{"paged_latency": 90.0}, {"paged_latency": 91.0}]),
        ("stores", "streaming_gain", {"bank": 0}, [{"fastest_regular": "avx2"}, {"fastest_regular": "sse2"}]),
        (
            *("counters", "page_faults", {"aligner": "bwa-mem", "scenario": "1x-default"}),
            [{"cpu_seconds": 1.0}, {"cpu_seconds": 2.0}],
        ),
        ("configuration", "settings", {}, [{"settings": {"a": "1"}}, {"settings": {"a": "2"}}]),
    ],
)
def test_results_are_no_part_of_a_case(check, metric, parameters, results):
    records = [record(check, metric, day=day, **parameters, **result) for day, result in enumerate(results, 1)]
    assert len({Case.from_record(r).key for r in records}) == 1
    (view,) = model.split(records, (), None)
    assert (view.valid, view.superseded) == ((records[-1],), len(records) - 1)


@pytest.mark.parametrize(
    ("check", "metric", "parameters", "different"),
    [
        ("bandwidth", "copy_bandwidth", {"effort": "quick"}, {}),
        ("bandwidth", "copy_bandwidth", {"policy": "membind"}, {"policy": "interleave"}),
        ("loaded_latency", "loaded_latency", {"rate": 1.0}, {"rate": 2.0}),
        ("placement", "alignment_time", {"batch_bases": 100_000}, {"batch_bases": 200_000}),
        # All parameters of a check without an entry identify its cases, even together with a scenario.
        ("hpcg", "rate", {"scenario": "1x-default", "size": 64}, {"scenario": "1x-default", "size": 96}),
    ],
)
def test_other_parameters_are_other_cases(check, metric, parameters, different):
    cases = [Case.from_record(record(check, metric, **p)) for p in (parameters, different)]
    assert cases[0].key != cases[1].key


@pytest.mark.parametrize(
    ("days", "bank"),
    [
        # (day, source, GB/s of a package; None: unknown), and the bandwidth of a bank in reports and in verdicts.
        ([(1, "", None), (2, "SMBIOS", 100.0)], 100.0),
        ([(1, "SMBIOS", 100.0), (2, "", None)], 100.0),
        ([(1, "SMBIOS", 100.0), (3, "facts of the system 's'", 153.6)], 153.6),
        ([(3, "SMBIOS", 100.0), (1, "facts of the system 's'", 153.6)], 100.0),
        ([(1, "", None)], None),
    ],
)
def test_report_and_verdict_take_the_newest_known_theoretical_bandwidth(days, bank):
    records = []
    for day, source, value in days:
        origin = {"source": source} if value else {"reason": "dmidecode: permission denied"}
        records.append(record("topology", topology.KNOWN, value=float(bool(value)), day=day, **origin))
        if value:
            records.append(
                record("topology", topology.METRIC, "GB/s", value, day, source=source, packages=2, banks=2)
            )
    (view,) = model.split(records, (), None)
    assert topology.bank_bandwidth(view) == bank
    settings = samples_table.of_records(records, "s").settings["n1"]
    assert settings.get(samples_table.BANK_BANDWIDTH) == bank
    shown, label = topology.aspect(view), "theoretical bandwidth"
    assert [r.value for r in shown.results if r.label == label] == ([f"{bank:.0f} GB/s"] if bank else [])
    assert (label in [absent.title for absent in shown.absent]) == (bank is None)


# ----------------------------------------------------------------------
# Names


@pytest.fixture(scope="module")
def similar():
    """Six hosts in four cases that differ in effort and policy only."""
    return [
        record(
            *("bandwidth", "copy_bandwidth", "GB/s", level + host / 10), host=f"n{host}", better="higher", **PLACE
        )
        for effort, level in (("full", 100.0), ("smoke", 60.0))
        for policy in ("membind", "interleave")
        for PLACE["effort"], PLACE["policy"] in [(effort, policy)]
        for host in range(6)
    ]


def test_what_distinguishes_cases_is_shown_everywhere(similar, tmp_path):
    table = samples_table.of_records(similar, "s")
    assert len({case.name for case in table.cases}) == len(table.cases) == 4
    (case,) = (
        c for c in table.cases if c.parameters.items() >= {"effort": "full", "policy": "interleave"}.items()
    )
    assert {*case.name.split()} >= {"effort=full", "policy=interleave"}
    assert case.title == "copy, NUMA 0 to bank 0, 4 threads, policy interleave, effort full"
    verdicts = judged(table, Undescribed("s"))
    figures.write([verdicts], tmp_path / "findings.parquet")
    rows = pl.read_parquet(tmp_path / "findings.parquet").select("host", "metric")
    assert len(rows) == len(rows.unique()) == 24
    # Each case that another repetition decides is one to measure.
    invalid = samples_table.of_records([replace(r, status="invalid") for r in similar], "s")
    assert len(undecided_cases(judged(invalid, Undescribed("s")), "n0")) == 4


ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def golden_records():
    """Return all kinds of records that the tests have, by their source."""
    probe_outputs = {
        file.name: probe.Report().take(file.read_bytes())
        for file in sorted((ROOT / "tests" / "golden").glob("probe_*.jsonl"))
    }
    memory = memory_records.Host("n1", at_once=True)
    return {
        **probe_outputs,
        "docs/examples/vm.jsonl": read(ROOT / "docs/examples/vm.jsonl"),
        "a machine": Machine(4).everything(),
        "a matrix": matrix_records() + matrix_records(effort="quick") + matrix_records(size=1 << 20),
        "memory": [*memory.topology(), *memory.loaded(), *memory.pairs(), *memory.locks(), *memory.stores()],
        "page sizes": [*memory.pages()],
        "a fleet": [r for host_records in records_by_host(8).values() for r in host_records],
        "a simulated fleet": simulated(5),
        "repeated runs": [
            record("scaling", "alignment_time", "s", better="lower", aligner="bwa", reads=reads, **given)
            for reads in (1000, 2000)
            for given in ({}, {"division": "static"}, {"division": "repeated"}, {"threads": 2})
        ],
    }


@pytest.mark.parametrize(("source", "records"), golden_records().items(), ids=golden_records())
def test_no_two_cases_print_alike(source, records):
    for system in {r.system for r in records}:
        cases = samples_table.of_records(records, system).cases
        for texts in ([c.name for c in cases], [c.title for c in cases]):
            assert [text for text, times in Counter(texts).items() if times > 1] == []
    for view in model.split(records, (), None):
        shown = [(r.check, r.metric, case(identifiers(r.check, r.parameters))) for r in view.valid]
        assert len({*shown}) == len(shown)


VALUES = st.one_of(st.integers(0, 2), st.sampled_from(["0", "1", "x", True, 1.0]), st.lists(st.integers(0, 1)))


@given(
    st.lists(
        st.builds(
            Case,
            system=st.just("s"),
            check=st.sampled_from(["bandwidth", "a", "a_b"]),
            metric=st.sampled_from(["copy_bandwidth", "c", "b_c"]),
            parameters=st.dictionaries(
                st.sampled_from(["bank", "banks", "program", "size_bytes", "x", "unit", "load"]), VALUES
            ),
            unit=st.sampled_from(["1", "s"]),
            better=st.sampled_from(["higher", "lower"]),
        ),
        unique_by=lambda c: c.key,
    )
)
def test_no_two_cases_of_any_kind_print_alike(cases):
    named = with_distinct_names(cases)
    assert len({c.name for c in named}) == len({c.title for c in named}) == len(cases)


@pytest.mark.parametrize(
    ("check", "metric", "unit", "direction"),
    [
        ("pages", "prefetch_ratio", "1", "neither"),
        ("pages", "random_latency", "ns", "lower"),
        ("hpcg", "rate", "GB/s", "higher"),
        ("hpcg", "wait", "us", "lower"),
    ],
)
def test_a_program_of_the_site_has_the_direction_of_the_catalogue(check, metric, unit, direction):
    assert ProgramSpec(("x",), check, metric, unit, regex="(x)").direction == direction


def test_tables_round_no_number_that_identifies_a_case():
    assert case({"rate": 0.12345}) == "rate 0.12345"
    assert case({"rate": 0.75, "pu_nodes": [0, 1], "x": 8.0}) == "rate 0.750, pu nodes 0-1, x 8"


def test_the_catalogue_agrees_with_all_records():
    for source, records in golden_records().items():
        for r in records if source != "a machine" else ():  # its units are made up
            if (check := checks().get(r.check)) and (metric := {**check.data, **check.metrics}.get(r.metric)):
                assert (metric.unit, metric.better) == (r.unit, r.better), (r.check, r.metric)


@pytest.mark.parametrize(("name", "check"), checks().items(), ids=[*checks()])
def test_each_parameter_has_one_role(name, check):
    common = catalogue.catalogue().common
    assert check.axes <= {*check.parameters}
    assert not check.results & {*check.parameters}
    assert check.named <= {*check.parameters}
    assert check.needed.keys() <= {*check.parameters}
    assert not {*common.conditions} & {*check.parameters, *check.results}
    assert check.drawn is True or {*(check.drawn or ())} <= check.metrics.keys()
    assert check.limits.keys() <= check.metrics.keys()


def test_every_parameter_of_our_records_is_in_the_catalogue():
    common = catalogue.catalogue().common
    unknown = {
        (r.check, name)
        for source, records in golden_records().items()
        if source not in {"a machine", "a simulated fleet"}  # theirs are made up
        for r in records
        if (check := checks().get(r.check))
        for name in r.parameters.keys() - {*check.parameters, *check.results, *common.conditions, *common.results}
    }
    assert unknown == set()


# ----------------------------------------------------------------------
# Hosts of several systems or partitions


def of_system(system, partition="default", day=1, value=10.0):
    return replace(
        record("bandwidth", "copy_bandwidth", "GB/s", value, day, better="higher", **PLACE),
        system=system,
        partition=partition,
    )


def test_a_verdict_belongs_to_one_system_of_a_host(tmp_path):
    records = [of_system("a"), of_system("b")]
    verdict = HostVerdict("n1", "b", (), 1, ("its latency",))
    pages.build(records, tmp_path, verdicts=[verdict])
    heads = re.findall(r"Verdict of [^<]*", (tmp_path / "index.html").read_text())
    assert heads == ["Verdict of n1 (b, default): suspect", "Verdict of n1 (a, default): not judged"]


@pytest.mark.parametrize(
    ("check", "metric", "words"),
    [
        ("bandwidth", "copy_bandwidth", "copy"),
        ("pages", "copy_bandwidth", "pages copy bandwidth"),
        ("contention", "total_bandwidth", "total bandwidth"),
        ("latency", "random_latency", "random latency"),
    ],
)
def test_a_metric_names_its_check_if_another_check_of_the_catalogue_has_it_first(check, metric, words):
    assert Case("s", check, metric, {}, "GB/s", "higher").title_of_metric == words


def test_the_catalogue_decides_which_values_are_better():
    """A record that says otherwise would let a host with half of its bandwidth pass."""
    right = record("bandwidth", "copy_bandwidth", "GB/s", better="higher", pu_nodes=[0], bank=0)
    wrong = replace(right, better="lower")
    assert Case.from_record(wrong).key == Case.from_record(right).key
    assert [case.better for case in samples_table.of_records([right, wrong]).cases] == ["higher"]
    of_site = record("mine", "rate", "GB/s", better="lower")
    assert [case.better for case in samples_table.of_records([of_site]).cases] == ["lower"]
