# SPDX-License-Identifier: Apache-2.0
"""SAM output of several instances: joined in input order under one header, counted and summed up."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from firsttouch.errors import RunFailed

_SECONDARY_OR_SUPPLEMENTARY = 0x900
_UNMAPPED = 0x4
#: A record has eleven fields at least.
_TABS = 10


@dataclass(frozen=True)
class Alignments:
    """What an output holds: primary records, how many of them are mapped, and the records' SHA-256.

    The checksum covers every alignment line in order and no header line, so equal checksums mean the same
    alignments for the same reads in the same order (timing and program lines aside).
    """

    primary: int
    mapped: int
    sha256: str

    @property
    def mapped_fraction(self) -> float:
        """Part of the primary records that are mapped."""
        return self.mapped / self.primary if self.primary else 0.0


def join(parts: Sequence[Path], out: IO[bytes] | None) -> Alignments:
    """Write the alignments of *parts*, in order, to *out* under the first part's header, and sum them up.

    Raises RunFailed, naming file and line, for a line that is no SAM, or parts with different references.
    """
    total = hashlib.sha256()
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
                if out is not None:
                    out.write(line)
        references = mine if references is None else references
        if mine != references:
            raise RunFailed(f"{part}: aligned to other references than {parts[0]}")
    return Alignments(primary, mapped, total.hexdigest())
