# SPDX-License-Identifier: Apache-2.0
"""Saved advice: for which cases it applies, and that only whole and valid files count."""

import json
import os

import pytest
from msgspec.structs import replace

from factories.users import OTHER, root_only
from firsttouch.advice import saved
from firsttouch.genomics.aligners import Aligner
from firsttouch.host.topology import load

GAIN = {"expected": 1.3, "low": 1.1, "high": 1.5}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_ADVICE", str(tmp_path / "advice"))
    return tmp_path / "advice"


@pytest.fixture
def key(opteron):
    return saved.program_key(opteron, ["bin/sorter", "-n"], 64)


def on_nodes(host, *nodes):
    """Return *host* as a job with these whole NUMA nodes sees it."""
    pus = frozenset(pu for n in nodes for pu in host.node(n).pus)
    return replace(host, allowed_pus=pus, allowed_nodes=frozenset(nodes))


def test_a_host_is_described_by_what_a_program_may_use_and_not_by_its_name(opteron):
    assert saved.describe_host(opteron).split(" ")[-8:] == ["8c8t16GiB"] * 8
    assert saved.describe_host(on_nodes(opteron, 0, 1)) == saved.describe_host(on_nodes(opteron, 4, 7))
    assert saved.describe_host(on_nodes(opteron, 0)) != saved.describe_host(opteron)
    other = replace(opteron, info={"CPUModel": "AMD EPYC 7742"})
    assert saved.describe_host(other).startswith("AMD EPYC 7742 8c8t16GiB ")


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["./sorter", "-n", "10", "a.txt", "../b", "/dev/fd/63"], ("-n", "10")),
        (["sorter", "--size=3.5", "--out=x/y.tsv", "-", "there"], ("--size=3.5", "--out=", "-")),
        (["python3", "scripts/join.py", "left.csv"], ("join.py",)),
        (["sh", "-c", "sort a/b | head"], ("-c", "sort a/b | head")),
        (["x", "y" * 5000, "{threads}"], ("y" * 5000, "{threads}")),
    ],
)
def test_names_of_data_files_do_not_matter(opteron, tmp_path, monkeypatch, words, own):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").touch()
    key = saved.program_key(opteron, words, 64)
    assert (key.program, key.words) == (words[0].rpartition("/")[2], own)


def test_an_advice_is_found_for_its_case_only(key, folder, monkeypatch):
    messages = []
    assert saved.lookup(key, messages.append) is None
    assert list(saved.entries(messages.append)) == []
    file = saved.save(key, "1x-interleave", GAIN, {"any": "thing"}, str)
    assert file == folder / f"{key.id}.json"
    saved.save(key, "1x-local", GAIN, {"any": "thing"}, str)
    again = saved.lookup(key, messages.append)
    assert (again.key, again.scenario, again.gain, again.details) == (key, "1x-local", GAIN, {"any": "thing"})
    for other in ({"threads": 32}, {"words": ()}, {"index": "x"}, {"mates": 2}, {"host": "x"}):
        assert saved.lookup(replace(key, **other), messages.append) is None
    assert list(saved.entries(messages.append)) == [again]
    monkeypatch.setattr(saved.zlib, "crc32", lambda _: 1)  # two cases may have one checksum
    saved.save(key, "1x-local", GAIN, {}, str)
    assert saved.lookup(replace(key, threads=32), messages.append) is None
    assert messages == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[:-9], "not saved advice, because it is not JSON"),
        (lambda _: "[]", "not saved advice: `firsttouch advise` writes it again"),
        (lambda text: text.replace('"schema": 2', '"schema": 1'), "saved advice of schema 1, this version reads"),
        (lambda text: text.replace('"1x-interleave"', "7"), "not saved advice, scenario: '7'"),
        (
            lambda text: text.replace('"time": "2', '"time": "x'),
            "not saved advice, the file: Invalid isoformat string",
        ),
        (lambda text: text.replace('s": {}', 's": {"bases": "x"}'), "not saved advice, the file: details.bases"),
        (lambda text: text.replace('"threads": 64', '"threads": 32'), "saved advice for another case"),
        (lambda _: "[" * 100_000, "not saved advice, because it is not JSON"),
        (lambda text: text.replace("64", "9" * 400), "saved advice for another case"),
        (lambda text: text.replace("64", "1e999"), "not saved advice, because it is not JSON"),
    ],
)
def test_a_file_that_is_no_advice_is_reported_and_ignored(key, change, reason):
    file = saved.save(key, "1x-interleave", None, {}, str)
    file.write_text(change(file.read_text()))
    messages = []
    assert saved.lookup(key, messages.append) is None
    assert messages[0].startswith(f"saved advice is ignored: {file}: {reason}")
    assert list(saved.entries(messages.append)) == []
    assert len(messages) == 2


def test_advice_is_listed_and_deleted(run_cli, opteron):
    here = saved.program_key(load(), ["sorter", "-n"], 2)
    away = saved.program_key(opteron, ["other"], 64)
    for key in (here, away):
        saved.save(key, "1x-interleave", GAIN, {}, str)
    status, out, _ = run_cli("advise", "--list")
    lines = {line.split()[0]: line for line in out.splitlines()[2:] if not line.startswith(" ")}
    assert (status, set(lines)) == (0, {here.id, away.id})
    assert ("sorter -n" in lines[here.id], lines[here.id].endswith("yes")) == (True, True)
    assert "no:" in lines[away.id]
    shown = json.loads(run_cli("advise", "--list", "--json").out)
    assert {row["id"]: row["applies_here"] for row in shown} == {here.id: True, away.id: False}
    assert run_cli("advise", "--forget", away.id) == (0, "", "")
    status, _, err = run_cli("advise", "--forget", away.id)
    assert (status, f"no saved advice '{away.id}': there are {here.id}" in err) == (2, True)


@root_only
def test_advice_of_another_user_is_followed_only_if_the_folder_is_that_users(key, folder):
    file = saved.save(key, "1x-interleave", GAIN, {}, str)
    os.chown(file, OTHER, OTHER)
    messages = []
    assert saved.lookup(key, messages.append) is None
    assert messages[0].startswith(
        f"saved advice is ignored: {file}: saved advice of another user ({OTHER}), who does"
    )
    assert list(saved.entries(messages.append)) == []
    os.chown(folder, OTHER, OTHER)
    assert saved.lookup(key, messages.append).scenario == "1x-interleave"


def test_advice_for_another_version_of_the_aligner_is_named(run_cli, key, monkeypatch):
    monkeypatch.setattr(Aligner, "version", lambda _: "0.7.99")
    key = replace(key, program="bwa-mem", host=saved.describe_host(load()))
    saved.save(replace(key, version="0.7.17"), "1x-local", GAIN, {}, str)
    messages = []
    assert saved.lookup(replace(key, version="0.7.99"), messages.append) is None
    assert messages[0].endswith(" for bwa-mem is not followed: it is for version 0.7.17, and this is 0.7.99")
    assert "no: it is for version 0.7.17\n" in run_cli("advise", "--list").out


@pytest.mark.parametrize("words", [["--list"], ["--", "true"]])
def test_a_folder_that_cannot_be_used_is_named_at_once(run_cli, folder, words):
    folder.touch()
    status, out, err = run_cli("advise", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert str(folder) in err


@pytest.mark.parametrize(("mode", "folder_mode"), [(0o666, 0o755), (0o644, 0o777)])
def test_advice_that_every_user_may_change_is_ignored(key, folder, mode, folder_mode):
    file = saved.save(key, "1x-interleave", GAIN, {}, str)
    file.chmod(mode)
    folder.chmod(folder_mode)
    messages = []
    assert saved.lookup(key, messages.append) is None
    assert "saved advice that every user may change" in messages[0]
    folder.chmod(0o1777)  # where nobody can replace the files of others
    saved.save(key, "1x-local", GAIN, {}, str)
    assert saved.lookup(key, print).scenario == "1x-local"


def test_texts_of_advice_do_not_reach_the_terminal(run_cli, folder, key):
    hostile = "a\x1b]0;t\a\nforged"
    other = replace(key, host=hostile, program=hostile, index=hostile, words=(hostile,))
    saved.save(other, hostile, GAIN, {}, str)
    out = run_cli("advise", "--list").out
    assert r"\x1b" in out
    assert not {"\x1b", "\a"} & {*out}
    assert not [line for line in out.splitlines() if line.startswith("forged")]


@pytest.mark.parametrize(
    ("bases", "now", "reason"),
    [
        (3_000_000, 2_000_000, ""),
        (3_000_000, 29_000_000, ""),
        (3_000_000, 4e8, "it is from a run of 3 million bases, and this one has about 400 million bases"),
        (3_000_000, None, ""),  # reads from a pipe
        (None, 4e8, ""),  # not an aligner
    ],
)
def test_advice_of_a_small_test_is_not_for_a_full_run(key, bases, now, reason):
    saved.save(key, "1x-interleave", GAIN, {} if bases is None else {"bases": bases}, str)
    assert saved.lookup(key, print).outgrown(now) == reason
