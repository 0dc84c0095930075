# SPDX-License-Identifier: Apache-2.0
"""Files that instances read instead of pipes, and when they began to read files or pipes."""

import os
import select
import time

from factories.processes import wait_until
from firsttouch.genomics.dealing import Feed, InstanceFiles
from firsttouch.genomics.pipe_writer import StopRequest


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
