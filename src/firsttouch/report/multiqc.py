# SPDX-License-Identifier: Apache-2.0
"""Sections of a MultiQC report, which finds files by the end of their names, ``_mqc.json`` (its custom content).

Runs of a dataset are a bar graph of the times of aligners by scenario. A run of a command adds columns to the
general statistics.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from firsttouch.records.schema import Record
from firsttouch.report import speedups
from firsttouch.report.text import clean


def of_records(records: Sequence[Record]) -> str:
    """Return a section with the median times of one aligner by scenario; "" without valid times."""
    by_sample: dict[str, dict[str, float]] = {}
    for record in records:
        if record.status == "valid" and record.metric == speedups.METRIC:
            p = record.parameters
            sample = ", ".join(str(p[key]) for key in ("aligner", "dataset") if p.get(key))
            name = f"{speedups.scenario(record)}, {speedups.shape(record)}"
            by_sample.setdefault(_escaped(sample), {})[_escaped(name)] = record.value
    if not by_sample:
        return ""
    title = "firsttouch: time by placement scenario"
    return _text(
        {
            "id": "firsttouch_scenarios",
            "section_name": title,
            "description": "Median time of each placement scenario of an aligner. Every placement was verified.",
            "plot_type": "bargraph",
            "pconfig": {
                "id": "firsttouch_scenarios_plot",
                "title": title,
                "ylab": "Time (s)",
                "stacking": "group",
                "cpswitch": False,
            },
            "data": by_sample,
        }
    )


def of_run(sample: str, run: Mapping[str, Any]) -> str:
    """Return a section with columns of MultiQC's general statistics for the alignments of a *sample*.

    *run* is the JSON document of `firsttouch run`.
    """
    heads = {
        "seconds": {"title": "Time", "description": "Wall time of the alignment", "suffix": " s"},
        "scenario": {"title": "Scenario", "description": "Placement scenario of firsttouch"},
        "placement": {"title": "Placement", "description": "What the kernel showed of the placement"},
    }
    row = {
        "seconds": run["seconds"],
        "scenario": _escaped(run["scenario"]["name"]),
        "placement": run["placement"],
    }
    return _text(
        {
            "id": "firsttouch_runs",
            "plot_type": "generalstats",
            "pconfig": [{key: heads[key]} for key in row],
            "data": {_escaped(sample): row},
        }
    )


def _escaped(name: str) -> str:
    """Return a name of records for MultiQC, which puts names into its page as HTML."""
    return html.escape(clean(name))


def _text(section: Mapping[str, Any]) -> str:
    return json.dumps(section, indent=1, allow_nan=False) + "\n"
