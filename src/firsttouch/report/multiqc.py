# SPDX-License-Identifier: Apache-2.0
"""Sections of a MultiQC report: ``*_mqc.json`` files, which MultiQC finds by their names (its custom content).

``firsttouch_hosts_mqc.json`` is a table of the hosts, ``firsttouch_scenarios_mqc.json`` a bar graph of the times
of aligners by scenario. Numbers are medians. A run of `firsttouch run` adds columns to the general statistics.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from firsttouch.judge.verdict import HostSummary
from firsttouch.records.schema import Record
from firsttouch.report import speedups
from firsttouch.report.aspects import bandwidth, latency
from firsttouch.report.model import HostView, titles
from firsttouch.report.text import clean

HOSTS, SCENARIOS = "firsttouch_hosts_mqc.json", "firsttouch_scenarios_mqc.json"
#: The most hosts in the table: MultiQC draws a larger one as a plot of its columns, without names.
_MOST = 500
_COLOURS = {
    "pass": "#0b6b3a",
    "undecided": "#59636e",
    "suspect": "#b57a00",
    "invalid": "#6b2fa0",
    "fail": "#a01722",
}


def of_hosts(views: Sequence[HostView], hosts: Sequence[HostSummary]) -> dict[str, str]:
    """Return the files of a report by name: a table of its hosts, as far as it has room, and of *views* the times.

    *views* may be of hosts without a verdict, and *hosts* may have no view.
    """
    names = titles(views)
    summaries = {(summary.host, summary.system): summary for summary in hosts[:_MOST]}
    rows: dict[str, dict[str, Any]] = {}
    for view in views:
        row = _verdict(summaries.get((view.host, view.system)))
        local = {"latency": latency.local_latency(view), "bandwidth": bandwidth.local_bandwidth(view)}
        row |= {name: record.value for name, record in local.items() if record is not None}
        if row:
            rows[_escaped(names[view.key])] = row
    viewed = {(view.host, view.system) for view in views}
    rows |= {_escaped(s.host): _verdict(s) for key, s in summaries.items() if key not in viewed}
    prefixes = {view.key: f"{names[view.key]}: " if len(views) > 1 else "" for view in views}
    times = {
        _escaped(f"{prefixes[view.key]}{study.name}"): {_name(r): r.value for r in (*study.single, *study.several)}
        for view in views
        for study in speedups.studies(view)
    }
    return {**_table(rows), **_bars(times)}


def _verdict(summary: HostSummary | None) -> dict[str, Any]:
    """Return the cells of a host that is judged."""
    if summary is None:
        return {}
    return {
        "verdict": summary.verdict,
        "loss": 100 * summary.loss,
        "missing": summary.missing,
        "judged": sum(summary.counts.values()),
        "reason": _escaped(summary.detail.why()) if summary.detail else "",
    }


def of_records(records: Sequence[Record]) -> dict[str, str]:
    """Return the text of SCENARIOS for the runs of one aligner; nothing without valid times."""
    by_sample: dict[str, dict[str, float]] = {}
    for record in records:
        if record.status == "valid" and record.metric == speedups.METRIC:
            p = record.parameters
            sample = ", ".join(str(p[key]) for key in ("aligner", "dataset") if p.get(key))
            by_sample.setdefault(_escaped(sample), {})[_name(record)] = record.value
    return _bars(by_sample)


def of_run(sample: str, run: Mapping[str, Any]) -> str:
    """Return a section with columns of MultiQC's general statistics for the alignments of a *sample*.

    *run* is the JSON document of `firsttouch run`.
    """
    row = {**{name: run[name] for name in ("seconds", "placement")}, "scenario": _escaped(run["scenario"]["name"])}
    heads = {
        "seconds": {"title": "Time", "description": "Wall time of the alignment", "suffix": " s"},
        "scenario": {"title": "Scenario", "description": "Placement scenario of firsttouch"},
        "placement": {"title": "Placement", "description": "What the kernel showed of the placement"},
    }
    row = {key: row[key] for key in heads}
    section = {
        "id": "firsttouch_runs",
        "plot_type": "generalstats",
        "pconfig": [{key: heads[key]} for key in row],
        "data": {_escaped(sample): row},
    }
    return _text(section)


def _name(record: Record) -> str:
    return _escaped(f"{speedups.scenario(record)}, {speedups.shape(record)}")


def _escaped(name: str) -> str:
    """Return a name of records for MultiQC, which puts names into its page as HTML."""
    return html.escape(clean(name))


def _table(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    if not rows:
        return {}
    headers = {
        "verdict": {
            "title": "Verdict",
            "description": "Against the references of the system and the other hosts",
            "cond_formatting_rules": {word: [{"s_eq": word}] for word in _COLOURS},
            "cond_formatting_colours": [{word: colour} for word, colour in _COLOURS.items()],
            "scale": False,
        },
        "latency": {
            "title": "Latency",
            "description": "Random loads from local memory, lowest NUMA node",
            "suffix": " ns",
        },
        "bandwidth": {
            "title": "Bandwidth",
            "description": "Highest of a NUMA node to its memory",
            "suffix": " GB/s",
        },
        "loss": {"title": "Worst loss", "description": "Among metrics that do not pass", "suffix": " %"},
        "missing": {"title": "Missing", "description": "Results that other hosts have", "format": "{:,.0f}"},
        "judged": {"title": "Judged", "description": "Metrics that judge the host", "format": "{:,.0f}"},
        "reason": {"title": "Reason", "description": "The surest finding, or what is missing", "scale": False},
    }
    used = {key: head for key, head in headers.items() if any(key in row for row in rows.values())}
    section = {
        "id": "firsttouch_hosts",
        "section_name": "firsttouch: hosts",
        "description": "NUMA hosts: their verdicts, and the latency and bandwidth of their memory.",
        "plot_type": "table",
        "pconfig": {"id": "firsttouch_hosts_table", "title": "firsttouch: hosts", "col1_header": "Host"},
        "headers": used,
        "data": rows,
    }
    return {HOSTS: _text(section)}


def _bars(values: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return a section with the times of samples by scenario, none if there are none."""
    if not values:
        return {}
    name = SCENARIOS.removesuffix("_mqc.json")
    section = {
        "id": name,
        "section_name": "firsttouch: time by placement scenario",
        "description": "Median time of each placement scenario of an aligner. Every placement was verified.",
        "plot_type": "bargraph",
        "pconfig": {
            "id": f"{name}_plot",
            "title": "firsttouch: time by placement scenario",
            "ylab": "Time (s)",
            "stacking": "group",
            "cpswitch": False,
        },
        "data": values,
    }
    return {SCENARIOS: _text(section)}


def _text(section: Mapping[str, Any]) -> str:
    return json.dumps(section, indent=1, allow_nan=False) + "\n"
