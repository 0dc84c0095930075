# SPDX-License-Identifier: Apache-2.0
"""The gain of memory options: programs under each of them against the same program without one.

Method. Aligners with an index of a synthetic genome of 300 million bases, `samtools sort` and two hash joins run
under `firsttouch run 1x-default` with each combination of the options of pages and allocators that this host
supports. The aligners also run under `firsttouch run 1x-default` with the options of the index, alone and with
the best combination of the others. The data are far larger than the caches and than the reach of a TLB with 4 KiB
pages. Runs take turns: default, option, option, default, and so on, in the reverse order in every second round. A
ratio compares a run with the default run next to it, so a slow phase of the host affects both. The tables have the
median of the ratios with their range: of the user CPU time (the least affected by other load), of the CPU time
with the kernel's part (which zeroes huge pages), and of the wall time, without the copying of an index. Memory and
allocator are those that firsttouch read back from the kernel. All runs of a program must print the same lines.
Options that refuse huge pages are left out if the default has none.

The data are made once (about 25 minutes and 6 GB), under FIRSTTOUCH_DATA or datasets/store. The number of rounds
depends on --effort: quick 1, default 2 (about 10 minutes on two PUs), full 9; for the index half of these.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import itertools
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from replay import COLUMNS
from tabulate import tabulate

from firsttouch import paths
from firsttouch.datasets import fetch
from firsttouch.errors import CannotHere
from firsttouch.genomics import aligners
from firsttouch.host.topology import load
from firsttouch.records import atomic_files
from firsttouch.scenarios import memory_options
from firsttouch.scenarios.placement import plan
from firsttouch.units import format_bytes

ROUNDS = {"quick": 1, "default": 2, "full": 9}
GENOME = {"genome_size": "300MB", "pairs": 500_000, "read_length": 100}
FIRSTTOUCH = str(Path(sys.executable).with_name("firsttouch"))
JOIN = Path(__file__).with_name("hash_join.c")
SCENARIO = "1x-default"
SNAP = ("snap-aligner", "paired", "{index}", "{reads}", "{reads2}", "-t", "{threads}", "-b-", "-map-")
#: Program -> the name of the aligner that makes its index, the number of pairs, and its argv.
ALIGNERS = {
    "bwa mem": ("bwa-mem", 2_500, ("bwa", "mem", "-t", "{threads}", "{index}", "{reads}", "{reads2}")),
    "bowtie2": (
        "bowtie2",
        700,
        ("bowtie2-align-s", "-p", "{threads}", "-x", "{index}", "-1", "{reads}", "-2", "{reads2}"),
    ),
    "minimap2": (
        "minimap2",
        5_000,
        ("minimap2", "-ax", "sr", "-t", "{threads}", "{index}.mmi", "{reads}", "{reads2}"),
    ),
    "SNAP": ("snap", 20_000, (*SNAP, "-o", "-sam", "-")),
}
SORT = "samtools sort"
#: Program -> the argv of hash_join: way, MiB, lookups, threads.
JOINS = {
    "hash join, one block": ("table", "512", "4000000", "{threads}"),
    "hash join, small blocks": ("rows", "256", "3000000", "{threads}"),
}


@dataclass(frozen=True)
class Run:
    """One run: seconds, memory in bytes, allocators, and why the option did not hold, or an empty string.

    `firsttouch run` does not tell the user CPU time apart: None.
    """

    user: float | None
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
    if name == SORT:
        bam = alignments(fetch.get("synthetic", **GENOME), folder)
        return ["samtools", "sort", "-@", "{threads}", "-m", "1G", "-u", "-o", "/dev/null", str(bam)]
    return [word.format_map(inputs(name, folder)) for word in ALIGNERS[name][2]]


def inputs(name: str, folder: Path) -> dict[str, str]:
    """Return the placeholders of an aligner's argv, after making its index, and its reads in *folder*."""
    indexer, pairs, _ = ALIGNERS[name]
    data = fetch.get("synthetic", **GENOME)
    values = {"index": str(index(indexer, data)), "threads": "{threads}"}
    for key, file in zip(("reads", "reads2"), data.reads, strict=True):
        with file.open("rb") as source, (folder / f"{pairs}_{file.name}").open("wb") as target:
            target.writelines(itertools.islice(source, 4 * pairs))
        values[key] = target.name
    return values


def index(aligner: str, data: fetch.LocalDataset) -> Path:
    """Return the prefix of an aligner's index of the genome; it is built once."""
    return aligners.build_index(
        aligners.aligner(aligner), data.reference, paths.data() / "index", sha256=data.sha256, say=say
    )


def alignments(data: fetch.LocalDataset, folder: Path) -> Path:
    """Return the unsorted, uncompressed BAM file of SNAP's alignments of all pairs; it is made once."""
    bam, packed = data.reference.with_name("snap.bam"), folder / "packed.bam"
    if not bam.exists():
        say("aligning all pairs for samtools sort")
        threads = str(len(os.sched_getaffinity(0)))
        values = {"index": str(index("snap", data)), "threads": threads}
        values |= dict(zip(("reads", "reads2"), map(str, data.reads), strict=True))
        argv = [*(word.format_map(values) for word in SNAP), "-o", "-bam", str(packed)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        with atomic_files.replace(bam) as partial:
            subprocess.run(["samtools", "view", "-u", "-o", str(partial), str(packed)], check=True)
        packed.unlink()
    return bam


# ----------------------------------------------------------------------
# Measuring


def suffixes(argv: Sequence[str], default: Run) -> list[str]:
    """Return the combinations that a program can have on this host and that may differ from its *default* run."""
    names = memory_options.select_options("all")
    if not default.huge:
        names = tuple(name for name in names if not memory_options.option(name).thp_disable)
    return [memory_options.suffix(some) for some in memory_options.combinations(names, argv[0])[0]]


def index_suffixes(aligner: str, index_bytes: int, best: str) -> list[str]:
    """Return the options of the index for an aligner, alone and with the *best* of the others."""
    host, need = load(), aligners.aligner(aligner).need(index_bytes)
    chosen = []
    for option in memory_options.options().values():
        # With one NUMA node, an interleaved copy is where any copy is.
        one_node = option.copies == "all" and len(host.numa_nodes) == 1
        if option.kind == "index" and option.copies != "own" and not one_node:
            with contextlib.suppress(CannotHere):
                plan(host, need).scenario(f"{SCENARIO}+{option.name}")
                chosen.append(f"+{option.name}")
    return chosen + ([best + option for option in chosen] if best else [])


def turns(options: Sequence[str], rounds: int) -> Iterator[tuple[str, str]]:
    """Yield the pairs of options that run between two default runs, in the reverse order in every second round."""
    for number in range(rounds):
        order = list(options if number % 2 == 0 else reversed(options))
        for i in range(0, len(order), 2):
            yield order[i], order[i + 1] if i + 1 < len(order) else ""


def executed(argv: Sequence[str], further: Sequence[str], option: str, output: Path) -> Run:
    """Run a program by `firsttouch run`; its standard output goes to *output*."""
    launch = ["run", SCENARIO + option, "--json", *further, "--", *argv]
    with output.open("wb") as stream:
        document = launched(launch, stream)
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


def aligned(words: Sequence[str], further: Sequence[str], option: str, output: Path) -> Run:
    """Run an aligner by `firsttouch run` with *words* of its command line; the alignments go to *output*."""
    output.unlink(missing_ok=True)
    launch = ["run", SCENARIO + option, "--json", *further, "--repetitions", "1", *words, "-o", str(output)]
    with tempfile.TemporaryFile() as stream:
        launched(launch, stream, ok=(0, 1))
        stream.seek(0)
        record = json.load(stream)
    memory = record["placement_found"][0]["memory"]
    return Run(
        None,
        record["parameters"]["cpu_seconds"],
        record["value"],
        memory["huge_bytes"] + memory["shared_huge_bytes"],
        memory["anonymous_bytes"] + record["parameters"]["index_bytes"] * ("index" in memory),
        ", ".join(memory["allocators"]),
        record["reason"],
    )


def launched(words: Sequence[str], stream: IO[bytes], ok: Sequence[int] = (0,)) -> dict[str, Any]:
    """Run a command of firsttouch with its output in *stream*; return the JSON document on standard error."""
    done = subprocess.run([FIRSTTOUCH, *words], stdout=stream, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in ok:
        sys.exit(f"firsttouch {shlex.join(words)} failed: {done.stderr[-500:]}")
    last = (done.stderr.splitlines() or [""])[-1]
    document: dict[str, Any] = json.loads(last) if last.startswith("{") else {}
    return document


def lines_of(output: Path) -> tuple[int, int]:
    """Return the number and a checksum of the lines of *output*, in any order, because SNAP's varies.

    The SAM header's @PG lines have the command, which an option of the index changes.
    """
    count = total = 0
    with output.open("rb") as stream:
        for line in stream:
            if line.startswith(b"@PG\t"):
                continue
            count += 1
            total += int.from_bytes(hashlib.blake2b(line, digest_size=8).digest())
    return count, total % (1 << 64)


class Series:
    """All runs of one program: by option, each with the default run next to it. *launch* runs it once."""

    def __init__(self, name: str, launch: Callable[[str, Path], Run], folder: Path) -> None:
        self.name = name
        self.defaults: list[Run] = []
        self.pairs: dict[str, list[tuple[Run, Run]]] = defaultdict(list)
        self._launch, self._output = launch, folder / "output"
        self._lines: tuple[int, int] | None = None

    def run(self, option: str) -> Run:
        """Run the program once; end if it prints other lines than before."""
        result = self._launch(option, self._output)
        lines = lines_of(self._output)
        if self._lines not in (None, lines):
            sys.exit(f"{self.name}{option} printed other lines than the default run")
        self._lines = lines
        times = f"CPU {result.cpu:.2f} s, wall {result.wall:.2f} s"
        say(f"  {self.name} {option or 'default'}: {times} {result.broken}")
        return result

    def measure(self, rounds: int, options: Callable[[Run], Sequence[str]]) -> None:
        """Run the default and all *options* in turn; the first run, which fills the page cache, does not count."""
        chosen = options(self.run(""))
        self.defaults.append(self.run(""))
        for first, second in turns(chosen, rounds):
            before, run = self.defaults[-1], self.run(first)
            self.pairs[first].append((before, run))
            later = self.run(second) if second else None
            self.defaults.append(self.run(""))
            if later:
                self.pairs[second].append((self.defaults[-1], later))

    @property
    def best(self) -> str:
        """The option with the least CPU time of those that held; empty: the default."""
        held = {o: ratio(pairs, by_cpu)[0] for o, pairs in self.pairs.items() if state(pairs) == "verified"}
        return min((o for o in held if held[o] < 1), key=held.__getitem__, default="")


# ----------------------------------------------------------------------
# Reporting


def by_user(run: Run) -> float | None:
    """Return the user CPU seconds of a run."""
    return run.user


def by_cpu(run: Run) -> float:
    """Return the user and system CPU seconds of a run."""
    return run.cpu


def by_wall(run: Run) -> float:
    """Return the wall seconds of a run."""
    return run.wall


def ratios(pairs: Sequence[tuple[Run, Run]], of: Callable[[Run], float | None]) -> list[float]:
    """Return the ratios of runs to the default runs next to them; none without these times."""
    times = [(of(default), of(run)) for default, run in pairs]
    return [seconds / usual for usual, seconds in times if seconds is not None and usual]


def ratio(pairs: Sequence[tuple[Run, Run]], of: Callable[[Run], float | None]) -> tuple[float, str]:
    """Return the median and the range of the ratios."""
    values = ratios(pairs, of)
    return (statistics.median(values), f"{min(values):.3f} to {max(values):.3f}") if values else (math.nan, "")


def state(pairs: Sequence[tuple[Run, Run]]) -> str:
    """Return how many of the runs did not obtain what they requested."""
    broken = sum(bool(run.broken) for _, run in pairs)
    return f"{broken} of {len(pairs)} not obtained" if broken else "verified"


def report(series: Series) -> None:
    """Print the table of one program, and its best option."""
    cpu, wall = (statistics.median(of(run) for run in series.defaults) for of in (by_cpu, by_wall))
    print(f"\n{series.name}: default CPU {cpu:.2f} s, wall {wall:.2f} s (medians of {len(series.defaults)})")
    rows = []
    for option, pairs in series.pairs.items():
        runs = [run for _, run in pairs]
        huge, total = (
            int(statistics.median(of)) for of in zip(*((r.huge, r.anonymous) for r in runs), strict=True)
        )
        figures = [figure for of in (by_user, by_cpu, by_wall) for figure in ratio(pairs, of)]
        memory = f"{format_bytes(huge)} of {format_bytes(total)}"
        rows.append((option, *figures, memory, runs[0].allocators, state(pairs)))
    rows.sort(key=lambda row: row[3])
    heads = ("option", "user", "range", "CPU", "range", "wall", "range", "huge pages", "allocator", "state")
    print(tabulate(rows, heads, floatfmt=".3f"))
    print(f"least CPU time: {series.best or 'the default'}", flush=True)


def write_times(file: Path, measurements: Sequence[Series], system: str) -> None:
    """Write the times for bench/replay.py: of each option the default's mean times the mean ratio."""
    threads = len(os.sched_getaffinity(0))
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow((*COLUMNS, "user_s", "cpu_s", "runs", "huge_bytes", "anonymous_bytes", "state"))
        for series in measurements:
            for option, pairs in {"": [(run, run) for run in series.defaults], **series.pairs}.items():
                wall, user, cpu = (_mean(series, pairs, of) for of in (by_wall, by_user, by_cpu))
                walls = [run.wall for _, run in pairs]
                error = f"{100 * statistics.stdev(walls) / statistics.fmean(walls):.2f}" if len(walls) > 1 else ""
                key = (series.name, system, "synthetic-300MB", 1, threads, f"original{option}", wall, error)
                last = pairs[-1][1]
                writer.writerow((*key, user, cpu, len(pairs), last.huge, last.anonymous, state(pairs)))


def _mean(series: Series, pairs: Sequence[tuple[Run, Run]], of: Callable[[Run], float | None]) -> str:
    times = [time for time in map(of, series.defaults) if time is not None]
    return f"{statistics.fmean(times) * statistics.fmean(ratios(pairs, of)):.4f}" if times else ""


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
    parser.add_argument("--times", type=Path, metavar="FILE", help="also write a table for bench/replay.py")
    parser.add_argument("--system", default="local", help="name of this host in that table (default: local)")
    parser.add_argument(
        "--share-host", action="store_true", help="do not wait for other measurements on this host"
    )
    args = parser.parse_args()
    further = ["--share-host"] if args.share_host else []
    measurements = []

    def measure(series: Series, rounds: int, options: Callable[[Run], Sequence[str]]) -> None:
        series.measure(
            rounds, lambda default: [o for o in options(default) if not args.option or o in args.option]
        )
        report(series)
        measurements.append(series)
        if args.times:
            write_times(args.times, measurements, args.system)

    with tempfile.TemporaryDirectory(prefix="firsttouch-bench-") as name_of_folder:
        folder, rounds = Path(name_of_folder), ROUNDS[args.effort]
        for name in args.program or names:
            argv = prepared(name, folder)
            series = Series(name, partial(executed, argv, further), folder)
            measure(series, rounds, partial(suffixes, argv))
            if name in ALIGNERS:
                aligner, values = ALIGNERS[name][0], inputs(name, folder)
                words = ["--aligner", aligner, "--index", values["index"], "--reads", values["reads"]]
                launch = partial(aligned, [*words, "--reads2", values["reads2"]], further)
                size = aligners.aligner(aligner).index_bytes(Path(values["index"]))
                copied = Series(f"{name}, copies of the index", launch, folder)
                measure(
                    copied, (rounds + 1) // 2, lambda _, a=aligner, s=size, b=series.best: index_suffixes(a, s, b)
                )
    print(f"\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} PUs at the end")


if __name__ == "__main__":
    main()
