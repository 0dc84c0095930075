# SPDX-License-Identifier: Apache-2.0
"""The aspects latency, bandwidth and contention of a host, as records with their placement verified."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firsttouch.cpulist import format_list
from firsttouch.errors import BadInput, RunFailed
from firsttouch.measure import effort, likwid, lmbench, stream
from firsttouch.placement import Placement
from firsttouch.records import Record, software
from firsttouch.supervise import Job, Outcome, run_together
from firsttouch.topology import Topology

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
            (self.outcome,) = run_together([job], timeout=TIMEOUT)
            self.reasons.append(self.outcome.misplaced())
            file = job.stderr if stderr else job.stdout
            return file.read_text(encoding="utf-8", errors="replace")

    def placed(self) -> dict[str, Any]:
        """Return the fields of a record that tell the versions, the placement asked and found, and if it held."""
        reason = next(filter(None, self.reasons), "")
        versions = {self.program: self.version} if self.version else {}
        found: dict[str, Any] = {"status": "invalid" if reason else "valid", "reason": reason}
        found["software"] = software(**versions)
        if self.outcome and self.outcome.job.placement:
            found["placement_asked"] = [self.outcome.job.placement.to_dict()]
            found["placement_found"] = [self.outcome.found.to_dict()]
        return found


def bound(pus: Sequence[int], bank: int) -> Placement:
    """Return the placement of a benchmark: exactly these PUs, and all data on one NUMA node."""
    numactl = (f"--physcpubind={format_list(pus)}", f"--membind={bank}")
    return Placement(tuple(sorted(pus)), (bank,), numactl, "original", "part")


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


def topology(host: Topology) -> Iterator[Record]:
    """Yield what the host is: its number of NUMA nodes and of usable PUs, and its memory in GiB."""
    memory = sum(n.memory_bytes for n in host.numa_nodes) / lmbench.MIB / 1024
    counts = {"numa_nodes": len(host.numa_nodes), "pus": len(host.allowed_pus)}
    for metric, unit, value in (*((m, "1", n) for m, n in counts.items()), ("memory", "GiB", memory)):
        yield Record("topology", metric, unit, "neither", (float(value),), software=software())


def latency(
    host: Topology, node: int, bank: int, *, random: bool = True, repetitions: int = 3, say: Say = print
) -> Iterator[Record]:
    """Yield the latency curve (ns by array size) of one PU of *node* on *bank*, one record per size."""
    largest = lmbench.largest_bytes(host.last_cache_bytes(), bank_bytes(host, bank))
    pu = pus_of(host, [node])[0]
    argv = lmbench.argv(largest_bytes=largest, random=random)
    metric = "random_latency" if random else "sequential_latency"
    env = lmbench.environment(effort.chosen().point_microseconds)
    curves, series = [], _Series("lat_mem_rd")
    for number in range(repetitions):
        # lat_mem_rd measures in a child of its own, and prints to standard error.
        text = series.run(argv, bound([pu], bank), threads=1, env=env, stderr=True)
        curves.append(lmbench.parse(text, largest_bytes=largest))
        if curves[-1].keys() != curves[0].keys():
            raise RunFailed("lat_mem_rd printed other array sizes than the time before")
        memory = curves[-1][largest]
        say(f"{metric} PU {pu} bank {bank} ({number + 1}/{repetitions}): {memory:.1f} ns at {largest} B")
    for size in curves[0]:
        yield Record(
            check="latency",
            metric=metric,
            unit="ns",
            better="lower",
            samples=tuple(c[size] for c in curves),
            parameters={
                "program": "lat_mem_rd",
                "size_bytes": size,
                "stride_bytes": lmbench.STRIDE_BYTES,
                "pu_nodes": [node],
                "pus": [pu],
                "bank": bank,
                **effort.chosen().parameters,
            },
            **series.placed(),
        )


def bandwidth(
    host: Topology, nodes: Sequence[int], bank: int, *, repetitions: int = 3, say: Say = print
) -> Iterator[Record]:
    """Yield copy, scale, add and triad (GB/s) of all PUs of *nodes* on *bank*, by likwid-bench and STREAM."""
    pus = pus_of(host, nodes)
    thorough = effort.chosen()
    case = {"pu_nodes": list(nodes), "bank": bank, "threads": len(pus), "policy": "membind", **thorough.parameters}
    instructions = likwid.widest(likwid.processor_flags(), likwid.available())
    array = _array_bytes(host, bank)
    for kernel in thorough.kernels:
        if why := likwid.cannot(kernel, instructions):
            say(f"skipped {kernel}: {why}")
            continue
        argv = likwid.argv(kernel, instructions=instructions, threads=len(pus), array_bytes=array)
        rates, series = _likwid(argv, bound(pus, bank), len(pus), repetitions)
        say(f"{kernel} PU-set {format_list(nodes)} bank {bank}: {_show(rates)} GB/s")
        parameters = {
            **case,
            "program": "likwid-bench",
            "kernel": kernel,
            "instructions": instructions or "scalar",
            "stores": "regular",
            "array_bytes": array,
        }
        yield _rate("bandwidth", f"{kernel}_bandwidth", rates, parameters, series)
    if stream.installed():
        yield from _stream(bound(pus, bank), len(pus), case, repetitions, say)
    else:
        say("skipped STREAM: there is no program 'stream' on PATH")


def _stream(
    placement: Placement, threads: int, case: Mapping[str, Any], repetitions: int, say: Say
) -> Iterator[Record]:
    results, series, array = [], _Series("stream"), 0
    for _ in range(repetitions):
        env = stream.environment(threads, placement.pus)
        text = series.run(["stream"], placement, threads=threads, env=env)
        rates, array = stream.parse(text, threads=threads)
        results.append(rates)
    for kernel in stream.KERNELS:
        samples = [r[kernel] for r in results]
        say(f"STREAM {kernel}: {_show(samples)} GB/s")
        # What the compiler made of the loops is not known from outside.
        made = {"instructions": "compiler", "stores": "compiler", "array_bytes": array}
        parameters = {**case, "program": "stream", "kernel": kernel, **made}
        yield _rate("bandwidth", f"{kernel}_bandwidth", samples, parameters, series)


def contention(
    host: Topology, bank: int, threads: int, *, repetitions: int = 3, say: Say = print
) -> Iterator[Record]:
    """Yield the rate (GB/s, copy) of each of *threads* threads that use one bank at once, and their total.

    The threads fill the NUMA nodes from the nearest to the farthest, as in thesis figures 3.6 and 3.7. The
    accesses are sequential here; thesis section 3.5 has random ones as well.
    """
    near = sorted(host.cpu_nodes, key=lambda n: (host.distance(n, bank), n))
    pus = pus_of(host, near)
    if not 1 <= threads <= len(pus):
        raise BadInput(f"{threads} threads: this process may use 1 to {len(pus)} PUs")
    pus = pus[:threads]
    array = _array_bytes(host, bank)
    instructions = likwid.widest(likwid.processor_flags(), likwid.available())
    argv = likwid.argv("copy", instructions=instructions, threads=threads, array_bytes=array)
    rates, series = _likwid(argv, bound(pus, bank), threads, repetitions)
    say(f"contention {threads} threads bank {bank}: {_show(rates)} GB/s in total")
    parameters = {
        "program": "likwid-bench",
        "kernel": "copy",
        "instructions": instructions or "scalar",
        "stores": "regular",
        "bank": bank,
        "threads": threads,
        "array_bytes": array,
        **effort.chosen().parameters,
    }
    each = [r / threads for r in rates]
    yield _rate("contention", "total_bandwidth", rates, parameters, series)
    yield _rate("contention", "thread_bandwidth", each, parameters, series)


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
