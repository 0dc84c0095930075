# SPDX-License-Identifier: Apache-2.0
"""Reads: FASTQ files, checked, and divided among instances on record boundaries, pairs in step.

An aligner that works in batches of a number of bases must find the same batches in every scenario, or its
output differs (BWA-MEM estimates insert sizes per batch): parts therefore begin where a batch begins.
"""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from firsttouch.errors import BadInput, CannotHere

Entry = tuple[bytes, bytes, bytes, bytes]


def open_fastq(file: Path) -> IO[bytes]:
    """Open a FASTQ file, gzip or plain by its content; raises BadInput where it cannot be read."""
    try:
        raw = file.open("rb")
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=file) from error
    magic = raw.read(2)
    raw.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=cast(BinaryIO, raw))) if magic == b"\x1f\x8b" else raw


def entries(file: Path) -> Iterator[Entry]:
    """Yield the records of a FASTQ file as four lines with newlines; raises BadInput naming record and line."""
    with open_fastq(file) as stream:
        for number in itertools.count():
            try:
                lines = [stream.readline() for _ in range(4)]
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise BadInput(
                    f"record {number + 1}: the gzip data are truncated or damaged", file=file
                ) from error
            if not lines[0]:
                return
            yield _checked(lines, number, file)


def _checked(lines: list[bytes], number: int, file: Path) -> Entry:
    """Return the four lines of record *number* (from 0), each with its newline, or raise BadInput."""
    name, bases, plus, quality = (line.rstrip(b"\r\n") for line in lines)
    wrong = ""
    if not name.startswith(b"@"):
        wrong, at = "begins without @", 1
    elif not plus.startswith(b"+"):
        wrong, at = "has no + line (is it truncated?)", 3
    elif len(bases) != len(quality):
        wrong, at = f"has {len(bases)} bases but {len(quality)} qualities (is it truncated?)", 4
    if wrong:
        raise BadInput(f"record {number + 1} {wrong}", file=file, line=4 * number + at)
    return name + b"\n", bases + b"\n", plus + b"\n", quality + b"\n"


@dataclass(frozen=True)
class Batches:
    """Where batches begin: *starts* are record numbers (from 0), *records* and *bases* count each file's."""

    starts: tuple[int, ...]
    records: int
    bases: int


def scan(files: Sequence[Path], batch_bases: int = 0) -> Batches:
    """Read *files* (one, or two of a pair) once: check every record, count, and find the batches.

    A batch ends with the record (pair) at which its bases reach *batch_bases*; with 0 every record is one.
    Raises BadInput for a damaged record, no record at all, or files of a pair that are not in step.
    """
    starts, bases, filled, number = [], 0, batch_bases, 0
    for together in itertools.zip_longest(*(entries(f) for f in files)):
        for file, entry in zip(files, together, strict=True):
            if entry is None:
                raise BadInput(f"ends after {number} records, the other file of the pair has more", file=file)
        if len(files) == 2 and _stem(together[0][0]) != _stem(together[1][0]):
            names = " and ".join(e[0].split()[0].decode(errors="replace") for e in together)
            raise BadInput(f"record {number + 1}: {names} are no pair", file=files[1], line=4 * number + 1)
        if filled >= batch_bases:
            starts.append(number)
            filled = 0
        size = sum(len(e[1]) - 1 for e in together)
        filled += size
        bases += size
        number += 1
    if not number:
        raise BadInput("no reads", file=files[0])
    return Batches(tuple(starts), number, bases)


def _stem(name: bytes) -> bytes:
    """Return a read's name without its comment and without the /1 or /2 of a pair."""
    first = name.split()[0]
    return first[:-2] if first[-2:] in {b"/1", b"/2"} else first


def divide(batches: Batches, parts: int) -> list[tuple[int, int]]:
    """Return *parts* ranges (first record, end) that begin where batches begin, as equal as that allows.

    Raises CannotHere where there are fewer batches than parts.
    """
    if len(batches.starts) < parts:
        raise CannotHere(
            f"{batches.records} records are {len(batches.starts)} batches of the aligner: too few for {parts} "
            "instances with the same output; use more reads or smaller batches (--batch-bases)"
        )
    ends = [*batches.starts, batches.records]
    cuts = [ends[round(i * len(batches.starts) / parts)] for i in range(parts + 1)]
    return list(itertools.pairwise(cuts))


def feed(file: Path, first: int, end: int, sink: IO[bytes]) -> None:
    """Write the records *first* … *end* - 1 of a FASTQ file to *sink* and close it.

    A program that stops reading is not an error here: its exit status says what happened.
    """
    try:
        with sink:
            for entry in itertools.islice(entries(file), first, end):
                sink.write(b"".join(entry))
    except BrokenPipeError:
        return
