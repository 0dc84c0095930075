# SPDX-License-Identifier: Apache-2.0
"""What launching costs: CPU time of ``firsttouch run``, with all that it starts, over that of the plain aligner.

Method. The pairs of a dataset, REPEAT times over, are aligned with BWA-MEM by (1) the plain program
with as many threads as there are PUs, and ``firsttouch run 1Inst_Original``; (2) two plain programs at once with
one thread and half of the pairs each, and ``firsttouch run 2Inst_Original_1t``. All in turn, in ROUNDS rounds,
output to files of the same folder, batches of the same size. CPU time is user and system of all processes, so
Python's start, the check of the reads, feeding, watching and joining are in it; ratios are of the same round. As
an aligner's own CPU time changes by several percent from run to run where others use the host, the launcher's is
also stated by itself: that of all processes less that of the instances, as a share of the latter. To align to
``lambda``, whose index fits into a cache, is the least work that a read can be: with ``--dataset synthetic``
(a genome of 50 million bases) the same launching is a smaller share. ``--repeat`` and ``--rounds`` change the
defaults.
"""

from __future__ import annotations

import argparse
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

from firsttouch.datasets import fetch, store
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import aligner
from firsttouch.host.topology import load
from firsttouch.scenarios.placement import plan

BWA = aligner("bwa-mem")
BATCH_BASES = 1_000_000
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


def ours(prefix: Path, scenario: str, files: Sequence[Path], folder: Path) -> None:
    """Run one scenario; what it says of itself goes to ours.json in *folder*."""
    argv = [FIRSTTOUCH, "run", scenario, "--aligner", BWA.name, "--index", str(prefix)]
    argv += ["--reads", str(files[0]), "--reads2", str(files[1]), "--batch-bases", str(BATCH_BASES)]
    done = subprocess.run(
        [*argv, "--json", "-o", str(folder / "ours.sam")], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    (folder / "ours.json").write_text(done.stdout, encoding="utf-8")


def repeated(file: Path, times: int, made: Path) -> Path:
    """Write *file*, FASTQ, so many times over to *made*."""
    made.write_bytes(file.read_bytes() * times)
    return made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="lambda", help="of read pairs (default: lambda)")
    parser.add_argument("--repeat", type=int, default=40, help="how often the pairs are repeated, an even number")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    data = fetch.get(args.dataset)
    prefix = aligners.built(BWA, data.reference, store.root() / "index")
    pus = len(os.sched_getaffinity(0))
    two = plan(load(), BWA.need(BWA.index_bytes(prefix))).scenario("2Inst_Original_1t").name
    cases: dict[str, list[tuple[float, float, float]]] = {"1Inst_Original": [], two: []}
    with tempfile.TemporaryDirectory(prefix="firsttouch-bench-") as name:
        folder = Path(name)
        whole = [repeated(f, args.repeat, folder / f.name) for f in data.reads]
        half = [repeated(f, args.repeat // 2, folder / f"half.{f.name}") for f in data.reads]
        for number in range(args.rounds):
            for scenario, shares, threads in (("1Inst_Original", [whole], pus), (two, [half, half], 1)):
                by_hand = spent(lambda s=shares, t=threads: plain(prefix, s, t, folder))  # type: ignore[misc]
                launched = spent(lambda s=scenario: ours(prefix, s, whole, folder))  # type: ignore[misc]
                record = json.loads((folder / "ours.json").read_text(encoding="utf-8"))
                own = launched - record["parameters"]["cpu_seconds"]
                cases[scenario].append((by_hand, launched, own))
                print(
                    f"  round {number + 1}/{args.rounds}: {scenario} {launched:.2f} s, plain {by_hand:.2f} s",
                    file=sys.stderr,
                    flush=True,
                )
    rows = []
    for scenario, found in cases.items():
        ratios = [launched / by_hand for by_hand, launched, _ in found]
        shares = [own / (launched - own) for _, launched, own in found]
        middle = [statistics.median(column) for column in zip(*found, strict=True)]
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        rows.append((scenario, *middle, f"{statistics.median(shares):.1%}", statistics.median(ratios), spread))
    print(f"{args.dataset}: {record['parameters']['reads'] // 2} pairs, {args.rounds} rounds")
    heads = ("scenario", "plain, CPU s", "firsttouch, CPU s", "launcher, CPU s", "its share", "ratio", "range")
    print(tabulate(rows, heads, floatfmt=".3f"))


if __name__ == "__main__":
    main()
