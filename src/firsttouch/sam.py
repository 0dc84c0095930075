# SPDX-License-Identifier: Apache-2.0
"""SAM output of several instances: joined in input order under one header, counted and summed up."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from firsttouch.errors import RunFailed

_SECONDARY_OR_SUPPLEMENTARY = 0x900
_UNMAPPED = 0x4
#: Properly paired, and the mate's strand.
_MATES = 0x22
#: Unmapped, first or last of its pair.
_READ = 0xC4
_SCORE = re.compile(rb"\tAS:i:(-?\d+)")
#: A record has eleven fields at least.
_TABS = 10


@dataclass(frozen=True)
class Alignments:
    """What an output holds: primary records, how many of them are mapped, and two SHA-256 of the records.

    *sha256* covers every alignment line in order and no header line: equal sums mean the same alignments for
    the same reads in the same order (timing and program lines aside). *settled_sha256* leaves out what is a
    free choice among equally good places (see :func:`settled`): equal sums mean that no read fares worse.
    """

    primary: int
    mapped: int
    sha256: str
    settled_sha256: str = ""

    @property
    def mapped_fraction(self) -> float:
        """Part of the primary records that are mapped."""
        return self.mapped / self.primary if self.primary else 0.0


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
    if int(flag) & _SECONDARY_OR_SUPPLEMENTARY:
        return b""  # further places of a read that has no settled one
    return b"\t".join([*kept, str(int(flag) & _READ).encode(), b"\n"])


def join(parts: Sequence[Path], out: IO[bytes] | None) -> Alignments:
    """Write the alignments of *parts*, in order, to *out* under the first part's header, and sum them up.

    Raises RunFailed, naming file and line, for a line that is no SAM, or parts with different references.
    """
    total, sure = hashlib.sha256(), hashlib.sha256()
    primary = mapped = 0
    references: list[bytes] | None = None
    for number, part in enumerate(parts):
        mine: list[bytes] = []
        with part.open("rb") as stream:
            for at, line in enumerate(stream, start=1):
                # A read's name may begin with @ too: a header has a tab after its two letters.
                if line.startswith(b"@") and line[3:4] == b"\t":
                    if line.startswith(b"@SQ"):
                        mine.append(line)
                    if number == 0 and out is not None:
                        out.write(line)
                    continue
                fields = line.split(b"\t", 2)
                if line.count(b"\t") < _TABS or not fields[1].isdigit() or not line.endswith(b"\n"):
                    raise RunFailed(f"{part}:{at}: not a SAM record: {line[:60]!r}")
                flag = int(fields[1])
                if not flag & _SECONDARY_OR_SUPPLEMENTARY:
                    primary += 1
                    mapped += not flag & _UNMAPPED
                total.update(line)
                sure.update(settled(line))
                if out is not None:
                    out.write(line)
        references = mine if references is None else references
        if mine != references:
            raise RunFailed(f"{part}: aligned to other references than {parts[0]}")
    return Alignments(primary, mapped, total.hexdigest(), sure.hexdigest())
