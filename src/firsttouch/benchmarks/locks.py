# SPDX-License-Identifier: Apache-2.0
"""Locks: what the probe measures in each run, and the batch size that a host needs.

Threads take records from one reader under a lock. A batch moves several records in one critical section, so the
lock is taken less often. The locks and the ways to parse are those of Langmead et al. (Scaling read aligners to
hundreds of threads on general-purpose processors, 2018, sections 2.1 and 2.2).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from msgspec.structs import replace

from firsttouch.benchmarks import probe, profiles, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.measure import LEAST, AspectRequest, Benchmark, ReframeTest, run
from firsttouch.benchmarks.profiles import Effort
from firsttouch.errors import BadInput
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record

CHECK = "locks"
RECORDS, BATCH, WAITING = "lock_records", "lock_batch", "lock_waiting"
#: The batch with which numbers of threads are compared.
COMMON = 32
#: A batch is large enough if its rate is below that of larger ones by at most this share.
WITHIN = 0.05


def thread_counts(most: int) -> list[int]:
    """Return 1, 2, 4, ... and *most* threads."""
    return sorted({2**i for i in range(most.bit_length())} | {most})


def runs(threads: Sequence[int], effort: Effort) -> Iterator[list[str]]:
    """Yield the options of each run of the probe for ascending *threads*: all batch sizes only with the most."""
    common = [f"--work={','.join(effort.lock_work)}", f"--seconds={effort.lock_seconds:g}"]
    *fewer, most = threads
    if fewer:
        yield [f"--threads={format_list(fewer)}", f"--batch={COMMON}", *common]
    batches = sorted({*effort.lock_batches, COMMON})
    yield [f"--threads={most}", f"--batch={','.join(map(str, batches))}", *common]


def smallest_batch(rates: Mapping[int, Sequence[float]]) -> int:
    """Return the smallest batch whose rate is within 5 % of that of larger ones; *rates* are records/s by batch.

    Medians are compared. The best batch is not the measure: among many, one always has good luck.
    """
    batches = sorted(rates)
    for batch in batches[:-1]:
        larger = [rate for other in batches if other > batch for rate in rates[other]]
        if median(rates[batch]) >= (1 - WITHIN) * median(larger):
            return batch
    return batches[-1]


def batches_needed(records: Iterable[Record]) -> list[Record]:
    """Return a record of the smallest sufficient batch for each lock and work with the most threads.

    A curve with an invalid record, or with one batch only, has none.
    """
    curves: dict[str, list[Record]] = {}
    batched = [r for r in records if r.metric == RECORDS and r.parameters["parsing"] == "batched"]
    most = max((r.parameters["threads"] for r in batched), default=0)
    for record in batched:
        if record.parameters["threads"] == most:
            curve_of = {k: v for k, v in Case.of(record).parameters.items() if k != "batch"}
            curves.setdefault(json.dumps(curve_of, default=str), []).append(record)
    needed = []
    for curve in curves.values():
        rates = {r.parameters["batch"]: r.samples for r in curve}
        if len(rates) > 1 and all(r.status == "valid" for r in curve):
            parameters = {name: value for name, value in curve[0].parameters.items() if name != "batch"}
            sample = float(smallest_batch(rates))
            needed.append(
                replace(
                    curve[0], metric=BATCH, unit="1", better="neither", samples=(sample,), parameters=parameters
                )
            )
    return needed


def describe(record: Record) -> str:
    """Return the line of progress of a record of :func:`batches_needed`."""
    p = record.parameters
    return (
        f"lock {p['lock']}, {p['work_ns']:g} ns of work, {p['threads']} threads: "
        f"{record.value:.0f} records at once are within {WITHIN:.0%} of more at once"
    )


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Measure all locks and ways to parse, by numbers of threads, and by batch sizes with the most threads."""
    effort = profiles.chosen()
    nodes = tuple(asked.pu_nodes or host.cpu_nodes)
    pus = len(programs.pus_of(host, nodes))
    where = programs.place(host, nodes, asked.banks or ())
    threads = sorted(asked.threads or effort.some(effort.threads, thread_counts(pus)))
    if wrong := [number for number in threads if not 1 <= number <= pus]:
        raise BadInput(
            f"{wrong[-1]} threads: NUMA nodes {format_list(nodes)} have 1 to {pus} PUs for this process"
        )
    measured: list[Record] = []
    for options in runs(threads, effort):
        # Time matters more than precision: there are hundreds of cases on a large host.
        for records in run(asked, [*where, *options], say, most=LEAST):
            measured.extend(records)
            yield records
    needed = batches_needed(measured)
    for record in needed:
        say(describe(record))
    yield needed


#: Cases without a batch: four locks with original, deferred and blocked parsing, and fetch-and-add with blocks.
_CASES = 13
#: The locks whose batch sizes are compared.
_LOCKS = 4


def _label(record: Record, cases: Cases) -> str | None:
    """Name the rates with all PUs, and the batches. Other rates are in the records only."""
    p = record.parameters
    case = f"{p['lock']}_{p['parsing']}_work{p['work_ns']:g}ns"
    if record.metric == "lock_batch":
        return f"batch_{case}"
    if record.metric == "lock_records" and p["threads"] == len(cases.host.allowed_pus):
        return f"records_{case}_batch{p['batch']}"
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
    # Threads that spin stop the others there.
    small=("--array-bytes=1MiB", "--seconds=0.01", "--locks=mutex,atomic"),
    tests=(_TEST,),
)
