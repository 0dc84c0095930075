# SPDX-License-Identifier: Apache-2.0
"""Runs the field's own benchmarks (lmbench, likwid-bench, STREAM) under a verified placement."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from firsttouch.benchmarks import likwid, lmbench, profiles, stream
from firsttouch.benchmarks.profiles import Effort
from firsttouch.errors import BadInput, CannotHere, RunFailed
from firsttouch.execution import placement_check
from firsttouch.execution.process_runner import Job, Outcome, Watching, run_together
from firsttouch.host import emulation
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record, software
from firsttouch.scenarios.placement import Placement

# ----------------------------------------------------------------------
# Where the aspects are measured: PU-sets and banks that this process may use, or why it may not.

Nodes = tuple[int, ...]


def pus_of(host: Topology, nodes: Sequence[int]) -> tuple[int, ...]:
    """Return the PUs of a PU-set that may be used; raises BadInput for a NUMA node without any."""
    for node in nodes:
        host.node(node)
        if not host.usable_pus(node):
            raise BadInput(f"NUMA node {node} has no PU that this process may use")
    return tuple(p for n in nodes for p in host.usable_pus(n))


def bank_bytes(host: Topology, bank: int) -> int:
    """Return the memory of a bank that data may lie on; raises BadInput for any other."""
    if bank not in host.memory_nodes:
        host.node(bank)
        raise BadInput(f"NUMA node {bank} has no memory that this process may use")
    size = host.node(bank).memory_bytes
    return min(size, host.memory_limit_bytes or size)


def filling(host: Topology, bank: int, threads: int) -> tuple[int, ...]:
    """Return *threads* PUs that fill the NUMA nodes from the nearest to *bank* on (thesis figures 3.6, 3.7).

    Raises BadInput where there are not so many.
    """
    near = sorted(host.cpu_nodes, key=lambda n: (host.distance(n, bank), n))
    pus = pus_of(host, near)
    if not 1 <= threads <= len(pus):
        raise BadInput(f"{threads} threads: this process may use 1 to {len(pus)} PUs")
    return pus[:threads]


def nearest(host: Topology, nodes: Sequence[int]) -> int:
    """Return the bank that is nearest to a PU-set: its own, unless that has no memory."""
    return min(host.memory_nodes, key=lambda bank: (sum(host.distance(n, bank) for n in nodes), bank))


def sets_of(nodes: Sequence[int], sizes: Sequence[int]) -> list[Nodes]:
    """Return all PU-sets of *sizes* of the *nodes*; raises BadInput for a size that there is not."""
    for size in sizes:
        if not 1 <= size <= len(nodes):
            raise BadInput(f"--set-sizes: {size}; there are {len(nodes)} NUMA nodes with PUs to choose from")
    return [nodes_of_set for size in sorted(sizes) for nodes_of_set in combinations(nodes, size)]


def rows(
    host: Topology, sets: Sequence[Nodes], banks: Sequence[int], effort: Effort
) -> Iterator[tuple[list[Nodes], list[int]]]:
    """Yield PU-sets of one size, and the banks that an effort measures all of them with.

    The PU-sets of a yield are all of that size of their NUMA nodes, so that one run of the probe does them.
    """
    groups: dict[tuple[int, Nodes], list[Nodes]] = {}
    for nodes in sets:
        groups.setdefault((len(nodes), tuple(effort.banks_of(host, nodes, banks))), []).append(nodes)
    for (size, chosen), members in groups.items():
        all_nodes = sorted({node for nodes in members for node in nodes})
        if set(members) == set(combinations(all_nodes, size)):
            yield members, list(chosen)
        else:
            yield from (([nodes], list(chosen)) for nodes in members)


# ----------------------------------------------------------------------
# Measuring on an emulated host: placements are what counts there, and nobody learns anything from the times.

#: Seconds that a program runs between two looks: a benchmark is at work for half a second at least.
BETWEEN = 0.2
#: After so many seconds of looking, whoever waits for the program sees whether its time is up.
AT_ONCE = 20.0
#: Aspect -> the native probe's option for small arrays. Emulated caches hold nothing that there is to get past,
#: and memory of the usual size takes minutes to be touched; as many sizes of a curve as a check wants to see.
_SMALL = {
    "latency": f"--sizes={','.join(f'{4 << doubled}KiB' for doubled in range(12))}",
    "bandwidth": "--array-bytes=4MiB",
    "contention": "--array-bytes=4MiB",
}


def probe_options(aspect: str) -> list[str]:
    """Return the options by which the probe is to differ here: none on a real host."""
    return [_SMALL[aspect]] if emulation.emulator() else []


def watching_of_host() -> Watching:
    """Return how a benchmark of many threads is watched here: at leisure, and stopped while it is looked at.

    One thread of the emulator runs all PUs in turn: with 64 of them at work, a program has ended before the
    one who looks has had the time to read what 64 threads are doing. On a real host it is watched as usual.
    """
    return Watching(100.0, _look_at_stopped) if emulation.emulator() else Watching()


def _look_at_stopped(pid: int, seen_before: placement_check.Observed) -> None:
    # Programs are started as the first of a process group of their own; without one, it has ended.
    end = time.monotonic() + AT_ONCE
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < end:
            os.killpg(pid, signal.SIGSTOP)
            try:
                seen = placement_check.Observed()
                placement_check.look(pid, seen)
                # Fewer threads than before: it is ending. (Stopped, it shows the same at a second look.)
                if seen.threads >= seen_before.threads:
                    placement_check.look(pid, seen_before)
            finally:
                os.killpg(pid, signal.SIGCONT)
            time.sleep(BETWEEN)


# ----------------------------------------------------------------------
# Latency, bandwidth and contention by lmbench, likwid-bench and STREAM: the check of what the probe says.
#
# Each run is one placement, started under numactl and watched: its records have the placement that was found.

Say = Callable[[str], None]
#: A benchmark that takes longer than this for one repetition hangs (s).
TIMEOUT = 900.0


@dataclass
class _Series:
    """The repetitions of one case: the last one's outcome, and why placements did not hold."""

    program: str
    version: str = ""
    outcome: Outcome | None = None
    reasons: list[str] = field(default_factory=list)

    def run(
        self,
        argv: Sequence[str],
        placement: Placement,
        *,
        threads: int,
        env: Mapping[str, str] | None = None,
        stderr: bool = False,
    ) -> str:
        """Run one benchmark alone and return what it printed (to standard error, where it uses that)."""
        with tempfile.TemporaryDirectory(prefix="ft-") as name:
            folder = Path(name)
            likwid.stage(folder)
            job = Job(argv, folder / "out", folder / "err", placement, threads, env or {}, cwd=folder)
            watching = None if self.program == "lmbench" else watching_of_host()  # lmbench has one thread
            (self.outcome,) = run_together([job], timeout=TIMEOUT, watching=watching)
            self.reasons.append(self.outcome.misplaced())
            file = job.stderr if stderr else job.stdout
            return file.read_text(encoding="utf-8", errors="replace")

    def placed(self) -> dict[str, Any]:
        """Return the fields of a record that tell the versions, the placement asked and found, and if it held."""
        reason = next(filter(None, self.reasons), "")
        versions = {self.program: self.version} if self.version else {}
        fields: dict[str, Any] = {"status": "invalid" if reason else "valid", "reason": reason}
        fields["software"] = software(**versions)
        if self.outcome and self.outcome.job.placement:
            fields["placement_asked"] = [self.outcome.job.placement.to_dict()]
            fields["placement_found"] = [self.outcome.observed.to_dict()]
        return fields


def bound(pus: Sequence[int], bank: int) -> Placement:
    """Return the placement of a benchmark: exactly these PUs, and all data on one NUMA node."""
    numactl = (f"--physcpubind={format_list(pus)}", f"--membind={bank}")
    return Placement(tuple(sorted(pus)), (bank,), numactl, "original", "part")


def latency(
    host: Topology, node: int, bank: int, *, random: bool = True, repetitions: int = 3, say: Say = print
) -> Iterator[list[Record]]:
    """Yield lmbench's latency curve (ns by array size) of one PU of *node* on *bank*, one record per size."""
    largest = lmbench.largest_bytes(host.last_cache_bytes(), bank_bytes(host, bank))
    pu = pus_of(host, [node])[0]
    argv = lmbench.argv(largest_bytes=largest, random=random)
    metric = "random_latency" if random else "sequential_latency"
    env = lmbench.environment(profiles.chosen().point_microseconds)
    curves, series = [], _Series("lmbench")
    for number in range(repetitions):
        # lat_mem_rd measures in a child of its own, and prints to standard error.
        text = series.run(argv, bound([pu], bank), threads=1, env=env, stderr=True)
        curves.append(lmbench.parse(text, largest_bytes=largest))
        if curves[-1].keys() != curves[0].keys():
            raise RunFailed("lat_mem_rd printed other array sizes than the time before")
        memory = curves[-1][largest]
        say(f"lmbench {metric} PU {pu} bank {bank} ({number + 1}/{repetitions}): {memory:.1f} ns at {largest} B")
    case = {
        "program": "lmbench",
        "stride_bytes": lmbench.STRIDE_BYTES,
        "pu_nodes": [node],
        "pus": [pu],
        "bank": bank,
    }
    case |= profiles.chosen().parameters
    yield [
        Record(
            check="latency",
            metric=metric,
            unit="ns",
            better="lower",
            samples=tuple(c[size] for c in curves),
            parameters={**case, "size_bytes": size},
            **series.placed(),
        )
        for size in curves[0]
    ]


def bandwidth(
    host: Topology, nodes: Sequence[int], bank: int, program: str, *, repetitions: int = 3, say: Say = print
) -> Iterator[list[Record]]:
    """Yield copy, scale, add and triad (GB/s) of all PUs of *nodes* on *bank*, by likwid-bench or STREAM.

    Raises CannotHere for STREAM where there is none: nobody packages it.
    """
    pus = pus_of(host, nodes)
    thorough = profiles.chosen()
    case = {"pu_nodes": list(nodes), "bank": bank, "threads": len(pus), "policy": "membind", **thorough.parameters}
    if program == "stream":
        yield _stream(bound(pus, bank), len(pus), case, repetitions, say)
        return
    instructions = likwid.widest(likwid.processor_flags(), likwid.available())
    array = _array_bytes(host, bank)
    for kernel in thorough.kernels:
        if why := likwid.cannot(kernel, instructions):
            say(f"skipped {kernel}: {why}")
            continue
        argv = likwid.argv(kernel, instructions=instructions, threads=len(pus), array_bytes=array)
        rates, series = _likwid(argv, bound(pus, bank), len(pus), repetitions)
        say(f"likwid-bench {kernel} PU-set {format_list(nodes)} bank {bank}: {_show(rates)} GB/s")
        parameters = {
            **case,
            "program": "likwid-bench",
            "kernel": kernel,
            "instructions": instructions or "scalar",
            "stores": "regular",
            "array_bytes": array,
        }
        yield [_rate("bandwidth", f"{kernel}_bandwidth", rates, parameters, series)]


def _stream(
    placement: Placement, threads: int, case: Mapping[str, Any], repetitions: int, say: Say
) -> list[Record]:
    if not stream.installed():
        raise CannotHere("there is no program 'stream' on PATH: STREAM's source comes from its author alone")
    results, series, array, records = [], _Series("stream"), 0, []
    for _ in range(repetitions):
        env = stream.environment(threads, placement.pus)
        text = series.run(["stream"], placement, threads=threads, env=env)
        rates, array = stream.parse(text, threads=threads)
        results.append(rates)
    for kernel in stream.KERNELS:
        samples = [r[kernel] for r in results]
        say(f"STREAM {kernel}: {_show(samples)} GB/s")
        # What the compiler made of the loops is not known from outside.
        compiled = {"instructions": "compiler", "stores": "compiler", "array_bytes": array}
        parameters = {**case, "program": "stream", "kernel": kernel, **compiled}
        records.append(_rate("bandwidth", f"{kernel}_bandwidth", samples, parameters, series))
    return records


def contention(
    host: Topology, bank: int, threads: int, *, repetitions: int = 3, say: Say = print
) -> Iterator[list[Record]]:
    """Yield the rate (GB/s, copy) of each of *threads* threads that use one bank at once, and their total.

    The threads fill the NUMA nodes from the nearest to the farthest. The accesses are sequential, unlike those
    of thesis section 3.5, which the probe makes.
    """
    bank_bytes(host, bank)
    pus = filling(host, bank, threads)
    array = _array_bytes(host, bank)
    instructions = likwid.widest(likwid.processor_flags(), likwid.available())
    argv = likwid.argv("copy", instructions=instructions, threads=threads, array_bytes=array)
    rates, series = _likwid(argv, bound(pus, bank), threads, repetitions)
    say(f"likwid-bench contention {threads} threads bank {bank}: {_show(rates)} GB/s in total")
    parameters = {
        "program": "likwid-bench",
        "kernel": "copy",
        "instructions": instructions or "scalar",
        "stores": "regular",
        "bank": bank,
        "threads": threads,
        "array_bytes": array,
        **profiles.chosen().parameters,
    }
    each = [r / threads for r in rates]
    yield [
        _rate("contention", "total_bandwidth", rates, parameters, series),
        _rate("contention", "thread_bandwidth", each, parameters, series),
    ]


def _likwid(
    argv: Sequence[str], placement: Placement, threads: int, repetitions: int
) -> tuple[list[float], _Series]:
    series = _Series("likwid-bench", likwid.version())
    texts = [series.run(argv, placement, threads=threads) for _ in range(repetitions)]
    return [likwid.parse(text, threads=threads) for text in texts], series


def _rate(
    check: str, metric: str, samples: Sequence[float], parameters: Mapping[str, Any], series: _Series
) -> Record:
    return Record(check, metric, "GB/s", "higher", tuple(samples), parameters, **series.placed())


def _array_bytes(host: Topology, bank: int) -> int:
    """Return the size of one array: STREAM's rule of four last caches, a sixteenth of the bank at most."""
    wanted = max(64_000_000, 4 * host.last_cache_bytes())
    return min(wanted, bank_bytes(host, bank) // 16) // 8192 * 8192


def _show(samples: Sequence[float]) -> str:
    return ", ".join(f"{s:.2f}" for s in samples)
