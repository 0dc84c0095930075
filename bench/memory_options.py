# SPDX-License-Identifier: Apache-2.0
"""What page size and allocator bring: programs under each memory option against the same program without one.

Method. Aligners with an index of a synthetic genome of 300 million bases, `samtools sort` and two hash joins run
under `firsttouch exec 1Inst_Original` with each combination of the options of pages and allocators that this host
supports. Their data are far larger than the caches and than the reach of a TLB with 4 KiB pages. Runs take turns:
default, option, option, default, and so on, in the reverse order in every second round. A ratio compares a run
with the default run next to it, so a slow phase of the host affects both. The tables have the median of the ratios
with their range: of the user CPU time (the least affected by other load), of the CPU time with the kernel's part
(which zeroes huge pages), and of the wall time. Memory and allocator are those that firsttouch read back from the
kernel. All runs of a program must print the same lines. An option without huge pages is left out if the default
has none.

The data are made once (about 20 minutes and 5 GB on two PUs), under FIRSTTOUCH_DATA or datasets/store. The rounds
depend on --effort: quick 1, default 3 (about 10 minutes on two PUs), full 9.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from firsttouch import paths
from firsttouch.advice.replay import COLUMNS
from firsttouch.datasets import fetch
from firsttouch.genomics import aligners
from firsttouch.records import atomic_files
from firsttouch.scenarios import memory_options
from firsttouch.units import format_bytes

ROUNDS = {"quick": 1, "default": 3, "full": 9}
GENOME = {"genome_size": "300MB", "pairs": 500_000, "read_length": 100}
FIRSTTOUCH = str(Path(sys.executable).with_name("firsttouch"))
JOIN = Path(__file__).with_name("hash_join.c")
SCENARIO = "1Inst_Original"
SNAP = ("snap-aligner", "paired", "{index}", "{reads}", "{reads2}", "-t", "{threads}", "-b-", "-map-")
#: Program -> the name of the aligner that makes its index, the number of pairs, and its argv.
ALIGNERS = {
    "bwa mem": ("bwa-mem", 6_000, ("bwa", "mem", "-t", "{threads}", "{index}", "{reads}", "{reads2}")),
    "bowtie2": (
        "bowtie2",
        15_000,
        ("bowtie2-align-s", "-p", "{threads}", "-x", "{index}", "-1", "{reads}", "-2", "{reads2}"),
    ),
    "minimap2": (
        "minimap2",
        10_000,
        ("minimap2", "-ax", "sr", "-t", "{threads}", "{index}.mmi", "{reads}", "{reads2}"),
    ),
    "SNAP": ("snap", 30_000, (*SNAP, "-o", "-sam", "-")),
}
SORT = "samtools sort"
#: Program -> the argv of hash_join: way, MiB, lookups, threads.
JOINS = {
    "hash join, one block": ("table", "1024", "8000000", "{threads}"),
    "hash join, small blocks": ("rows", "512", "6000000", "{threads}"),
}


@dataclass(frozen=True)
class Run:
    """One run: seconds, memory in bytes, allocators, and why the option did not hold, or an empty string."""

    user: float
    cpu: float
    wall: float
    huge: int
    anonymous: int
    allocators: str
    broken: str


# ----------------------------------------------------------------------
# The programs and their data


def prepared(name: str, folder: Path) -> list[str]:
    """Return the argv of the program *name*, after making its data; what is cheap to make goes to *folder*."""
    if name in JOINS:
        program = folder / "hash_join"
        subprocess.run(["cc", "-O2", "-std=c11", "-pthread", str(JOIN), "-o", str(program)], check=True)
        return [str(program), *JOINS[name]]
    data = fetch.get("synthetic", progress=None, **GENOME)
    if name == SORT:
        return ["samtools", "sort", "-@", "{threads}", "-m", "1G", "-u", "-o", "/dev/null", str(alignments(data))]
    indexer, pairs, words = ALIGNERS[name]
    values = {"index": str(index(indexer, data)), "threads": "{threads}"}
    for key, file in zip(("reads", "reads2"), data.reads, strict=True):
        with file.open("rb") as source, (folder / f"{pairs}_{file.name}").open("wb") as target:
            target.writelines(itertools.islice(source, 4 * pairs))
        values[key] = target.name
    return [word.format_map(values) for word in words]


def index(aligner: str, data: fetch.LocalDataset) -> Path:
    """Return the prefix of an aligner's index of the genome; it is built once."""
    return aligners.built(
        aligners.aligner(aligner), data.reference, paths.data() / "index", sha256=data.sha256, say=say
    )


def alignments(data: fetch.LocalDataset) -> Path:
    """Return the unsorted, uncompressed BAM file of SNAP's alignments of all pairs; it is made once."""
    bam = data.reference.with_name("snap.bam")
    if not bam.exists():
        say("aligning all pairs for samtools sort")
        values = {
            "index": str(index("snap", data)),
            "threads": "1",
            "1": str(data.reads[0]),
            "2": str(data.reads[1]),
        }
        with atomic_files.replacing(bam) as partial:
            argv = [word.format_map(values) for word in SNAP] + ["-o", "-bam", f"{partial}.packed"]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["samtools", "view", "-u", "-o", str(partial), f"{partial}.packed"], check=True)
            Path(f"{partial}.packed").unlink()
    return bam


# ----------------------------------------------------------------------
# Measuring


def suffixes(argv: Sequence[str], default: Run) -> list[str]:
    """Return the combinations that a program can have on this host and that may differ from its *default* run."""
    names = memory_options.chosen("all")
    if not default.huge:
        names = tuple(name for name in names if not memory_options.option(name).thp_disable)
    return [memory_options.suffix(some) for some in memory_options.combinations(names, argv[0])[0]]


def turns(options: Sequence[str], rounds: int) -> Iterator[tuple[str, str]]:
    """Yield the pairs of options that run between two default runs, in the reverse order in every second round."""
    for number in range(rounds):
        order = list(options if number % 2 == 0 else reversed(options))
        for i in range(0, len(order), 2):
            yield order[i], order[i + 1] if i + 1 < len(order) else ""


def measured(argv: Sequence[str], option: str, output: Path, further: Sequence[str]) -> Run:
    """Run a program to its end; its standard output goes to *output*."""
    launch = [FIRSTTOUCH, "exec", SCENARIO + option, "--json", *further, "--", *argv]
    with output.open("wb") as stream:
        done = subprocess.run(launch, stdout=stream, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{SCENARIO}{option}: {argv[0]} failed: {done.stderr[-500:]}")
    document: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    memory = document["placement_found"][0]["memory"]
    return Run(
        document["user_seconds"],
        document["cpu_seconds"],
        document["seconds"],
        memory["huge_bytes"],
        memory["anonymous_bytes"],
        ", ".join(memory["allocators"]),
        document["reason"],
    )


def lines_of(output: Path) -> tuple[int, int]:
    """Return the number and a checksum of the lines of *output*, in any order (that of SNAP's varies)."""
    count = total = 0
    with output.open("rb") as stream:
        for line in stream:
            count += 1
            total += int.from_bytes(hashlib.blake2b(line, digest_size=8).digest())
    return count, total % (1 << 64)


class Series:
    """All runs of one program: by option, each with the default run next to it."""

    def __init__(self, name: str, argv: Sequence[str], folder: Path, further: Sequence[str]) -> None:
        self.name = name
        self.defaults: list[Run] = []
        self.pairs: dict[str, list[tuple[Run, Run]]] = defaultdict(list)
        self._argv, self._output, self._further = argv, folder / "output", further
        self._lines: tuple[int, int] | None = None

    def run(self, option: str) -> Run:
        """Run the program once; end if it prints other lines than before."""
        result = measured(self._argv, option, self._output, self._further)
        lines = lines_of(self._output)
        if self._lines not in (None, lines):
            sys.exit(f"{self.name}{option} printed other lines than the default run")
        self._lines = lines
        times = f"user {result.user:.2f} s, wall {result.wall:.2f} s"
        say(f"  {self.name} {option or 'default'}: {times} {result.broken}")
        return result

    def measure(self, rounds: int, only: Sequence[str]) -> None:
        """Run the default and all options in turn; the first run, which fills the page cache, does not count."""
        options = [o for o in suffixes(self._argv, self.run("")) if not only or o in only]
        self.defaults.append(self.run(""))
        for first, second in turns(options, rounds):
            before, run = self.defaults[-1], self.run(first)
            self.pairs[first].append((before, run))
            later = self.run(second) if second else None
            self.defaults.append(self.run(""))
            if later:
                self.pairs[second].append((self.defaults[-1], later))


# ----------------------------------------------------------------------
# Reporting


def ratio(pairs: Sequence[tuple[Run, Run]], of: Callable[[Run], float]) -> tuple[float, str]:
    """Return the median and the range of the ratios of runs to the default runs next to them."""
    ratios = [of(run) / of(default) for default, run in pairs]
    return statistics.median(ratios), f"{min(ratios):.3f} to {max(ratios):.3f}"


def state(pairs: Sequence[tuple[Run, Run]]) -> str:
    """Return how many of the runs did not obtain what they requested."""
    broken = sum(bool(run.broken) for _, run in pairs)
    return f"{broken} of {len(pairs)} not obtained" if broken else "verified"


def report(series: Series) -> None:
    """Print the table of one program, and its best option."""
    default = [
        statistics.median(values)
        for values in zip(*((r.user, r.cpu, r.wall) for r in series.defaults), strict=True)
    ]
    print(
        f"\n{series.name}: default user {default[0]:.2f} s, CPU {default[1]:.2f} s, wall {default[2]:.2f} s "
        f"(medians of {len(series.defaults)})"
    )
    rows = []
    for option, pairs in series.pairs.items():
        runs = [run for _, run in pairs]
        huge, anonymous = (
            statistics.median(values) for values in zip(*((r.huge, r.anonymous) for r in runs), strict=True)
        )
        figures = [figure for of in (by_user, by_cpu, by_wall) for figure in ratio(pairs, of)]
        memory = f"{format_bytes(int(huge))} of {format_bytes(int(anonymous))}"
        rows.append((option, *figures, memory, runs[0].allocators, state(pairs)))
    rows.sort(key=lambda row: row[1])
    heads = ("option", "user", "range", "CPU", "range", "wall", "range", "huge pages", "allocator", "state")
    print(tabulate(rows, heads, floatfmt=".3f"))
    held = [row for row in rows if row[-1] == "verified"]
    if held and held[0][1] < 1:
        print(f"best: {held[0][0]}, user CPU time {held[0][1]:.3f} of the default's ({held[0][2]})")
    else:
        print("best: the default")


def by_user(run: Run) -> float:
    """Return the user CPU seconds of a run."""
    return run.user


def by_cpu(run: Run) -> float:
    """Return the user and system CPU seconds of a run."""
    return run.cpu


def by_wall(run: Run) -> float:
    """Return the wall seconds of a run."""
    return run.wall


def write_times(file: Path, measurements: Sequence[Series], system: str) -> None:
    """Write the times for `firsttouch advise --replay`: of each option the default's mean times the mean ratio."""
    threads = len(os.sched_getaffinity(0))
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow((*COLUMNS, "user_s", "cpu_s", "runs", "huge_bytes", "anonymous_bytes", "state"))
        for series in measurements:
            cases = {"": [(run, run) for run in series.defaults], **series.pairs}
            for option, pairs in cases.items():
                times = []
                for of in (by_wall, by_user, by_cpu):
                    ratios = [of(run) / of(default) for default, run in pairs] if option else [1.0]
                    times.append(statistics.fmean(of(r) for r in series.defaults) * statistics.fmean(ratios))
                walls = [run.wall for _, run in pairs]
                error = 100 * statistics.stdev(walls) / statistics.fmean(walls) if len(walls) > 1 else ""
                last = pairs[-1][1]
                key = (series.name, system, "synthetic-300MB", 1, threads, f"original{option}")
                figures = (round(times[0], 4), error and round(error, 2), *(round(t, 4) for t in times[1:]))
                writer.writerow((*key, *figures, len(pairs), last.huge, last.anonymous, state(pairs)))


def say(text: str) -> None:
    """Print progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print."""
    names = [*ALIGNERS, SORT, *JOINS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--effort", choices=ROUNDS, default="default")
    parser.add_argument("--program", action="append", choices=names, help="only this one; may be repeated")
    parser.add_argument(
        "--option", action="append", default=[], help="only this one, such as +thp; may be repeated"
    )
    parser.add_argument(
        "--times", type=Path, metavar="FILE", help="also write a table for `firsttouch advise --replay`"
    )
    parser.add_argument("--system", default="local", help="name of this host in that table (default: local)")
    parser.add_argument(
        "--share-host", action="store_true", help="do not wait for other measurements on this host"
    )
    args = parser.parse_args()
    further = ["--share-host"] if args.share_host else []
    measurements = []
    with tempfile.TemporaryDirectory(prefix="firsttouch-bench-") as folder:
        for name in args.program or names:
            series = Series(name, prepared(name, Path(folder)), Path(folder), further)
            series.measure(ROUNDS[args.effort], args.option)
            report(series)
            measurements.append(series)
            if args.times:
                write_times(args.times, measurements, args.system)
    print(f"\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} PUs at the end")


if __name__ == "__main__":
    main()
