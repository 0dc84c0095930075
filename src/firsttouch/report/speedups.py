# SPDX-License-Identifier: Apache-2.0
"""Speed-ups of scenarios over the default run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.records.cases import by_key
from firsttouch.records.schema import Record
from firsttouch.report.gains import Interval
from firsttouch.report.model import HostView, dataset_of, whole
from firsttouch.report.text import clean, count, plain
from firsttouch.scenarios.placement import name_of

# ----------------------------------------------------------------------
# The scenarios of each aligner and dataset against the default run (thesis, section 5.3).

#: The policy of the default run, without a request to the operating system.
DEFAULT_POLICY = "original"
METRIC = "alignment_time"


class Study(Struct, frozen=True):
    """The valid runs of one aligner on one dataset: *single* with one instance, *several* with more.

    The *dataset* includes a requested state of the index cache, because other states are other cases.
    """

    aligner: str
    dataset: str
    reads: str
    single: tuple[Record, ...]
    several: tuple[Record, ...]

    @property
    def name(self) -> str:
        """The study in a heading."""
        return f"{self.aligner}, {self.dataset}" + (f", {self.reads} reads" if self.reads else "")

    @property
    def default(self) -> Record | None:
        """The default run: one instance with the default policy and the most threads."""
        runs = [r for r in self.single if r.parameters["policy"] == DEFAULT_POLICY]
        return max(runs, key=lambda r: whole(r, "threads"), default=None)

    @property
    def best(self) -> Record | None:
        """The fastest run of all, by median."""
        return min((*self.single, *self.several), key=lambda r: r.value, default=None)

    def compared(self) -> list[Record]:
        """Return the runs of a speed-up figure, fewest instances first.

        These are the best run, and for each number of instances and policy the run with the most threads.
        """
        widest: dict[tuple[int, str], Record] = {}
        for record in (*self.single, *self.several):
            key = (whole(record, "instances"), str(record.parameters["policy"]))
            if key not in widest or total_threads(record) > total_threads(widest[key]):
                widest[key] = record
        chosen = list(widest.values())
        if self.best is not None and self.best not in chosen:
            chosen.append(self.best)
        return sorted(chosen, key=lambda r: (whole(r, "instances"), policy_rank(r), -total_threads(r)))


def studies(view: HostView) -> list[Study]:
    """Return one study per aligner, dataset and number of reads, ascending."""

    def by_threads(record: Record) -> tuple[int, int, tuple[bool, str]]:
        return whole(record, "instances"), whole(record, "threads"), policy_rank(record)

    by_study = by_key(
        view.select("placement", "scaling", metric=METRIC),
        lambda r: (r.parameters["aligner"], dataset_of(r), plain(r.parameters.get("reads"))),
    )
    studies = []
    for key, records in sorted(by_study.items()):
        runs = sorted(map(pool_samples, by_key(records, by_threads).values()), key=by_threads)
        single, several = (
            tuple(r for r in runs if (whole(r, "instances") > 1) == is_several) for is_several in (False, True)
        )
        studies.append(Study(*key, single, several))
    return studies


def pool_samples(records: Sequence[Record]) -> Record:
    """Return the latest of *records* of one run (of both checks, any batch size) with the samples of all."""
    latest = max(records, key=lambda r: r.time)
    return replace(latest, samples=tuple(s for r in records for s in r.samples))


def scenario(record: Record) -> str:
    """Return the scenario's name, such as ``2x32-bound``."""
    p = record.parameters
    name = p.get("scenario") or name_of(whole(record, "instances"), whole(record, "threads"), str(p["policy"]))
    return clean(str(name))


def total_threads(record: Record) -> int:
    """Return the threads of all instances together."""
    return whole(record, "instances") * whole(record, "threads")


def shape(record: Record) -> str:
    """Return instances and threads as in the thesis: ``2 x 32 threads``."""
    threads = whole(record, "threads")
    instances = whole(record, "instances")
    return count(threads, "thread") if instances == 1 else f"{instances} x {count(threads, 'thread')}"


def policy_rank(record: Record) -> tuple[bool, str]:
    """Return a sort key: the default policy first, the others alphabetically."""
    policy = str(record.parameters["policy"])
    return (policy != DEFAULT_POLICY, policy)


def policies(records: Iterable[Record]) -> list[str]:
    """Return the policies of *records*, the default one first."""
    return [policy for _, policy in sorted({policy_rank(r) for r in records})]


def repetitions(record: Record) -> Interval:
    """Return the median and the range of a record's repetitions."""
    return Interval(record.value, min(record.samples), max(record.samples))


def speedup(run: Record, baseline: Record) -> Interval | None:
    """Return how many times faster *run* is than *baseline*; None if a time is not positive."""
    times = repetitions(run), repetitions(baseline)
    return times[1].over(times[0]) if min(t.low for t in times) > 0 else None
