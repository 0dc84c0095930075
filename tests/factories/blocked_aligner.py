#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that reads blocked FASTQ like Langmead et al. 2018, and "aligns" all reads to one place.

It refuses pipes, reads a block at once, and fails on one without the expected number of whole records. It writes
several files: for out.sam, these are out.part1.sam and so on. The first one has the header.
"""

import argparse
from pathlib import Path


def names(file, size, records):
    """Yield the names of the records of *file*."""
    assert Path(file).is_file(), f"{file} is not a file"
    with Path(file).open("rb") as stream:
        while block := stream.read(size):
            lines = block.split(b"\n")
            assert lines.pop() == b"", "the last line of a block goes on in the next one"
            assert len(block) < size or len(lines) == 4 * records, f"a block has {len(lines)} lines"
            assert all(line[:1] == b"@" for line in lines[::4]), "a record begins elsewhere"
            yield from (line[1:].split()[0].decode() for line in lines[::4])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", action="version", version="version 7")
    for name in ("--size", "--records", "--outputs"):
        parser.add_argument(name, type=int)
    parser.add_argument("--out")
    parser.add_argument("--mapped", action="store_true")
    parser.add_argument("--threads")
    parser.add_argument("--index")
    parser.add_argument("reads", nargs="+")
    args = parser.parse_args()
    texts = ["@SQ\tSN:s\tLN:9\n", *[""] * (args.outputs - 1)]
    print("times, which are no alignments")
    mates = [list(names(file, args.size, args.records)) for file in args.reads]
    for number, of_mates in enumerate(zip(*mates, strict=True)):
        for mate, name in enumerate(of_mates):
            flag = 1 | 0x40 << mate if len(mates) == 2 else 0
            texts[-1 - number % len(texts)] += f"{name}\t{flag}\ts\t1\t9\t1M\t*\t0\t0\tA\tI\n"
    for number, text in enumerate(texts, 1):
        Path(args.out.replace(".sam", f".part{number}.sam")).write_text(text)


main()
