# SPDX-License-Identifier: Apache-2.0
"""The best gains of policies and partitions per aligner (thesis, figure 5.12; tables as A3 to D10)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from firsttouch.records.schema import Record
from firsttouch.report import speedups
from firsttouch.report.aspect import measured
from firsttouch.report.figures import drawing
from firsttouch.report.figures.drawing import Bar
from firsttouch.report.model import Figure, HostView, Panel, Table, whole
from firsttouch.report.speedups import Study, pivot
from firsttouch.report.text import number, quantity, times

_TITLE = "Summary: default run, best policy, best partition"
_HOW = (
    "Shorter is better. For each dataset: the default run, the fastest run of one instance with another policy, "
    "and the fastest run of several instances. If the last is the shortest, copies of the index pay off."
)
KINDS = ("default run", "best policy", "best partition")
_HEADS = ("median", "spread (%)")


def figures(view: HostView) -> list[Figure]:
    """Return a figure per aligner that has a default run and another one."""
    studies = [s for s in speedups.studies(view) if s.default is not None and (s.several or len(s.single) > 1)]
    return [
        _figure(f"{view.key}-summary-{position}", aligner, list(group))
        for position, (aligner, group) in enumerate(groupby(studies, key=lambda s: s.aligner), start=1)
    ]


def _chosen(study: Study) -> list[tuple[str, Record]]:
    """Return the runs of the three bars that exist."""
    policies = [r for r in study.single if r.parameters["policy"] != speedups.DEFAULT_POLICY]
    runs = (study.default, min(policies, key=_time, default=None), min(study.several, key=_time, default=None))
    return [(kind, run) for kind, run in zip(KINDS, runs, strict=True) if run is not None]


def _time(record: Record) -> float:
    return record.value


def _name(study: Study) -> str:
    return study.dataset + (f", {study.reads} reads" if study.reads else "")


def _figure(name: str, aligner: str, studies: Sequence[Study]) -> Figure:
    shows = tuple(_shows(study) for study in studies)
    runs = [run for study in studies for _, run in _chosen(study)]
    tables = [table for table in (_policies(aligner, studies), _partitions(aligner, studies)) if table.rows]
    return Figure(
        name=name,
        title=f"{_TITLE}: {aligner}",
        how=_HOW,
        shows=shows,
        measured=measured(runs),
        panels=(_panel(name, aligner, studies, " ".join(shows)),),
        tables=tuple(tables),
    )


def _shows(study: Study) -> str:
    parts = []
    for kind, run in _chosen(study):
        text = f"{kind} {quantity(run.value, run.unit)}"
        gain = speedups.speedup(run, study.default) if study.default else None
        if kind != KINDS[0] and gain is not None:
            text += f" ({speedups.scenario(run)}, {speedups.shape(run)}: {times(gain.value)})"
        parts.append(text)
    return f"{_name(study)}: {'; '.join(parts)}."


def _panel(name: str, aligner: str, studies: Sequence[Study], shows: str) -> Panel:
    bars = []
    for study in studies:
        for kind, run in _chosen(study):
            text = quantity(run.value, run.unit) + (f", {speedups.scenario(run)}" if kind != KINDS[0] else "")
            label = _name(study).replace(", ", "\n")
            bars.append(Bar(label, run.value, min(run.samples), max(run.samples), text, kind))
    return drawing.draw_bars(
        bars,
        kinds=KINDS,
        axis=f"time ({studies[0].single[0].unit})",
        name=name,
        title=f"{_TITLE}: {aligner}",
        description=shows,
        thin=True,
    )


def _cell(record: Record) -> tuple[str, str]:
    return number(record.value), f"{100 * record.spread:.1f}" if record.repetitions > 1 else ""


def _policies(aligner: str, studies: Sequence[Study]) -> Table:
    """Return the times of one instance by threads, datasets and policies, in the layout of table A3."""
    policies = speedups.policies(r for s in studies for r in s.single)
    return pivot(
        f"{aligner}, one instance under each policy ({studies[0].single[0].unit}; in the layout of table A3 "
        "of the thesis, with median and spread instead of mean and error)",
        corner=("threads",),
        rows=[(str(t),) for t in sorted({whole(r, "threads") for s in studies for r in s.single})],
        columns=[(_name(s), policy) for s in studies for policy in policies],
        cells={
            ((str(whole(r, "threads")),), (_name(s), str(r.parameters["policy"]))): _cell(r)
            for s in studies
            for r in s.single
        },
        heads=_HEADS,
    )


def _partitions(aligner: str, studies: Sequence[Study]) -> Table:
    """Return the times of several instances by scenario and dataset, in the layout of table A4."""
    runs = sorted(
        (r for s in studies for r in s.several),
        key=lambda r: (speedups.policy_rank(r), whole(r, "instances"), -whole(r, "threads")),
    )
    return pivot(
        f"{aligner}, several instances ({studies[0].single[0].unit}; in the layout of table A4 of the "
        "thesis, with median and spread instead of mean and error)",
        corner=("scenario", "threads"),
        rows=list(dict.fromkeys(_row(r) for r in runs)),
        columns=[(_name(s),) for s in studies],
        cells={(_row(r), (_name(s),)): _cell(r) for s in studies for r in s.several},
        heads=_HEADS,
    )


def _row(record: Record) -> tuple[str, str]:
    return speedups.scenario(record), str(whole(record, "threads"))
