# SPDX-License-Identifier: Apache-2.0
"""What instances read in place of pipes, and when they began to read either."""

import ctypes
import os
import select
import time
from types import SimpleNamespace

import pytest

from factories.processes import wait_until
from firsttouch.genomics.dealing import Feed
from firsttouch.genomics.instance_files import FirstReads, InstanceFiles
from firsttouch.genomics.pipe_writer import StopRequest


@pytest.fixture
def inotify():
    """Skips a test if this user's other programs have all instances of inotify."""
    library = ctypes.CDLL(None, use_errno=True)
    if (handle := library.inotify_init1(os.O_CLOEXEC)) == -1:
        pytest.skip(f"NOT TESTED: no instance of inotify: {os.strerror(ctypes.get_errno())}")
    os.close(handle)


def test_files_have_what_they_were_given_and_the_users_stay(tmp_path):
    files = InstanceFiles([tmp_path / "1.fq", tmp_path / "2.fq"])
    for data in ((b"a", memoryview(b"x")), (b"b", b"y")):
        files.put(data)
    files.close()
    assert [file.read_bytes() for file in files.files] == [b"ab", b"xy"]
    given = InstanceFiles(files.files, are_given=True)
    given.put((b"c",))
    given.close()
    assert given.files[0].read_bytes() == b"ab"


@pytest.mark.usefixtures("inotify")
def test_when_a_program_began_to_read_a_file(tmp_path):
    file = tmp_path / "r.fq"
    file.write_bytes(bytes(1000))
    reads = FirstReads([file])
    before = time.monotonic()
    assert len(file.read_bytes()) == 1000
    (began,) = reads.stop().values()
    assert before <= began <= time.monotonic()
    assert FirstReads([file]).stop() == {}


def test_when_a_program_began_to_read_a_pipe():
    """It loads its index first, so to speak; and one to which a page is enough is not seen."""
    for size in (100_000, 10):
        (reading, writing), stop = os.pipe(), StopRequest()
        feed = Feed([writing], stop)
        feed.put([bytes(size)])
        feed.close()
        feed.start()
        if size > select.PIPE_BUF:
            wait_until(lambda into=writing: not select.select([], [into], [], 0)[1], "a full pipe")
        before = time.monotonic()
        with os.fdopen(reading, "rb") as stream:
            assert len(stream.read()) == size
        feed.join()
        assert (feed.reading_since is None) == (size < select.PIPE_BUF)
        assert feed.reading_since is None or before <= feed.reading_since <= time.monotonic()
        stop.close()


@pytest.mark.usefixtures("inotify")
def test_a_limit_of_watches_is_reported(tmp_path, monkeypatch, capsys):
    library = ctypes.CDLL(None)
    refusing = SimpleNamespace(inotify_init1=library.inotify_init1, inotify_add_watch=lambda *_: -1)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: refusing)
    times = FirstReads([tmp_path / "1.fq", tmp_path / "2.fq"]).stop()
    assert times == {}
    messages = capsys.readouterr().err.splitlines()
    assert len(messages) == 1
    assert messages[0].startswith(
        f"note: when an instance begins to read is not known for all ({tmp_path}/1.fq: inotify"
    )
