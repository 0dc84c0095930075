# SPDX-License-Identifier: Apache-2.0
"""Joins the SAM files of several instances: the input's order, one header, no copy through this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from firsttouch.errors import RunFailed
from firsttouch.sam.lines import Survey

#: sendfile moves at most 2 GiB at once.
_AT_ONCE = 1 << 30


@dataclass(frozen=True)
class Piece:
    """Bytes *start* … *end* - 1 of a file: the alignments of one share of the reads."""

    file: Path
    start: int
    end: int


def in_order(files: Sequence[Path], surveys: Sequence[Survey], shares: Sequence[Sequence[int]]) -> list[Piece]:
    """Return the pieces of all *files* in input order.

    *shares* says of each file which pieces of the input it holds, as their numbers in the file's order; the
    surveys were made with the records of these. Raises RunFailed where the files differ in references.
    """
    for file, found in zip(files, surveys, strict=True):
        if found.references != surveys[0].references:
            raise RunFailed(f"{file}: aligned to other references than {files[0]}")
    pieces = []
    for file, found, mine in zip(files, surveys, shares, strict=True):
        start = found.header_bytes
        for number, end in zip(mine, found.ends, strict=True):
            pieces.append((number, Piece(file, start, end)))
            start = end
    return [piece for _, piece in sorted(pieces, key=lambda p: p[0])]


def described(header: bytes, command: str, note: str) -> bytes:
    """Return *header* with *command* (empty: none) and *note* as what its last program (@PG) ran.

    The command that an instance of that program was started with names pipes, which say nothing afterwards.
    """
    lines = header.splitlines(keepends=True)
    programs = [number for number, line in enumerate(lines) if line.startswith(b"@PG\t")]
    if programs:
        fields = lines.pop(programs[-1]).rstrip(b"\r\n").split(b"\t")
        fields = [f for f in fields if not f.startswith((b"CL:", b"DS:"))]
    else:
        fields = [b"@PG", b"ID:firsttouch", b"PN:firsttouch"]
    # No field of a header may hold a tab or a line's end.
    more = {"CL": " ".join(command.split()), "DS": " ".join(note.split())}
    fields += [f"{key}:{text}".encode(errors="replace") for key, text in more.items() if text]
    lines.insert(programs[-1] if programs else len(lines), b"\t".join(fields) + b"\n")
    return b"".join(lines)


def write(header: Piece, pieces: Sequence[Piece], out: int) -> None:
    """Write a header and the pieces to the file descriptor *out*: a file, or a pipe of a program."""
    for file, group in _by_file([p for p in (header, *pieces) if p.start < p.end]):
        with file.open("rb") as stream:
            for piece in group:
                _send(stream.fileno(), out, piece.start, piece.end)


def _by_file(pieces: Sequence[Piece]) -> Iterator[tuple[Path, list[Piece]]]:
    """Yield runs of pieces of the same file, neighbours made one."""
    group: list[Piece] = []
    for piece in pieces:
        if group and group[-1].file != piece.file:
            yield group[0].file, group
            group = []
        if group and group[-1].end == piece.start:
            group[-1] = Piece(piece.file, group[-1].start, piece.end)
        else:
            group.append(piece)
    if group:
        yield group[0].file, group


def _send(source: int, out: int, start: int, end: int) -> None:
    while start < end:
        sent = os.sendfile(out, source, start, min(end - start, _AT_ONCE))
        if not sent:
            raise RunFailed(f"an output became {end - start} bytes shorter while it was joined")
        start += sent
