# SPDX-License-Identifier: Apache-2.0
"""Efforts: how many cases a characterization measures, and how often. efforts.toml defines them."""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any, Literal, TypeVar

from msgspec import Struct, convert
from msgspec.structs import replace

from firsttouch.errors import BadInput, did_you_mean
from firsttouch.execution import INDEX_STATES, INTERLEAVE
from firsttouch.host.topology import Topology

T = TypeVar("T")
Extent = Literal["all", "ends"]
#: The default effort, which records do not name.
FULL = "full"
VARIABLE = "FIRSTTOUCH_EFFORT"
#: Environment variable: the aligners to run (comma-separated, or "all") instead of the effort's.
ALIGNERS_VARIABLE = "FIRSTTOUCH_MEASURED_ALIGNERS"
ALL = "all"
#: Environment variable: the state of the index cache before each timed run of an aligner.
CACHE_VARIABLE = "FIRSTTOUCH_INDEX_CACHE"


class Effort(Struct, frozen=True):
    """Which cases are measured, and how often.

    *repetitions* limits the repetitions of each case. *pu_nodes*, *banks*, *pu_sets*, *threads* and *instances*
    are "all" (as in the methodology) or the "ends": the NUMA nodes with the lowest and the highest number, the
    nearest and the farthest bank of a PU-set, the PU-sets of one NUMA node and of all, the fewest and the most
    threads and instances. *weak_scaling*: measure throughput with a fixed number of reads per thread, too.
    *read_shares* belong to loaded latency. *pairs* of PUs are measured core to core at most. *lock_work* is the
    work with each record that threads take under a lock, in the probe's form; *lock_batches* are the records of
    a batch, and *lock_seconds* is the time of a repetition. *correctness_seconds* is the time of each kind of work
    with known answers. *aligners*: None means all.
    """

    name: str
    title: str
    repetitions: int
    pu_nodes: Extent
    banks: Extent
    pu_sets: Extent
    threads: Extent
    instances: Extent
    kernels: tuple[str, ...]
    read_shares: tuple[float, ...]
    point_microseconds: int
    pairs: int
    weak_scaling: bool
    lock_work: tuple[str, ...]
    lock_batches: tuple[int, ...]
    lock_seconds: float
    correctness_seconds: float
    aligners: tuple[str, ...] | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters that a record gets from the effort: none from the full one."""
        return {} if self.name == FULL else {"effort": self.name}

    def limit(self, repetitions: int) -> int:
        """Return how many of the requested repetitions are made."""
        return min(repetitions, self.repetitions)

    def banks_of(self, host: Topology, nodes: Sequence[int], banks: Sequence[int]) -> list[int]:
        """Return the banks among *banks* that the PU-set of *nodes* is measured with."""
        if self.banks == "all":
            return list(banks)
        far = sorted(banks, key=lambda bank: (sum(host.distance(node, bank) for node in nodes), bank))
        return sorted({far[0], far[-1]})

    def with_aligners(self, names: Sequence[str]) -> Effort:
        """Return the effort with the aligners *names* ("all", or none for the effort's own); raises BadInput."""
        if not names:
            return self
        from firsttouch.genomics.aligners import aligner  # noqa: PLC0415 - measuring memory needs none

        chosen_names = [n for n in names if n == ALL or aligner(n)]
        return replace(self, aligners=None if ALL in chosen_names else tuple(dict.fromkeys(chosen_names)))

    def some(self, extent: Extent, ordered: Iterable[T]) -> list[T]:
        """Return all of *ordered*, or the first and the last."""
        values = list(ordered)
        return values if extent == "all" or len(values) < 3 else [values[0], values[-1]]


@functools.cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "efforts.toml").read_text(encoding="utf-8"))


def default(what: Literal["dataset", "aligner"]) -> str:
    """Return the default dataset of aligners, or the default aligner of a characterization."""
    return str(_tables()["defaults"][what])


def index_cache() -> str:
    """Return the state of the index cache before each timed run of checks and campaigns.

    The default favours no scenario and does not depend on which run comes first. Raises BadInput for an unknown
    state in FIRSTTOUCH_INDEX_CACHE.
    """
    state = os.environ.get(CACHE_VARIABLE) or INTERLEAVE
    if state not in INDEX_STATES:
        raise BadInput(
            f"{CACHE_VARIABLE} is '{state}': there are {', '.join(INDEX_STATES)}"
            f"{did_you_mean(state, INDEX_STATES)}"
        )
    return state


@functools.cache
def efforts() -> dict[str, Effort]:
    """Return all efforts by name."""
    tables = {name: {**table, "name": name} for name, table in _tables().items() if name != "defaults"}
    return convert(tables, dict[str, Effort])


def chosen_effort(name: str = "") -> Effort:
    """Return the effort *name*, by default the one of FIRSTTOUCH_EFFORT (else full), with its aligners.

    FIRSTTOUCH_MEASURED_ALIGNERS replaces these. Raises BadInput for an unknown name.
    """
    source = "the effort" if name else VARIABLE
    name = name or os.environ.get(VARIABLE) or FULL
    if name not in efforts():
        raise BadInput(f"{source} is '{name}': there are {', '.join(efforts())}{did_you_mean(name, efforts())}")
    text = os.environ.get(ALIGNERS_VARIABLE, "")
    try:
        return efforts()[name].with_aligners([part.strip() for part in text.split(",") if part.strip()])
    except BadInput as error:
        raise BadInput(f"{ALIGNERS_VARIABLE} is '{text}': {error}") from error
