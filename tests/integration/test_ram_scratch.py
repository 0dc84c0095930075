# SPDX-License-Identifier: Apache-2.0
"""A scratch in memory: what programs move out of it stays, and a full one is a full disk."""

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from factories.processes import captured
from firsttouch.errors import CannotHere
from firsttouch.execution import ram_scratch

FIRSTTOUCH = Path(sys.executable).with_name("firsttouch")


def exec_sh(script, folder, *options):
    return captured(
        [FIRSTTOUCH, "run", "1x-local", *options, "--share-host", "--", "sh", "-c", script], cwd=folder
    )


@pytest.mark.parametrize("move", ["mv $TMPDIR/x x", "cp -a $TMPDIR/x x", "tar -C $TMPDIR -cf - x | tar -xf -"])
def test_a_file_that_leaves_the_scratch_keeps_its_data(tmp_path, move):
    script = f"head -c 7000000 /dev/urandom >$TMPDIR/x; cksum <$TMPDIR/x; {move}"
    done = exec_sh(script, tmp_path, "--scratch", "ram:16MiB", "--json")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "x").is_symlink()
    with (tmp_path / "x").open("rb") as stream:
        assert captured(["cksum"], stdin=stream, check=True).stdout == done.stdout
    scratch = json.loads(done.stderr.splitlines()[-1])["scratch"]
    nodes = ",".join(map(str, scratch["numa_nodes"]))
    assert scratch == {"numa_nodes": scratch["numa_nodes"], "size_bytes": 16 << 20, "policy": f"bind:{nodes}"}
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_full_scratch_is_a_full_disk(tmp_path):
    done = exec_sh("head -c 3000000 /dev/zero >$TMPDIR/x", tmp_path, "--scratch", "ram:2MiB")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_size_is_what_was_asked_for():
    with ram_scratch.ram_scratch([0], size_bytes=1 << 20) as scratch:
        space = os.statvfs(scratch.folder)
        assert space.f_blocks * space.f_frsize == scratch.size_bytes == 1 << 20
        with pytest.raises(OSError, match="No space left") as error:
            (scratch.folder / "file").write_bytes(bytes((1 << 20) + 1))
        assert error.value.errno == errno.ENOSPC
    assert not scratch.folder.exists()


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["ram:0"], 2, "a scratch of 0 bytes holds nothing: give a size such as ram:4GiB"),
        (["ram:x"], 2, "'x' is not a quantity of bytes"),
        (["/etc/passwd"], 2, "/etc/passwd: --scratch: is not a folder"),
        (["ram:9000TiB"], 3, "are needed, and NUMA node"),
    ],
)
def test_a_size_that_cannot_be(tmp_path, words, status, message):
    done = exec_sh(":", tmp_path, "--scratch", *words)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr


def test_too_little_memory(monkeypatch):
    monkeypatch.setattr(ram_scratch, "available_bytes", lambda: 20 << 20)
    with pytest.raises(CannotHere, match="leave --scratch ram out"), ram_scratch.ram_scratch([0]):
        pass
