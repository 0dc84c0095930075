# SPDX-License-Identifier: Apache-2.0
"""SHA-256 of alignments: equal sums mean that two runs gave the same ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from firsttouch.sam.join import Piece
from firsttouch.sam.lines import SECONDARY_OR_SUPPLEMENTARY

#: Properly paired, and the mate's strand.
_MATES = 0x22
#: Unmapped, first or last of its pair.
_READ = 0xC4
#: Tags with the places of other records.
_PLACES = {b"XA:", b"SA:"}
_SCORE = re.compile(rb"\tAS:i:(-?\d+)")
_ALONE = re.compile(rb"\tSM:i:(\d+)")
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class Sums:
    """Two SHA-256 of the alignments of an output.

    *exact* covers every alignment line in order and no header line: equal sums mean the same alignments for
    the same reads in the same order (timing and program lines aside). *common* covers what all scenarios of an
    aligner have in common: the same, or for aligners that choose among equally good places, what is left
    without these choices (see :func:`settled`): equal sums mean that no read fares worse.
    """

    exact: str
    common: str


def settled(lines: Iterable[bytes], mates: int) -> Iterator[bytes]:
    """Yield what of each read (or pair, with 2 *mates*) does not depend on choices among equally good places.

    BWA-MEM chooses by the number of the read within its own run (a hash of it), and every instance counts from 0;
    bwa samse and sampe draw lots. A mapping quality of 0 says that another place is as good. Where no primary
    record has it, all records with a better one count with all their columns and tags, but for two things: columns
    of the mate, which follow its own record, and lists of other places (XA, SA), whose order is chosen too. Else a
    mate's choice may have led to the other's, and it only counts whether each is mapped and what the pair scores
    (AS) together.
    """
    for fields in _together(lines, mates):
        primary = [f for f in fields if not int(f[1]) & SECONDARY_OR_SUPPLEMENTARY]
        if all(_quality(f) for f in primary):
            kept = [(int(f[1]) & ~_MATES, *f[2:6], *_own(f)) for f in fields if _quality(f)]
            yield b"%b\t%b\n" % (fields[0][0], repr(kept).encode())
        else:
            flags = [int(f[1]) & _READ for f in primary]
            yield b"%b\t%b\t%d\n" % (fields[0][0], repr(flags).encode(), sum(map(_score, primary)))


def _own(fields: Sequence[bytes]) -> list[bytes]:
    """Return the columns and tags behind the CIGAR string that tell of the record alone."""
    # RNEXT, PNEXT and TLEN are of the mate.
    return [f for f in fields[6].rstrip(b"\n").split(b"\t")[3:] if f[:3] not in _PLACES]


def _together(lines: Iterable[bytes], mates: int) -> Iterator[list[list[bytes]]]:
    """Yield the lines, as fields, of one read or pair after the other."""
    held: list[list[bytes]] = []
    primary = 0
    for line in lines:
        fields = line.split(b"\t", 6)
        is_primary = not int(fields[1]) & SECONDARY_OR_SUPPLEMENTARY
        # Reads of one name may follow each other.
        if held and (fields[0] != held[0][0] or (is_primary and primary == mates)):
            yield held
            held, primary = [], 0
        held.append(fields)
        primary += is_primary
    if held:
        yield held


def _quality(fields: Sequence[bytes]) -> int:
    """Return the mapping quality of the read by itself, where the record has it (SM): a mate may lend its own."""
    alone = _ALONE.search(fields[6])
    return int(alone[1] if alone else fields[4])


def _score(fields: Sequence[bytes]) -> int:
    score = _SCORE.search(fields[6])
    return int(score[1]) if score else 0


def sums(pieces: Sequence[Piece], *, settle: int | None) -> Sums:
    """Return the sums of all alignments in *pieces*, in that order.

    *settle* is how many mates a read has where *common* is of what is settled, None where it is of all.
    """
    exact, sure = hashlib.sha256(), hashlib.sha256()
    for piece in pieces:
        if settle is None:
            for block in _blocks(piece):
                exact.update(block)
            continue
        for text in settled(_lines(piece, exact), settle):
            sure.update(text)
    return Sums(exact.hexdigest(), sure.hexdigest() if settle else exact.hexdigest())


def _lines(piece: Piece, exact: hashlib._Hash) -> Iterator[bytes]:
    """Yield the lines of a piece, which go into *exact* as well."""
    for block in _blocks(piece):
        exact.update(block)
        yield from block.splitlines(keepends=True)


def _blocks(piece: Piece) -> Iterator[bytes]:
    """Yield a piece as blocks of whole lines."""
    left = piece.end - piece.start
    rest = b""
    with piece.file.open("rb") as stream:
        stream.seek(piece.start)
        while left and (block := stream.read(min(left, _BLOCK_BYTES))):
            left -= len(block)
            end = block.rfind(b"\n") + 1
            if end:
                yield rest + block[:end]
                rest = block[end:]
            else:
                rest += block
    if rest:
        yield rest
