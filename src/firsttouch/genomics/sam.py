# SPDX-License-Identifier: Apache-2.0
"""SAM files of several instances: joined under one header, and compared by checksums.

Outputs are large, so the work is done on blocks of bytes instead of lines.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import select
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from firsttouch.errors import RunFailed

# Flags of SAM records
PAIRED, UNMAPPED, LAST_OF_PAIR, SECONDARY_OR_SUPPLEMENTARY = 0x1, 0x4, 0x80, 0x900


def is_header(line: bytes) -> bool:
    """Return whether *line* belongs to the header."""
    # A read's name may begin with @, but header lines have a tab after two letters.
    return line.startswith(b"@") and line[3:4] == b"\t"


def header_size(text: bytes) -> int | None:
    """Return the size of the header with which *text* begins; None before its first alignment is complete."""
    at = 0
    while (end := text.find(b"\n", at)) >= 0:
        if not is_header(text[at : at + 4]):
            return at
        at = end + 1
    return None


# ----------------------------------------------------------------------
# Joining the files of several instances, by sendfile(2)

#: sendfile moves at most 2 GiB in one call.
_SENDFILE_BYTES = 1 << 30


class ByteRange(NamedTuple):
    """Bytes *start* to *end* - 1 of a file: a header, or the alignments of one part of the reads."""

    file: Path
    start: int
    end: int


def shared_lines(header: bytes) -> tuple[bytes, ...]:
    """Return the lines that all instances of a run have in common: references (@SQ) and read groups (@RG)."""
    return tuple(line for line in header.splitlines() if line.startswith((b"@SQ\t", b"@RG\t")))


def check_same(headers: Mapping[int, bytes]) -> None:
    """Raise RunFailed if *headers*, by the number of the instance, have different references or read groups."""
    first, *others = headers
    lines = shared_lines(headers[first])
    for number in others:
        if (theirs := shared_lines(headers[number])) == lines:
            continue
        pairs = itertools.zip_longest(lines, theirs, fillvalue=b"no such line")
        here, there = next((a, b) for a, b in pairs if a != b)
        raise RunFailed(
            f"the headers of instances {first} and {number} differ: {here.decode(errors='replace')!r} and "
            f"{there.decode(errors='replace')!r}"
        )


def describe_program(header: bytes, command: str, note: str) -> bytes:
    """Return *header* with *command* (empty: none) and *note* in its last @PG line.

    They replace the command line of the aligner, which names pipes that no longer exist. A header without @PG gets
    one. The first of several @HD lines becomes the first line, and the others are dropped. Everything else stays,
    such as ID, name and version of the aligner, and the user's @RG and @CO.
    """
    lines = header.splitlines(keepends=True)
    first = [line for line in lines if line.startswith(b"@HD\t")][:1]
    lines = first + [line for line in lines if not line.startswith(b"@HD\t")]
    programs = [number for number, line in enumerate(lines) if line.startswith(b"@PG\t")]
    if programs:
        fields = lines.pop(programs[-1]).rstrip(b"\r\n").split(b"\t")
        fields = [f for f in fields if not f.startswith((b"CL:", b"DS:"))]
    else:
        fields = [b"@PG", b"ID:firsttouch", b"PN:firsttouch"]
    # A field of a header holds neither tabs nor line ends.
    texts = {"CL": " ".join(command.split()), "DS": " ".join(note.split())}
    fields += [f"{key}:{text}".encode(errors="replace") for key, text in texts.items() if text]
    lines.insert(programs[-1] if programs else len(lines), b"\t".join(fields) + b"\n")
    return b"".join(lines)


def write_all(out: int, data: bytes | memoryview) -> None:
    """Write all of *data* to the file descriptor *out*, even if it is non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(out, rest) :]
        except BlockingIOError:
            _wait_for_room(out)


def concatenate(ranges: Iterable[ByteRange], out: int) -> None:
    """Write *ranges* to *out*, a file or a pipe, which may be open for appending or non-blocking."""
    for file, of_file in itertools.groupby((r for r in ranges if r.start < r.end), key=lambda r: r.file):
        with file.open("rb") as stream:
            for part in of_file:
                at = part.start
                while at < part.end:
                    sent = _send(stream.fileno(), at, part.end - at, out)
                    if not sent:
                        raise RunFailed(f"an output became {part.end - at} bytes shorter while it was joined")
                    at += sent


def _send(source: int, offset: int, size: int, out: int) -> int:
    """Copy some of the *size* bytes at *offset* from *source* to *out*; return their number, 0 at the end."""
    try:
        return os.sendfile(out, source, offset, min(size, _SENDFILE_BYTES))
    except BlockingIOError:
        _wait_for_room(out)
        return _send(source, offset, size, out)
    except OSError as error:
        if error.errno != errno.EINVAL:  # sendfile refuses files that are open for appending
            raise
    block = os.pread(source, min(size, _READ_BYTES), offset)
    write_all(out, block)
    return len(block)


def _wait_for_room(out: int) -> None:
    poll = select.poll()
    poll.register(out, select.POLLOUT)
    poll.poll()


#: With a smaller fraction of mapped reads, the index most likely belongs to another genome.
_HARDLY_ANY = 0.01


def hardly_mapped(mapped: int, reads: int) -> str:
    """Return the probable error if hardly any of the *reads* map, or an empty string."""
    if mapped >= _HARDLY_ANY * max(1, reads):
        return ""
    return f"{mapped} of {reads} reads map: is this the index of another genome?"


# ----------------------------------------------------------------------
# Checksums of alignments

#: Flags that depend on the mate: properly paired, and the mate's strand.
_MATE_FLAGS = 0x22
#: Flags of the read itself: unmapped, first or last of its pair.
_READ_FLAGS = 0xC4
#: Tags that list the positions of other alignments.
_POSITION_TAGS = {b"XA:", b"SA:"}
_SCORE = re.compile(rb"\tAS:i:(-?\d+)")
_SINGLE_QUALITY = re.compile(rb"\tSM:i:(\d+)")
_READ_BYTES = 4 << 20
#: A block that is only hashed fits into the cache, and its memory is reused for the next one.
_HASH_BYTES = 1 << 18


class Checksums(NamedTuple):
    """Two SHA-256 of the alignments in an output.

    *exact* covers every alignment line in order, without the header. *common* covers what all scenarios of an
    aligner have in common: everything, or only the fields of :func:`unambiguous_fields`.
    """

    exact: str
    common: str


def unambiguous_fields(lines: Iterable[bytes], mates: int, *, scores_only: bool = False) -> Iterator[bytes]:
    """Yield the fields of each read (or pair, with 2 *mates*) that do not depend on choices among equal positions.

    BWA-MEM chooses by a hash of the read's number in its run, and every instance counts from 0; bwa samse and
    sampe draw random numbers. A mapping quality of 0 means that another position is as good. If no primary record
    of the template has quality 0, the result has all its records with a quality above 0, without the columns of
    the mate and lists of other positions (XA, SA). Otherwise the choice of one mate may have affected the other,
    and the result has only each mate's mapped state and the pair's total score (AS). *scores_only* limits all
    reads to these, for aligners whose choice also changes qualities above 0.
    """
    for records in _templates(lines, mates):
        name = records[0][1][0]
        qualities = [_quality(fields) for _, fields in records]
        primary = [not flag & SECONDARY_OR_SUPPLEMENTARY for flag, _ in records]
        if not scores_only and all(itertools.compress(qualities, primary)):
            kept = [
                (flag & ~_MATE_FLAGS, *fields[2:6], *_own_fields(fields))
                for flag, fields in itertools.compress(records, qualities)
            ]
            yield b"%b\t%b\n" % (name, repr(kept).encode())
        else:
            flags = [flag & _READ_FLAGS for flag, _ in itertools.compress(records, primary)]
            scores = (_SCORE.search(fields[6]) for _, fields in itertools.compress(records, primary))
            yield b"%b\t%b\t%d\n" % (name, repr(flags).encode(), sum(int(match[1]) for match in scores if match))


def _own_fields(fields: Sequence[bytes]) -> list[bytes]:
    """Return the fields after CIGAR that describe the record itself: no RNEXT, PNEXT, TLEN or other positions."""
    return [f for f in fields[6].rstrip(b"\n").split(b"\t")[3:] if f[:3] not in _POSITION_TAGS]


def _templates(lines: Iterable[bytes], mates: int) -> Iterator[list[tuple[int, list[bytes]]]]:
    """Yield the lines of each read or pair, as their flags and their fields."""
    held: list[tuple[int, list[bytes]]] = []
    primary = 0
    for line in lines:
        fields = line.split(b"\t", 6)
        flag = int(fields[1])
        of_primary = not flag & SECONDARY_OR_SUPPLEMENTARY
        # Consecutive reads may have the same name.
        if held and (fields[0] != held[0][1][0] or (of_primary and primary == mates)):
            yield held
            held, primary = [], 0
        held.append((flag, fields))
        primary += of_primary
    if held:
        yield held


def _quality(fields: Sequence[bytes]) -> int:
    """Return the mapping quality of the read without its mate (SM) if the record states it, else the usual one."""
    # The search alone would take as long as everything else.
    single = _SINGLE_QUALITY.search(fields[6]) if b"\tSM:i:" in fields[6] else None
    return int(single[1] if single else fields[4])


def checksums(
    ranges: Sequence[ByteRange],
    *,
    settle: int | None,
    scores_only: bool = False,
    reference: Checksums | None = None,
) -> Checksums:
    """Return the checksums of the alignments in *ranges*, in that order.

    *settle* is the number of mates if *common* covers only unambiguous fields (*scores_only* as in
    :func:`unambiguous_fields`), and None if it covers all. Selecting them takes thirty times as long as hashing,
    and is skipped if the alignments equal *reference*'s.
    """
    exact = exact_sum(ranges)
    if settle is None:
        return Checksums(exact, exact)
    if reference is not None and reference.exact == exact:
        return reference
    import hashlib  # noqa: PLC0415 - it loads OpenSSL

    common = hashlib.sha256()
    for part in ranges:
        lines = itertools.chain.from_iterable(block.splitlines(keepends=True) for block in _read_lines(part))
        for text in unambiguous_fields(lines, settle, scores_only=scores_only):
            common.update(text)
    return Checksums(exact, common.hexdigest())


def exact_sum(ranges: Iterable[ByteRange]) -> str:
    """Return the SHA-256 of the bytes in *ranges*."""
    import hashlib  # noqa: PLC0415

    digest = hashlib.sha256()
    for part in ranges:
        for block in _read(part, _HASH_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _read(part: ByteRange, size: int) -> Iterator[bytes]:
    """Yield a range in blocks of at most *size* bytes."""
    left = part.end - part.start
    with part.file.open("rb", buffering=0) as stream:
        stream.seek(part.start)
        while left and (block := stream.read(min(left, size))):
            left -= len(block)
            yield block


def _read_lines(part: ByteRange) -> Iterator[bytes]:
    """Yield a range in blocks of whole lines."""
    rest = b""
    for block in _read(part, _READ_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
    if rest:
        yield rest
