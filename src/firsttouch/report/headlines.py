# SPDX-License-Identifier: Apache-2.0
"""The headlines of a report: a line per result, for the terminal, the page, Markdown and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from firsttouch.report.aspect import Result
from firsttouch.report.aspects import (
    bandwidth,
    contention,
    core_to_core,
    latency,
    loaded_latency,
    locks,
    page_sizes,
    placement,
    stores,
    study,
    topology,
)
from firsttouch.report.model import HostView, Problem
from firsttouch.report.render import HEADER, row
from firsttouch.report.text import clean


@dataclass(frozen=True)
class Summary:
    """The summary of a report: the headlines of each host, the problems, and the number of invalid records."""

    hosts: tuple[tuple[HostView, tuple[Result, ...]], ...]
    problems: tuple[Problem, ...]
    invalid: int
    document: dict[str, Any]

    def table(self) -> str:
        """Return the table for a terminal: a line per headline, and below it what was not measured."""
        parts = []
        for view, lines in self.hosts:
            place = f"{view.host} (system {view.system}, partition {view.partition})"
            rows = [[clean(cell) for cell in row(line)] for line in lines]
            # The values are texts, so tabulate must not align them as numbers.
            body = tabulate(
                rows, HEADER, "simple", disable_numparse=True, maxcolwidths=[None, None, None, None, 64]
            )
            parts.append(f"{clean(place)}\n{body}")
        parts.append(not_measured(self.problems, self.invalid))
        return "\n\n".join(parts)


def not_measured(problems: Iterable[Problem], invalid: int) -> str:
    """Return the line that counts the *problems* and the *invalid* records."""
    kinds = Counter(p.kind for p in problems)
    parts = [f"{kinds[kind]} {kind}" for kind in ("failed", "skipped", "invalid") if kinds[kind]]
    checks = ", ".join(parts) if parts else "none failed, skipped or invalid"
    return f"Checks: {checks}. Invalid records: {invalid}."


def headlines(view: HostView) -> tuple[Result, ...]:
    """Return the headlines of a host in the order of the methodology."""
    memory = (
        *latency.aspect(view).results,
        *bandwidth.aspect(view).results,
        *contention.aspect(view).results,
        *loaded_latency.aspect(view).results,
        *core_to_core.aspect(view).results,
        *locks.aspect(view).results,
    )
    more = (
        *page_sizes.aspect(view).results,
        *stores.aspect(view).results,
        *placement.aspect(view).results,
        *study.aspect(view).results,
    )
    return (*topology.aspect(view).results, *memory, *more)
