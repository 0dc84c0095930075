# SPDX-License-Identifier: Apache-2.0
"""Time against threads, one line per policy, with error bars (thesis, figures 5.4 to 5.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from firsttouch.records.cases import by_key
from firsttouch.records.schema import Record
from firsttouch.report import guidelines
from firsttouch.report.aspect import FEWEST_DRAWN, Aspect, Chart, measured, value, value_table
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, HostView, dataset_of, whole
from firsttouch.report.text import count, plain, times
from firsttouch.units import number

CHECK = "scaling"
_TITLE = "Time of one instance by threads and memory policy"
_HOW = (
    "Lower is better. A line that halves with twice the threads scales perfectly. One that levels off or rises "
    "has run out of memory bandwidth, PUs or work. The gap between the lines is the effect of the policy."
)
_LOGARITHMIC = " The axes are logarithmic: perfect scaling is a straight falling line."


def aspect(view: HostView) -> Aspect:
    """Return a chart per aligner, dataset and number of reads."""
    by_input = by_key(
        view.select("placement", "scaling", metric=guidelines.METRIC),
        lambda r: (r.parameters["aligner"], dataset_of(r), plain(r.parameters.get("reads"))),
    )
    single = {key: [r for r in records if whole(r, "instances") == 1] for key, records in sorted(by_input.items())}
    charts = [
        _chart(f"scaling-{position}", _name(*key), runs)
        for position, (key, runs) in enumerate(single.items(), start=1)
        if runs
    ]
    return Aspect(charts=charts, absent=[] if charts else [Absent(_TITLE, view.why_absent(CHECK))])


def _name(aligner: str, dataset: str, reads: str) -> str:
    return f"{aligner}, {dataset}" + (f", {reads} reads" if reads else "")


def _policy(record: Record) -> str:
    return str(record.parameters["policy"])


def _chart(key: str, name: str, records: Sequence[Record]) -> Chart:
    # The checks scaling and placement may both have a run.
    by_run = by_key(records, lambda r: (guidelines.policy_rank(_policy(r)), whole(r, "threads")))
    runs = [guidelines.pool_samples(of_run) for _, of_run in sorted(by_run.items())]
    by_policy = by_key(runs, _policy)
    wide = drawing.wide([sample for r in runs for sample in r.samples])
    unit = runs[0].unit
    lines = {
        policy: [drawing.as_point(whole(r, "threads"), r) for r in of_policy]
        for policy, of_policy in by_policy.items()
    }
    label = f"time ({unit}, logarithmic)" if wide else f"time ({unit})"
    draw = partial(drawing.draw_lines, lines, label=label, logarithmic=wide)
    rows = [((_policy(r), whole(r, "threads"), guidelines.scenario_name(r)), r) for r in runs]
    return Chart(
        key=key,
        title=f"{_TITLE}: {name}",
        how=_HOW + (_LOGARITHMIC if wide else ""),
        shows=list(_sentences(runs, by_policy)),
        measured=measured(runs),
        panels={"": draw} if max(map(len, lines.values())) >= FEWEST_DRAWN else {},
        tables=[value_table(f"Time ({unit})", ("policy", "threads", "scenario"), rows)],
    )


def _sentences(all_runs: Sequence[Record], by_policy: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    threads = max(whole(r, "threads") for r in all_runs)
    widest = [r for r in all_runs if whole(r, "threads") == threads]
    fastest, slowest = (pick(widest, key=lambda r: r.value) for pick in (min, max))
    text = f"With {count(threads, 'thread')}, {fastest.parameters['policy']} is fastest at {value(fastest)}"
    if slowest is not fastest:
        text += f", {slowest.parameters['policy']} slowest at {value(slowest)}"
        gain = guidelines.speedup(fastest, slowest)
        if gain is not None and max(fastest.samples) >= min(slowest.samples):
            text += "; their repetitions overlap, so the difference is not clear"
        elif gain is not None:
            text += f", {times(gain.value)} as long"
    yield f"{text}."
    for policy, runs in by_policy.items():
        gain = guidelines.speedup(runs[-1], runs[0])
        if len(runs) > 1 and gain is not None:
            few, many = whole(runs[0], "threads"), whole(runs[-1], "threads")
            text = f"{policy}: {number(many / few)} times the threads make it {times(gain.value)} as fast"
            fastest = min(runs, key=lambda r: r.value)
            if fastest is not runs[-1]:
                text += f" (fastest with {count(whole(fastest, 'threads'), 'thread')})"
            yield f"{text}."
