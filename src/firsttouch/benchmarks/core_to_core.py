# SPDX-License-Identifier: Apache-2.0
"""Core-to-core latency: pairs of PUs, and the medians over pairs with the same closeness."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from firsttouch.benchmarks import probe, profiles, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.measure import AspectRequest, Benchmark, ReframeTest, run
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record

#: The parameter ``line`` of values whose cache line is on the bank nearest to one of the two PUs.
NEAR = "near"


def summary(matrix: Sequence[Record], host: Topology) -> Iterator[Record]:
    """Yield the records that summarize a *matrix*, the records of its pairs.

    ``transfer_latency`` (ns) of each closeness is the median over its pairs in each repetition.
    """
    valid = [r for r in matrix if r.status == "valid"]
    kinds: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in valid:
        p = record.parameters
        kinds[p["shared"], p.get("cache_level", 0), _line(record, host)].append(record)
    for (_, _, line), records in kinds.items():
        yield _transfer(records, line)


def _line(record: Record, host: Topology) -> str:
    """Return NEAR if the line is on the bank nearest to one of the two PUs, else "far"."""
    bank, nodes = record.parameters["bank"], record.parameters["pu_nodes"]
    return NEAR if bank in {programs.nearest(host, (node,)) for node in nodes} else "far"


def _transfer(records: Sequence[Record], line: str) -> Record:
    first = records[0]
    repetitions = min(len(r.samples) for r in records)
    samples = tuple(statistics.median(r.samples[k] for r in records) for k in range(repetitions))
    names = ("program", "policy", "shared", "cache_level", "pairs", "pairs_of", "effort")
    parameters = {name: first.parameters[name] for name in names if name in first.parameters}
    return replace(
        first,
        metric="transfer_latency",
        samples=samples,
        parameters={**parameters, "line": line},
        placement_asked=(),
        placement_found=(),
    )


def describe(record: Record) -> str:
    """Return the line of progress of a record of :func:`summary`."""
    p = record.parameters
    what = f"L{p['cache_level']} cache" if p["shared"] == "cache" else p["shared"]
    coverage = f"{p['pairs']} of {p['pairs_of']} pairs"
    return f"transfer between PUs that share the {what}: {record.value:.1f} ns ({coverage})"


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Measure pairs of PUs, with the cache line on the given banks, or else on the one nearest to the first PU."""
    nodes = tuple(asked.pu_nodes or host.cpu_nodes)
    options = [f"--pairs={profiles.chosen_effort().pairs}"]
    options += programs.place(host, nodes, asked.banks or ())
    matrix: list[Record] = []
    for records in run(asked, options, say):
        matrix.extend(records)
        yield records
    figures = list(summary(matrix, host))
    for record in figures:
        say(describe(record))
    yield figures


def _steps(cases: Cases) -> list[list[str]]:
    return [[]] if len(cases.host.allowed_pus) > 1 else []


def _label(record: Record, _cases: Cases) -> str | None:
    """Name a variable per kind of closeness. The pairs are in the records only."""
    p = record.parameters
    if record.metric != "transfer_latency":
        return None
    return f"transfer_{p['shared']}{p.get('cache_level', '')}"


_TEST = ReframeTest(
    "core_to_core",
    lambda _: "latency between pairs of PUs",
    least_records=lambda _: 2,  # one pair, and the figure of its kind
    label=_label,
    refused=lambda cases: "" if _steps(cases) else "a single PU has no other PU to exchange a cache line with",
)
BENCHMARK = Benchmark(
    _measure,
    frozenset({"pu_nodes", "banks"}),
    steps=_steps,
    small=("--pairs=8",),  # an emulator may run all PUs in one thread
    tests=(_TEST,),
)
