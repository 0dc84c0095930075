# SPDX-License-Identifier: Apache-2.0
"""Contention: what each thread gets of a bank, and all of them together, over the number of threads."""

from __future__ import annotations

from firsttouch.records import Record
from firsttouch.report.hosts import HostView, varying, whole
from firsttouch.report.text import case

EACH = "thread_bandwidth"
TOTAL = "total_bandwidth"
#: Parameters that follow from the number of threads, so do not tell two series apart.
_FOLLOWING = ("threads", "array_bytes", "pus", "pu_nodes")


def series(view: HostView, metric: str) -> dict[str, dict[int, Record]]:
    """Return the valid records of *metric* by what tells the series apart, then by threads, ascending."""
    records = view.of("contention", metric=metric)
    names = varying(records, ignore=_FOLLOWING)
    found: dict[str, dict[int, Record]] = {}
    for record in sorted(records, key=lambda r: whole(r, "threads")):
        key = case({n: record.parameters.get(n) for n in names})
        found.setdefault(key, {})[whole(record, "threads")] = record
    return dict(sorted(found.items()))
