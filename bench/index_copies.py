# SPDX-License-Identifier: Apache-2.0
"""Peak memory of eight instances with one copy of the index, against eight instances that load their own.

Method. Eight instances of one thread each align pairs of the dataset ``synthetic`` (50 million bases), as
`firsttouch run` starts them: with the option ``private``, and with ``node-index``, where they map one copy in a
RAM store. The instances may use all PUs and the memory of this host, so any host can run eight of them. While they
run, two values are sampled five times a second. The first is the sum of their proportional set sizes (Pss in
proc(5)), which has each shared page once. The second is what the host lost of its available memory (MemAvailable)
since before the copy was made; other programs on the host disturb it. The table has the median and range of the
peaks of ROUNDS rounds in turn. The alignments of all rounds must be equal.

The dataset and the indexes are made once, under FIRSTTOUCH_DATA or datasets/store. --effort quick has one round.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from tabulate import tabulate

from firsttouch import paths
from firsttouch.datasets import fetch
from firsttouch.execution.placement_check import family
from firsttouch.genomics import aligners, launch
from firsttouch.genomics.aligners import aligner
from firsttouch.host.available_memory import available_bytes
from firsttouch.host.topology import load
from firsttouch.scenarios.placement import Scenario, plan
from firsttouch.units import format_bytes

ROUNDS = {"quick": 1, "default": 3, "full": 5}
ALIGNERS = ("snap", "bowtie2")
WAYS = ("private", "node-index")
INSTANCES = 8
_INTERVAL = 0.2


@dataclass
class Peak:
    """The largest values of a run (bytes)."""

    pss: int = 0
    lost: int = 0


def pss(program: str) -> int:
    """Return the sum of the proportional set sizes of all processes of a program below this one (bytes)."""
    total = 0
    for process in (Path(f"/proc/{pid}") for pid in family(os.getpid())):
        with contextlib.suppress(OSError, StopIteration):
            if program.startswith((process / "comm").read_text().strip()):
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += int(next(line for line in lines if line.startswith("Pss:")).split()[1]) << 10
    return total


@contextlib.contextmanager
def sampled(program: str) -> Iterator[Peak]:
    """Sample the memory of a program while the block runs."""
    peak, stop, before = Peak(), threading.Event(), available_bytes() or 0

    def sample() -> None:
        while not stop.wait(_INTERVAL):
            peak.pss = max(peak.pss, pss(program))
            peak.lost = max(peak.lost, before - (available_bytes() or 0))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def eight(option: str) -> Scenario:
    """Return eight instances, each with all PUs and all memory."""
    (placement,) = plan(load()).scenario("1x-default").placements
    name = f"{INSTANCES}x1-bound"
    return Scenario(name, INSTANCES, 1, "original", (placement,) * INSTANCES).with_options([option])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--effort", choices=ROUNDS, default="default")
    rounds = ROUNDS[parser.parse_args().effort]
    data = fetch.get("synthetic")
    rows = []
    for name in ALIGNERS:
        program = aligner(name)
        prefix = aligners.build_index(program, data.reference, paths.data() / "index", sha256=data.sha256)
        work = replace(launch.prepare(program, prefix, list(data.reads), remembered=True), summed=True)
        process = program.align.paired[0][0].format(size="s")
        peaks: dict[str, list[Peak]] = {way: [] for way in WAYS}
        sums = set()
        for number in range(rounds):
            for way in WAYS[:: 1 if number % 2 == 0 else -1]:
                with sampled(process) as peak:
                    result = launch.run(work, eight(way), None)
                if result.misplaced:
                    sys.exit(f"{name} {way}: {result.misplaced}")
                sums.add(result.alignments.sums)
                peaks[way].append(peak)
                print(f"  {name} {way} ({number + 1}/{rounds}): {format_bytes(peak.pss)}", file=sys.stderr)
        if len(sums) > 1:
            sys.exit(f"{name}: the alignments differ")
        index = format_bytes(program.index_bytes(prefix))
        rows += [
            (name, index, way, middle([p.pss for p in peaks[way]]), middle([p.lost for p in peaks[way]]))
            for way in WAYS
        ]
    head = ("aligner", "index", "option", "sum of PSS: median (range)", "host: median (range)")
    print(f"peak memory of {INSTANCES} instances of one thread")
    print(tabulate(rows, head, tablefmt="github"))


def middle(values: list[int]) -> str:
    """Return the median and the range of sizes."""
    return (
        f"{format_bytes(statistics.median(values))} ({format_bytes(min(values))} to {format_bytes(max(values))})"
    )


if __name__ == "__main__":
    main()
