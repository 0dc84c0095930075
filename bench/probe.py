# SPDX-License-Identifier: Apache-2.0
"""The native probe compared with the programs that it replaces, on this host and in the same run.

Method. All programs run in turn, in several rounds, on all PUs of the first NUMA node and its own bank (or the
first bank that has memory). All arrays have the same size: STREAM's, if a program ``stream`` is on PATH.

1. Rates: the best repetition of each program, as in STREAM, and the ratio of the probe's to the best of the
   others. Other load on the host can only slow a repetition down, so the best over all rounds is the most stable
   figure.
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
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tabulate import tabulate

from firsttouch.benchmarks import likwid, lmbench, probe, stream
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import load, probe_program

HOST = load()
NODE = HOST.cpu_nodes[0]
BANK = NODE if NODE in HOST.memory_nodes else HOST.memory_nodes[0]
PUS = HOST.usable_pus(NODE)
MIB = 1 << 20
#: Repetitions in one run of the probe, as many as in one run of STREAM.
REPETITIONS = 10
Rates = dict[tuple[str, str], list[float]]


def say(text: str) -> None:
    """Show progress."""
    print(f"  {text}", file=sys.stderr, flush=True)


def bound(argv: list[str], pus: tuple[int, ...] = PUS, bank: int = BANK) -> list[str]:
    """Return *argv* with numactl, bound to these PUs and this bank."""
    return ["numactl", f"--physcpubind={format_list(pus)}", f"--membind={bank}", *argv]


def output(argv: list[str], env: dict[str, str] | None = None, cwd: str | None = None) -> str:
    """Return the standard output and error output of a program that must succeed."""
    done = subprocess.run(
        argv,
        env={**os.environ, **(env or {})},
        cwd=cwd,
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


def others_rates(array: int, rates: Rates) -> None:
    """Add the rates (GB/s) of a round of STREAM and likwid-bench."""
    if stream.program():
        for kernel, rate in stream.parse(stream_once(), threads=len(PUS))[0].items():
            rates[kernel, "STREAM"].append(rate)
    if shutil.which("likwid-bench") is None:
        return
    kernels = likwid.available()
    widest = likwid.widest(likwid.processor_flags(), kernels)
    for kernel, name in likwid.KERNELS.items():
        for stores, suffix in (("regular", widest), ("streaming", f"mem_{widest}")):
            if (stores == "streaming" and f"{name}_{suffix}" not in kernels) or likwid.cannot(kernel, widest):
                continue
            argv = likwid.argv(kernel, instructions=suffix, threads=len(PUS), array_bytes=array)
            with tempfile.TemporaryDirectory(prefix="ft-") as folder:
                likwid.stage(Path(folder))
                rate = likwid.parse(output(bound(argv), cwd=folder), threads=len(PUS))
            rates[kernel, f"likwid-bench {stores}"].append(rate)


def probe_rates(array: int, rates: Rates) -> None:
    """Add the rates (GB/s) of a round of the probe, with as many repetitions as STREAM makes."""
    options = [
        f"--array-bytes={array}",
        "--stores=both",
        f"--min-repetitions={REPETITIONS}",
        "--interleave=none",
        "--quiet",
    ]
    options += [f"--pu-nodes={NODE}", f"--banks={BANK}"]
    for result in probe.run("bandwidth", options, say=say).results:
        stores = result.data["stores"]
        rates[result.data["kernel"], f"probe {stores}"].append(max(result.samples))


def compare_rates(array: int, rounds: int) -> str:
    """Return the table of rates."""
    rates: Rates = defaultdict(list)
    for number in range(rounds):
        say(f"rates, round {number + 1}/{rounds}")
        # The order alternates, so that no program always runs after the same other one.
        for measure in (others_rates, probe_rates)[:: 1 if number % 2 else -1]:
            measure(array, rates)
    programs = list(dict.fromkeys(program for _, program in rates))
    rows = []
    for kernel in stream.KERNELS:
        best = {p: max(rates[kernel, p]) for p in programs if (kernel, p) in rates}
        best_probe = max((r for p, r in best.items() if p.startswith("probe")), default=0)
        best_other = max((r for p, r in best.items() if not p.startswith("probe")), default=0)
        rows.append([kernel, *(best.get(p) for p in programs), best_probe / best_other if best_other else None])
    heads = ["best GB/s", *programs, "best probe / best other"]
    return tabulate(rows, heads, floatfmt=".2f", missingval="-")


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
    thp = "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
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
    """Return the table of loaded latencies: ratios of the best samples, and the range of those of a round."""
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
    """Return the cost of the probe's sweep over that of algorithm 1, for this host and for one more placement.

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
    args = options.parse_args()
    array = 320_000_000
    if stream.program():
        array = stream.parse(stream_once(), threads=len(PUS))[1]
    else:
        say("STREAM is not on PATH: its rates and the cost of a sweep are not measured")
    if args.only in {None, "rates"}:
        print(compare_rates(array, args.rounds), flush=True)
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
