# SPDX-License-Identifier: Apache-2.0
"""The section Configuration of a fleet's report."""

import json

import pytest
from msgspec.structs import replace

from factories.fleet_records import records_by_host
from firsttouch.records import schema
from firsttouch.records.schema import Record

SLOW = ("n001", "n002", "n007", "n012")
MODULES = {f"memory.modules.A{slot}": "32 GiB DDR4-3200" for slot in range(2)}


def settings_of(host):
    """Four slow hosts have an old kernel; one has <b> as firmware, another lacks a module."""
    settings = {"kernel.release": "5.15", "firmware.version": "2.4", "cpu.model": "Xeon", **MODULES}
    if host in SLOW:
        settings["kernel.release"] = "5.14"
    if host == "n003":
        settings["firmware.version"] = "<b>"
    if host == "n004":
        del settings["memory.modules.A1"]
    return settings


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Twenty hosts of a system in one file."""
    file = tmp_path_factory.mktemp("drift") / "records.jsonl"
    listed = []
    for host, measured in records_by_host(hosts=20, repetitions=3).items():
        for r in measured:
            slow = 0.9 if host in SLOW and r.check == "bandwidth" else 1.0
            listed.append(replace(r, samples=tuple(slow * sample for sample in r.samples)))
        if host != "n005":
            parameters = {"settings": settings_of(host), "provenance": {"memory.modules": "dmidecode"}}
            when = "2026-01-01T00:00:00+00:00"
            fields = ("configuration", "settings", "1", "neither", (1,), parameters)
            listed.append(Record(*fields, host=host, system="s", time=when))
    schema.append(file, listed)
    return file


def test_the_report_names_what_deviates(records, tmp_path, run_cli):
    status, out, _ = run_cli("report", records, "-o", tmp_path / "out")
    assert status == 0
    page = (tmp_path / "out" / "index.html").read_text().replace("\xa0", " ")
    rows = page[page.index("Deviations from the golden configuration: 3 groups") :]
    assert "kernel.release 5.14 (most: 5.15)" in rows
    assert "4 hosts, n[001-002,007,012]" in rows
    assert "firmware.version &lt;b&gt; (most: 2.4)" in rows
    assert "memory module A1: absent (most: 32 GiB DDR4-3200)" in rows
    ticket = (tmp_path / "out" / "summary.md").read_text().replace("\\", "")
    assert "kernel.release 5.14 (most: 5.15): 4 hosts, n[001-002,007,012]" in ticket
    assert "kernel.release 5.14" in out
    (system,) = json.loads((tmp_path / "out" / "summary.json").read_text())["systems"]
    assert system["configuration"]["hosts"] == 19
    assert system["configuration"]["golden"]["firmware.version"] == "2.4"
    assert list(SLOW) in [deviation["hosts"] for deviation in system["configuration"]["deviations"]]
