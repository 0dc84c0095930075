# SPDX-License-Identifier: Apache-2.0
"""Divides checked reads into shares for instances, as equal as whole batches allow, dealt in parts in turn.

A reader of the input gives the parts of a :class:`Division` to the instances one after the other, so all of them
have reads from the beginning, and each file is read once.
"""

from __future__ import annotations

import bisect
import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from firsttouch.errors import CannotHere
from firsttouch.genomics.reads import BatchRule, Reads

#: Least bytes of a part of a large input: small enough to balance instances, large enough to make dealing cheap.
PART_BYTES = 1 << 20
#: Least bytes of a part of any input: bowtie 1.3.1 with several threads loses all reads of an instance that gets
#: fewer than 16.
SMALLEST_PART_BYTES = 1 << 15


class Division(Struct, frozen=True):
    """The records (pairs) of each part, in the order of the input, which is read *passes* times.

    *pass_records* are the records that are used of each pass (0: all).
    """

    parts: Sequence[int]
    passes: int = 1
    pass_records: int = 0


class InputPart(Struct, frozen=True):
    """Records (pairs) *first* to *end* - 1, which are the bytes *begins* to *ends* - 1 of each file."""

    first: int
    end: int
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def records(self) -> int:
        """Number of records (pairs)."""
        return self.end - self.first


def least_bytes(rule: BatchRule) -> int:
    """Return the least bytes of text of all mates in a part of FASTQ reads: a base and its quality take two."""
    return max(min(SMALLEST_PART_BYTES, PART_BYTES), 2 * rule.bases, rule.text)


def parts_between(reads: Reads, marks: Iterable[int]) -> list[InputPart]:
    """Return the parts between neighbours of *marks*, positions in the batch index of *reads*."""
    index = reads.batches
    places = [(index.records[mark], tuple(offsets[mark] for offsets in index.offsets)) for mark in marks]
    return [InputPart(first, end, begins, ends) for (first, begins), (end, ends) in itertools.pairwise(places)]


def static_division(reads: Reads, instances: int) -> Division:
    """Divide *reads* equally (thesis, section 5.2); raises CannotHere for fewer batches than instances."""
    _require_batches(reads, instances)
    last = len(reads.batches.records) - 1
    shares = _differences(round(number * last / instances) for number in range(instances + 1))
    parts = _in_turn(shares, _text_bytes(reads) // instances // PART_BYTES)
    return Division(_records_of(reads, parts))


def repeated_division(reads: Reads, instances: int, records: int) -> Division:
    """Give each instance *records* records, as nearly as whole batches allow, repeating the reads as needed.

    The reads per thread are then constant for any number of threads (Langmead et al. 2018, section 3.1). The first
    record follows the last. Raises CannotHere if an instance gets no batch.
    """
    starts = reads.batches.records
    last = len(starts) - 1
    # Marks are numbered continuously through the repetitions of the reads.
    marks = []
    for at in range(0, (instances + 1) * records, records):
        repetition, rest = divmod(at, reads.records)
        after = bisect.bisect_left(starts, rest)
        nearest = min(range(max(after - 1, 0), after + 1), key=lambda mark: abs(starts[mark] - rest))
        marks.append(repetition * last + nearest)
    shares = _differences(marks)
    if not all(shares):
        batch = reads.records / reads.batches.count
        raise CannotHere(
            f"{records} records for each instance are too few: a batch of the aligner has {batch:.0f}"
        )
    share_bytes = _text_bytes(reads) * records // reads.records
    parts = _records_of(reads, _in_turn(shares, share_bytes // PART_BYTES))
    return Division(parts, -(-marks[-1] // last), reads.records)


def too_few_reads(rule: BatchRule, parts: int, *, mates: int, records: int, bases: int, batches: int) -> str:
    """Explain why reads have too few *batches* for *parts* instances, and how many reads suffice."""
    if batches == records:
        return f"{records} records are too few for {parts} instances: use more reads"
    sizes = {"bases": rule.bases, "reads": rule.records * mates, "bytes of the first file": rule.text}
    each = " and ".join(f"{size:,} {unit}" for unit, size in sizes.items() if size)
    reason = (
        f"the reads are too few for {parts} instances with the same output as one: the aligner works in batches "
        f"of {each}, each instance needs one, and {bases:,} bases in {records * mates:,} reads fill {batches}; "
        f"use {parts} times {each} or more"
    )
    if not rule.bases:
        return reason
    return f"{reason}, or smaller batches in all runs: --batch-bases {max(1, bases // (2 * parts))}"


def _require_batches(reads: Reads, instances: int) -> None:
    batches = reads.batches
    if batches.count < instances:
        counts = {"records": reads.records, "bases": reads.bases, "batches": batches.count}
        raise CannotHere(too_few_reads(batches.rule, instances, mates=reads.mates, **counts))


def _text_bytes(reads: Reads) -> int:
    return sum(offsets[-1] for offsets in reads.batches.offsets)


def _differences(marks: Iterable[int]) -> list[int]:
    return [end - begin for begin, end in itertools.pairwise(marks)]


def _in_turn(shares: Sequence[int], rounds: int) -> Iterator[int]:
    """Yield the sizes of the parts of *shares*: one part of each share in each of about *rounds* rounds."""
    rounds = max(1, min(rounds, *shares))
    for number in range(rounds):
        for share in shares:
            yield (number + 1) * share // rounds - number * share // rounds


def _records_of(reads: Reads, sizes: Iterable[int]) -> array[int]:
    """Return the records of consecutive parts with *sizes* in marks of the batch index."""
    starts = reads.batches.records
    last = len(starts) - 1
    places = (
        mark // last * reads.records + starts[mark % last] for mark in itertools.accumulate(sizes, initial=0)
    )
    return array("q", _differences(places))
