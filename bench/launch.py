# SPDX-License-Identifier: Apache-2.0
"""Cost of launching: CPU time of ``firsttouch run`` with all its processes over the plain aligner's.

Method. The first PAIRS pairs of a dataset, repeated REPEAT times, are aligned with BWA-MEM by (1) the plain
program with a thread per PU, ``firsttouch run 1x-default --aligner`` (dataset) and ``firsttouch run
1x-default -- bwa mem`` (command); (2) two plain programs at once with one thread and half of the pairs
each, and the same two commands with ``2x1-bound``. They have output files in the same folder and
batches of the same size. CPU time is the user and system time of all processes, so it includes Python's start-
up, the inspection of the reads, feeding, watching and joining. Ratios compare times of the same round.

An aligner's own CPU time varies by several percent from run to run, and drifts with the host. Therefore each of
ROUNDS rounds runs the three in another order, so that none of them has the better place more often; many short
rounds tell more than few long ones; and the launcher's time is also stated alone: the time of all processes minus
the time of the instances, divided by the time of the instances. The reads of ``lambda`` are the least work for an
aligner, because its index fits into a cache: with ``--dataset synthetic --repeat 2 --pairs 20000`` (a genome of 50
million bases) the launcher's share is smaller.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tabulate import tabulate

from firsttouch import paths
from firsttouch.datasets import fetch
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import aligner
from firsttouch.host.topology import load
from firsttouch.scenarios.placement import plan

BWA = aligner("bwa-mem")
BATCH_BASES = 1_000_000
#: The orders of the commands, one for each round.
ORDERS = [*itertools.permutations(("plain", "dataset", "command"))]
FIRSTTOUCH = str(Path(sys.executable).with_name("firsttouch"))


def spent(what: Callable[[], None]) -> float:
    """Return the CPU seconds of the programs that *what* started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    what()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def plain(prefix: Path, shares: Sequence[Sequence[Path]], threads: int, folder: Path) -> None:
    """Run one plain aligner for each of *shares* (its read files), all at once."""
    running = []
    for number, files in enumerate(shares):
        (template,) = BWA.steps(len(files))
        argv = BWA.argv(
            template,
            index=prefix,
            reads=[str(f) for f in files],
            threads=threads,
            batch_bases=BATCH_BASES,
            scratch=folder,
        )
        with (folder / f"plain.{number}.sam").open("wb") as out:
            running.append(subprocess.Popen(argv, stdout=out, stderr=subprocess.DEVNULL))
    statuses = [process.wait() for process in running]
    if any(statuses):
        sys.exit("the plain aligner failed")


def ours(kind: str, prefix: Path, scenario: str, files: Sequence[Path], folder: Path) -> None:
    """Run one scenario with `firsttouch run`, of a *kind*; its JSON document goes to ours.json in *folder*."""
    argv = [FIRSTTOUCH, "run", scenario, "--json", "-o", str(folder / "ours.sam")]
    if kind == "dataset":
        argv += ["--aligner", BWA.name, "--index", str(prefix), "--batch-bases", str(BATCH_BASES)]
        argv += ["--reads", str(files[0]), "--reads2", str(files[1])]
    else:
        pus = str(len(os.sched_getaffinity(0)))
        argv += ["--", "bwa", "mem", "-v", "1", "-t", pus, "-K", str(BATCH_BASES), str(prefix), *map(str, files)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    (folder / "ours.json").write_text(done.stdout, encoding="utf-8")


def repeated(file: Path, reads: int | None, times: int, target: Path) -> Path:
    """Write the first *reads* (None: all) of the FASTQ *file* to *target*, *times* times; return *target*."""
    with file.open("rb") as source:
        text = b"".join(itertools.islice(source, None if reads is None else 4 * reads))
    target.write_bytes(text * times)
    return target


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="lambda", help="dataset of read pairs (default: lambda)")
    parser.add_argument(
        "--repeat", type=int, default=40, help="number of copies of the pairs, an even number (default: 40)"
    )
    parser.add_argument("--pairs", type=int, help="number of pairs that are taken (default: all)")
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    data = fetch.get(args.dataset)
    prefix = aligners.build_index(BWA, data.reference, paths.data() / "index")
    pus = len(os.sched_getaffinity(0))
    two = plan(load(), BWA.need(BWA.index_bytes(prefix))).scenario("2x1-bound").name
    cases: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="firsttouch-bench-") as name:
        folder = Path(name)
        files = [repeated(f, args.pairs, args.repeat, folder / f.name) for f in data.reads]
        halves = [repeated(f, args.pairs, args.repeat // 2, folder / f"half.{f.name}") for f in data.reads]
        with files[0].open("rb") as lines:
            pairs = sum(1 for _ in lines) // 4
        plain(prefix, [files], pus, folder)  # reads the index from the disk, which takes CPU time, too
        for number in range(args.rounds):
            order = ORDERS[number % len(ORDERS)]
            for scenario, shares, threads in (("1x-default", [files], pus), (two, [halves, halves], 1)):
                times, of_aligners = {}, {}
                for command in order:
                    if command == "plain":
                        times[command] = spent(lambda s=shares, t=threads: plain(prefix, s, t, folder))  # type: ignore[misc]
                        continue
                    times[command] = spent(lambda c=command, s=scenario: ours(c, prefix, s, files, folder))  # type: ignore[misc]
                    document = json.loads((folder / "ours.json").read_text(encoding="utf-8"))
                    of_aligners[command] = document.get("parameters", document)["cpu_seconds"]
                for command, of_aligner in of_aligners.items():
                    row = times["plain"], times[command], times[command] - of_aligner
                    cases.setdefault((command, scenario), []).append(row)
                text = ", ".join(f"{command} {seconds:.2f} s" for command, seconds in times.items())
                print(f"  round {number + 1}/{args.rounds}: {scenario}: {text}", file=sys.stderr, flush=True)
    rows = []
    for (command, scenario), rounds in cases.items():
        ratios = [launched / by_hand for by_hand, launched, _ in rounds]
        shares = [launcher / (launched - launcher) for _, launched, launcher in rounds]
        middle = [statistics.median(column) for column in zip(*rounds, strict=True)]
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        rows.append(
            (command, scenario, *middle, f"{statistics.median(shares):.1%}", statistics.median(ratios), spread)
        )
    print(f"{args.dataset}: {pairs} pairs, {args.rounds} rounds")
    heads = (
        "command",
        "scenario",
        "plain, CPU s",
        "firsttouch, CPU s",
        "launcher, CPU s",
        "its share",
        "ratio",
        "range",
    )
    print(tabulate(rows, heads, floatfmt=".3f"))


if __name__ == "__main__":
    main()
