# SPDX-License-Identifier: Apache-2.0
"""The names of a pair's two reads: equal up to their comments and to the /1 and /2 at their ends."""

from __future__ import annotations

import re

import numpy as np

from firsttouch.reads.blocks import SLACK, Bytes, Ints

#: What ends a name: a blank, a tab, the line's end, or any other control character.
_LAST_END = 32
_END = re.compile(rb"[\x00-\x20]")
_SLASH, _ONE, _TWO = b"/12"


class Names:
    """Names of reads: *data* (with SLACK bytes after the last), and where each line begins (@) and ends."""

    def __init__(self, data: Bytes, starts: Ints, ends: Ints) -> None:
        self.data, self.starts, self.ends = data, starts, ends

    def name(self, number: int) -> bytes:
        """Return the name *number*, without its comment."""
        return _END.split(self.data[self.starts[number] : self.ends[number]].tobytes(), maxsplit=1)[0]

    def width(self) -> int:
        """Return how many bytes, @ not counted, hold every name with what ends it, as far as that is usual."""
        return min(int((self.ends - self.starts).max()), SLACK)

    def rows(self, width: int) -> Bytes:
        """Return the *width* bytes after each @, as rows."""
        places = np.ndarray((len(self.data) - width + 1,), np.dtype((np.void, width)), self.data, 0, (1,))
        return places[self.starts + 1].view(np.uint8).reshape(-1, width)


def unlike(one: Names, other: Names) -> int | None:
    """Return the number of the first names that are none of a pair, or None where all are."""
    width = min(one.width(), other.width())
    first, second = one.rows(width), other.rows(width)
    stops, differ = first <= _LAST_END, first != second
    end, at = stops.argmax(1), differ.argmax(1)
    # Places in the rows one after the other: half the time of rows and columns.
    a, b, row = first.reshape(-1), second.reshape(-1), np.arange(0, first.size, width)
    place = row + end
    ended = (a[place] <= _LAST_END) & (b[place] <= _LAST_END)
    good = ended & ((at >= end) | ~differ.reshape(-1)[row + at])
    # Equal names with /1 or /2 at their ends are the same mate twice.
    before = np.maximum(place - 2, 0)
    good &= ~((end > 2) & (a[before] == _SLASH) & ((a[before + 1] == _ONE) | (a[before + 1] == _TWO)))
    if good.all():
        return None
    # Names that differ in their last character only may be those of mates 1 and 2.
    mates = ended & (at == end - 1) & (end > 2)
    last = np.where(mates, place - 1, 1)
    good |= mates & (a[last - 1] == _SLASH) & (a[last] == _ONE) & (b[last] == _TWO)
    if good.all():
        return None
    for number in np.flatnonzero(~good):
        if not _is_pair(one.name(int(number)), other.name(int(number))):
            return int(number)
    return None


def _is_pair(name: bytes, other: bytes) -> bool:
    return stem(name) == stem(other) and (name != other or stem(name) == name)


def stem(name: bytes) -> bytes:
    """Return a read's name without the /1 or /2 of a pair."""
    return name[:-2] if name[-2:] in {b"/1", b"/2"} else name
