# SPDX-License-Identifier: Apache-2.0
"""Turns results and charts of aspects into lines of the summary, JSON and drawn figures."""

from __future__ import annotations

from typing import Any

from firsttouch.report.aspect import Aspect, Chart, Result, spread
from firsttouch.report.model import Absent, Figure, HostView

HEADER = ("", "value", "spread", "n", "compare with")


def row(result: Result) -> tuple[str, str, str, str, str]:
    """Return the cells of a result, as in HEADER."""
    record = result.record
    spread_and_n = (spread(record), str(record.repetitions)) if record else ("", "")
    return (result.label, result.value, *spread_and_n, result.compared)


def to_dict(result: Result) -> dict[str, Any]:
    """Return the JSON form of a result."""
    record = result.record
    return {
        **{"label": result.label, "text": result.value, "compared": result.compared},
        **({name: getattr(record, name) for name in ("value", "unit", "spread", "repetitions")} if record else {}),
    }


def figures(view: HostView, aspect: Aspect) -> list[Figure | Absent]:
    """Return the charts of an aspect as figures, and what is absent."""
    return [*(figure(view, chart) for chart in aspect.charts), *aspect.absent]


def figure(view: HostView, chart: Chart) -> Figure:
    """Draw a chart; the ids of its panels begin with the key of the host."""
    name = f"{view.key}-{chart.key}"
    return Figure(
        name=name,
        title=chart.title,
        how=chart.how,
        shows=tuple(chart.shows),
        measured=chart.measured,
        panels=tuple(
            draw(
                name=f"{name}-{position}",
                title=": ".join(filter(None, (chart.title, heading))),
                heading=heading,
                description=chart.descriptions.get(heading) or " ".join(chart.shows),
            )
            for position, (heading, draw) in enumerate(chart.panels.items(), start=1)
        ),
        tables=tuple(chart.tables),
    )
