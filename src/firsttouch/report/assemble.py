# SPDX-License-Identifier: Apache-2.0
"""Builds a report: the last stage, from records to pages."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import firsttouch
from firsttouch import topology
from firsttouch.errors import BadInput
from firsttouch.records import Record, write_table
from firsttouch.report import document, guidelines, hosts, junit, openmetrics, tables
from firsttouch.report.headlines import Summary, headlines
from firsttouch.report.hosts import HostView
from firsttouch.report.model import Absent, Figure, Problem, References
from firsttouch.report.verdicts import verdict_table
from firsttouch.verdict import HostVerdict

#: What a report consists of; topology.xml only where the topology was given.
FILES = frozenset(
    {
        "index.html",
        "summary.md",
        "summary.json",
        "metrics.prom",
        "junit.xml",
        "records.parquet",
        "topology.xml",
    }
)


def build(
    records: Sequence[Record],
    out: Path,
    *,
    topology_xml: str | None = None,
    problems: Sequence[Problem] = (),
    title: str = "NUMA report",
    references: References | None = None,
    verdicts: Sequence[HostVerdict] = (),
    advice: Sequence[Mapping[str, Any]] = (),
    drawn: Collection[str] | None = None,
    generated: datetime.datetime | None = None,
) -> Summary:
    """Write the report of *records* into the existing folder *out*; return its summary.

    *topology_xml* is hwloc's XML of the host, *verdicts* are shown first, then *problems*; *references* finds a
    record's reference; *advice* is what :func:`firsttouch.guideline.stored.find` found. *drawn* are the hosts that
    are shown one by one (default: all); guidelines rest on the records of all hosts. *generated* is the time
    that the pages state (default: now): with the same arguments, the files are the same, byte for byte. Raises
    BadInput where there is neither a record, a problem nor an advice to report, or the XML is not a topology.
    """
    if not records and not problems and not advice:
        raise BadInput("there is no record to report: give files or folders with the records of a run")
    known = topology.parse_xml(topology_xml) if topology_xml is not None else None
    every = hosts.split(records, problems, known)
    views = [view for view in every if drawn is None or view.host in drawn]
    # Problems of no host and of every host are in several views.
    listed = tuple(dict.fromkeys((*problems, *(p for view in views for p in view.problems))))
    made = generated or datetime.datetime.now(datetime.UTC)
    stated = made.isoformat(timespec="seconds")
    lines = tuple((view, headlines(view)) for view in views)
    guided = guidelines.guidelines(every, advice)
    summary = Summary(
        hosts=lines,
        problems=listed,
        invalid=sum(len(view.invalid) for view in views),
        document=document.make(lines, listed, references, verdicts, guided, title=title, generated=stated),
    )
    facts = {
        **_facts(summary, references, title=title, generated=stated),
        "verdicts": verdict_table(verdicts),
        "guidelines": guided,
    }
    _write(out, facts, summary.document)
    metrics = openmetrics.text(views, verdicts, version=firsttouch.__version__, generated=made.timestamp())
    (out / "metrics.prom").write_text(metrics, encoding="utf-8")
    tests = junit.text(views, verdicts, listed, title=title, generated=stated)
    (out / "junit.xml").write_text(tests, encoding="utf-8")
    write_table(records, out / "records.parquet")
    if topology_xml is not None:
        (out / "topology.xml").write_text(topology_xml, encoding="utf-8")
    return summary


def _write(out: Path, facts: dict[str, Any], machine: dict[str, Any]) -> None:
    from firsttouch.report import pages  # noqa: PLC0415 - templates and plots are needed from here on only

    sections = [_section(view) for view, _ in facts["hosts"]]
    text = json.dumps(machine, indent=1, sort_keys=True, allow_nan=False) + "\n"
    (out / "summary.json").write_text(text, encoding="utf-8")
    (out / "summary.md").write_text(pages.ticket(facts), encoding="utf-8")
    missing = [
        (section["view"].host, group["id"], figure)
        for section in sections
        for group in section["groups"]
        for figure in group["absent"]
    ]
    page = pages.html({**facts, "sections": sections, "missing": missing})
    (out / "index.html").write_text(page, encoding="utf-8")


def _facts(summary: Summary, references: References | None, *, title: str, generated: str) -> dict[str, Any]:
    views = [view for view, _ in summary.hosts]
    return {
        "title": title,
        "generated": generated,
        "version": firsttouch.__version__,
        "hosts": summary.hosts,
        "problems": tables.problem_table(summary.problems),
        "all_problems": summary.problems,
        "invalid": tables.invalid_records(views),
        "references": {view.key: tables.references(view, references) for view in views},
    }


def _section(view: HostView) -> dict[str, Any]:
    """Return what the page shows of one host: groups of figures, and tables."""
    from firsttouch.report.plots import (  # noqa: PLC0415 - imports matplotlib
        bandwidth,
        contention,
        latency,
        placement,
        scaling,
        summary,
        throughput,
    )
    from firsttouch.report.plots import topology as drawing  # noqa: PLC0415 - imports matplotlib

    groups: list[tuple[str, str, list[Figure | Absent]]] = [
        ("latency", "Latency", latency.figures(view)),
        ("bandwidth", "Bandwidth", bandwidth.figures(view)),
        ("contention", "Contention", contention.figures(view)),
        ("scaling", "Threads and memory policies", [*scaling.figures(view), *throughput.figures(view)]),
        ("placement", "Scenarios", [*placement.figures(view), *summary.figures(view)]),
    ]
    topological = (
        [tables.numa_nodes(view.topology), tables.caches(view.topology), tables.distances(view.topology)]
        if view.topology
        else []
    )
    return {
        "view": view,
        "groups": [
            {
                "id": f"{view.key}-{name}-section",
                "heading": heading,
                "figures": [f for f in found if isinstance(f, Figure)],
                "absent": [f for f in found if isinstance(f, Absent)],
            }
            for name, heading, found in groups
        ],
        "facts": tables.topology_facts(view),
        "no_topology": view.why_absent("topology"),
        "drawing": drawing.figures(view),
        "topology": [table for table in topological if table is not None],
        "others": tables.others(view),
        "placements": tables.placements(view),
        "software": tables.software(view),
    }
