# SPDX-License-Identifier: Apache-2.0
"""The native probe compared with the programs that it replaces, on this host and in the same run.

Method. All programs run in turn, in several rounds, on all PUs of the first NUMA node and its own bank (or the
first bank that has memory). All arrays have the same size: STREAM's, if a program ``stream`` is on PATH.

1. Rates: like with like, run by run. likwid-bench prints the rate of PASSES passes, and the run of the probe
   beside it makes as many repetitions of the same kernel and store type, whose rate is all bytes over all the
   time. STREAM prints the best of ten, which is compared with the best of the probe's first ten. All arrays are on
   base pages, also on hosts with transparent huge pages: these alone made streaming copy a quarter faster when
   measured. The columns "huge pages" are the probe's with --pages thp, which the others do not ask the kernel for.
   A ratio is that of two runs of one round; the table has its median and range. A run during which other
   programs used the PUs is repeated, and the quietest one counts: threads that wait for each other after each
   pass, as those of STREAM and of the probe do, lose more to other load than those of likwid-bench.
2. Latency: a pointer chase by google/multichase (``multichase`` on PATH), by lat_mem_rd -t, and by the probe in
   the same order of accesses; the minimum of each. lat_mem_rd without -t is shown too, labelled sequential:
   prefetchers hide its latency.
3. Cost: wall seconds of the probe's whole sweep of this host, with three repetitions of each kernel, over those of
   thesis algorithm 1, which runs ``numactl ... stream`` (ten repetitions) for each placement. One run of STREAM is
   timed and multiplied by the number of placements.
4. Loaded latency: google/multichase's ``multiload`` on PATH and the probe, with the same PUs, memory, order of
   accesses and number of loading threads, which only read. The best sample of each, and the range of the ratios.
   Mess cannot be compared in most virtual machines, as it needs counters of the memory controllers.
5. Core to core: ``core-to-core-latency`` on PATH and the probe, on the first two PUs, in short alternating runs:
   the medians, and the range of the ratios of the rounds. A virtual machine may move its PUs between two runs.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tabulate import tabulate

from firsttouch.benchmarks import likwid, lmbench, probe, stream
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import load, probe_program

HOST = load()
NODE = HOST.cpu_nodes[0]
BANK = NODE if NODE in HOST.memory_nodes else HOST.memory_nodes[0]
PUS = HOST.usable_pus(NODE)
MIB = 1 << 20
#: Repetitions in one run of the probe, the same number as in a run of STREAM.
REPETITIONS = 10
#: prctl's option that gives a process and those that it starts no transparent huge pages.
PR_SET_THP_DISABLE = 41
#: A run is repeated, up to TRIES times, if other programs had more than this share of all PUs' time.
QUIET, TRIES = 0.05, 3
T = TypeVar("T")
#: Kernel, program -> the rate (GB/s) of each round.
Rates = dict[tuple[str, str], list[float]]


def say(text: str) -> None:
    """Show progress."""
    print(f"  {text}", file=sys.stderr, flush=True)


def bound(argv: list[str], pus: tuple[int, ...] = PUS, bank: int = BANK) -> list[str]:
    """Return *argv* with numactl, bound to these PUs and this bank."""
    return ["numactl", f"--physcpubind={format_list(pus)}", f"--membind={bank}", *argv]


def output(argv: list[str], env: dict[str, str] | None = None) -> str:
    """Return the standard output and error output of a program that must succeed."""
    done = subprocess.run(
        argv,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=600,
    )
    return done.stdout


def stream_once() -> str:
    """Run STREAM on the PUs and the bank."""
    return output(bound([stream.program() or "stream"]), env=dict(stream.environment(len(PUS), PUS)))


@contextlib.contextmanager
def base_pages() -> Iterator[None]:
    """Give programs that are started here base pages, as the probe has."""
    prctl = ctypes.CDLL(None).prctl
    if prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0):
        raise OSError("the kernel refuses to switch transparent huge pages off for this process")
    try:
        yield
    finally:
        prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0)


def likwid_rate(array: int, kernel: str, suffix: str) -> float:
    """Return likwid-bench's rate (GB/s) of PASSES passes with the instructions and stores of *suffix*."""
    argv = likwid.argv(kernel, instructions=suffix, threads=len(PUS), array_bytes=array)
    with base_pages():
        return likwid.parse(output(bound(argv)), threads=len(PUS))


def probe_rates(array: int, kernel: str, stores: str, pages: str = "base") -> tuple[float, float]:
    """Return the probe's rate (GB/s) over PASSES repetitions, and its best over STREAM's number of them."""
    repeated = [f"--min-repetitions={likwid.PASSES}", f"--max-repetitions={likwid.PASSES}"]
    options = [f"--array-bytes={array}", f"--kernels={kernel}", f"--stores={stores}", f"--pages={pages}"]
    options += [f"--pu-nodes={NODE}", f"--banks={BANK}", "--interleave=none", "--quiet", *repeated]
    (result,) = probe.run("bandwidth", options, say=say).results
    return statistics.harmonic_mean(result.samples), max(result.samples[:REPETITIONS])


def rates_of_round(array: int, kernels: Sequence[str], number: int, rates: Rates, shares: list[float]) -> None:
    """Add a round of STREAM, and of likwid-bench and the probe in turn for each kernel and store type.

    *shares* gets the share of other programs during each of these runs.
    """
    if stream.program():
        with base_pages():
            best = quietest(lambda: stream.parse(stream_once(), threads=len(PUS))[0], shares)
        for kernel in kernels:
            rates[kernel, "STREAM"].append(best[kernel])
    available = likwid.available() if shutil.which("likwid-bench") else frozenset()
    widest = likwid.widest(likwid.processor_flags(), available)
    for kernel in kernels:
        for stores, suffix in (("regular", widest), ("streaming", f"mem_{widest}")):
            ours = theirs = ("probe", stores)
            if kernel in likwid.KERNELS and (likwid.KERNELS[kernel][0] + f"_{suffix}".rstrip("_")) in available:
                theirs = ("likwid-bench", stores)
            # The order alternates, so that no program always runs after the same other one.
            for program, _ in dict.fromkeys((ours, theirs)[:: 1 if number % 2 else -1]):
                if program == "probe":
                    rate, best_rate = quietest(partial(probe_rates, array, kernel, stores), shares)
                    rates[kernel, f"best of ten on base pages, {stores}"].append(best_rate)
                else:
                    rate = quietest(partial(likwid_rate, array, kernel, suffix), shares)
                rates[kernel, f"{program} {stores}"].append(rate)
            if huge_pages():
                rate, best_rate = quietest(partial(probe_rates, array, kernel, stores, "thp"), shares)
                rates[kernel, f"huge pages {stores}"].append(rate)
                rates[kernel, f"best of ten on huge pages, {stores}"].append(best_rate)


def huge_pages() -> bool:
    """Return whether this host has transparent huge pages for programs that ask for them."""
    return "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii")


def others_share(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the share of all PU time between two looks that other programs, or other virtual machines, had."""
    (all_before, busy_before, own_before), (all_after, busy_after, own_after) = before, after
    return (busy_after - busy_before - own_after + own_before) / (all_after - all_before)


def pu_seconds() -> tuple[float, float, float]:
    """Return the seconds of all PUs since boot: in total, busy, and busy with our own programs."""
    line = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
    ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in line.split()[1:9]]  # the guests' are in the others
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(ticks), sum(ticks) - ticks[3] - ticks[4], sum(u.ru_utime + u.ru_stime for u in own)


def quietest(run: Callable[[], T], shares: list[float]) -> T:
    """Return the result of the first quiet run, or of the quietest of TRIES; *shares* gets its share of others."""
    results: list[tuple[float, T]] = []
    while not results or (len(results) < TRIES and results[-1][0] > QUIET):
        before = pu_seconds()
        result = run()
        results.append((others_share(before, pu_seconds()), result))
    share, result = min(results, key=lambda entry: entry[0])
    shares.append(share)
    return result


def spread(values: Sequence[float]) -> str | None:
    """Return the median and the range of *values*; None if there are none."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else None


def compare_rates(array: int, rounds: int, kernels: Sequence[str]) -> str:
    """Return the table of rates and of the probe's ratios to STREAM and to likwid-bench."""
    rates: Rates = defaultdict(list)
    shares: list[float] = []
    for number in range(rounds):
        say(f"rates, round {number + 1}/{rounds}")
        rates_of_round(array, kernels, number, rates, shares)
    programs = [p for p in dict.fromkeys(program for _, program in rates) if not p.startswith("best of ten")]

    def fastest(kernel: str, begin: str) -> list[float]:
        """Return the rounds of the faster store type of a program; nothing if it did not run."""
        runs = [values for (of, program), values in rates.items() if of == kernel and program.startswith(begin)]
        return max(runs, key=statistics.median, default=[])

    rows = []
    for kernel in kernels:
        row = [kernel, *(statistics.median(rates[kernel, p]) if (kernel, p) in rates else None for p in programs)]
        for best, mean in (("best of ten on base pages", "probe"), ("best of ten on huge pages", "huge pages")):
            for ours, theirs in ((best, "STREAM"), (mean, "likwid-bench")):
                pairs = zip(fastest(kernel, ours), fastest(kernel, theirs), strict=False)
                row.append(spread([x / y for x, y in pairs]))
        rows.append(row)
    ratios = [f"{ours} / {theirs}" for ours in ("probe", "huge pages") for theirs in ("STREAM", "likwid-bench")]
    heads = ["median GB/s", *programs, *ratios]
    return "\n".join(
        (
            tabulate(rows, heads, floatfmt=".2f", missingval="-"),
            f"other programs had {statistics.median(shares):.0%} of the PUs' time in the median of these runs, "
            f"and at most {max(shares):.0%}",
        )
    )


def chase(size: int, order: str, pages: str) -> float:
    """Return the probe's smallest latency (ns) of a cycle of *size* bytes."""
    options = [f"--sizes={size}", f"--order={order}", f"--pages={pages}", f"--pu-nodes={NODE}", f"--banks={BANK}"]
    (result,) = probe.run("latency", [*options, "--quiet", f"--min-repetitions={REPETITIONS}"], say=say).results
    return min(result.samples)


def multichase(size: int, locality: int, *, huge: bool) -> float:
    """Return multichase's smallest latency (ns); it visits each block of *locality* bytes before the next one."""
    argv = ["multichase", "-m", str(size), "-s", "64", "-T", str(locality), "-n", "2"]
    return float(output(bound(argv + ["-H"] * huge, PUS[:1])).split()[-1])


def lat_mem_rd(size: int, *, random: bool) -> float:
    """Return lat_mem_rd's latency (ns) at *size* bytes."""
    argv = lmbench.argv(largest_bytes=size, random=random)
    text = output(bound(argv, PUS[:1]), env=dict(lmbench.environment(50_000)))
    return lmbench.parse(text, largest_bytes=size)[size]


def compare_latency(rounds: int) -> str:
    """Return the table of latencies, with the ratio of the probe to multichase in the same order of accesses."""
    size = lmbench.largest_bytes(HOST.last_cache_bytes(), HOST.node(BANK).memory_bytes)
    cases = {
        "probe random": lambda: chase(size, "random", "base"),
        "probe paged": lambda: chase(size, "paged", "base"),
    }
    thp = huge_pages()
    if thp:
        cases["probe random, huge pages"] = lambda: chase(size, "random", "thp")
    if shutil.which("multichase"):
        cases["multichase random"] = lambda: multichase(size, size, huge=False)
        cases["multichase paged"] = lambda: multichase(size, 64 * 4096, huge=False)
        if thp:
            cases["multichase random, huge pages"] = lambda: multichase(size, size, huge=True)
    else:
        say("multichase is not on PATH: lat_mem_rd is the only other pointer chase")
    cases["lat_mem_rd -t"] = lambda: lat_mem_rd(size, random=True)
    cases["lat_mem_rd, sequential"] = lambda: lat_mem_rd(size, random=False)
    values: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        say(f"latency, round {number + 1}/{rounds}")
        for name, measure in list(cases.items())[:: 1 if number % 2 else -1]:
            values[name].append(measure())
    rows = []
    for name in cases:
        other = name.replace("multichase", "probe")
        ratio = min(values[other]) / min(values[name]) if other in values and other != name else None
        rows.append((name, min(values[name]), statistics.median(values[name]), max(values[name]), ratio))
    heads = (f"ns at {size // MIB} MiB", "minimum", "median", "maximum", "probe / this")
    return tabulate(rows, heads, floatfmt=".2f", missingval="")


def multiload(size: int, threads: int) -> dict[str, float]:
    """Return multiload's idle and loaded latency (ns), and the load of its other threads (GB/s)."""
    argv = ["multiload", "-m", str(size), "-s", "64", "-T", str(64 * 4096), "-n", "2"]
    idle = output(bound(argv, PUS[:1])).splitlines()
    loaded = output(bound([*argv, "-t", str(threads), "-c", "chaseload", "-l", "stream-sum"])).splitlines()
    columns = [
        dict(zip(map(str.strip, lines[-2].split(",")), map(str.strip, lines[-1].split(",")), strict=True))
        for lines in (idle, loaded)
    ]
    return {
        "idle ns": float(columns[0]["ChaseNS"]),
        "loaded ns": float(columns[1]["ChaseNS"]),
        "load GB/s": float(columns[1]["LdMaxMibs"]) * MIB / 1e9,
    }


def loaded(size: int) -> tuple[dict[str, float], int]:
    """Return the same by the probe's curve of reads on its own bank, and its number of threads."""
    options = [f"--sizes={size}", f"--pu-nodes={NODE}", f"--banks={BANK}", "--loads=local", "--read-shares=1"]
    options += ["--rates=0", f"--min-repetitions={REPETITIONS}", "--quiet"]
    results = probe.run("loaded-latency", options, say=say).results
    samples = {(r.metric, r.data["rate"]): r.samples for r in results}
    # The latency at the largest load: the loader may not have run while the latency was the smallest.
    load, latency = max(zip(samples["load_bandwidth", 1], samples["loaded_latency", 1], strict=True))
    load -= 64 / latency  # the probe counts the chaser's lines as well
    values = {"idle ns": min(samples["loaded_latency", 0]), "loaded ns": latency, "load GB/s": load}
    return values, results[0].data["threads"]


def compare_loaded(rounds: int) -> str:
    """Return the table of loaded latencies: ratios of the best samples, and the range of a round's."""
    size = lmbench.largest_bytes(HOST.last_cache_bytes(), HOST.node(BANK).memory_bytes)
    values: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in range(rounds):
        say(f"loaded latency, round {number + 1}/{rounds}")
        ours, threads = loaded(size)
        for name, other in multiload(size, threads).items():
            values[name].append((ours[name], other))
    rows = []
    for name, pairs in values.items():
        best = [(max if name == "load GB/s" else min)(column) for column in zip(*pairs, strict=True)]
        ratios = [ours / other for ours, other in pairs]
        rows.append((name, *best, best[0] / best[1], min(ratios), max(ratios)))
    heads = (f"at {size // MIB} MiB", "probe", "multiload", "probe / multiload", "minimum", "maximum")
    return tabulate(rows, heads, floatfmt=".2f")


def pair_by_probe() -> float:
    """Return the probe's one-way latency (ns) between the first two PUs of the NUMA node."""
    argv = [str(probe_program()), "core-to-core", "--jsonl", "--quiet", f"--pu-nodes={NODE}", f"--banks={BANK}"]
    text = output(["taskset", "-c", format_list(PUS[:2]), *argv])
    return float(probe.parse(text).results[0].data["value"])


def pair_by_other() -> float:
    """Return core-to-core-latency's latency (ns) between the same PUs, which is half of a round trip as well."""
    argv = ["core-to-core-latency", "1000", "10", "--csv", "-c", ",".join(map(str, sorted(PUS[:2])))]
    fields = (field.strip() for line in output(argv).splitlines() for field in line.split(","))
    return next(float(field) for field in fields if re.fullmatch(r"\d+\.\d+", field))


def compare_pairs(rounds: int) -> str:
    """Return the table of core-to-core latencies: medians of short alternating runs, and the ratios of the rounds.

    core-to-core-latency prints a mean, which one interrupt in a run moves, so the runs are short and many.
    """
    values: dict[str, list[float]] = defaultdict(list)
    ratios = []
    for number in range(rounds):
        say(f"core to core, round {number + 1}/{rounds}")
        of_round: dict[str, list[float]] = defaultdict(list)
        for turn in range(9):
            for measure in (pair_by_probe, pair_by_other)[:: 1 if turn % 2 else -1]:
                of_round[measure.__name__].append(measure())
        for name, run in of_round.items():
            values[name] += run
        ratios.append(statistics.median(of_round["pair_by_probe"]) / statistics.median(of_round["pair_by_other"]))
    rows = [
        (text, min(values[name]), statistics.median(values[name]), max(values[name]))
        for text, name in (("probe", "pair_by_probe"), ("core-to-core-latency", "pair_by_other"))
    ]
    table = tabulate(rows, ("ns one way", "minimum", "median", "maximum"), floatfmt=".1f")
    ratio = f"median {statistics.median(ratios):.2f} (range {min(ratios):.2f} to {max(ratios):.2f})"
    return f"{table}\nprobe / core-to-core-latency: {ratio}"


def sweep(array: int, repetitions: int) -> tuple[float, int]:
    """Return the wall seconds of the probe's sweep and its number of placements."""
    options = [f"--array-bytes={array}", f"--min-repetitions={repetitions}", f"--max-repetitions={repetitions}"]
    start = time.monotonic()
    report = probe.run("bandwidth", [*options, "--interleave=none", "--quiet"], say=say)
    return time.monotonic() - start, int(report.begin["placements"])


def cost(array: int, rounds: int) -> str:
    """Return the cost of the probe's sweep relative to algorithm 1, for this host and for one more placement.

    One more placement on the same bank costs its repetitions only: three tenths of ten further repetitions here.
    """
    here, further, placements = [], [], 0
    for number in range(rounds):
        say(f"cost, round {number + 1}/{rounds}")
        short, placements = sweep(array, 3)
        start = time.monotonic()
        stream_once()
        stream_run = time.monotonic() - start
        long, _ = sweep(array, 13)
        here.append(short / (stream_run * placements))
        further.append(0.3 * (long - short) / (stream_run * placements))
    return "\n".join(
        f"cost over algorithm 1, {text}: median {statistics.median(v):.2f} (range {min(v):.2f} to {max(v):.2f})"
        for text, v in (
            (f"sweep of {placements} placements", here),
            ("one more placement on the same bank", further),
        )
    )


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", choices=("rates", "latency", "cost", "loaded", "pairs"))
    options.add_argument(
        "--kernels", nargs="+", choices=stream.KERNELS, default=stream.KERNELS, help="of the rates"
    )
    args = options.parse_args()
    array = 320_000_000
    if stream.program():
        array = stream.parse(stream_once(), threads=len(PUS))[1]
    else:
        say("STREAM is not on PATH: its rates and the cost of a sweep are not measured")
    if args.only in {None, "rates"}:
        print(compare_rates(array, args.rounds, args.kernels), flush=True)
    if args.only in {None, "latency"}:
        print(f"\n{compare_latency(args.rounds)}", flush=True)
    if args.only in {None, "loaded"} and len(PUS) > 1:
        if shutil.which("multiload"):
            print(f"\n{compare_loaded(args.rounds)}", flush=True)
        else:
            say("multiload is not on PATH: loaded latency is not compared")
    if args.only in {None, "pairs"} and len(PUS) > 1:
        if shutil.which("core-to-core-latency"):
            print(f"\n{compare_pairs(args.rounds)}", flush=True)
        else:
            say("core-to-core-latency is not on PATH: the latency between cores is not compared")
    if args.only in {None, "cost"} and stream.program():
        print(f"\n{cost(array, args.rounds)}", flush=True)


if __name__ == "__main__":
    main()
