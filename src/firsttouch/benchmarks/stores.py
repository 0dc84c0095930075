# SPDX-License-Identifier: Apache-2.0
"""Stores: copy and triad by every instruction set, with regular and with streaming stores."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from firsttouch.benchmarks import probe, profiles, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.drawn_order import shuffle
from firsttouch.benchmarks.measure import AspectRequest, Benchmark, ReframeTest, run
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record

CHECK = "stores"
#: The kernels: copy gains most from streaming stores, triad is STREAM's headline.
KERNELS = ("copy", "triad")


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Measure every instruction set x store type on one NUMA node (default: the first) and its nearest bank."""
    nodes = tuple(asked.pu_nodes or host.cpu_nodes[:1])
    banks = list(asked.banks or [programs.nearest(host, nodes)])
    programs.place(host, nodes, banks)
    kernels = [k for k in KERNELS if k in profiles.chosen_effort().kernels]
    options = ["--instructions=all", "--stores=both", f"--kernels={','.join(kernels)}", "--interleave=none"]
    for bank in shuffle(banks):
        where = [f"--pu-nodes={format_list(nodes)}", f"--set-sizes={len(nodes)}", f"--banks={bank}"]
        running = run(replace(asked, aspect="bandwidth"), [*where, *options], say)
        measured = [replace(r, check=CHECK) for records in running for r in records]
        yield [*measured, *(gain for kernel in kernels for gain in _streaming_gain(measured, kernel, say))]


def _streaming_gain(measured: Sequence[Record], kernel: str, say: probe.Say) -> Iterator[Record]:
    """Yield the rate of a kernel's fastest streaming stores over the rate of its fastest regular ones.

    Processors without streaming stores omit this record. A sample compares two rates of one repetition, in
    which the probe runs all cases in sequence.
    """
    rates = [r for r in measured if r.parameters["kernel"] == kernel]
    fastest = {}
    for stores in ("regular", "streaming"):
        of_stores = [r for r in rates if r.parameters["stores"] == stores]
        fastest[stores] = max(of_stores, key=lambda r: statistics.median(r.samples), default=None)
    streaming, regular = fastest["streaming"], fastest["regular"]
    if streaming is None or regular is None:
        return
    names = {f"fastest_{stores}": r.parameters["instructions"] for stores, r in fastest.items() if r}
    gains = tuple(s / r for s, r in zip(streaming.samples, regular.samples, strict=False))
    say(
        f"{kernel}: the fastest streaming stores are {names['fastest_streaming']}, "
        f"{statistics.median(gains):.2f} times the fastest regular ones, {names['fastest_regular']}"
    )
    parameters = {k: v for k, v in streaming.parameters.items() if k not in {"instructions", "stores"}} | names
    yield replace(
        streaming, metric="streaming_gain", unit="1", better="neither", samples=gains, parameters=parameters
    )


def _label(record: Record, _cases: Cases) -> str:
    """Name a variable per kernel, instruction set and kind of stores."""
    p = record.parameters
    if record.metric == "streaming_gain":
        return f"{p['kernel']}_streaming_gain"
    return f"{p['kernel']}_{p['instructions']}_{p['stores']}"


_TEST = ReframeTest(
    "stores",
    lambda cases: f"stores of NUMA node {cases.host.cpu_nodes[0]} by instruction set",
    lambda cases: ["--pu-nodes", str(cases.host.cpu_nodes[0])],
    label=_label,
)
BENCHMARK = Benchmark(_measure, tests=(_TEST,))
