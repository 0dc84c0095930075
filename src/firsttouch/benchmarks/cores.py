# SPDX-License-Identifier: Apache-2.0
"""Cores: the clock of every PU, its caches and its way to memory, and the PUs that are slower than their siblings.

One slow core sets the pace of every parallel job. Each PU follows chains of dependent steps in registers, in its
first and second cache and in memory: all PUs at once, then each alone. A PU is slow if its rate is well below the
rate of its siblings (equal cores, the same number of busy PUs) in every sample. Time that other programs took is
excluded.
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
#: The time of a step of chains other than additions, and the rate of the slowest PU relative to its siblings.
STEP, SLOWEST = "chain_latency", "slowest_core"
#: Only the clock, in some tenths of a second on all PUs at once.
ONLY_CLOCK = ("--chains=registers", "--running=all")
#: The clock in the last quarter of a load of some minutes; its record has the whole curve.
SUSTAINED = "sustained_clock"


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    where = programs.place(host, asked.pu_nodes or (), ())
    if asked.sustain is None:
        return probe_records(where, say)
    return probe_records([*where, f"--sustain={asked.sustain:g}"], say, small=())


def probe_records(
    options: Sequence[str], say: probe.Say, *, small: Sequence[str] | None = None
) -> Iterator[list[Record]]:
    """Yield the records of a run of the probe; *small* as of :func:`run`."""
    for records in run(AspectRequest(CHECK), options, say, small=small):
        yield [programs.without_bank(record) for record in records]


def _label(record: Record, _cases: Cases) -> str | None:
    p = record.parameters
    of_pu = [f"pu{p['pu']}"] if "pu" in p else []
    return "_".join([record.metric, *(str(p[name]) for name in ("chain", "running") if name in p), *of_pu])


_TEST = ReframeTest(
    CHECK,
    lambda _: "the clock, caches and way to memory of every PU",
    # Every host can run three chains, on all PUs at once and on each alone. A single PU has no siblings.
    least_records=lambda cases: 15 if len(cases.host.allowed_pus) > 1 else 7,
    label=_label,
    repetitions=None,
    time_limit="10m",
    tags=frozenset({"quick"}),
)
BENCHMARK = Benchmark(
    _measure,
    frozenset({"pu_nodes", "sustain"}),
    repeats=lambda _: False,
    small=("--seconds=0.01", "--array-bytes=1MiB"),
    tests=(_TEST,),
)
