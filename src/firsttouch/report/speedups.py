# SPDX-License-Identifier: Apache-2.0
"""Runs of scenarios, and their speed-ups over the default run (thesis, section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from firsttouch.records.schema import Record
from firsttouch.report.gains import Interval
from firsttouch.report.model import whole
from firsttouch.report.text import clean, count
from firsttouch.scenarios.placement import name_of

#: The policy of the default run, without a request to the operating system.
DEFAULT_POLICY = "original"
METRIC = "alignment_time"


def pool_samples(records: Sequence[Record]) -> Record:
    """Return the latest of *records* of one run (of both checks, any batch size) with the samples of all."""
    latest = max(records, key=lambda r: r.time)
    return replace(latest, samples=tuple(s for r in records for s in r.samples))


def scenario(record: Record) -> str:
    """Return the scenario's name, such as ``2x32-bound``."""
    p = record.parameters
    name = p.get("scenario") or name_of(whole(record, "instances"), whole(record, "threads"), str(p["policy"]))
    return clean(str(name))


def shape(record: Record) -> str:
    """Return instances and threads as in the thesis: ``2 x 32 threads``."""
    threads = whole(record, "threads")
    instances = whole(record, "instances")
    return count(threads, "thread") if instances == 1 else f"{instances} x {count(threads, 'thread')}"


def policy_rank(policy: str) -> tuple[bool, str]:
    """Return a sort key: the default policy first, the others alphabetically."""
    return (policy != DEFAULT_POLICY, policy)


def repetitions(record: Record) -> Interval:
    """Return the median and the range of a record's repetitions."""
    return Interval(record.value, min(record.samples), max(record.samples))


def speedup(run: Record, baseline: Record) -> Interval | None:
    """Return how many times faster *run* is than *baseline*; None if a time is not positive."""
    times = repetitions(run), repetitions(baseline)
    return times[1].over(times[0]) if min(t.low for t in times) > 0 else None
