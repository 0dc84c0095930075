# SPDX-License-Identifier: Apache-2.0
"""Downloads over http(s) that resume where they stopped, or start over, and never pass for whole.

The bytes are collected in PART; PART.json says of which version of which URL they are. A range is asked for
only under If-Range with that version's validator, so that a file that changed upstream starts over.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import requests
import urllib3

from firsttouch.datasets.manifest import without_login
from firsttouch.datasets.store import discard, need_space, version_path, write_json, writing
from firsttouch.datasets.stream import Progress
from firsttouch.errors import Missing, RunFailed

#: A broken transfer is given up after so many attempts in a row that bring no new byte.
GIVE_UP = 3
#: Seconds before the second attempt; each further wait is twice as long.
RETRY_WAIT = 2.0
_TIMEOUT = (20, 60)  # seconds to connect, and between two packets
_CHUNK = 1 << 16  # a read waits for all of it: what is less is lost when the transfer breaks


class _Broken(Exception):
    """The transfer stopped before its end; another attempt may go on."""


@dataclass(frozen=True)
class _Version:
    """Which version of which URL the bytes of a part are."""

    url: str
    limit: int | None
    validator: str | None  #: a strong ETag, or Last-Modified; None: the part cannot be resumed
    total: int | None  #: bytes in all


def download(url: str, part: Path, progress: Progress, *, limit: int | None = None) -> None:
    """Bring *part* to the whole content of *url*, or to its first *limit* bytes.

    Raises Missing (unreachable, gone, disk full) or RunFailed (it keeps breaking); *part* stays for the
    next call to resume.
    """
    stalled, most = 0, _size(part)
    while True:
        try:
            _attempt(url, part, progress, limit)
            return
        except _Broken as error:
            got = _size(part)
            stalled, most = (0, got) if got > most else (stalled + 1, most)
            if stalled >= GIVE_UP:
                raise RunFailed(
                    f"{without_login(url)}: {error} after {got} bytes; run again to go on from there"
                ) from None
            progress(f"{error}, trying again: {part.stem}", got, None)
            time.sleep(RETRY_WAIT * 2**stalled)


def _attempt(url: str, part: Path, progress: Progress, limit: int | None) -> None:
    """Ask once for what *part* lacks; raises _Broken where it stops early."""
    known = _known(part, url, limit)
    have = _size(part) if known else 0
    if known and known.total == have:
        return
    # Archives serve .gz files as they are; a proxy that compresses would make the length meaningless.
    headers = {"Accept-Encoding": "identity"}
    if have or limit:
        headers["Range"] = f"bytes={have}-{limit - 1 if limit else ''}"
    if have and known and known.validator:
        headers["If-Range"] = known.validator
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT)
    except requests.RequestException as error:
        shown = without_login(url)
        reason = _root(error).replace(url, shown)
        raise Missing(f"cannot reach {urlsplit(shown).netloc} for {shown}: {reason}") from None
    with response:
        if response.status_code == 416:  # there is no such range: the part is of something longer
            discard(part)
        _check_status(response, url)
        start, total = _span(response, limit)
        if start == 0:
            have = 0
        elif not known or (start, total) != (have, known.total) or _changed(response, known):
            discard(part)
            raise _Broken("the server went on with something else than what was begun")
        with writing(part.parent, total):
            if total is not None:
                need_space(part.parent, total - have, f"the rest of {part.stem}")
            _receive(
                response, part, _Version(without_login(url), limit, _validator(response), total), have, progress
            )


def _receive(response: requests.Response, part: Path, version: _Version, have: int, progress: Progress) -> None:
    """Write the body of *response* to *part* from byte *have* on."""
    what = f"downloading {part.stem}"
    with part.open("r+b" if have else "wb") as file:
        file.seek(have)
        file.truncate()
        write_json(version_path(part), asdict(version))
        stop = version.total if version.limit else None
        while stop is None or have < stop:
            size = _CHUNK if stop is None else min(_CHUNK, stop - have)
            try:
                chunk = response.raw.read(size, decode_content=False)
            except urllib3.exceptions.HTTPError:
                raise _Broken("the connection broke") from None
            if not chunk:
                break
            file.write(chunk)
            have += len(chunk)
            progress(what, have, version.total)
        if version.total is not None and have != version.total:
            raise _Broken(f"the connection broke ({have} of {version.total} bytes)")
    if version.total is None:
        # The body ended as its transfer coding says: now the length is known, and the part is whole.
        write_json(version_path(part), asdict(version) | {"total": have})


def _check_status(response: requests.Response, url: str) -> None:
    """Raise what an answer other than 200 and 206 means."""
    status = response.status_code
    if status in (200, 206):
        return
    if status in (416, 429) or status >= 500:
        raise _Broken(f"the server answered {status} {response.reason}")
    raise Missing(f"cannot download {without_login(url)}: the server answered {status} {response.reason}")


def _span(response: requests.Response, limit: int | None) -> tuple[int, int | None]:
    """Return the first byte that *response* brings and the bytes there will be in all (None: not said)."""
    if response.status_code == 206:
        span = re.match(r"bytes (\d+)-(\d+)/", response.headers.get("Content-Range", ""))
        if not span:
            raise _Broken("the server sent a range without saying which")
        return int(span[1]), int(span[2]) + 1
    length = response.headers.get("Content-Length", "")
    if length.isdecimal():
        return 0, min(int(length), limit) if limit else int(length)
    if response.headers.get("Transfer-Encoding", "").lower() != "chunked":
        # The end of such a body cannot be told from a broken connection.
        raise Missing(f"cannot download {without_login(response.url)}: the server does not say how long it is")
    return 0, limit


def _validator(response: requests.Response) -> str | None:
    """Return what names this version in If-Range, which takes no weak ETag."""
    etag = response.headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")


def _changed(response: requests.Response, known: _Version) -> bool:
    """Say whether a range is of another version; under If-Range a server may leave its validator out."""
    return _validator(response) not in (None, known.validator)


def _known(part: Path, url: str, limit: int | None) -> _Version | None:
    """Return the version that *part* is of, or None where it cannot be gone on with."""
    try:
        version = _Version(**json.loads(version_path(part).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    if (version.url, version.limit) != (without_login(url), limit) or not part.is_file():
        return None
    whole = version.total == _size(part)
    return version if whole or (version.validator and _size(part) < (version.total or 0)) else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _root(error: BaseException) -> str:
    """Return the innermost reason of *error*: the outer ones repeat the URL and class names."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
