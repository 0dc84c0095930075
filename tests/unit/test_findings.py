# SPDX-License-Identifier: Apache-2.0
"""The findings of a fleet: every number of its pages and exports is computed here from the records again."""

import datetime
import json
import random
import re
import statistics
from collections import Counter

import numpy as np
import plain_values as plain
import polars as pl
import pytest
from msgspec import Struct
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from test_report_recomputed import is_shown, page_of
from test_verdict import system_of

from factories.fleet_records import records_by_host, references, simulated
from firsttouch.judge.judging import judged
from firsttouch.judge.verdict import ORDER
from firsttouch.records import samples_table
from firsttouch.records.schema import Record
from firsttouch.report.fleet import fleet_pages
from firsttouch.report.fleet.figures import DECIDERS, Ranks
from firsttouch.report.text import SIGNS
from firsttouch.systems.definition import System, Undescribed
from firsttouch.systems.facts import Facts
from firsttouch.systems.references import Reference

PLACE = {"pu_nodes": [0], "bank": 0}
NOW = datetime.datetime(2026, 11, 24, 12, tzinfo=datetime.UTC)
LAX = Reference("bandwidth", "copy_bandwidth", {"relation": "local"}, 80.0, -0.2, None, "GB/s", "the order", 7)


def copy(host, value, time):
    where = {"parameters": PLACE, "host": host, "system": "s", "time": time.isoformat()}
    return Record("bandwidth", "copy_bandwidth", "GB/s", "higher", (value,), **where)


def by_two_references():
    """Hosts of 100 GB/s, and n07 of 85: its system's reference passes it, and its fleet does not."""
    noise, begin = random.Random(1), datetime.datetime(2026, 11, 1, 10, tzinfo=datetime.UTC)  # noqa: S311
    return [
        copy(f"n{host:02}", level * (1 + noise.gauss(0, 0.004)), begin + datetime.timedelta(minutes=minute))
        for host, level in enumerate([100.0] * 7 + [85.0] + [100.0] * 4)
        for minute in range(8)
    ]


def of_a_fleet(**more):
    return [r for host_records in records_by_host(**more).values() for r in host_records]


def of_two_groups():
    return [
        replace(r, samples=(r.value * 0.9,)) if r.check == "contention" and int(r.host[1:]) % 5 < 2 else r
        for r in of_a_fleet(hosts=30)
    ]


def of_weeks():
    """Weekly sessions: n0 and n1 lose 7 %, n2 is slow now and then, and all others lose 3 % later."""
    noise, begin = np.random.default_rng(3), datetime.datetime(2026, 1, 5, 8, tzinfo=datetime.UTC)
    values = 30 * (1 + 0.01 * noise.standard_normal((16, 1, 1))) * (1 + 0.01 * noise.standard_normal((16, 24, 3)))
    values[:2, 14:] *= 0.93
    values[3:, 20:] *= 0.97
    values[2] *= np.where(noise.random((24, 3)) < 0.2, 0.75, 1)
    return [
        copy(f"n{host}", float(value), begin + datetime.timedelta(days=7 * week, minutes=3 * number))
        for host in range(16)
        for week in range(24)
        for number, value in enumerate(values[host, week])
    ]


def key_of(case):
    """Return what tells the cases of these fleets apart."""
    return case.check, case.metric, None if case.check == "topology" else case.parameters["bank"]


FLEETS = {
    "two references": (by_two_references, lambda _: 100),
    "a slow bank": (of_a_fleet, lambda _: 100),
    "after an update": (
        lambda: [
            r
            for day in range(1, 11)
            for r in of_a_fleet(hosts=16, repetitions=2, day=f"2026-01-{day:02}", slower=0.06 * (day > 8))
        ],
        lambda case: 106 if case[0] == "latency" else 100,
    ),
    "two groups": (of_two_groups, lambda _: 100),
    "own levels": (of_weeks, None),
    "noise 5003": (lambda: simulated(5003), None),
    "noise 5020": (lambda: simulated(5020), None),
}


#: Values have seven digits.
DIGITS = 1e-6


class Row(Struct):
    """The fields of a row of the findings."""

    values: tuple[float, ...]
    reference: Reference | None
    word: str
    unit: str
    better: str

    @property
    def value(self):
        return statistics.median(self.values) if self.values else None

    def limits(self):
        """Return the least and the largest value within the tolerance."""
        sides = (self.reference.lower, self.reference.upper)
        return [None if side is None else self.reference.value * (1 + side) for side in sides]

    def change(self, expected=None):
        return self.value / (expected or self.reference.value) - 1

    def loss(self):
        if self.word == "pass" or self.reference is None or self.value is None:
            return 0.0
        change = self.change()
        return min(max({"higher": -change, "lower": change, "neither": abs(change)}[self.better], 0.0), 1.0)


@pytest.fixture(scope="module", params=FLEETS)
def fleet(request, tmp_path_factory):
    """A judged fleet, its rows from the records by host and case, and the folder of its report."""
    make, level = FLEETS[request.param]
    records, system = make(), Undescribed("s")
    if request.param == "two references":
        facts = Facts("x", 1, 1, (0,), (0,), (4,), 1, 4, (2**34,), None, None, None, ())
        system = System("s", "", (".*",), facts, (), (LAX,), None)
    elif request.param.startswith("noise"):
        system = system_of(tmp_path_factory.getbasetemp(), *references(int(request.param.split()[1])))
    judgement = judged(samples_table.of_records(records, "s"), system)
    rows = {}
    for host in judgement.hosts:
        plain_host = plain.Host([r for r in records if r.host == host])
        findings = {key_of(f.case): f for f in judgement.verdict(host).findings}
        for case in plain_host.cases():
            records_of_case = [r for r in plain_host.records if plain.key(r) == case]
            finding, record = findings.get(case), records_of_case[0]
            if finding is None:
                valid = tuple(r.value for r in records_of_case if r.status == "valid")
                rows[host, case] = Row(valid, None, "not judged", record.unit, record.better)
                continue
            values = ()
            if finding.reference and finding.verdict != "invalid":
                values = plain_host.values(case, len(finding.values))
                # The levels of the fleet are known, because its hosts are simulated.
                if level and not finding.reference.line:
                    assert finding.reference.value == pytest.approx(level(case), rel=0.005)
            rows[host, case] = Row(values, finding.reference, finding.verdict, record.unit, record.better)
    out = tmp_path_factory.mktemp("report")
    fleet_pages.build([judgement], out, generated=NOW)
    return judgement, rows, out


def by_title(judgement):
    """Return each case of a fleet by its title, which pages show."""
    return {c.title: key_of(c) for c in judgement.samples.cases}


def compared_with(judgement, rows, key):
    """Return what the page of a fleet compares a case with: the reference of its worst verdict."""
    keys = [key_of(case) for case in judgement.samples.cases]
    return Ranks(judgement).reference(keys.index(key))


def test_the_table_has_what_the_records_say(fleet):
    judgement, rows, out = fleet
    file = pl.read_parquet(out / "findings.parquet").to_dicts()
    names_of = {case.name: number for number, case in enumerate(judgement.samples.cases)}
    keys = list(by_title(judgement).values())
    assert len(file) == len(rows) == len(judgement.words)
    for line in file:
        row = rows[line["host"], keys[names_of[line["metric"]]]]
        assert (line["verdict"], line["unit"], line["system"]) == (row.word, row.unit, "s")
        if row.word == "invalid":
            assert line["value"] is None
            continue
        if row.reference is None:
            assert (line["by"], line["expected"], line["minimum"], line["maximum"]) == ("none", None, None, None)
            continue
        assert line["value"] == pytest.approx(row.value, rel=DIGITS)
        assert line["passes"] == len(row.values)
        assert line["expected"] == row.reference.value
        assert [line["minimum"], line["maximum"]] == [end and pytest.approx(end) for end in row.limits()]
        assert line["change"] == pytest.approx(row.change(), abs=DIGITS)
        assert line["loss"] == pytest.approx(row.loss(), abs=DIGITS)
        assert (line["by"] == "system") == bool(row.reference.line)
        assert 1 <= line["sessions"] <= line["passes"]


def test_the_map_shows_the_values_and_what_is_expected(fleet):
    judgement, rows, out = fleet
    (heat,) = [t for t in page_of(out).iter("table") if "heat" in (t.get("class") or "").split()]
    (key,) = [e for e in page_of(out).iter("ol") if e.get("class") == "key"]
    columns = [by_title(judgement)["".join(e.itertext())] for e in key]
    seen = 0
    for line in heat.find("tbody"):
        head, *cells = line
        host = "".join(head.itertext()).split()[-1]
        for case, cell in zip(columns, cells, strict=False):
            tip = re.fullmatch(
                r"(\S+): ([\d.]+)(?: (\S+))?, expected ([\d.]+)(?:, limit ([\d.]+)(?: to ([\d.]+))?)?, n (\d+)",
                cell.get("title") or "",
            )
            if tip is None:
                continue
            row = rows[host, case]
            reference = row.reference if row.word != "pass" else compared_with(judgement, rows, case)
            shown = replace(row, reference=reference)
            assert (tip[1], tip[3] or "1", int(tip[7])) == (host, row.unit, len(row.values))
            assert is_shown(tip[2], row.value)
            assert is_shown(tip[4], reference.value)
            low, high = shown.limits()
            ends = {"higher": [low], "lower": [high]}.get(row.better, [low, high])
            limits = [end for end in ends if end is not None]
            stated = [end for end in (tip[5], tip[6]) if end]
            assert len(stated) == len(limits)
            assert all(map(is_shown, stated, limits))
            *sign, percent = "".join(cell.itertext()).split()
            assert is_shown(percent, 100 * shown.change())
            assert sign == ([] if row.word == "pass" else [SIGNS[row.word]])
            seen += 1
    assert seen


def test_sentences_state_the_values_of_the_rows(fleet):
    judgement, rows, out = fleet
    document = json.loads((out / "summary.json").read_text())
    stated = 0
    for host in judgement.hosts:
        verdict = judgement.verdict(host)
        for finding in verdict.findings:
            row = rows[host, key_of(finding.case)]
            value = finding.to_dict()["value"]
            assert value == (row.value and pytest.approx(row.value, rel=DIGITS))
            numbers = re.search(
                r"^([\d.]+)(?: \S+)?, (?:([\d.]+) % (below|above) .+?) \(([\d.]+)\), (\d+) repetition", finding.why
            )
            if numbers is None:
                continue
            value, percent, side, expected, count = numbers.groups()
            assert is_shown(value, row.value)
            assert is_shown(percent, 100 * abs(row.change()))
            assert (side == "below") == (row.change() < 0) or abs(row.change()) < DIGITS
            assert is_shown(expected, row.reference.value)
            assert int(count) == len(row.values)
            stated += 1
    assert stated
    for host in document["systems"][0]["hosts"]:
        assert host["loss"] == pytest.approx(largest_loss(judgement, rows, host["host"]), abs=DIGITS)
        assert host["verdict"] == judgement.verdict(host["host"]).verdict


def largest_loss(judgement, rows, host):
    """Return the largest loss of the metrics and parts of a host."""
    of_parts = [part["loss"] for part in judgement.verdict(host).to_dict()["parts"]]
    return max([0.0, *of_parts, *(row.loss() for (name, _), row in rows.items() if name == host)])


def test_monitoring_has_the_values_and_the_losses(fleet):
    judgement, rows, out = fleet
    summary = {
        s.labels["host"]: s.value
        for f in text_string_to_metric_families((out / "summary.prom").read_text())
        for s in f.samples
        if s.name == "firsttouch_worst_loss_ratio"
    }
    for host in judgement.hosts:
        assert summary[host] == pytest.approx(largest_loss(judgement, rows, host), abs=DIGITS)


def test_a_host_in_numbers_is_what_its_findings_say(fleet):
    judgement, _, _ = fleet
    for host in judgement.hosts:
        verdict, numbers = judgement.verdict(host), judgement.summary(host)
        assert numbers.counts == Counter(f.verdict for f in verdict.findings)
        stated = (verdict.verdict, verdict.unjudged, len(verdict.missing))
        assert (numbers.verdict, numbers.unjudged, numbers.missing) == stated


def test_what_nothing_judges_is_named_so(tmp_path):
    """Three hosts are too few for a comparison, and there is no reference."""
    judgement = judged(samples_table.of_records(of_a_fleet(hosts=3)), Undescribed("s"))
    assert {*judgement.by.tolist()} == {DECIDERS.index("none")}
    fleet_pages.build([judgement], tmp_path)
    assert {*pl.read_parquet(tmp_path / "findings.parquet")["verdict"]} == {"not judged"}
    assert ORDER.index("pass") == 0
