# SPDX-License-Identifier: Apache-2.0
"""Latency, bandwidth and contention by the native probe: whole matrices, each bank's memory taken once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from firsttouch import probe
from firsttouch.cpulist import format_list
from firsttouch.measure import effort, emulated, places
from firsttouch.measure.places import Nodes
from firsttouch.records import Record
from firsttouch.topology import Topology

#: Passes of each case: as many at least, and as many at most where the mean is not known to 5 % before. Three
#: cost less than the memory that is taken for them.
LEAST, MOST = 3, 10


def latency(
    host: Topology, nodes: Sequence[int], banks: Sequence[int], *, repetitions: int, say: probe.Say = print
) -> Iterator[list[Record]]:
    """Yield the curve (ns by bytes of a random cycle) of a PU of each of *nodes* on each of *banks*."""
    sets = [(node,) for node in nodes]
    for some, targets in _rows(host, sets, banks):
        yield from _run("latency", [*_where(some, targets), "--sizes=curve"], repetitions, say)


def bandwidth(
    host: Topology,
    sets: Sequence[Nodes],
    banks: Sequence[int],
    interleave: str,
    *,
    repetitions: int,
    say: probe.Say = print,
) -> Iterator[list[Record]]:
    """Yield STREAM's kernels (GB/s, regular stores) of all PUs of each of *sets* on each of *banks*.

    *interleave* says over which banks data are interleaved as well, as the probe's option of that name does.
    """
    kernels = f"--kernels={','.join(effort.chosen().kernels)}"
    for some, targets in _rows(host, sets, banks):
        options = [*_where(some, targets), f"--set-sizes={len(some[0])}", kernels, f"--interleave={interleave}"]
        yield from _run("bandwidth", options, repetitions, say)


def contention(
    host: Topology, threads: Sequence[int], banks: Sequence[int], *, repetitions: int, say: probe.Say = print
) -> Iterator[list[Record]]:
    """Yield the rates (GB/s) of threads that use one of *banks* at once with random accesses (section 3.5).

    One thread and two are measured on every NUMA node by itself; more fill those that are nearest to the bank.
    """
    for some, targets in _rows(host, [host.cpu_nodes], banks):
        for bank in targets:
            for number in threads:
                places.filling(host, bank, number)
        options = [*_where(some, targets), f"--threads={format_list(threads)}"]
        yield from _run("contention", options, repetitions, say)


def _rows(host: Topology, sets: Sequence[Nodes], banks: Sequence[int]) -> list[tuple[list[Nodes], list[int]]]:
    """Return what the runs of the probe are of, after a look at all that was asked for."""
    for nodes in sets:
        places.pus_of(host, nodes)
    for bank in banks:
        places.bank_bytes(host, bank)
    return list(places.rows(host, sets, banks, effort.chosen()))


def _where(sets: Sequence[Nodes], banks: Sequence[int]) -> list[str]:
    return [f"--pu-nodes={format_list({n for nodes in sets for n in nodes})}", f"--banks={format_list(banks)}"]


def _run(aspect: str, options: Sequence[str], repetitions: int, say: probe.Say) -> Iterator[list[Record]]:
    """Yield the records of one run of the probe while it is at work; what was stopped ends as an interruption."""
    chosen = effort.chosen()
    least = max(LEAST, min(repetitions, chosen.repetitions))
    most = max(least, min(MOST, chosen.repetitions))
    passes = [f"--min-repetitions={least}", f"--max-repetitions={most}"]
    running = probe.follow(aspect, [*options, *passes, *emulated.probe_options(aspect)], say=say)
    while True:
        try:
            found = next(running)
        except StopIteration as end:
            if end.value.status == "partial":
                raise KeyboardInterrupt from None
            return
        yield [replace(r, parameters={**r.parameters, **chosen.parameters}) for r in found]
