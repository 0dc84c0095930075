# SPDX-License-Identifier: Apache-2.0
"""The tables of summary.yaml: the file's errors, the statistics of groups of hosts, and every form of a report."""

import csv
import io
import json
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories.fleet_records import records_by_host
from factories.host_records import Machine
from firsttouch import cli
from firsttouch.errors import BadInput
from firsttouch.judge import samples_table
from firsttouch.judge.drift import Configuration
from firsttouch.judge.judging import Undescribed, judged
from firsttouch.judge.statistics import DESCRIPTIVE
from firsttouch.records import schema
from firsttouch.records.schema import Record
from firsttouch.report import site_tables
from firsttouch.report.site_tables import HostGroup, TableForm

COPY = "copy, NUMA 0 to bank 0"


#: The beginning of a file with one table.
HEAD = "tables:\n  - title: a\n    metrics: [latency/*]\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            "tables:\n  - {title: a, metrics: [copy_bandwith]}\n",
            2,
            "'copy_bandwith'; did you mean 'copy_bandwidth'",
        ),
        (
            "tables:\n  - title: a\n    metrics:\n    - copy\n    - 'copi, NUMA *'\n",
            5,
            "'copi'; did you mean 'copy'",
        ),
        (
            "tables:\n  - titel: a\n    metrics: [latency/*]\n",
            2,
            "unknown key 'titel' in .*; did you mean 'title'",
        ),
        ("tables:\n  - title: a\n", 2, "key 'metrics' is missing"),
        (f"{HEAD}    statistics: [medain]\n", 4, "'medain' is not one of .*; did you mean 'median'"),
        (f"{HEAD}    statistics: []\n", 4, "statistics is empty"),
        (f"{HEAD}    within: worst\n", 4, "within: 'worst' is not one of median, mean"),
        (f"{HEAD}    by: system\n    groups: {{all: {{}}}}\n", 4, "a table has groups, or groups by a setting"),
        (f"{HEAD}    groups:\n      rack: {{hosts: 'n[1-'}}\n", 5, "'n.1-' is not a list of hosts"),
        (f"{HEAD}    groups:\n      rack: {{host: n1}}\n", 5, "unknown key 'host' in .*; did you mean 'hosts'"),
        (f"{HEAD}    groups:\n      smt: {{settings: {{cpu.smt: on}}}}\n", 5, "'True' is not text"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(text, line, words):
    with pytest.raises(BadInput, match=rf"summary.yaml:{line}: .*{words}"):
        site_tables.parse(text, "summary.yaml")


@pytest.mark.parametrize("text", ["# tables:\n", "\n", "tables: []\n"])
def test_a_file_may_state_nothing(text):
    assert tuple(site_tables.parse(text, "summary.yaml")) == ()


@pytest.mark.parametrize("pattern", ["*256 MiB*", "copy*bank 1", "copy_b*", "random latency*256 MiB*"])
def test_a_wildcard_may_stand_for_what_follows_a_metrics_name(pattern):
    assert site_tables.parse(f"tables:\n  - {{title: a, metrics: ['{pattern}']}}\n", "summary.yaml")
    with pytest.raises(BadInput, match="no metric is called 'copi"):
        site_tables.parse("tables:\n  - {title: a, metrics: ['copi*']}\n", "summary.yaml")


def test_the_users_file_replaces_the_sites(tmp_path, monkeypatch):
    monkeypatch.delenv("FIRSTTOUCH_HOME", raising=False)
    monkeypatch.setenv("FIRSTTOUCH_SITE", str(tmp_path / "site"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert tuple(site_tables.load()) == ()
    for folder, title in (("site", "of the site"), ("firsttouch", "of the user")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "summary.yaml").write_text(f"tables: [{{title: {title}, metrics: ['*']}}]\n")
        (form,) = site_tables.load()
        assert form.title == title


# ----------------------------------------------------------------------
# The statistics


def record(host, value, *, bank=0, metric="copy_bandwidth", system="s", status="valid"):
    return Record(
        "bandwidth",
        metric,
        "GB/s",
        "higher",
        (value,),
        parameters={"pu_nodes": [bank], "bank": bank},
        host=host,
        system=system,
        status=status,
        reason="" if status == "valid" else "the pages lie elsewhere",
        time="2026-01-01T00:00:00.000+00:00",
    )


def of_records(form, records, configurations=None):
    systems = sorted({r.system for r in records})
    findings = [judged(samples_table.of_records(records, name), Undescribed(name)) for name in systems]
    (table,) = site_tables.of_fleets([form], findings, configurations or {})
    return table


VALUES = st.lists(st.floats(1.0, 1e4), min_size=1, max_size=12)


@given(VALUES, VALUES, st.lists(st.sampled_from([*DESCRIPTIVE]), min_size=1, unique=True))
def test_each_group_has_the_statistics_of_its_hosts(first, second, names):
    records = [record(f"a{i}", value) for i, value in enumerate(first)]
    records += [record(f"b{i}", value, system="t") for i, value in enumerate(second)]
    groups = {"a": HostGroup(hosts=f"a[0-{len(first)}]"), "t": HostGroup(system="t"), "all": HostGroup()}
    table = of_records(TableForm("title", ("copy_bandwidth",), tuple(names), groups), records)
    assert [(row.metric, row.unit, row.group, row.hosts) for row in table.rows] == [
        (COPY, "GB/s", name, count)
        for name, count in (("a", len(first)), ("t", len(second)), ("all", len(first) + len(second)))
    ]
    for row, values in zip(table.rows, (first, second, [*first, *second]), strict=True):
        expected = [DESCRIPTIVE[name](np.array(values)) for name in names]
        assert row.values == pytest.approx(expected, nan_ok=True)
    json.dumps(table.to_dict(), allow_nan=False)
    # The spreadsheet has the same numbers, to the last digit.
    (text,) = site_tables.files([table]).values()
    for row, cells in zip(table.rows, csv.DictReader(io.StringIO(text)), strict=True):
        read = [float(cells[name]) if cells[name] else float("nan") for name in names]
        np.testing.assert_array_equal(read, row.values)


@given(
    st.lists(st.lists(st.floats(1.0, 1e4), min_size=1, max_size=4), min_size=1, max_size=6),
    st.sampled_from(["median", "minimum", "maximum", "p25"]),
)
def test_a_metric_in_one_row_has_a_statistic_of_each_hosts_cases(by_host, within):
    records = [
        record(f"n{host}", value, bank=bank)
        for host, values in enumerate(by_host)
        for bank, value in enumerate(values)
    ]
    table = of_records(TableForm("title", ("bandwidth/*",), ("minimum", "maximum"), within=within), records)
    (row,) = table.rows
    values = [DESCRIPTIVE[within](np.array(values)) for values in by_host]
    assert (row.hosts, *row.values) == (len(by_host), pytest.approx(min(values)), pytest.approx(max(values)))
    cases = max(map(len, by_host))
    assert row.metric == f"copy ({within} of {cases} case{'s' * (cases > 1)})"


def test_the_values_of_a_setting_are_groups():
    records = [record(f"n{i}", 10.0 + i) for i in range(5)]
    configurations = {f"n{i}": Configuration(0, {"firmware.version": f"1.{i // 2}"}) for i in range(4)}
    table = of_records(TableForm("title", ("copy",), ("mean",), by="firmware.version"), records, configurations)
    assert [(row.group, row.hosts, *row.values) for row in table.rows] == [
        ("1.0", 2, 10.5),
        ("1.1", 2, 12.5),
        ("not recorded", 1, 14.0),
    ]
    chosen = {"new": HostGroup(settings={"firmware.version": "*.1"})}
    (row,) = of_records(TableForm("title", ("copy",), ("mean",), chosen), records, configurations).rows
    assert (row.group, row.hosts, *row.values) == ("new", 2, 12.5)


def test_invalid_values_do_not_count_and_what_has_no_row_is_noted():
    records = [*(record(f"n{i}", 10.0) for i in range(3)), record("n9", 1.0, status="invalid")]
    form = TableForm("title", ("copy", "triad"), ("minimum",), {"all": HostGroup(), "none": HostGroup(hosts="x")})
    table = of_records(form, records)
    assert [(row.group, row.hosts, *row.values) for row in table.rows] == [("all", 3, 10.0)]
    assert table.notes == ["no host of this report is in none", "no record of this report is called triad"]


@pytest.mark.parametrize(
    "pattern", ["copy_bandwidth", "bandwidth/copy_bandwidth", "copy", "copy, NUMA ? to bank 0"]
)
def test_a_metric_is_named_as_in_records_and_on_pages(pattern):
    records = [record("n0", 10.0), record("n0", 20.0, metric="triad_bandwidth")]
    (row,) = of_records(TableForm("title", (pattern,), ("median",)), records).rows
    assert row.metric == COPY


# ----------------------------------------------------------------------
# Every form of a report

FILE = """\
tables:
  - title: Local memory
    metrics: ["copy, NUMA ? to bank ?"]
    statistics: [median, p5, spread]
    groups:
      all hosts: {}
      "=rack": {hosts: "n[000-029]"}
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The site's folder with a summary.yaml."""
    monkeypatch.setenv("FIRSTTOUCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FIRSTTOUCH_SITE", str(tmp_path / "site"))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "summary.yaml").write_text(FILE)
    return tmp_path / "site"


def test_page_ticket_json_and_spreadsheet_of_a_fleet_have_the_same_rows(site, tmp_path):
    schema.append(tmp_path / "r.jsonl", [r for of_host in records_by_host().values() for r in of_host])
    out = tmp_path / "out"
    assert cli.main(["report", str(tmp_path / "r.jsonl"), "-o", str(out)]) == 0
    (table,) = json.loads((out / "summary.json").read_text())["site_tables"]
    assert table["title"] == "Local memory"
    rows = [(row["metric"], row["group"], row["hosts"]) for row in table["rows"]]
    banks = [(f"copy, NUMA {bank} to bank {bank}", 60 - (bank == 3), 30 - (bank == 3)) for bank in range(4)]
    assert rows == [row for m, hosts, in_rack in banks for row in ((m, "all hosts", hosts), (m, "=rack", in_rack))]
    text = (out / "index.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    page = ET.fromstring(re.sub(r"^\s*<!DOCTYPE html>", "", text))  # noqa: S314
    (shown,) = [t for t in page.iter("table") if t.findtext("caption") == "Local memory"]
    cells = [["".join(cell.itertext()) for cell in row] for row in shown.find("tbody")]
    assert [(c[0], c[2], int(c[3])) for c in cells] == rows
    ticket = (out / "summary.md").read_text()
    for of_page in cells:
        assert f"| {' | '.join(of_page)} |" in ticket
    spreadsheet = [*csv.reader(io.StringIO((out / "summary.csv").read_text()))]
    assert spreadsheet[0] == ["table", "metric", "unit", "group", "hosts", "median", "p5", "spread"]
    # A spreadsheet would compute a cell that begins like a formula.
    assert [(c[1], c[3].removeprefix("'"), int(c[4])) for c in spreadsheet[1:]] == rows
    assert spreadsheet[2][3] == "'=rack"


def test_a_few_hosts_have_the_tables_too_and_a_report_without_them_no_file(site, tmp_path):
    schema.append(tmp_path / "r.jsonl", Machine(2, 4).everything())
    out = tmp_path / "out"
    for replaced in (False, True):
        assert cli.main(["report", str(tmp_path / "r.jsonl"), "-o", str(out)]) == 0
        tables = json.loads((out / "summary.json").read_text())["site_tables"]
        assert ("Local memory" in (out / "index.html").read_text()) is not replaced
        assert (out / "summary.csv").exists() is not replaced
        assert len(tables) == (not replaced)
        (site / "summary.yaml").unlink(missing_ok=True)


def test_a_wrong_file_stops_the_report_before_it_reads_any_record(site, tmp_path, capsys):
    (site / "summary.yaml").write_text(f"{HEAD}    state: median\n")
    assert cli.main(["report", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    assert re.search(
        r"summary.yaml:4: unknown key 'state' in tables.0.: known are .*statistics", capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()
