# SPDX-License-Identifier: Apache-2.0
"""Downloads from a real server: whole, or resumed, or started over, or failed; never a part for a whole."""

import json
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


def begun(server: Server, part: Path, size: int) -> None:
    """Leave *part* as a process leaves it that is killed after *size* bytes."""
    part.write_bytes(server.content[:size])
    version = {"url": server.url, "limit": None, "validator": server.etag, "total": len(server.content)}
    part.with_name(part.name + ".json").write_text(json.dumps(version))


def test_whole_with_progress_in_bytes(server: Server, part: Path) -> None:
    seen = fetch(server, part)
    assert part.read_bytes() == CONTENT
    assert seen[-1] == ("downloading data.fq", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_whole_part_is_not_asked_for_again(server: Server, part: Path) -> None:
    fetch(server, part)
    fetch(server, part)
    assert server.asked == [None]


def test_a_connection_that_breaks_is_resumed(server: Server, part: Path) -> None:
    server.cuts = [300_000, 100_000]
    fetch(server, part)
    assert part.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=400000-"]


def test_a_part_of_an_earlier_run_is_resumed(server: Server, part: Path) -> None:
    begun(server, part, 500_000)
    fetch(server, part)
    assert part.read_bytes() == CONTENT
    assert server.asked == ["bytes=500000-"]


@pytest.mark.parametrize("flaw", ["changed", "changed, If-Range ignored", "no ranges", "no validator", "longer"])
def test_what_cannot_be_resumed_starts_over(server: Server, part: Path, flaw: str) -> None:
    begun(server, part, 500_000)
    if flaw.startswith("changed"):
        server.content, server.etag = CONTENT[::-1], '"two"'
        server.believes = "ignored" in flaw
    elif flaw == "no ranges":
        server.ranges = False
    elif flaw == "no validator":
        server.etag = None
        begun(server, part, 500_000)
    else:  # what is here is longer than what the server has now
        server.content, server.believes = CONTENT[:400_000], True
    fetch(server, part)
    assert part.read_bytes() == server.content


@pytest.mark.parametrize("junk", ["", '{"url": 1}'])
def test_a_damaged_record_of_a_part_starts_over(server: Server, part: Path, junk: str) -> None:
    part.write_bytes(b"other bytes")
    part.with_name(part.name + ".json").write_text(junk)
    fetch(server, part)
    assert part.read_bytes() == CONTENT


def test_weak_etags_are_no_validators(server: Server, part: Path) -> None:
    server.etag, server.cuts = 'W/"one"', [300_000]
    fetch(server, part)
    assert part.read_bytes() == CONTENT
    assert server.asked == [None, None]


def test_chunked_transfer_has_an_end(server: Server, part: Path) -> None:
    server.chunked, server.cuts = True, [1000]
    fetch(server, part)
    fetch(server, part)
    assert part.read_bytes() == CONTENT
    assert len(server.asked) == 2


@pytest.mark.parametrize("ranges", [True, False])
def test_only_the_beginning(server: Server, part: Path, ranges: bool) -> None:
    server.ranges, server.cuts = ranges, [150_000]
    fetch(server, part, limit=200_000)
    assert part.read_bytes() == CONTENT[:200_000]
    assert server.asked == ["bytes=0-199999", "bytes=150000-199999"]


def test_a_server_that_promises_more_than_it_has_fails(server: Server, part: Path) -> None:
    server.extra_length = 10
    with pytest.raises(RunFailed, match="run again to continue"):
        fetch(server, part)


def test_a_server_that_breaks_again_and_again_without_ranges_fails(server: Server, part: Path) -> None:
    server.ranges, server.cuts = False, [1000] * 20
    with pytest.raises(RunFailed, match="after 1000 bytes"):
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
    messages = [str(caught.value), module.version_path(part).read_text()]
    with pytest.raises(Missing, match=r"127\.0\.0\.1:1 .*http://127") as caught:
        download("http://some@body:secret@127.0.0.1:1/x.gz", part, lambda *_: None)
    assert not [m for m in (*messages, str(caught.value)) if "secret" in m]
