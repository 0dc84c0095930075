# SPDX-License-Identifier: Apache-2.0
"""The numbers on the pages of a host, of 8 and 300 hosts and of a comparison, computed from the records again.

Nothing of firsttouch's statistics is used: medians come from the standard library, the sign test and its interval
are counted coin by coin. test_findings.py does the same for the map, the distributions and the exports of a fleet.
"""

import datetime
import json
import math
import re
import statistics
from collections import Counter, defaultdict
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from factories.fleet_records import records_by_host
from factories.host_records import Machine, built_report
from firsttouch import cli
from firsttouch.records import schema, store

NOW = datetime.datetime(2026, 4, 1, 12, tzinfo=datetime.UTC)
#: A value of a table, perhaps with an exponent, a sign and a unit.
NUMBER = r"([-+]?[\d.]+(?:e[-+]\d+)?)"


def is_shown(text, value, *, slack=0.0):
    """Return whether *text* is *value*, rounded; *slack* is the error of *value*."""
    digits = len(text.partition(".")[2])
    return abs(float(text.replace("\N{MINUS SIGN}", "-")) - value) <= 0.5 * 10**-digits + slack + 1e-9 * abs(value)


def page_of(out):
    """Return the page as a tree; it has to be well-formed."""
    text = (out / "index.html").read_text()
    return ET.fromstring(re.sub(r"^\s*<!DOCTYPE html>", "", text).replace("\N{NO-BREAK SPACE}", " "))  # noqa: S314


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def table(page, caption):
    """Return the rows of the table with a caption that begins so, as cells by the texts of the header."""
    (element,) = [t for t in page.iter("table") if text_of(t.find("caption")).startswith(caption)]
    header = [text_of(cell) for cell in element.find("thead")[-1]]
    return [dict(zip(header, map(text_of, row), strict=True)) for row in element.find("tbody")]


def key(record):
    return (record.check, record.metric, record.parameters["bank"])


def title(record):
    """Return the name of a case of these hosts."""
    bank, p = record.parameters["bank"], record.parameters
    tails = {"bandwidth": "", "latency": ", 64 MiB", "contention": f", {p.get('threads')} threads"}
    names = {"copy_bandwidth": "copy", "random_latency": "random latency", "total_bandwidth": "total bandwidth"}
    return f"{names[record.metric]}, NUMA {bank} to bank {bank}{tails[record.check]}"


def run(*arguments):
    assert cli.main([*map(str, arguments)]) == 0


# ----------------------------------------------------------------------
# The page of eight hosts, measured weekly: n002 loses 7 % of its bandwidth, and all hosts lose latency later.

WEEKS, FELL, ROSE = 10, 5, 7


def weekly():
    records = []
    for week in range(WEEKS):
        day = (datetime.date(2026, 1, 5) + datetime.timedelta(days=7 * week)).isoformat()
        for host, of_host in records_by_host(hosts=8, day=day, repetitions=3).items():
            for record in of_host:
                factor = 0.93 if host == "n002" and week >= FELL and record.check == "bandwidth" else 1.0
                factor *= 1.03 if week >= ROSE and record.check == "latency" else 1.0
                records.append(replace(record, samples=(record.value * factor,)))
    return records


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eight")
    records = weekly()
    schema.append(folder / "records.jsonl", records)
    run("report", folder / "records.jsonl", "-o", folder / "out")
    return records, page_of(folder / "out"), json.loads((folder / "out" / "summary.json").read_text())


def expected(record, week):
    """Return what the hosts have in a week, by how they were simulated."""
    return 103.0 if record.check == "latency" and week >= ROSE else 100.0


def test_the_card_and_the_heading_count_what_there_is(fleet):
    records, page, document = fleet
    card = next(text_of(e) for e in page.iter() if "card" in (e.get("class") or "").split())
    words = [host["verdict"] for host in document["systems"][0]["hosts"]]
    sentence = ", ".join(f"{words.count(w)} {w}" for w in ("fail", "suspect", "pass"))
    assert len(words) == 8
    assert f"8 hosts: {sentence}; 1 host with missing results." in card
    newest = max(r.time for r in records)[:10]
    assert f"measured {newest}, 7 of 8 have all results" in card
    bad = [r.value for r in records if (r.host, *key(r)) == ("n007", "bandwidth", "copy_bandwidth", 1)]
    assert "Worstn007: memory of bank 1: bandwidth" in card
    stated = re.search(rf"copy, NUMA 1 to bank 1: .+?, {NUMBER} % below the fleet", text_of(page)).group(1)
    assert is_shown(stated, 100 - statistics.median(bad), slack=0.3)
    heading = next(text_of(e) for e in page.iter("section") if "12 metrics" in text_of(e))
    assert f"{len({key(r) for r in records})} metrics, {len(records)} values." in heading


def test_a_change_over_time_is_within_those_of_its_metrics(fleet):
    records, page, document = fleet
    changes = document["systems"][0]["changes"]
    rows = table(page, "Changes over time")
    assert len(rows) == len(changes) == 2
    for row, change in zip(rows, changes, strict=True):
        sides = defaultdict(lambda: defaultdict(list))
        for record in records:
            if record.host in change["hosts"]:
                # The session before the change begins at "after".
                side = "before" if record.time[:10] <= change["after"][:10] else "after"
                sides[key(record), record.better][side].append(math.log(record.value))
        losses = [
            (1 if better == "lower" else -1)
            * math.expm1(statistics.mean(of["after"]) - statistics.mean(of["before"]))
            for (_, better), of in sides.items()
        ]
        assert change["worse"]
        assert 0 < abs(change["change"]) < 1.05 * max(losses)
        assert is_shown(row["change"].split()[0], 100 * change["change"])
        assert row["hosts"] == ("n002" if len(change["hosts"]) == 1 else f"{len(change['hosts'])} of 8 hosts")


# ----------------------------------------------------------------------
# The page of 300 hosts: the worst have a row of the map.


def test_the_page_of_many_hosts_summarises_all_of_them(tmp_path):
    by_host = records_by_host(hosts=300)
    records = [record for host_records in by_host.values() for record in host_records]
    store.append(tmp_path / "st", records)
    run("report", tmp_path / "st", "-o", tmp_path / "out")
    page, document = page_of(tmp_path / "out"), json.loads((tmp_path / "out" / "summary.json").read_text())
    words = {host["host"]: host["verdict"] for host in document["systems"][0]["hosts"]}
    assert (len(words), words["n007"], words["n011"], words["n005"]) == (300, "fail", "invalid", "suspect")
    counted = Counter(words.values())
    sentence = ", ".join(f"{counted[w]} {w}" for w in ("fail", "invalid", "suspect", "undecided") if counted[w])
    assert f"300 hosts: {sentence}, {counted['pass']} pass; 1 host with missing results." in text_of(page)

    shown = table(page, "Difference from the expected value")
    named = {row["host"].split()[-1] for row in shown}
    assert {host for host, word in words.items() if word != "pass"} <= named
    assert f"findings.parquet has {300 - len(named)} hosts more." in text_of(page)


# ----------------------------------------------------------------------
# Two campaigns compared


@pytest.mark.parametrize("hosts", [8, 14])
def test_a_comparison_has_the_medians_and_the_interval_of_each_change(tmp_path, hosts):
    before = records_by_host(hosts=hosts)
    after = records_by_host(hosts=hosts, day="2026-02-01", slower=0.02)
    campaigns = [[r for of_host in by_host.values() for r in of_host] for by_host in (before, after)]
    for name, records in zip(("before", "after"), campaigns, strict=True):
        schema.append(tmp_path / f"{name}.jsonl", records)
    files = [str(tmp_path / f"{name}.jsonl") for name in ("before", "after")]
    assert cli.main(["report", "--compare", *files, "-o", str(tmp_path / "out")]) == 1  # some became worse
    document = json.loads((tmp_path / "out" / "summary.json").read_text())
    rows = {row["metric"]: row for row in table(page_of(tmp_path / "out"), "All 12 metrics")}
    levels = defaultdict(list)
    for place, records in enumerate(campaigns):
        for record in records:
            if record.status == "valid":
                levels[title(record), record.host, place].append(record.value)
    words = {}
    for name in {title(r) for r in campaigns[0]}:
        both = [h for h in before if (name, h, 0) in levels and (name, h, 1) in levels]
        first, second = ([statistics.median(levels[name, h, place]) for h in both] for place in (0, 1))
        row = rows[name]
        assert int(row["hosts"]) == len(both)
        assert is_shown(row["before"].split()[0], statistics.median(first))
        assert is_shown(row["after"].split()[0], statistics.median(second))
        changes = [b / a - 1 for a, b in zip(first, second, strict=True)]
        # Values of hosts that changed unlike the others are moved towards the median.
        assert is_shown(row["change"].split()[0], 100 * statistics.median(changes), slack=0.3)
        low, high = map(float, re.fullmatch(rf"{NUMBER} % to {NUMBER} %", row["99 % interval"]).groups())
        assert low < 100 * statistics.median(changes) < high
        words[name] = re.match(r"\S+ ([a-z]+)", row["verdict"])[1]
    assert words == {name: "worse" if name.startswith("random latency") else "unchanged" for name in words}
    assert document["counts"] == {word: [*words.values()].count(word) for word in document["counts"]}


# ----------------------------------------------------------------------
# The page of one host


def test_the_tables_of_a_host_have_its_records(tmp_path):
    """Each row has the median, the ends, the spread and the number of a record, and no record is left out."""
    records = [*Machine(2, 4).everything()]
    summary, _, _ = built_report(tmp_path, records, generated=NOW)
    page = page_of(tmp_path)
    shown = set()

    def of_row(median, spread, count, *ends):
        fits = {
            place
            for place, record in enumerate(records)
            if is_shown(median, statistics.median(record.samples))
            and int(count) == len(record.samples)
            and all(is_shown(text, end) for text, end in zip(ends, ends_of(record), strict=False))
            and is_shown(
                spread, 100 * (max(record.samples) - min(record.samples)) / statistics.median(record.samples)
            )
        }
        assert fits, (median, spread, count, ends)
        shown.update(fits)

    def ends_of(record):
        return sorted((min(record.samples), max(record.samples)), reverse=record.better == "higher")

    tables = 0
    for element in page.iter("table"):
        head = element.find("thead")
        header = [text_of(cell) for cell in head[-1]] if head is not None else []
        if not {"median", "fastest", "slowest", "spread", "n"} <= set(header):
            continue
        tables += 1
        for line in element.find("tbody"):
            row = dict(zip(header, map(text_of, line), strict=True))
            of_row(row["median"], row["spread"].split()[0], row["n"], row["fastest"], row["slowest"])
    assert tables > 5
    # The scenarios have their ends instead of a spread.
    for element in page.iter("table"):
        if text_of(element.find("caption")).startswith("Alternatives: "):
            for line in element.find("tbody"):
                value, low, high, count = list(map(text_of, line))[3:7]
                fits = {
                    place
                    for place, record in enumerate(records)
                    if int(count) == len(record.samples)
                    and is_shown(value, statistics.median(record.samples))
                    and is_shown(low, min(record.samples))
                    and is_shown(high, max(record.samples))
                }
                assert fits, (value, low, high, count)
                shown.update(fits)
    # The matrices have a value, its spread and its number for each kernel.
    for element in page.iter("table"):
        if "stores" in text_of(element.find("caption")) and "medians" in text_of(element.find("caption")):
            for line in element.find("tbody"):
                cells = list(map(text_of, line))[3:]
                step = 4 if "of theory" in text_of(element.find("thead")) else 3
                for at in range(0, len(cells), step):
                    of_row(cells[at], cells[at + step - 2].split()[0], cells[at + step - 1])
    for line in summary.hosts[0][1]:
        if line.record is not None:
            place = records.index(line.record)
            assert place in shown
            assert is_shown(line.value.split()[0], statistics.median(records[place].samples))
    drawn = {n for n, r in enumerate(records) if r.check not in {"topology"}}
    assert drawn <= shown
