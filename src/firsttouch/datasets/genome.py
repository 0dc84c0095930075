# SPDX-License-Identifier: Apache-2.0
"""A random genome with repeats. The same options give the same bytes on every host.

Repeats give aligners the speed, and their indexes the cache behaviour, of a real genome. Families of interspersed
repeats, with the lengths of Alu, SINE-VNTR-Alu and full L1 elements, are copied all over the genome, forward and
reverse. Copies diverge by up to 20 %, mostly less, so some reads align to several positions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]

LINE = 80  #: bases per FASTA line
_BLOCK = 50_000 * LINE  # bases generated at once, which bounds the memory
_CONTIG = 64_000_000  # maximum bases of a contig
_FAMILIES = ((300, 24), (1_500, 12), (6_000, 4))  # (length in bases, number of families)
_DIVERGENCE = 0.2  # maximum; half of the copies have less than a quarter of it

# Four bases for each byte of the generator
_FOUR = np.frombuffer(b"ACGT", np.uint8)[(np.arange(256)[:, None] >> np.array([0, 2, 4, 6])) & 3]
_COMPLEMENT = np.arange(256, dtype=np.uint8)
_COMPLEMENT[np.frombuffer(b"ACGT", np.uint8)] = np.frombuffer(b"TGCA", np.uint8)


class _Random:
    """Random numbers from the raw output of PCG64, which NumPy keeps stable, unlike its distributions."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def _raw(self, count: int) -> npt.NDArray[np.uint64]:
        return np.atleast_1d(self._bits.random_raw(count)).astype("<u8")

    def bases(self, count: int) -> _Bytes:
        """Return *count* bases (A, C, G or T)."""
        bases: _Bytes = _FOUR[self._raw(count // 32 + 1).view(np.uint8)].reshape(-1)[:count]
        return bases

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """Return *count* numbers in [0, 1)."""
        return (self._raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def fasta(size: int, repeat_fraction: float, seed: int) -> Iterator[bytes]:
    """Yield the FASTA text of a genome of *size* bases, *repeat_fraction* of them in repeats.

    Its contigs chr1, chr2, … have equal sizes (to one base) of at most 64 million bases.
    """
    random = _Random(seed)
    families = [random.bases(length) for length, count in _FAMILIES for _ in range(count)]
    # Every length of families contributes the same number of bases: short families have more copies.
    weights = np.array([1 / (length * count) for length, count in _FAMILIES for _ in range(count)])
    cumulated = np.cumsum(weights / weights.sum())
    contigs = -(-size // _CONTIG)
    for i in range(contigs):
        yield b">chr%d\n" % (i + 1)
        left = size // contigs + (i < size % contigs)
        while left:
            length = min(left, _BLOCK)
            yield _lines(_block(random, length, repeat_fraction, families, cumulated))
            left -= length


def _block(
    random: _Random,
    size: int,
    repeat_fraction: float,
    families: list[_Bytes],
    cumulated: npt.NDArray[np.float64],
) -> _Bytes:
    """Return *size* bases: copies of *families* at random positions in unique sequence."""
    copies: list[_Bytes] = []
    left = round(size * repeat_fraction)
    unique = random.bases(size - left)
    while left:
        which, strand, divergence = random.uniform(3)
        copy = families[int(np.searchsorted(cumulated, which, side="right"))][:left].copy()
        if strand < 0.5:
            copy = _COMPLEMENT[copy[::-1]]
        changed = random.uniform(len(copy)) < divergence**2 * _DIVERGENCE
        copy[changed] = random.bases(len(copy))[changed]
        copies.append(copy)
        left -= len(copy)
    places = np.sort((random.uniform(len(copies)) * (len(unique) + 1)).astype(np.int64))
    parts: list[_Bytes] = []
    for gap, copy in zip(np.split(unique, places), [*copies, unique[:0]], strict=True):
        parts += [gap, copy]
    return np.concatenate(parts)


def _lines(bases: _Bytes) -> bytes:
    """Return *bases* as FASTA lines of LINE bases; the last line may be shorter."""
    whole = len(bases) // LINE * LINE
    lines = np.full((whole // LINE, LINE + 1), ord("\n"), np.uint8)
    lines[:, :LINE] = bases[:whole].reshape(-1, LINE)
    rest = bases[whole:].tobytes()
    return lines.tobytes() + (rest + b"\n" if rest else b"")
