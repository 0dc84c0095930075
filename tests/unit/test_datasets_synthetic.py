# SPDX-License-Identifier: Apache-2.0
"""The generated genome: its size, its repeats, and the same bytes on every host and every release."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttouch.datasets import genome
from firsttouch.datasets.genome import fasta


def contigs(text: bytes) -> dict[bytes, bytes]:
    parts = text.split(b">")[1:]
    return {part.split(b"\n")[0]: part[part.index(b"\n") :].replace(b"\n", b"") for part in parts}


def repeated(sequence: bytes, length: int = 24) -> float:
    """Return the part of the places in *sequence* whose next *length* bases occur elsewhere too."""
    codes = np.frombuffer(sequence, np.uint8).astype(np.uint64) >> 1 & 3
    words = np.zeros(len(codes) - length + 1, np.uint64)
    for i in range(length):
        words = words << 2 | codes[i : i + len(words)]
    _, counts = np.unique(words, return_counts=True)
    return float(counts[counts > 1].sum() / len(words))


@settings(deadline=None, max_examples=40)
@given(st.integers(10_000, 60_000), st.floats(0, 0.95), st.integers(0, 2**31 - 1))
def test_any_size_and_seed(size: int, repeat_fraction: float, seed: int) -> None:
    text = b"".join(fasta(size, repeat_fraction, seed))
    (sequence,) = contigs(text).values()
    assert len(sequence) == size
    assert set(sequence) == set(b"ACGT")
    assert text == b"".join(fasta(size, repeat_fraction, seed))
    assert max(map(len, text.split(b"\n"))) == 80


def test_the_bytes_never_change() -> None:
    # Records of a synthetic dataset are compared between hosts and releases: this digest is a promise.
    digest = hashlib.sha256(b"".join(fasta(1_000_000, 0.4, 1))).hexdigest()
    assert digest == "8653d13d15a9e7d6ef6ef32798dc395d0339a00fea3bc94187520db38418b6ad"


def test_repeats_are_as_many_as_asked_for() -> None:
    fractions = [repeated(contigs(b"".join(fasta(1_000_000, part, 3)))[b"chr1"]) for part in (0.0, 0.4, 0.8)]
    # Divergence hides some of the repeats from exact words and adds none.
    assert fractions[0] < 0.001
    assert 0.1 < fractions[1] < 0.4
    assert 1.8 < fractions[2] / fractions[1] < 3


def test_a_large_genome_has_even_contigs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(genome, "_CONTIG", 300_000)
    sizes = {name: len(sequence) for name, sequence in contigs(b"".join(fasta(1_000_001, 0.4, 1))).items()}
    assert sizes == {b"chr1": 250_001, b"chr2": 250_000, b"chr3": 250_000, b"chr4": 250_000}
