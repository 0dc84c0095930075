# SPDX-License-Identifier: Apache-2.0
"""The command ``firsttouch report``: what it replaces, what it refuses, what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from factories.host_records import Machine
from factories.processes import run_parsed
from firsttouch.errors import BadInput
from firsttouch.records import schema


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    machine = Machine(1, 2)
    schema.append(folder / "a" / "records.jsonl", machine.topology())
    schema.append(folder / "b" / "records.jsonl", machine.contention())
    return folder


def test_a_folder_of_records_becomes_a_report(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "report"
    assert run_parsed("report", results, "-o", out) == 0
    assert "thread bandwidth, 2 threads" in capsys.readouterr().out
    assert (out / "index.html").is_file()
    assert [p.name for p in out.parent.iterdir()] == ["report"]
    assert out.stat().st_mode & 0o777 == (tmp_path / "deep").stat().st_mode & 0o777


def test_json_is_the_only_thing_on_stdout(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_parsed("report", results, "-o", tmp_path / "report", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "report" / "summary.json").read_text())


def test_the_topology_is_taken_along(results: Path, tmp_path: Path) -> None:
    xml = tmp_path / "n1.xml"
    xml.write_text(Machine(1, 2).xml())
    run_parsed("report", results, "-o", tmp_path / "report", "--xml", xml)
    assert (tmp_path / "report" / "topology.xml").read_text() == xml.read_text()


def test_an_earlier_report_is_replaced_as_a_whole(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    xml = tmp_path / "n1.xml"
    xml.write_text(Machine(1, 2).xml())
    run_parsed("report", results, "-o", out, "--xml", xml)
    run_parsed("report", results / "a", "-o", out)
    assert not (out / "topology.xml").exists()
    assert set(json.loads((out / "summary.json").read_text())["hosts"][0]["checks"]) == {"topology"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["n1.xml", "report", "results"]


def test_a_link_to_the_latest_report_stays_a_link(results: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "latest").symlink_to("one")
    run_parsed("report", results, "-o", tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "one" / "index.html").is_file()


def test_a_report_with_a_note_beside_it_is_refused(results: Path, tmp_path: Path) -> None:
    run_parsed("report", results, "-o", tmp_path / "report")
    (tmp_path / "report" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="it holds notes"):
        run_parsed("report", results, "-o", tmp_path / "report")


def test_a_failure_leaves_the_earlier_report_and_nothing_beside_it(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    run_parsed("report", results, "-o", out)
    before = (out / "index.html").read_bytes()
    for file in results.rglob("records.jsonl"):
        file.write_text('{"schema": 1, "check": "half"\n')
    with pytest.raises(BadInput, match=r"records\.jsonl:1: not JSON"):
        run_parsed("report", results, "-o", out)
    assert (out / "index.html").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report", "results"]


def fleet(folder: Path, damage: dict[str, tuple[str, str]]) -> Path:
    """Write a fleet of eight hosts; *damage* replaces a text in the lines of some hosts by another one."""
    file = folder / "fleet.jsonl"
    for host in (f"n{i}" for i in range(8)):
        records = [replace(r, host=host, system="local") for r in Machine(1, 2, host=host).bandwidth()]
        schema.append(part := folder / f"{host}.part", records)
        text = part.read_text()
        part.unlink()
        with file.open("a") as out:
            out.write(text.replace(*damage.get(host, ("", ""))) if host in damage else text)
    return file


def words_of(file: Path, run_cli: Callable[..., Any]) -> tuple[dict[str, str], dict[str, str], str]:
    """Return the verdicts of `validate` and of `report` by host, and the messages of the latter."""
    judged = run_cli("validate", "--json", "--system", "local", file)
    reported = run_cli("report", "--json", "--system", "local", file, "-o", file.with_name("out"))
    (of_system,) = json.loads(reported.out)["systems"]
    words = [
        {h["host"]: h["verdict"] for h in hosts} for hosts in (json.loads(judged.out)["hosts"], of_system["hosts"])
    ]
    return words[0], words[1], reported.err


@pytest.mark.parametrize(
    "damage",
    [
        {"n3": ('"samples": [', '"samples": ["x", ')},
        {"n3": ('"samples": [', '"samples": ["x", '), "n5": ('"time": "2', '"time": "3')},
        {"n3": ('"host": "n3"', '"host": ""')},
        {f"n{i}": ('"time": "2', '"time": "3') for i in range(8)},
    ],
    ids=["unreadable", "and of the future", "without a name", "all of the future"],
)
def test_a_report_has_the_words_and_hosts_of_validate(
    tmp_path: Path, run_cli: Callable[..., Any], damage: dict[str, tuple[str, str]]
) -> None:
    judged, reported, messages = words_of(fleet(tmp_path, damage), run_cli)
    assert reported == judged
    for host in damage.keys() & judged.keys():
        assert judged[host] == "suspect"
    assert "fleet.jsonl" in messages or "in the future" in messages


def test_hosts_that_seem_to_have_two_names_are_named(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    renamed = {"n3": ('"host": "n3"', '"host": "n4.site.org"'), "n5": ('"host": "n5"', '"host": "N6"')}
    _, reported, messages = words_of(fleet(tmp_path, renamed), run_cli)
    assert [line for line in messages.splitlines() if "seem to be" in line] == [
        "firsttouch: 'N6' and 'n6' seem to be one host, and are judged as two: its records need one name",
        "firsttouch: 'n4' and 'n4.site.org' seem to be one host, and are judged as two: its records need one name",
    ]
    assert {"n4.site.org", "N6"} < reported.keys()
