# SPDX-License-Identifier: Apache-2.0
"""``firsttouch stage``: copies for a command, and copies that stay, are listed, served if fresh, and dropped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from factories.processes import wait_until
from firsttouch.errors import RunFailed
from firsttouch.execution import ram_store, staging
from firsttouch.execution.staging import staged

FIRSTTOUCH = Path(sys.executable).with_name("firsttouch")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, with some files; at the end, nothing may be staged."""
    monkeypatch.setenv("FIRSTTOUCH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "IDX").mkdir()
    for name, size in {"ref.fa": 3 << 20, "ref.fa.bwt": 5000, "IDX/Genome": 100, "two words": 1}.items():
        (tmp_path / name).write_bytes(os.urandom(size))
    yield tmp_path
    for each in staging.all_staged():
        staging.drop(each)
    assert list(ram_store.holders()) == []


def stage(*words):
    return subprocess.run([FIRSTTOUCH, "stage", *words], capture_output=True, text=True, check=False)


def test_a_command_has_the_copies_as_long_as_it_runs(folder):
    script = 'cmp "$0" ref.fa && cmp "$1" "two words" && ls "$2" && echo "$3" "$FIRSTTOUCH_STAGED"; exit 7'
    words = ["sh", "-c", script, "{1}", "{2}", "{folder}/IDX", "{0} {} ${folder}"]
    done = stage("--on", "all", "--json", "ref.fa", "two words", "IDX/", "--", *words)
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines()[0] == "Genome"
    place = done.stdout.split()[-1]
    assert done.stdout.splitlines()[1] == f"{{0}} {{}} ${place} {place}"
    assert not Path(place).exists()
    document = json.loads(done.stderr.splitlines()[-1])
    assert document["exit_status"] == 7
    assert document["pages"] == {"0": (3 << 20) // 4096 + 2}
    assert document["numa_nodes"] == [0]
    assert document["size_bytes"] == (3 << 20) + 101


def test_copies_stay_until_they_are_dropped(run_cli, folder):
    done = stage("--on", "0", "ref.fa", "ref.fa.bwt", "IDX")
    assert done.returncode == 0, done.stderr
    place = Path(done.stdout.strip())
    assert (place / "ref.fa").read_bytes() == Path("ref.fa").read_bytes()
    assert f"until `firsttouch staged drop {place.name[11:]}`, or until this session ends" in done.stderr
    assert staged([Path("ref.fa"), Path("ref.fa.bwt")], [0]) == place
    assert staged([Path("IDX")], [0]) == place
    assert staged([Path("two words")], [0]) is None
    assert staged([Path("ref.fa")], [0, 1]) is None
    (listed,) = json.loads(run_cli("staged", "list", "--json").out)["staged"]
    assert listed["state"] == "fresh"
    assert listed["pages"] == {"0": (3 << 20) // 4096 + 3}
    assert listed["files"]["IDX/Genome"] == str(folder / "IDX/Genome")
    with staging.in_use(place):
        refused = run_cli("staged", "drop", listed["id"])
        assert (refused.status, "a command uses these copies" in refused.err) == (1, True)
    # A change of content, a new file in a folder, and a damaged copy are all stale.
    (folder / "IDX/Hash").touch()
    assert staged([Path("IDX")], [0]) is None
    os.utime(place / "ref.fa.bwt")
    assert staged([Path("ref.fa.bwt")], [0]) is None
    with Path("ref.fa").open("r+b") as out:
        out.write(b"changed")
    assert staged([Path("ref.fa")], [0]) is None
    assert "stale" in run_cli("staged", "list").out
    assert run_cli("staged", "drop", "x").err.startswith("firsttouch: error: no staged files 'x': there are ")
    assert run_cli("staged", "drop", listed["id"]).status == 0
    assert not place.exists()
    assert run_cli("staged", "list").out == "nothing is staged on this host\n"
    assert run_cli("staged", "drop").err == "firsttouch: nothing is staged on this host\n"
    with pytest.raises(RunFailed, match="have been dropped"), staging.in_use(place):
        pass


def test_a_folder_is_served_only_with_exactly_its_files(run_cli):
    index, empty = Path("index"), Path("empty")
    index.mkdir()
    empty.mkdir()
    for name in ("Genome", "Hash"):
        (index / name).touch()
    assert run_cli("stage", "--on", "0", index).status == 0
    assert staged([index], [0])
    assert staged([empty], [0]) is None
    assert staged([], [0]) is None
    (index / "Hash").unlink()
    assert staged([index], [0]) is None


def test_copies_with_a_time_limit_go_by_themselves(run_cli):
    run_cli("stage", "--on", "0", "--keep", "1h", "ref.fa")
    assert json.loads(run_cli("staged", "list", "--json").out)["staged"][0]["until"]
    run_cli("staged", "drop")
    place = Path(run_cli("stage", "--on", "0", "--keep", "1s", "ref.fa").out.strip())
    wait_until(lambda: not place.exists(), "the end of the holder")
    assert run_cli("staged", "list").out == "nothing is staged on this host\n"


def test_files_that_do_not_fit_stay_on_disk_if_that_is_wanted(run_cli, folder):
    with Path("large").open("wb") as out:
        out.truncate(1 << 43)
    refused = run_cli("stage", "--on", "0", "large", "ref.fa")
    assert refused.status == 3
    assert "8 TiB are needed, and NUMA node 0 has " in refused.err
    done = run_cli("stage", "--on", "0", "--spill", "--json", "ref.fa", "large", "two words")
    assert "large: stays on disk, 8 TiB do not fit" in done.err
    document = json.loads(done.out)
    assert document["on_disk"] == {"large": str(folder / "large")}
    assert Path(document["folder"], "large").readlink() == folder / "large"
    assert sorted(document["files"]) == ["ref.fa", "two words"]
    assert staged([Path("large")], [0]) is None


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["ref.fa"], 2, "on which NUMA nodes?"),
        (["--on", "x", "ref.fa"], 2, "--on x: give NUMA nodes such as 0, 0-3 or all, or interleave"),
        (["--on", "0"], 2, "no file to stage"),
        (["--on", "0", "none", "--", "true"], 2, "none: cannot be copied: No such file or directory"),
        (["--on", "0", "/dev/null"], 2, "/dev/null: not a regular file"),
        (["--on", "0,77", "ref.fa"], 3, "NUMA node 77 does not exist"),
        (["--on", "0", "ref.fa", "--", "wc", "{2}"], 2, "the command has {2}, and the last file is {1}"),
        (["--on", "0", "--keep", "1h", "ref.fa", "--", "true"], 2, "--keep is for copies that stay"),
        (["--on", "0", "--keep", "0", "ref.fa"], 2, "argument --keep: '0' is not a time above 0"),
        (["--on", "0", "ref.fa", "--", "no-such-program"], 3, "'no-such-program' is not on PATH"),
    ],
)
def test_one_line_says_what_is_wrong(run_cli, words, status, message):
    done = run_cli("stage", *words)
    assert (done.status, done.out) == (status, "")
    assert message in done.err.splitlines()[-1]
    assert "takes a unit now" not in done.err
