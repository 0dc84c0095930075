# SPDX-License-Identifier: Apache-2.0
"""Correctness: known answers of every PU at once, and patterns in every bank.

One wrong answer fails the host. Its record names the PU, the work and the bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firsttouch.benchmarks import probe, profiles, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.measure import AspectRequest, Benchmark, ReframeTest, run
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record

CHECK = "correctness"
#: The metrics: of computations, and of words in memory.
ANSWERS, WORDS = "wrong_answers", "wrong_words"


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Run each kind of work that this host has instructions for on the PUs, and patterns in the banks."""
    where = programs.place(host, asked.pu_nodes or (), asked.banks or ())
    return probe_records([f"--seconds={profiles.chosen_effort().correctness_seconds:g}", *where], say)


def probe_records(options: Sequence[str], say: probe.Say) -> Iterator[list[Record]]:
    """Yield the records of a run of the probe. Records of answers belong to PUs and have no bank."""
    for records in run(AspectRequest(CHECK), options, say):
        yield [programs.without_bank(r) if r.metric == ANSWERS else r for r in records]


def _label(record: Record, _cases: Cases) -> str | None:
    """Name the works by their words, and the patterns by their bank."""
    p = record.parameters
    of_pu = f"_pu{p['pu']}" if "pu" in p else ""
    place = f"bank{p['bank']}" if record.metric == WORDS else str(p["work"]).replace(" ", "_").replace("-", "_")
    return f"{record.metric}_{place}{of_pu}"


_TEST = ReframeTest(
    CHECK,
    lambda _: "known answers of every PU, and patterns in every bank",
    least_records=lambda cases: 4 + len(cases.host.memory_nodes),
    label=_label,
    repetitions=None,
    time_limit="30m",
)
BENCHMARK = Benchmark(
    _measure,
    repeats=lambda _: False,
    small=("--array-bytes=1MiB", "--seconds=0.01"),
    tests=(_TEST,),
)
