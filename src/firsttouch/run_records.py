# SPDX-License-Identifier: Apache-2.0
"""The records of a scenario that was run: its time, and what was counted meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firsttouch.launch import Result, Work
from firsttouch.placement import Scenario
from firsttouch.records import Record, software


def records(
    work: Work,
    scenario: Scenario,
    results: Sequence[Result],
    *,
    dataset: str,
    least_mapped: float = 0.0,
    wanted: str | None = None,
) -> list[Record]:
    """Return the record of the repetitions' times (s), and one of each event that was counted in all of them.

    The run is invalid where a placement did not hold, less than *least_mapped* of the reads map, or alignments
    differ: between repetitions, or from the checksum *wanted*.
    """
    record = _times(work, scenario, results, dataset, _reason(results, least_mapped, wanted))
    if work.per_thread:
        return [_throughput(work, record, results)]
    if not work.counted:
        return [record]
    # A counted run takes longer than the scenario does: its time stays out of the scenarios' times.
    record = replace(record, check="counters")
    return [record, *_counts(record, results)]


def _reason(results: Sequence[Result], least_mapped: float, wanted: str | None) -> str:
    """Return why the run is invalid, or an empty string."""
    misplaced = next(filter(None, (r.misplaced for r in results)), "")
    sums = {r.alignments.sums.common for r in results if r.alignments.sums} | ({wanted} if wanted else set())
    if len(sums) > 1:
        return "the alignments differ from those of the reference run or between repetitions"
    fraction = results[-1].alignments.mapped_fraction
    if fraction < least_mapped:
        return (
            f"{fraction:.1%} of the reads map, at least {least_mapped:.1%} must: another genome's index or reads?"
        )
    return misplaced


def _times(work: Work, scenario: Scenario, results: Sequence[Result], dataset: str, reason: str) -> Record:
    last = results[-1]
    sums = last.alignments.sums
    return Record(
        check="scaling" if scenario.instances == 1 else "placement",
        metric="alignment_time",
        unit="s",
        better="lower",
        samples=tuple(r.seconds for r in results),
        parameters={
            "aligner": work.aligner.name,
            "dataset": dataset,
            "scenario": scenario.name,
            "instances": scenario.instances,
            "threads": scenario.threads,
            "policy": scenario.policy,
            "division": "dynamic" if work.dynamic else "static",
            "reads": last.alignments.primary,
            "mapped_fraction": last.alignments.mapped_fraction,
            "index_bytes": work.aligner.index_bytes(work.index),
            "batch_bases": work.reads.batch_bases,
            **({"alignments_sha256": sums.exact, "common_sha256": sums.common} if sums else {}),
            "cpu_seconds": last.cpu_seconds,
            "peak_bytes": last.peak_bytes,
            "instance_cpu_seconds": [o.cpu_seconds for o in last.outcomes],
            "instance_peak_bytes": [o.peak_bytes for o in last.outcomes],
        },
        placement_asked=[p.to_dict() for p in scenario.placements],
        placement_found=[o.found.to_dict() for o in last.outcomes],
        status="invalid" if reason else "valid",
        reason=reason,
        software=software(**{work.aligner.name: work.aligner.version()}),
    )


def _throughput(work: Work, record: Record, results: Sequence[Result]) -> Record:
    """Return the record of thousands of reads per second, each mate counted, from when the indexes were loaded."""
    seconds = {"seconds": [r.seconds for r in results], "aligning_seconds": [r.aligning for r in results]}
    return replace(
        record,
        check="weak_scaling",
        metric="throughput",
        unit="kreads/s",
        better="higher",
        samples=tuple(r.alignments.primary / 1000 / r.aligning for r in results),
        parameters={**record.parameters, "reads_per_thread": work.per_thread, "division": "repeated", **seconds},
    )


def _counts(record: Record, results: Sequence[Result]) -> list[Record]:
    events = [e for e in results[0].counts if all(e in r.counts for r in results)]
    return [
        replace(
            record,
            metric=event.lower().replace("-", "_"),
            unit="1",
            better="neither",
            samples=tuple(float(r.counts[event]) for r in results),
        )
        for event in events
    ]
