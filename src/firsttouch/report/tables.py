# SPDX-License-Identifier: Apache-2.0
"""The tables of a report: the numbers of the figures, and the values that no figure shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from msgspec.structs import replace

from firsttouch.records.cases import Case, by_key, identifiers, with_distinct_names
from firsttouch.records.catalogue import Check, checks
from firsttouch.records.schema import Record
from firsttouch.report.aspect import value_table
from firsttouch.report.document import Cell, Entry, Table
from firsttouch.report.model import HostView, Problem, References, common
from firsttouch.report.text import case, clean, count
from firsttouch.units import number, percent

_NO_PLACEMENT: Mapping[str, Any] = {}


def software(view: HostView) -> Table | None:
    """Return the programs and their versions, a row for each version."""
    uses = {(str(n), str(v), r.check) for r in (*view.valid, *view.invalid) for n, v in r.software.items()}
    users = by_key(sorted(uses), lambda use: use[:2])
    rows = [
        (name, version, ", ".join(check for *_, check in its_uses)) for (name, version), its_uses in users.items()
    ]
    return Table("Software", ("program", "version", "used by"), rows) if rows else None


def configuration(view: HostView) -> Table | None:
    """Return the settings of the host."""
    rows = [(name, clean(value)) for name, value in sorted(view.settings.items())]
    return Table("Configuration", ("setting", "value"), rows) if rows else None


def placements(view: HostView) -> Table | None:
    """Return the requested and the reported placement of each instance."""
    # The records of one run (sizes, kernels, events) have the same placement and share a row.
    instances = [
        (record, (instance, case(requested), _actual(actual) if actual else "not read back", record.status))
        for record in (*view.valid, *view.invalid)
        for instance, (requested, actual) in enumerate(
            zip_longest(record.placement_asked, record.placement_found, fillvalue=_NO_PLACEMENT)
        )
    ]
    rows: list[tuple[Entry, ...]] = [
        (check, case(common([record for record, _ in placed])), len(placed), *placement)
        for (check, placement), placed in by_key(instances, lambda item: (item[0].check, item[1])).items()
    ]
    header = ("check", "case", "records", "instance", "requested", "found", "status")
    return Table("Placement requested and found", header, rows) if rows else None


def _actual(placement: Mapping[str, Any]) -> str:
    pages = placement.get("pages")
    if not isinstance(pages, Mapping) or not pages:
        return case(placement)
    counts = {node: p for node, p in pages.items() if isinstance(p, (int, float))}
    total = sum(counts.values()) or 1
    shares = ", ".join(f"{percent(p / total)} on {node}" for node, p in counts.items())
    rest = case({k: v for k, v in placement.items() if k != "pages"})
    return f"{rest}; {number(total)} pages: {shares}"


def others(view: HostView) -> Table | None:
    """Return the valid records that no figure shows: counters, and checks without a figure."""
    rows = [
        ((r.check, r.metric, case(identifiers(r.check, r.parameters)), r.unit), r)
        for r in view.valid
        if not checks().get(r.check, Check({}, ())).draws(r.metric)
    ]
    return value_table("Counters and other metrics", ("check", "metric", "case", "unit"), rows) if rows else None


def references(view: HostView, find: References | None) -> Table | None:
    """Return the metrics that have a reference, with its source."""
    rows: list[tuple[Entry, ...]] = []
    for record, titled in zip(view.valid, with_distinct_names([*map(Case.from_record, view.valid)]), strict=True):
        if find and (reference := find(record)):
            values = (record.value, reference.value, reference.minimum, reference.maximum)
            rows.append((titled.title, record.unit, *(Cell(value, number) for value in values), reference.source))
    header = ("metric", "unit", "newest record", "reference", "from", "to", "source")
    return Table("References", header, rows) if rows else None


def problem_table(problems: Sequence[Problem]) -> Table | None:
    """Return the checks that failed, are invalid or were skipped, in this order."""
    order = {"failed": 0, "invalid": 1, "skipped": 2}
    rows = [
        (p.kind, p.host, p.name, p.reason)
        for p in sorted(problems, key=lambda p: (order[p.kind], p.host, p.name, p.reason))
    ]
    caption = f"{count(len(rows), 'check')} without a result"
    return Table(caption, ("what", "host", "check", "reason"), rows, kind="stack") if rows else None


def invalid_records(views: Sequence[HostView]) -> list[tuple[str, str, str]]:
    """Return (host, case, reason) of the invalid records, without their samples."""

    def of_one_run(record: Record) -> tuple[str, ...]:
        # All sizes of a latency curve belong to one run.
        parameters = {k: v for k, v in identifiers(record.check, record.parameters).items() if k != "size_bytes"}
        return record.host, record.check, record.metric, case(parameters), record.reason

    runs = by_key((record for view in views for record in view.invalid), of_one_run)
    cases = with_distinct_names(
        [replace(Case.from_record(r[0]), system="", parameters=common(r)) for r in runs.values()]
    )
    return [
        (
            key[0],
            titled.title + (f" ({len(run)} records)" if len(run) > 1 else ""),
            key[-1] or "no reason was recorded",
        )
        for (key, run), titled in zip(runs.items(), cases, strict=True)
    ]
