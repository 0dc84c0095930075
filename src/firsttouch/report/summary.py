# SPDX-License-Identifier: Apache-2.0
"""summary.json: the whole report as one document for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import firsttouch
from firsttouch.documents import attributes
from firsttouch.records.cases import by_key
from firsttouch.records.schema import Record
from firsttouch.report import render
from firsttouch.report.aspect import Result
from firsttouch.report.aspects import topology
from firsttouch.report.model import HostView, References

#: Identifies the document as a report. Increment SCHEMA when a key changes its meaning.
DOCUMENT = "firsttouch report"
SCHEMA = 1


def document(**body: Any) -> dict[str, Any]:
    """Return the document with this *body*."""
    return {"document": DOCUMENT, "schema": SCHEMA, "firsttouch": firsttouch.__version__, **body}


def host(view: HostView, lines: Sequence[Result], references: References | None) -> dict[str, Any]:
    """Return the entry of a host in a report of few hosts, with its records by check.

    The value and spread of an invalid record are null; only records.parquet has its samples. *spread* is the
    fraction (maximum - minimum) / median.
    """
    records = (*view.valid, *view.invalid)
    return {
        "host": view.host,
        "system": view.system,
        "partition": view.partition,
        "first_time": min((r.time for r in records), default=None),
        "last_time": max((r.time for r in records), default=None),
        "topology": view.topology.to_dict() if view.topology else None,
        "headlines": [render.to_dict(line) for line in lines],
        "checks": {
            check: [_metric(view, record, references) for record in of_check]
            for check, of_check in by_key(records, lambda r: r.check).items()
        },
    }


def _metric(view: HostView, record: Record, references: References | None) -> dict[str, Any]:
    valid = record.status == "valid"
    reference = references(record) if references and valid else None
    stated = record.check == "bandwidth" or (record.check == "loaded_latency" and record.unit == "GB/s")
    share = topology.fraction(view, record) if valid and stated else None
    measured = {"value": record.value, "minimum": min(record.samples), "maximum": max(record.samples)}
    return {
        **attributes(record, "metric", "parameters", "unit", "better", "status", "reason", "repetitions"),
        **attributes(record, "time", "software"),
        **{name: x if valid else None for name, x in {**measured, "spread": record.spread}.items()},
        "theoretical_percent": None if share is None else 100 * share,
        "reference": reference
        and {
            **attributes(reference, "value", "source"),
            **{"lower": reference.minimum, "upper": reference.maximum},
        },
    }
