# SPDX-License-Identifier: Apache-2.0
"""Runs lmbench, likwid-bench and STREAM under a verified placement, to cross-check the probe."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from firsttouch.benchmarks import likwid, lmbench, profiles, stream
from firsttouch.benchmarks.profiles import Effort
from firsttouch.errors import BadInput, CannotHere, RunFailed
from firsttouch.execution.process_runner import Job, Outcome, Watching, run_together
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.cases import by_key
from firsttouch.records.schema import Record, software
from firsttouch.scenarios.layout import Neighbours
from firsttouch.scenarios.placement import Placement

# ----------------------------------------------------------------------
# PU-sets and banks that this process may use

Nodes = tuple[int, ...]


def pus_of(host: Topology, nodes: Sequence[int]) -> tuple[int, ...]:
    """Return the usable PUs of a PU-set; raises BadInput for a NUMA node without any."""
    for node in nodes:
        host.node(node)
        if not host.usable_pus(node):
            raise BadInput(f"NUMA node {node} has no PU that this process may use")
    return tuple(p for n in nodes for p in host.usable_pus(n))


def bank_bytes(host: Topology, bank: int) -> int:
    """Return the usable memory of a bank (bytes); raises BadInput if this process may not use the bank."""
    if bank not in host.memory_nodes:
        host.node(bank)
        raise BadInput(f"NUMA node {bank} has no memory that this process may use")
    size = host.node(bank).memory_bytes
    return min(size, host.memory_limit_bytes or size)


def place(host: Topology, nodes: Sequence[int], banks: Sequence[int]) -> list[str]:
    """Return the probe's options for PUs of *nodes* and memory of *banks*; if empty, the probe chooses.

    Raises BadInput for NUMA nodes that this process may not use.
    """
    if nodes:
        pus_of(host, tuple(nodes))
    for bank in banks:
        bank_bytes(host, bank)
    options = {"pu-nodes": nodes, "banks": banks}
    return [f"--{name}={format_list(numbers)}" for name, numbers in options.items() if numbers]


def without_bank(record: Record) -> Record:
    """Return a record without a bank, because it does not depend on where the probe's data lie."""
    kept = {name: value for name, value in record.parameters.items() if name not in {"bank", "relation"}}
    return replace(record, parameters=kept)


def nearest(host: Topology, nodes: Sequence[int]) -> int:
    """Return the bank nearest to a PU-set: its own bank, unless it has no memory."""
    return min(host.memory_nodes, key=lambda bank: (sum(host.distance(n, bank) for n in nodes), bank))


#: The most PU-sets of one size that are all measured: hosts with 8 NUMA nodes have up to 70, those with 24 nodes
#: 735,471. If there are more, only groups of neighbours are measured, on which instances of scenarios run.
MOST_SETS = 100


def sets_of(host: Topology, nodes: Sequence[int], sizes: Sequence[int]) -> list[Nodes]:
    """Return the PU-sets of *sizes* NUMA nodes among *nodes*; raises BadInput for an impossible size.

    These are all sets of a size, or disjoint groups of neighbours if there would be more than MOST_SETS.
    """
    for size in sizes:
        if not 1 <= size <= len(nodes):
            raise BadInput(f"--set-sizes: {size}; there are {len(nodes)} NUMA nodes with PUs to choose from")
    sets: list[Nodes] = []
    for size in sorted(sizes):
        few = size == 1 or math.comb(len(nodes), size) <= MOST_SETS
        sets += combinations(nodes, size) if few else Neighbours(host, nodes).groups_of(size)
    return sets


def sets_left_out(nodes: Sequence[int], sets: Sequence[Nodes]) -> list[str]:
    """Return in words which PU-sets of *nodes* are not among *sets*, and why."""
    texts = []
    for size in sorted({len(members) for members in sets}):
        count, all_sets = sum(len(members) == size for members in sets), math.comb(len(nodes), size)
        if count < all_sets and all_sets > MOST_SETS and size > 1:
            texts.append(
                f"of {all_sets:,} PU-sets of {size} NUMA nodes, {count} (groups of neighbours) are measured: "
                "all would take too long"
            )
    return texts


def rows(
    host: Topology, sets: Sequence[Nodes], banks: Sequence[int], effort: Effort
) -> Iterator[tuple[list[Nodes], list[int]]]:
    """Yield the measurements of a run of the probe: PU-sets, and the banks that are measured with all of them.

    The probe measures all PU-sets of one size among some NUMA nodes, so only complete ones share a run.
    """
    groups = by_key(sets, lambda nodes: (len(nodes), tuple(effort.banks_of(host, nodes, banks))))
    for (size, chosen), members in groups.items():
        all_nodes = sorted({node for nodes in members for node in nodes})
        if len(members) == math.comb(len(all_nodes), size):
            yield members, list(chosen)
        else:
            yield from (([nodes], list(chosen)) for nodes in members)


# ----------------------------------------------------------------------
# Latency and bandwidth. Each run has one placement, is started by numactl and watched.

Say = Callable[[str], None]
#: Time limit of one repetition of a benchmark (s).
TIMEOUT = 900.0


class _Series(Struct):
    """The repetitions of a case: the last outcome, and the reasons why placements did not hold."""

    program: str
    version: str = ""
    outcome: Outcome | None = None
    reasons: list[str] = field(default_factory=list)

    def run(
        self,
        argv: Sequence[str],
        placement: Placement,
        *,
        env: Mapping[str, str] | None = None,
        stderr: bool = False,
    ) -> str:
        """Run a benchmark with a thread on each PU and return its standard output, or standard error."""
        threads = len(placement.pus)
        with tempfile.TemporaryDirectory(prefix="ft-") as name:
            folder = Path(name)
            job = Job(argv, folder / "out", folder / "err", placement, threads, env or {}, cwd=folder)
            # The threads of likwid-bench exist only in the last half second of a run; lmbench has one thread.
            watching = Watching(all_threads=self.program != "lmbench")
            (self.outcome,) = run_together([job], timeout=TIMEOUT, watching=watching)
            self.reasons.append(self.outcome.misplaced or _unseen(self.outcome.observed.together, threads))
            file = job.stderr if stderr else job.stdout
            return file.read_text(encoding="utf-8", errors="replace")

    def placed(self) -> dict[str, Any]:
        """Return the fields of a record that state versions, placement and validity."""
        reason = next(filter(None, self.reasons), "")
        versions = {self.program: self.version} if self.version else {}
        fields: dict[str, Any] = {"status": "invalid" if reason else "valid", "reason": reason}
        fields["software"] = software(**versions)
        if self.outcome and self.outcome.job.placement:
            fields["placement_asked"] = [self.outcome.job.placement.to_dict()]
            fields["placement_found"] = [self.outcome.observed.to_dict()]
        return fields


def _unseen(seen: int, threads: int) -> str:
    """Return why the placement of a benchmark's threads was not observed, or an empty string if it was."""
    if seen >= threads:
        return ""
    return f"the placement cannot be verified: at most {seen} of {threads} threads were seen at a time"


def bound_placement(pus: Sequence[int], bank: int) -> Placement:
    """Return the placement of a benchmark on exactly *pus*, with all data on *bank*."""
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
    env = lmbench.environment(profiles.chosen_effort().point_microseconds)
    curves, series = [], _Series("lmbench")
    for number in range(repetitions):
        # lat_mem_rd measures in a child process and prints to standard error.
        text = series.run(argv, bound_placement([pu], bank), env=env, stderr=True)
        curves.append(lmbench.parse(text, largest_bytes=largest))
        if curves[-1].keys() != curves[0].keys():
            raise RunFailed("lat_mem_rd printed other array sizes than in the repetition before")
        memory = curves[-1][largest]
        say(f"lmbench {metric} PU {pu} bank {bank} ({number + 1}/{repetitions}): {memory:.1f} ns at {largest} B")
    case = {
        "program": "lmbench",
        "stride_bytes": lmbench.STRIDE_BYTES,
        "pu_nodes": [node],
        "pus": [pu],
        "bank": bank,
    }
    case |= profiles.chosen_effort().parameters
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
    """Yield the rates (GB/s) of STREAM's kernels by all PUs of *nodes* on *bank*, by likwid-bench or STREAM.

    likwid-bench has copy and triad. Raises CannotHere if STREAM is not installed.
    """
    effort = profiles.chosen_effort()
    placement = bound_placement(pus_of(host, nodes), bank)
    case: dict[str, Any] = {"pu_nodes": list(nodes), "policy": "membind"}
    if program == "stream":
        yield _stream(placement, case, repetitions, say)
        return
    instructions = likwid.widest(likwid.processor_flags(), likwid.available())
    case |= {"instructions": instructions or "scalar", "stores": "regular"}
    threads, array = len(placement.pus), _array_bytes(host, bank)
    for kernel in (kernel for kernel in effort.kernels if kernel in likwid.KERNELS):
        argv = likwid.argv(kernel, instructions=instructions, threads=threads, array_bytes=array)
        series = _Series("likwid-bench", likwid.version())
        rates = [likwid.parse(series.run(argv, placement), threads=threads) for _ in range(repetitions)]
        say(f"likwid-bench {kernel} PU-set {format_list(nodes)} bank {bank}: {_show(rates)} GB/s")
        yield [_rate(series, kernel, rates, placement, case | {"array_bytes": array})]


def _stream(placement: Placement, case: dict[str, Any], repetitions: int, say: Say) -> list[Record]:
    threads = len(placement.pus)
    if not (program := stream.program()):
        raise CannotHere("there is no program 'stream': `make setup` builds STREAM")
    series, env = _Series("stream"), stream.environment(threads, placement.pus)
    results = [
        stream.parse(series.run([program], placement, env=env), threads=threads) for _ in range(repetitions)
    ]
    by_kernel = {kernel: [rates[kernel] for rates, _ in results] for kernel in stream.KERNELS}
    for kernel, samples in by_kernel.items():
        say(f"STREAM {kernel}: {_show(samples)} GB/s")
    # The instructions that the compiler chose are unknown.
    case |= {"array_bytes": results[-1][1], "instructions": "compiler", "stores": "compiler"}
    return [_rate(series, kernel, samples, placement, case) for kernel, samples in by_kernel.items()]


def _rate(
    series: _Series, kernel: str, samples: Sequence[float], placement: Placement, case: Mapping[str, Any]
) -> Record:
    """Return the record of a rate, with the parameters of its *case* and those that all rates have."""
    series_case = {"program": series.program, "kernel": kernel, "bank": placement.numa_nodes[0]}
    parameters = {**series_case, "threads": len(placement.pus), **profiles.chosen_effort().parameters, **case}
    metric = f"{kernel}_bandwidth"
    return Record("bandwidth", metric, "GB/s", "higher", tuple(samples), parameters, **series.placed())


def _array_bytes(host: Topology, bank: int) -> int:
    """Return the bytes of an array: four times the last cache (STREAM's rule), at most a sixteenth of the bank."""
    wanted = max(64_000_000, 4 * host.last_cache_bytes())
    return min(wanted, bank_bytes(host, bank) // 16) // 8192 * 8192


def _show(samples: Sequence[float]) -> str:
    return ", ".join(f"{s:.2f}" for s in samples)
