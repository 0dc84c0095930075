# SPDX-License-Identifier: Apache-2.0
"""The log of verdicts: a line per measurement, whoever appends, and whatever else is in the folder."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from firsttouch.errors import BadInput
from firsttouch.fleet import verdict_log
from firsttouch.judge.verdict import HostVerdict

LINE = {"time": 5.0, "host": "n1", "system": "s", "verdict": "pass", "reason": "", "source": "c"}


def verdict(host="n1", *missing):
    return HostVerdict(host, "s", (), 0, missing)


def write(folder, *lines, host="n1", end="\n"):
    folder.mkdir(exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / f"{host}.jsonl").write_bytes("\n".join(texts).encode("utf-8", "surrogateescape") + end.encode())


def test_what_is_appended_is_read_once(tmp_path):
    for when, source in ((20.0, "b"), (10.0, "a"), (10.0, "a"), (0.0, "never measured")):
        verdict_log.append(verdict("n1", "latency-0: its job died"), when, source, tmp_path)
    verdict_log.append(verdict("n2.site"), 10.0, "a", tmp_path)
    logs = verdict_log.read(tmp_path)
    assert list(logs) == ["n1", "n2.site"]
    assert [(line.time, line.source) for line in logs["n1"]] == [(10.0, "a"), (20.0, "b")]
    assert logs["n1"][0].reason == "missing: latency-0: its job died"
    assert (tmp_path / "n1.jsonl").read_bytes().count(b"\n") == 2
    with pytest.raises(BadInput, match="not the name of a host"):
        verdict_log.append(verdict("../n1"), 10.0, "a", tmp_path)
    assert verdict_log.read(tmp_path / "nosuch") == {}


def test_the_verdict_by_the_fleet_replaces_the_host_s_own(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_VERDICTS", str(tmp_path))
    verdict_log.publish(verdict(), 10.0, "c", tmp_path / "own")
    write(tmp_path / "log", {**LINE, "time": 10.0, "verdict": "fail"}, {**LINE, "time": 10.0, "verdict": "pass"})
    assert [line.verdict for line in verdict_log.read()["n1"]] == ["pass"]
    assert {p.name for p in tmp_path.iterdir()} == {"own", "n1", "log"}


DAMAGED = [
    *({**LINE, "verdict": word} for word in ("good", None, [])),
    *({**LINE, "time": when} for when in ("x", None, float("nan"), float("inf"), [], {})),
    *({**LINE, name: 3} for name in ("system", "reason")),
    {"time": 1.0},
    *("5", "[]", "null", '"text"', "{", "[" * 100_000, "\udcff", "\0", "{}"),
]
HOSTILE = [{**LINE, "host": "n2"}, *({**LINE, "time": when} for when in (-1, 0, 1e12)), "", *DAMAGED]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_foreign_lines_are_left_out(tmp_path, line):
    write(tmp_path, {**LINE, "time": 4.0}, line, LINE)
    write(tmp_path, {**LINE, "host": "n3"}, host="n3")
    logs = verdict_log.read(tmp_path)
    assert {host: [line.time for line in lines] for host, lines in logs.items()} == {"n1": [4.0, 5.0], "n3": [5.0]}


@pytest.mark.parametrize("line", DAMAGED, ids=range(len(DAMAGED)))
def test_a_host_whose_newest_line_is_damaged_is_suspect(tmp_path, capsys, line):
    write(tmp_path, LINE, line, line)
    passed, suspicion = verdict_log.read(tmp_path)["n1"]
    assert (passed.verdict, suspicion.verdict, suspicion.system) == ("pass", "suspect", "s")
    assert suspicion.time > passed.time
    log = tmp_path / "n1.jsonl"
    assert capsys.readouterr().err == f"firsttouch: {log}: left out: 2 lines that cannot be read\n"
    write(tmp_path, {**LINE, "verdict": "fail"}, line)
    assert [logged.verdict for logged in verdict_log.read(tmp_path)["n1"]] == ["fail"]
    write(tmp_path, LINE, line)
    verdict_log.append(verdict("n1", "latency-0: its job died"), 20.0, "c", tmp_path)
    assert [logged.verdict for logged in verdict_log.read(tmp_path)["n1"]] == ["pass", "suspect"]


def test_foreign_files_are_left_out_and_of_a_huge_log_the_end_is_read(tmp_path):
    os.mkfifo(tmp_path / "n2.jsonl")
    (tmp_path / "n4.jsonl").mkdir()
    write(tmp_path, LINE, host="-n5")
    write(tmp_path, *({**LINE, "time": float(n + 1), "reason": "x" * 400} for n in range(3000)))
    logs = verdict_log.read(tmp_path)
    assert list(logs) == ["n1"]
    assert 1500 < len(logs["n1"]) < 3000
    assert logs["n1"][-1].time == 3000.0


@pytest.mark.parametrize("name", ["../../n1", "", ".n1", "n1\n"])
def test_a_verdict_of_no_host_writes_no_file(tmp_path, monkeypatch, name):
    monkeypatch.setenv("FIRSTTOUCH_VERDICTS", str(tmp_path / "a" / "b"))
    with pytest.raises(BadInput, match="not the name of a host"):
        verdict_log.publish(verdict(host=name), 5.0, "c-1", tmp_path / "other")
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_of_concurrent_writers_no_line_is_lost(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: verdict_log.append(verdict(), 1.0 + n, f"c{n % 3}", tmp_path), range(40)))
    assert [line.time for line in verdict_log.read(tmp_path)["n1"]] == [1.0 + n for n in range(40)]
