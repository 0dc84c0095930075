# SPDX-License-Identifier: Apache-2.0
"""Puts alignments back into the order of the reads, for aligners whose threads write as they finish."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from firsttouch.errors import RunFailed
from firsttouch.reads.pairs import stem
from firsttouch.sam.lines import SECONDARY_OR_SUPPLEMENTARY

_LAST_OF_PAIR = 0x80


@dataclass
class _Read:
    """The lines (start, end, flag) of one read, or of both mates."""

    primary: int = 0
    lines: list[tuple[int, int, int]] = field(default_factory=list)


def restore(file: Path, header_bytes: int, names: Iterable[bytes], mates: int, made: Path) -> None:
    """Write *file* to *made* with its alignments in the order of *names* (of reads, or of pairs).

    A read's lines stay as they are, mate 1 first, its primary record before others. What has come too early is
    remembered by its place in the file: the memory needed grows with how far the program's threads are apart.
    Raises RunFailed for a read without its records, or records of a read that is not there.
    """
    with file.open("rb") as stream, made.open("wb") as out:
        out.write(stream.read(header_bytes))
        size = stream.seek(0, 2)
        if size == header_bytes:
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            waiting: dict[bytes, deque[_Read]] = {}
            at = header_bytes
            for name in names:
                while name not in waiting or waiting[name][0].primary < mates or _goes_on(data, at, name):
                    if at >= size:
                        read = name.decode(errors="replace")
                        raise RunFailed(f"{file}: read {read} has no record, or too few")
                    at = _take(data, at, waiting, mates)
                queue = waiting[name]
                for start, end, _ in sorted(queue.popleft().lines, key=_place):
                    out.write(data[start:end])
                if not queue:
                    del waiting[name]
            if at < size or waiting:
                raise RunFailed(f"{file}: has records of reads that it was not given")


def _goes_on(data: mmap.mmap, at: int, name: bytes) -> bool:
    """Tell whether the line at *at* is a further record of that read."""
    if data[at : at + len(name)] != name:
        return False
    found, flag = data[at : data.find(b"\t", data.find(b"\t", at) + 1)].split(b"\t")
    return stem(found) == name and bool(int(flag) & SECONDARY_OR_SUPPLEMENTARY)


def _take(data: mmap.mmap, at: int, waiting: dict[bytes, deque[_Read]], mates: int) -> int:
    """Remember the line at *at*, and return where the next one begins."""
    end = data.find(b"\n", at) + 1
    tab = data.find(b"\t", at)
    name = stem(data[at:tab])
    flag = int(data[tab + 1 : data.find(b"\t", tab + 1)])
    queue = waiting.setdefault(name, deque())
    is_primary = not flag & SECONDARY_OR_SUPPLEMENTARY
    # Reads of one name are told apart by their primary records.
    if not queue or (is_primary and queue[-1].primary == mates):
        queue.append(_Read())
    queue[-1].primary += is_primary
    queue[-1].lines.append((at, end, flag))
    return end


def _place(line: tuple[int, int, int]) -> tuple[bool, bool, int]:
    start, _, flag = line
    return bool(flag & _LAST_OF_PAIR), bool(flag & SECONDARY_OR_SUPPLEMENTARY), start
