# SPDX-License-Identifier: Apache-2.0
"""Cores: the clock of every PU while all of them run, and the PUs that are slower than their siblings.

One slow core sets the pace of every parallel job. A PU is slow if its rate of dependent additions is below 90 % of
its siblings' (equal cores, as many PUs at work) in every sample. The time that others took of a PU does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firsttouch.benchmarks import probe, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.measure import AspectRequest, Benchmark, ReframeTest, run
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record

CHECK = "cores"
SLOW, CLOCK = "slow_cores", "core_clock"
#: The clock in the last quarter of a load of some minutes; its record has the curve.
SUSTAINED = "sustained_clock"


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    where = programs.place(host, asked.pu_nodes or (), ())
    if asked.sustain is None:
        return measured(where, say)
    return measured([*where, f"--sustain={asked.sustain:g}"], say, small=())


def measured(
    options: Sequence[str], say: probe.Say, *, small: Sequence[str] | None = None
) -> Iterator[list[Record]]:
    """Yield the records of a run of the probe; *small* as of :func:`run`."""
    for records in run(AspectRequest(CHECK), options, say, small=small):
        yield [programs.without_bank(record) for record in records]


def _label(record: Record, _cases: Cases) -> str | None:
    return f"{record.metric}_pu{record.parameters['pu']}" if "pu" in record.parameters else record.metric


_TEST = ReframeTest(
    CHECK,
    lambda _: "the clock of every PU while all run",
    least_records=lambda _: 2,
    label=_label,
    repetitions=None,
    time_limit="10m",
)
BENCHMARK = Benchmark(_measure, frozenset({"pu_nodes", "sustain"}), repeats=lambda _: False, tests=(_TEST,))
