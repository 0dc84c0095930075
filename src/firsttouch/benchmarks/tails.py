# SPDX-License-Identifier: Apache-2.0
"""Tails: the slowest accesses to each bank, idle and under load.

Retries of a memory module or of a link are rare, so they show in the tail of the distribution long before they
change its mean. The probe times single accesses, and subtracts delays by interrupts.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from firsttouch.benchmarks import probe, profiles, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.drawn_order import shuffle
from firsttouch.benchmarks.measure import AspectRequest, Benchmark, ReframeTest, run
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record

CHECK = "tails"
#: The metrics, from the median upwards. The record of the last one has the histogram.
PERCENTILES = ("latency_p50", "latency_p99", "latency_p99_9", "latency_p99_99")
#: Samples of a case at most. Each has half a million accesses.
_MOST = 5
#: A NUMA node is measured with all banks if the host has at most this number, else with its nearest and farthest.
_ALL_BANKS = 4


def _cases(host: Topology, *, all_banks: bool = False) -> Cases:
    effort = profiles.chosen_effort()
    if all_banks or len(host.memory_nodes) > _ALL_BANKS:
        effort = replace(effort, banks="all" if all_banks else "ends")
    return Cases(host, effort)


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    cases = _cases(host, all_banks=bool(asked.banks))
    alone = [(node,) for node in asked.pu_nodes or cases.pu_nodes()]
    for members, banks in shuffle(
        programs.rows(host, alone, list(asked.banks or host.memory_nodes), cases.effort)
    ):
        where = programs.place(host, [node for nodes in members for node in nodes], banks)
        yield from run(asked, where, say, most=_MOST)


def _least_records(cases: Cases) -> int:
    cases = _cases(cases.host)
    return len(PERCENTILES) * sum(len(cases.banks(node)) for node in cases.pu_nodes())


def _label(record: Record, _cases_of_host: Cases) -> str:
    p = record.parameters
    return f"{record.metric}_from{format_list(p['pu_nodes'])}_bank{p['bank']}_{p['load']}"


_TEST = ReframeTest(
    CHECK,
    lambda _: "the slowest accesses to each bank, idle and under load",
    least_records=_least_records,
    label=_label,
)
BENCHMARK = Benchmark(_measure, small=("--sizes=1MiB", "--array-bytes=4MiB", "--accesses=16384"), tests=(_TEST,))
