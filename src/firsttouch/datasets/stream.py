# SPDX-License-Identifier: Apache-2.0
"""Streams of bytes on their way into the store: unpacked, cut, counted and hashed in one pass."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from firsttouch.errors import BadInput, RunFailed

#: Called with what is being done, the bytes done so far and the bytes in all (None: not known).
Progress = Callable[[str, int, int | None], None]

_CHUNK = 1 << 18


class Corrupt(Exception):
    """Bytes that are not what they should be; the text is the reason, in one line."""


@dataclass(frozen=True)
class Facts:
    """What a pass over a file found."""

    digests: dict[str, str]  #: algorithm -> hex digest
    size: int  #: bytes
    records: int  #: reads, or contigs of a reference
    read_length: int | None = None  #: bases of the first read


def read(path: Path, what: str, progress: Progress) -> Iterator[bytes]:
    """Yield the bytes of *path*, reporting them as *what*; raises RunFailed where it cannot be read."""
    done = 0
    try:
        with path.open("rb") as file:
            total = os.fstat(file.fileno()).st_size
            while chunk := file.read(_CHUNK):
                done += len(chunk)
                progress(what, done, total)
                yield chunk
    except OSError as error:
        raise RunFailed(f"{path}: cannot be read: {error.strerror}") from None


def gunzip(chunks: Iterable[bytes], *, partial: bool = False, tail_ignored: bool = False) -> Iterator[bytes]:
    """Yield *chunks* unpacked where they are gzip, and as they are where they are not.

    *partial*: the stream may end early. *tail_ignored*: bytes after the last member that are not gzip are
    dropped (razip appends its index there), which only a checksum of the unpacked data makes safe.
    Raises Corrupt.
    """
    member = zlib.decompressobj(wbits=31)
    begun = ended = plain = False  # this member has begun; one before it has ended; not gzip at all
    for i, piece in enumerate(chunks):
        chunk = piece
        plain = plain or (i == 0 and chunk[:2] != b"\x1f\x8b")
        if plain:
            yield chunk
            continue
        while chunk:
            if ended and not begun and not (chunk := chunk.lstrip(b"\0")):
                break  # zero padding between or after members is allowed
            try:
                data = member.decompress(chunk)
            except zlib.error as error:
                if ended and not begun:
                    if tail_ignored:
                        return
                    raise Corrupt("bytes that are not gzip follow the gzip data") from None
                raise Corrupt(f"corrupt gzip data ({error})") from None
            begun = True
            if data:
                yield data
            chunk = b""
            if member.eof:
                chunk, member = member.unused_data, zlib.decompressobj(wbits=31)
                begun, ended = False, True
    if begun and not partial:
        raise Corrupt("the gzip data end early: the file is truncated")


def cut_reads(chunks: Iterable[bytes], first: int | None, truncate: int | None) -> Iterator[bytes]:
    """Yield the *first* reads of a FASTQ stream, each with its first *truncate* bases (None: all).

    Blank lines at the end are dropped, and every line is ended, as aligners are fed.
    Raises Corrupt where the stream ends before or inside a record that was asked for.
    """
    rest = b""
    kept = 0
    for chunk in _ended(chunks):
        lines = (rest + chunk).split(b"\n")
        whole = (len(lines) - 1) // 4 * 4
        rest = b"\n".join(lines[whole:])
        del lines[whole if first is None else min(whole, 4 * (first - kept)) :]
        if truncate:
            bases, qualities = ([line.rstrip(b"\r") for line in lines[part::4]] for part in (1, 3))
            if list(map(len, bases)) != list(map(len, qualities)):
                raise Corrupt("a read has not as many qualities as bases")
            lines[1::4], lines[3::4] = ([line[:truncate] for line in part] for part in (bases, qualities))
        if lines:
            kept += len(lines) // 4
            yield b"\n".join(lines) + b"\n"
        if kept == first:
            return
    if first is not None:
        raise Corrupt(f"holds {kept} whole reads, not the first {first}")
    if rest:
        raise Corrupt("the last read is incomplete")


def _ended(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a FASTQ stream without blank lines at its end, and with the newline of its last line."""
    held, lines = b"", 0
    for chunk in chunks:
        text = held + chunk
        kept = text.rstrip()
        held = text[len(kept) :]
        lines += kept.count(b"\n")
        yield kept
    if lines:
        # A read without a base ends with an empty line.
        yield b"\n" * max(1, min(held.count(b"\n"), 4 - lines % 4))


def write(chunks: Iterable[bytes], target: Path, role: str, algorithms: Iterable[str] = ()) -> Facts:
    """Write *chunks*, a FASTA (role "reference") or FASTQ ("reads") text, to *target* and say what it is.

    Digests are sha256 and those in *algorithms*. Raises Corrupt where the text is not whole.
    """
    # md5 is what some archives publish; it guards against accidents here, not against an attacker.
    digests = {name: hashlib.new(name, usedforsecurity=False) for name in {"sha256", *algorithms}}
    size = contigs = 0
    head = last = b""
    with target.open("wb") as file:
        for chunk in chunks:
            for digest in digests.values():
                digest.update(chunk)
            if role == "reference":
                contigs += chunk.count(b"\n>") + ((last or b"\n") == b"\n" and chunk[:1] == b">")
            size += len(chunk)
            head, last = head or chunk[:1], chunk[-1:] or last
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    hexes = {name: digest.hexdigest() for name, digest in digests.items()}
    if role == "reads":
        return Facts(hexes, size, *_check_fastq(target))
    if head != b">":
        raise Corrupt("not a FASTA file: it does not begin with '>'")
    return Facts(hexes, size, contigs)


def _check_fastq(file: Path) -> tuple[int, int]:
    """Return how many reads *file* holds and the length of the first; raises Corrupt where it is not FASTQ."""
    from firsttouch.reads import inspect  # noqa: PLC0415 - as NumPy, it is slow to import

    try:
        reads = inspect([file])
    except BadInput as error:
        where = "" if error.line is None else f"line {error.line}: "
        raise Corrupt(f"not FASTQ that can be used: {where}{error.reason}") from None
    if reads.layouts[0].source.packed:
        raise Corrupt("not FASTQ that can be used: it is gzip within gzip")
    with file.open("rb") as stream:
        return reads.records, len([stream.readline(), stream.readline()][1].rstrip(b"\r\n"))


def digests_of(path: Path, algorithms: Iterable[str], what: str, progress: Progress) -> dict[str, str]:
    """Return the hex digests of the file *path*, by algorithm."""
    digests = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    for chunk in read(path, what, progress):
        for digest in digests.values():
            digest.update(chunk)
    return {name: digest.hexdigest() for name, digest in digests.items()}
