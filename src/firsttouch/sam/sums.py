# SPDX-License-Identifier: Apache-2.0
"""SHA-256 of alignments: equal sums mean that two runs gave the same ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firsttouch.sam.join import Piece
from firsttouch.sam.lines import SECONDARY_OR_SUPPLEMENTARY

#: Properly paired, and the mate's strand.
_MATES = 0x22
#: Unmapped, first or last of its pair.
_READ = 0xC4
_SCORE = re.compile(rb"\tAS:i:(-?\d+)")
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


def settled(line: bytes) -> bytes:
    """Return what of an alignment line does not depend on a choice among equally good places.

    BWA-MEM chooses among them by the number of the read within its own run (a hash of it), and every instance
    counts from 0. Of a record with mapping quality 0, that is, with another place as good, the read, whether it
    is mapped and its score (AS) count; of a better one its place and CIGAR as well. The mate's fields and
    flags follow the mate's own record.
    """
    name, flag, reference, position, quality, cigar, rest = line.split(b"\t", 6)
    score = _SCORE.search(rest)
    kept = [name, score[1] if score else b""]
    if quality != b"0":
        return b"\t".join([*kept, str(int(flag) & ~_MATES).encode(), reference, position, quality, cigar, b"\n"])
    if int(flag) & SECONDARY_OR_SUPPLEMENTARY:
        return b""  # further places of a read that has no settled one
    return b"\t".join([*kept, str(int(flag) & _READ).encode(), b"\n"])


def sums(pieces: Sequence[Piece], *, settle: bool) -> Sums:
    """Return the sums of all alignments in *pieces*, in that order; *settle*: *common* is of what is settled."""
    exact, sure = hashlib.sha256(), hashlib.sha256()
    for piece in pieces:
        for block in _blocks(piece):
            exact.update(block)
            if settle:
                sure.update(b"".join(map(settled, block.splitlines(keepends=True))))
    return Sums(exact.hexdigest(), sure.hexdigest() if settle else exact.hexdigest())


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
