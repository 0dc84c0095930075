# SPDX-License-Identifier: Apache-2.0
"""Downloads from a real server: whole, resumed, started over, or failed; never a part for a whole."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.http_server import Server, serving
from firsttouch.datasets import fetch as module
from firsttouch.datasets.fetch import download
from firsttouch.errors import Missing, RunFailed

CONTENT = os.urandom(700_000)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_WAIT", 0.0)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(CONTENT) as running:
        yield running


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "data.fq.part"


def fetch(server: Server, part: Path, limit: int | None = None) -> list[tuple[str, int, int | None]]:
    seen: list[tuple[str, int, int | None]] = []
    download(server.url, part, lambda *progress: seen.append(progress), limit=limit)
    return seen


def test_whole_with_progress_in_bytes(server: Server, part: Path) -> None:
    seen = fetch(server, part)
    assert part.read_bytes() == CONTENT
    assert seen[-1] == ("downloading data.fq", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_whole_part_is_not_sent_again(server: Server, part: Path) -> None:
    fetch(server, part)
    fetch(server, part)
    assert server.asked == [None, f"bytes={len(CONTENT)}-"]


def test_a_connection_that_breaks_is_resumed(server: Server, part: Path) -> None:
    server.cuts = [300_000, 100_000]
    fetch(server, part)
    assert part.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=400000-"]


@pytest.mark.parametrize("flaw", ["", "no ranges", "longer"])
def test_a_part_of_an_earlier_run(server: Server, part: Path, flaw: str) -> None:
    """It is resumed if the server can do so, and discarded if it is longer than what the server has."""
    part.write_bytes(CONTENT[:500_000])
    server.ranges = flaw != "no ranges"
    server.content = CONTENT[:400_000] if flaw == "longer" else CONTENT
    fetch(server, part)
    assert part.read_bytes() == server.content
    assert server.asked == ["bytes=500000-", *[None] * (flaw == "longer")]


def test_chunked_transfer_has_an_end(server: Server, part: Path) -> None:
    server.chunked, server.cuts = True, [1000]
    fetch(server, part)
    assert part.read_bytes() == CONTENT
    assert len(server.asked) == 2


@pytest.mark.parametrize("ranges", [True, False])
def test_only_the_beginning(server: Server, part: Path, ranges: bool) -> None:
    server.ranges, server.cuts = ranges, [150_000]
    fetch(server, part, limit=200_000)
    assert part.read_bytes() == CONTENT[:200_000]
    assert server.asked == ["bytes=0-199999", "bytes=150000-199999"]


def test_a_server_that_breaks_again_and_again_without_ranges_fails(server: Server, part: Path) -> None:
    server.ranges, server.cuts = False, [1000] * 20
    with pytest.raises(RunFailed, match="after 1000 bytes; run again to continue"):
        fetch(server, part)


def test_an_unknown_length_is_refused(server: Server, part: Path) -> None:
    server.silent_length = True
    with pytest.raises(Missing, match="does not state its length"):
        fetch(server, part)


def test_404_is_missing_in_one_line(server: Server, part: Path) -> None:
    server.statuses = [404]
    with pytest.raises(Missing, match="404 Not Found") as caught:
        fetch(server, part)
    assert "\n" not in str(caught.value)
    assert server.asked == [None]


def test_503_is_tried_again(server: Server, part: Path) -> None:
    server.statuses = [503, 503]
    fetch(server, part)
    assert part.read_bytes() == CONTENT


def test_a_refused_connection_is_missing_in_one_line(part: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/x.gz"
        with pytest.raises(Missing, match=r"127\.0\.0\.1:.*: Connection refused$"):
            download(url, part, lambda *_: None)


def test_a_password_is_in_no_message(server: Server, part: Path) -> None:
    server.statuses = [404]
    url = server.url.replace("http://", "http://somebody:secret@")
    with pytest.raises(Missing, match="the server answered 404") as caught:
        download(url, part, lambda *_: None)
    download(url, part, lambda *_: None)
    message = str(caught.value)
    with pytest.raises(Missing, match=r"127\.0\.0\.1:1 .*http://127") as caught:
        download("http://some@body:secret@127.0.0.1:1/x.gz", part, lambda *_: None)
    assert "secret" not in message + str(caught.value)
