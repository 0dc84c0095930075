# SPDX-License-Identifier: Apache-2.0
"""Locks: the probe's measurements of a run.

Threads take records from one reader under a lock. With batches, each critical section moves several records. The
locks and parsing methods follow Langmead et al. (Scaling read aligners to hundreds of threads on general-purpose
processors, 2018, sections 2.1 and 2.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firsttouch.benchmarks import probe, profiles, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.drawn_order import shuffle
from firsttouch.benchmarks.measure import LEAST, AspectRequest, Benchmark, ReframeTest, run
from firsttouch.benchmarks.profiles import Effort
from firsttouch.errors import BadInput
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record

CHECK = "locks"
#: The batch size for the comparison of numbers of threads.
COMMON = 32


def thread_counts(most: int) -> list[int]:
    """Return 1, 2, 4, ... and *most* threads."""
    return sorted({2**i for i in range(most.bit_length())} | {most})


def runs(threads: Sequence[int], effort: Effort) -> Iterator[list[str]]:
    """Yield the options of each run of the probe for ascending *threads*; only the last has all batch sizes."""
    common = [f"--work={','.join(effort.lock_work)}", f"--seconds={effort.lock_seconds:g}"]
    *fewer, most = threads
    if fewer:
        yield [f"--threads={format_list(fewer)}", f"--batch={COMMON}", *common]
    batches = sorted({*effort.lock_batches, COMMON})
    yield [f"--threads={most}", f"--batch={','.join(map(str, batches))}", *common]


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Measure all locks and parsing methods by number of threads, and batch sizes with the most threads."""
    effort = profiles.chosen_effort()
    nodes = tuple(asked.pu_nodes or host.cpu_nodes)
    pus = len(programs.pus_of(host, nodes))
    where = programs.place(host, nodes, asked.banks or ())
    threads = sorted(asked.threads or effort.some(effort.threads, thread_counts(pus)))
    if wrong := [number for number in threads if not 1 <= number <= pus]:
        raise BadInput(
            f"{wrong[-1]} threads: NUMA nodes {format_list(nodes)} have 1 to {pus} PUs for this process"
        )
    for options in shuffle(runs(threads, effort)):
        # Precision is limited because a large host has hundreds of cases.
        yield from run(asked, [*where, *options], say, most=LEAST)


#: Cases without a batch: four locks with original, deferred and blocked parsing, and fetch-and-add with blocks.
_CASES = 13
#: The locks that are measured with several batch sizes.
_LOCKS = 4


def _label(record: Record, cases: Cases) -> str | None:
    """Name the rates with all PUs. Other rates are in the records only."""
    p = record.parameters
    if record.metric == "lock_records" and p["threads"] == len(cases.host.allowed_pus):
        return f"records_{p['lock']}_{p['parsing']}_work{p['work_ns']:g}ns_batch{p['batch']}"
    return None


_TEST = ReframeTest(
    "locks",
    lambda _: "records per second from one reader under a lock",
    least_records=lambda cases: len(cases.effort.lock_work) * (_CASES + _LOCKS * len(cases.effort.lock_batches)),
    label=_label,
)
BENCHMARK = Benchmark(
    _measure,
    frozenset({"pu_nodes", "banks", "threads"}),
    validates=False,
    # Spinning threads stop the others there.
    small=("--array-bytes=1MiB", "--seconds=0.01", "--locks=mutex,atomic"),
    tests=(_TEST,),
)
