# SPDX-License-Identifier: Apache-2.0
"""A scratch in memory that spills to disk: real sorts of more than it holds, and files that are in use."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from factories.processes import wait_until
from firsttouch.execution import ram_scratch
from firsttouch.execution.ram_scratch import _Mover

FIRSTTOUCH = Path(sys.executable).with_name("firsttouch")


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def run(*argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, check=False, **more)


def test_a_sort_of_more_than_the_limit(tmp_path):
    draw = random.Random(3)  # noqa: S311
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{draw.getrandbits(256):064x}\n" for _ in range(600_000)))
    argv = ["--scratch", "ram:16MiB", "--json", "--share-host", "--", "sort", "-S", "2M", "-o", "sorted", lines]
    done = run(
        FIRSTTOUCH, "exec", "1Inst_Localalloc", *argv, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    assert run("sort", "-c", tmp_path / "sorted").returncode == 0
    assert (tmp_path / "sorted").stat().st_size == lines.stat().st_size
    scratch = json.loads(done.stderr.splitlines()[-1])["scratch"]
    assert scratch["limit_bytes"] == 16 << 20
    assert scratch["spilled_bytes"] > 20 << 20
    assert list(scratch["pages"]) == ["0"]
    assert scratch["reason"] == ""
    assert names(tmp_path) == ["lines", "sorted"]


#: Writes more than the limit as fast as it can, in files that it also reads, removes and appends to.
WRITER = """\
import os, sys
os.chdir(os.environ["TMPDIR"])
for number in range(120):
    with open(str(number), "wb") as out:
        out.write(bytes([number]) * (1 << 20))
    with open("log", "a") as log:
        log.write(f"{number}\\n")
    if number % 3 == 2:
        os.unlink(str(number - 1))
for number in range(120):
    if number % 3 != 1:
        assert open(str(number), "rb").read() == bytes([number]) * (1 << 20), number
assert open("log").read().split() == [str(number) for number in range(120)]
"""


def test_a_program_that_writes_faster_than_files_move_loses_nothing(tmp_path):
    with ram_scratch.ram_scratch([0], tmp_path, size_bytes=20 << 20) as scratch:
        done = run(sys.executable, "-c", WRITER, env={**os.environ, "TMPDIR": str(scratch.folder)})
        assert (done.returncode, done.stderr) == (0, "")
    assert scratch.spilled_files > 0
    assert scratch.reason == ""
    assert names(tmp_path) == []


@pytest.fixture
def mover(tmp_path, monkeypatch):
    """A mover of the files in memory/scratch to disk, as an object of this process."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    (tmp_path / "memory/scratch").mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as ending:
        yield _Mover(tmp_path / "memory/scratch", tmp_path / "disk", 1 << 30, ending)
        os.close(writing)
    signal.signal(signal.SIGIO, before)
    assert names(tmp_path / "memory") == ["scratch"]


def test_only_closed_files_move(mover, tmp_path):
    file, disk = tmp_path / "memory/scratch/file", tmp_path / "disk"
    file.write_text("content")
    file.chmod(0o640)
    os.utime(file, (5, 6))
    with file.open():
        mover._move(file)
    assert not file.is_symlink()
    mover._move(file)
    assert file.readlink().parent == disk
    assert (file.read_text(), file.stat().st_mode & 0o777, file.stat().st_mtime) == ("content", 0o640, 6)
    assert (mover.files, mover.bytes) == (1, 7)
    mover._move(file)  # a link
    mover._move(file.with_name("none"))
    # What nothing links to goes at the second search.
    mover._sweep()
    file.rename(file.with_name("new name"))
    mover._sweep()
    mover._sweep()
    assert file.with_name("new name").read_text() == "content"
    file.with_name("new name").unlink()
    mover._sweep()
    assert len(names(disk)) == 1
    mover._sweep()
    assert names(disk) == []


@pytest.mark.parametrize("late", [False, True])
def test_a_writer_that_comes_meanwhile_keeps_its_file(mover, tmp_path, monkeypatch, late):
    file = tmp_path / "memory/scratch/file"
    file.write_text("content")
    copied = mover._copied

    def append():
        with file.open("a") as out:
            out.write(" and more")

    writer = threading.Thread(target=append)

    def copied_meanwhile(source, *args):
        if not late:
            writer.start()
            wait_until(lambda: ram_scratch._is_broken(source), "the lease to break")
        result = copied(source, *args)
        if late:
            writer.start()
            wait_until(lambda: ram_scratch._is_broken(source), "the lease to break")
        return result

    monkeypatch.setattr(mover, "_copied", copied_meanwhile)
    mover._move(file)
    writer.join()
    assert not file.is_symlink()
    assert file.read_text() == "content and more"
    assert (mover.files, mover.reason, names(tmp_path / "disk")) == (0, "", [])


def test_a_full_disk_is_reported(mover, tmp_path, monkeypatch):
    (tmp_path / "disk").rmdir()
    (tmp_path / "disk").symlink_to("/dev/full")
    (tmp_path / "memory/scratch/file").write_text("content")
    mover._move(tmp_path / "memory/scratch/file")
    assert mover.reason.startswith(f"{tmp_path / 'disk'}: ")
    assert (tmp_path / "memory/scratch/file").read_text() == "content"


def test_a_killed_mover_is_reported(tmp_path):
    with ram_scratch.ram_scratch([0], tmp_path, size_bytes=20 << 20) as scratch:
        children = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split()
        for pid in children:
            if b"ram_scratch" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
    assert scratch.reason == "the process that moves files from memory to disk was killed"
