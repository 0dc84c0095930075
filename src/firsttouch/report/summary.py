# SPDX-License-Identifier: Apache-2.0
"""summary.json: the whole report as one document for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import firsttouch
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records.schema import Record
from firsttouch.report import render, speedups
from firsttouch.report.aspect import Result
from firsttouch.report.aspects import topology
from firsttouch.report.guidelines import Guideline
from firsttouch.report.model import HostView, Problem, References
from firsttouch.report.site_tables import SiteTable
from firsttouch.report.speedups import Study
from firsttouch.systems.references import Reference

#: Identifies the document as a report. Raise SCHEMA when a key changes its meaning.
DOCUMENT = "firsttouch report"
SCHEMA = 1


def document(**body: Any) -> dict[str, Any]:
    """Return the document with this *body*."""
    return {"document": DOCUMENT, "schema": SCHEMA, "firsttouch": firsttouch.__version__, **body}


def of_hosts(
    hosts: Sequence[tuple[HostView, tuple[Result, ...]]],
    problems: Sequence[Problem],
    references: References | None,
    verdicts: Sequence[HostVerdict] = (),
    guidelines: Sequence[Guideline] = (),
    *,
    of_site: Sequence[SiteTable] = (),
    title: str,
    generated: str,
) -> dict[str, Any]:
    """Return the document of a few hosts.

    The value and spread of an invalid record are null; only records.parquet has its samples. *spread* is the
    fraction (maximum - minimum) / median.
    """
    return document(
        title=title,
        generated=generated,
        records={
            "valid": sum(len(view.valid) for view, _ in hosts),
            "invalid": sum(len(view.invalid) for view, _ in hosts),
            "superseded": sum(view.superseded for view, _ in hosts),
        },
        problems=[asdict(p) for p in problems],
        verdicts=[v.to_dict() for v in verdicts],
        guidelines=[g.to_dict() for g in guidelines],
        site_tables=[table.to_dict() for table in of_site],
        hosts=[_host(view, lines, references) for view, lines in hosts],
    )


def _host(view: HostView, lines: Sequence[Result], references: References | None) -> dict[str, Any]:
    records = (*view.valid, *view.invalid)
    checks: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        checks.setdefault(record.check, []).append(_metric(view, record, references))
    return {
        "host": view.host,
        "system": view.system,
        "partition": view.partition,
        "first_time": min((r.time for r in records), default=None),
        "last_time": max((r.time for r in records), default=None),
        "topology": view.topology.to_dict() if view.topology else None,
        "headlines": [render.to_dict(line) for line in lines],
        "scenarios": [_study(study) for study in speedups.studies(view)],
        "checks": dict(sorted(checks.items())),
    }


def _metric(view: HostView, record: Record, references: References | None) -> dict[str, Any]:
    valid = record.status == "valid"
    reference = references(record) if references and valid else None
    stated = record.check == "bandwidth" or (record.check == "loaded_latency" and record.unit == "GB/s")
    share = topology.fraction(view, record) if valid and stated else None
    return {
        "metric": record.metric,
        "parameters": dict(record.parameters),
        "unit": record.unit,
        "better": record.better,
        "status": record.status,
        "reason": record.reason,
        "value": record.value if valid else None,
        "minimum": min(record.samples) if valid else None,
        "maximum": max(record.samples) if valid else None,
        "spread": record.spread if valid else None,
        "repetitions": record.repetitions,
        "theoretical_percent": None if share is None else 100 * share,
        "time": record.time,
        "software": dict(record.software),
        "reference": reference and _reference(reference),
    }


def _reference(reference: Reference) -> dict[str, Any]:
    """Return the JSON form of a reference, with its limits in the unit of the record."""
    limits = {"lower": reference.minimum, "upper": reference.maximum}
    return {"value": reference.value, **limits, "source": reference.source}


def _study(study: Study) -> dict[str, Any]:
    default, best = study.default, study.best
    gain = speedups.speedup(best, default) if best and default else None
    return {
        "aligner": study.aligner,
        "dataset": study.dataset,
        "reads": study.reads,
        "default": _run(default),
        "best": _run(best),
        "speedup": gain.to_dict() if gain else None,
    }


def _run(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "scenario": speedups.scenario(record),
        "instances": record.parameters["instances"],
        "threads": record.parameters["threads"],
        "policy": record.parameters["policy"],
        "value": record.value,
        "unit": record.unit,
    }
