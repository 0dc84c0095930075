# SPDX-License-Identifier: Apache-2.0
"""Cost of feeding reads: rates of the stream of reads, of an inspection, and of other programs.

Method. Two FASTQ files of random reads (100 bases, SIZE bytes each) are written to memory (/dev/shm, else the
temporary folder), and one is compressed with gzip. Each of ROUNDS rounds measures everything once, in turn:

- ``cat | cat``: ``cat FILE... | cat >/dev/null``, the rate of two processes with a pipe between them. All ratios
  are relative to this rate of the same round and files.
- inspection: inspect(), which checks every record and indexes the batches, as for a dataset or several runs.
- ReadStream: the same check, on the way: a thread takes the pieces and drops them; with N consumers, each
  ``cat >/dev/null`` (2 N for paired reads), each gets the parts in turn from threads that write, as instances do.
- gzip: the rate (of uncompressed bytes) of ``igzip -d -c FILE | cat >/dev/null``; the inspection of the gzip file;
  the stream. Ratios are to igzip.
- memory: the peak of this process over all of the above (another process writes the files).
- peers, if installed: ``seqkit split2`` into 2 parts (files in memory), and ``parallel --pipepart`` into 2
  consumers (it splits at any line that begins with @, so also at qualities).

Rates are medians with their ranges; ratios are medians of the rounds' ratios. ``--size`` and ``--rounds`` change
the defaults. Other load on the host changes the rates a lot and the ratios little.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from firsttouch.genomics.dealing import Feed
from firsttouch.genomics.division import PART_BYTES
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.pipe_writer import StopRequest
from firsttouch.genomics.read_stream import ReadStream
from firsttouch.genomics.reads import BatchRule
from firsttouch.units import parse_bytes

#: The gzip file holds this fraction (1/PACKED_PART) of the plain file, because compression is slow.
PACKED_PART = 8
IGZIP = [sys.executable, "-m", "isal.igzip"]


def make(folder: Path, size: int) -> None:
    """Write the files of both mates, and the gzip file."""
    rng, bases = np.random.default_rng(1), 100
    count = 20_000
    for mate in (b"1", b"2"):
        letters = np.frombuffer(b"ACGT", np.uint8)[rng.integers(0, 4, (count, bases))]
        qualities = np.frombuffer(b"FFFFFF:,#", np.uint8)[rng.integers(0, 9, (count, bases))]
        with (folder / f"{mate.decode()}.fq").open("wb") as out:
            at = 0
            while out.tell() < size:
                names = np.char.mod(b"@SIM:1:FCX:1:%011d/" + mate, np.arange(at, at + count))
                rows = [names.astype("S").view(np.uint8).reshape(count, -1), letters, qualities]
                name, base, quality = rows
                line, plus = (
                    np.full((count, 1), 10, np.uint8),
                    np.tile(np.frombuffer(b"\n+\n", np.uint8), (count, 1)),
                )
                out.write(np.hstack([name, line, base, plus, quality, line]).tobytes())
                at += count
    with (folder / "1.fq").open("rb") as plain, gzip.open(folder / "1.fq.gz", "wb", compresslevel=6) as packed:
        record = sum(len(plain.readline()) for _ in range(4))
        plain.seek(0)
        packed.write(plain.read(size // PACKED_PART // record * record))


def seconds(work: Callable[[], object]) -> float:
    """Return the wall seconds of *work*."""
    start = time.monotonic()
    work()
    return time.monotonic() - start


def through_cat(argv: Sequence[str | Path]) -> None:
    """Run a program with its output piped through ``cat``."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as first:
        subprocess.run(["cat"], stdin=first.stdout, stdout=subprocess.DEVNULL, check=True)
    if first.returncode:
        raise SystemExit(f"{argv[0]} failed")


def stream(files: Sequence[Path], instances: int = 0) -> None:
    """Read *files* through a ReadStream; deal its parts to *instances* consumers (0: drop them)."""
    stop, feeds, programs = StopRequest(), [], []
    for _ in range(instances):
        sinks = []
        for _ in files:
            out, into = os.pipe()
            programs.append(subprocess.Popen(["cat"], stdin=out, stdout=subprocess.DEVNULL))
            os.close(out)
            sinks.append(into)
        feeds.append(Feed(sinks, stop))
        feeds[-1].start()
    rule = BatchRule(10_000_000)
    with ReadStream([list(map(str, files))], rule=rule, least_part_bytes=PART_BYTES) as pieces:
        for piece in pieces:
            if instances:
                feeds[piece.part % instances].put(piece.data)
    for feed in feeds:
        feed.close()
    for feed in feeds:
        feed.join()
    stop.close()
    ended = [program.wait() for program in programs]
    if any(ended):
        raise SystemExit("cat failed")


class Table:
    """Rates in GB/s by name, and their ratios to a base rate of the same round."""

    def __init__(self) -> None:
        self.rates: dict[str, list[float]] = defaultdict(list)
        self.ratios: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, size: int, taken: float, base: float | None = None) -> float:
        """Add the rate of *size* bytes in *taken* seconds and its ratio to the rate *base*; return the rate."""
        rate = size / taken / 1e9
        self.rates[name].append(rate)
        if base is not None:
            self.ratios[name].append(rate / base)
        return rate

    def print(self) -> None:
        """Print the medians and ranges."""
        for name, rates in self.rates.items():
            middle, low, high = statistics.median(rates), min(rates), max(rates)
            ratios = self.ratios.get(name)
            spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
            ratio = f", ratio {statistics.median(ratios):.2f}{spread}" if ratios else ""
            print(f"{name}: median {middle:.2f} GB/s (range {low:.2f} to {high:.2f}){ratio}")


def one_round(folder: Path, table: Table) -> None:
    """Measure everything once."""
    files = [folder / "1.fq", folder / "2.fq"]
    for title, chosen in (("single", files[:1]), ("paired", files)):
        size = sum(f.stat().st_size for f in chosen)
        base = table.add(f"{title}: cat | cat", size, seconds(lambda f=chosen: through_cat(["cat", *f])))
        inspection = seconds(lambda f=chosen: inspect(f, BatchRule(10_000_000)))
        table.add(f"{title}: inspection", size, inspection, base)
        for consumers in (0, 1, 2, 4):
            name = f"{title}: ReadStream" + (f", {consumers} consumers" if consumers else "")
            table.add(name, size, seconds(lambda f=chosen, n=consumers: stream(f, n)), base)
    packed(folder / "1.fq.gz", table)
    peers(folder, table)


def packed(file: Path, table: Table) -> None:
    """Measure a gzip file."""
    reads = inspect([file])
    size = int(reads.batches.offsets[0][-1])
    unpacking = seconds(lambda: through_cat([*IGZIP, "-d", "-c", file]))
    base = table.add("gzip: igzip | cat", size, unpacking)
    table.add("gzip: inspection", size, seconds(lambda: inspect([file])), base)
    table.add("gzip: ReadStream", size, seconds(lambda: stream([file])), base)
    for consumers in (1, 2):
        fed = seconds(lambda n=consumers: stream([file], n))
        table.add(f"gzip: ReadStream, {consumers} consumers", size, fed, base)


def peers(folder: Path, table: Table) -> None:
    """Measure the other programs that split FASTQ, if they are installed."""
    file = folder / "1.fq"
    size = file.stat().st_size
    base = table.rates["single: cat | cat"][-1]
    if shutil.which("seqkit"):
        with tempfile.TemporaryDirectory(dir=folder) as out:
            argv = ["seqkit", "split2", "--quiet", "-p", "2", "-O", out, str(file)]
            taken = seconds(lambda: subprocess.run(argv, check=True, stderr=subprocess.DEVNULL))
        table.add("peer: seqkit split2, 2 parts", size, taken, base)
    if shutil.which("parallel"):
        argv = ["parallel", "--will-cite", "--pipepart", "-a", str(file), "--recstart", "@", "--block", "-1"]
        argv += ["-j", "2", "cat >/dev/null"]
        taken = seconds(lambda: subprocess.run(argv, check=True, stderr=subprocess.DEVNULL))
        table.add("peer: parallel --pipepart, 2 consumers", size, taken, base)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--size", type=parse_bytes, default="1 GB", help="of each plain file (default: 1 GB)")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.make:
        make(args.make, args.size)
        return
    memory = Path("/dev/shm")  # noqa: S108 (a temporary folder in it is made below)
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="firsttouch-") as name:
        folder, table = Path(name), Table()
        subprocess.run([sys.executable, __file__, "--make", folder, "--size", str(args.size)], check=True)
        for number in range(args.rounds):
            one_round(folder, table)
            print(f"  feeding reads: round {number + 1}/{args.rounds}", file=sys.stderr, flush=True)
    table.print()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"memory: peak {peak / 1e6:.0f} MB, with {args.size / 1e9:g} GB in each file")


if __name__ == "__main__":
    main()
