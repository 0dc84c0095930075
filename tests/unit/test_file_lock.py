# SPDX-License-Identifier: Apache-2.0
"""Locks between processes: who waits, who is informed, and when a lock ends."""

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from firsttouch.records.file_lock import lock_file, lock_folder, try_lock

HOLDER = """\
import sys, time
from pathlib import Path
from firsttouch.records.file_lock import lock_file
with lock_file(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(300)
"""


def test_a_killed_holder_releases_the_lock_and_waiting_is_announced_once(tmp_path):
    file, waits = tmp_path / "lock", []
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(file)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"

        def kill():
            waits.append(1)
            holder.kill()

        with lock_file(file, on_wait=kill):
            assert waits == [1]


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="No locks available") as caught, lock_file(tmp_path / "lock"):
        pass
    assert (caught.value.errno, caught.value.filename) == (errno.ENOLCK, str(tmp_path / "lock"))


def test_a_file_that_may_only_be_read_is_locked_too(tmp_path, monkeypatch):
    file = tmp_path / "lock"
    file.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with lock_file(file), file.open() as other:
        assert not try_lock(other.fileno())


def test_a_shared_lock_of_a_folder_keeps_out_an_exclusive_one(tmp_path):
    first, second = (lock_folder(tmp_path, shared=True) for _ in range(2))
    assert None not in {first, second}
    assert lock_folder(tmp_path) is None
    os.close(first)
    os.close(second)
    handle = lock_folder(tmp_path)
    assert handle is not None
    os.close(handle)


def test_what_is_no_folder_is_not_locked_as_one(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    assert [lock_folder(tmp_path / name) for name in ("file", "link", "absent")] == [None] * 3
