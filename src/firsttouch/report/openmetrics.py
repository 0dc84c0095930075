# SPDX-License-Identifier: Apache-2.0
"""metrics.prom: a report's values and verdicts for monitoring, in the OpenMetrics text format.

Node exporter's textfile collector reads it too. That one knows the older text format of Prometheus, in which
``# UNIT`` and ``# EOF`` are comments, and refuses state sets, info metrics and timestamps: so all are gauges.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from firsttouch.host.cpusets import format_list
from firsttouch.judge.verdict import ORDER, HostVerdict
from firsttouch.records.schema import Record
from firsttouch.report.model import HostView, case_of
from firsttouch.report.text import clean
from firsttouch.units import UNITS

#: A scrape reads the whole file: of more cases than these, there are the verdicts and the numbers of records only.
MOST_CASES = 100_000
#: Dimension of a unit -> OpenMetrics' name of its base unit, to which values are converted.
_BASE = {
    "bytes": "bytes",
    "bytes per second": "bytes_per_second",
    "seconds": "seconds",
    "transfers per second": "transfers_per_second",
    "hertz": "hertz",
    "reads per second": "reads_per_second",
}
#: Units that say what is counted: OpenMetrics wants none.
_COUNTS = frozenset({"", "1", "NUMA nodes", "PUs"})
_PLACE = ("host", "system", "partition")
_OWN = (*_PLACE, "check", "metric")


def text(views: Sequence[HostView], verdicts: Sequence[HostVerdict], *, version: str, generated: float) -> str:
    """Return the file: *generated* (s since 1970) is when the report was made, *version* firsttouch's.

    Values are medians in base units; a series' labels are the host, system, partition and check, and the case's
    parameters. Of an emulated host there are only counts: its speed says nothing.
    """
    families = _Families()
    families.made(version, generated)
    for view in views:
        _records(families, view)
    if sum(len(view.valid) for view in views) <= MOST_CASES:
        for view in views:
            for record in filter(lambda r: r.judged, view.valid):
                _case(families, view, record)
    _judged(families, views, verdicts)
    return families.text()


def of_fleet(document: Mapping[str, Any]) -> str:
    """Return the file of a fleet's report by its *document*: the verdict of each host, without values of cases."""
    families = _Families()
    made = datetime.datetime.fromisoformat(document["generated"])
    families.made(document["firsttouch"], made.timestamp())
    for system in document["systems"]:
        for one in system["hosts"]:
            place = {"host": one["host"], "system": system["system"]}
            families.verdict(place, one["verdict"], one["findings"])
            if one["missing"]:
                told = "What should have been measured of a host and was not."
                families.add("missing", "", told, place, one["missing"])
    return families.text()


def base_unit(unit: str) -> tuple[str, float]:
    """Return OpenMetrics' name of a unit's base unit (empty for counts), and the factor to it."""
    if unit in _COUNTS:
        return "", 1.0
    if unit in UNITS:
        dimension, factor = UNITS[unit]
        return _BASE[dimension], factor
    return _name(unit).lower(), 1.0


class _Families(Collector):
    """The metric families of a file; two series of one name have different labels."""

    def __init__(self) -> None:
        self._known: dict[str, GaugeMetricFamily] = {}
        self._seen: dict[str, set[frozenset[tuple[str, str]]]] = {}

    def add(self, metric: str, unit: str, told: str, labels: Mapping[str, str], value: float) -> None:
        """Add a series; a second one with the same labels, which no collector takes, is left out."""
        name = "_".join(filter(None, ("firsttouch", _name(metric).removesuffix(f"_{unit}"), unit)))
        family = self._known.setdefault(name, GaugeMetricFamily(name, told, unit=unit))
        shown = {k: clean(v) for k, v in labels.items() if v != ""}
        key = frozenset(shown.items())
        if key not in self._seen.setdefault(name, set()):
            self._seen[name].add(key)
            family.add_sample(name, shown, value)

    def made(self, version: str, generated: float) -> None:
        """Add when the report was made (s since 1970), and by which firsttouch."""
        labels = {"version": version}
        self.add("report_generated_timestamp", "seconds", "When the report was made.", labels, generated)

    def verdict(self, place: Mapping[str, str], verdict: str, counts: Mapping[str, int]) -> None:
        """Add a host's verdict, and how many of its metrics have which."""
        for word in ORDER:
            labels = {**place, "verdict": word}
            self.add("verdict", "", "1 for the host's verdict, 0 for the others.", labels, verdict == word)
            if counts.get(word, 0):
                self.add("judged_metrics", "", "Judged metrics of a host, by verdict.", labels, counts[word])

    def text(self) -> str:
        """Return the file."""
        registry = CollectorRegistry()
        registry.register(self)
        return bytes(generate_latest(registry)).decode()

    def collect(self) -> Iterable[Metric]:
        """Return the families, for the registry."""
        return self._known.values()


def _records(families: _Families, view: HostView) -> None:
    for status, records in (("valid", view.valid), ("invalid", view.invalid)):
        labels = {**_place(view), "status": status}
        families.add("records", "", "Cases with a result, and invalid records, by status.", labels, len(records))


def _case(families: _Families, view: HostView, record: Record) -> None:
    unit, factor = base_unit(record.unit)
    case = {_label(k): _value(v) for k, v in case_of(record).items()}
    labels = {**_place(view), "check": record.check, **case}
    # Where two checks have one metric, it is one family: the text must not name either.
    told = f"{record.metric.replace('_', ' ').capitalize()}, median of the repetitions."
    families.add(record.metric, unit, told, labels, record.value * factor)
    if record.repetitions > 1:
        told = "Largest less smallest repetition, over the median."
        families.add("spread", "ratio", told, {**labels, "metric": record.metric}, record.spread)


def _judged(families: _Families, views: Sequence[HostView], verdicts: Sequence[HostVerdict]) -> None:
    partitions: dict[str, set[str]] = {}
    for view in views:
        partitions.setdefault(view.host, set()).add(view.partition)
    for judged in verdicts:
        # A verdict is of a host; of which partition is known where its records are of one.
        mine = partitions.get(judged.host, set())
        place = {
            "host": judged.host,
            "system": judged.system,
            "partition": next(iter(mine)) if len(mine) == 1 else "",
        }
        families.verdict(place, judged.verdict, Counter(f.verdict for f in judged.findings))


def _place(view: HostView) -> dict[str, str]:
    return {name: getattr(view, name) for name in _PLACE}


@functools.cache
def _name(text: str) -> str:
    """Return a metric's or label's name: what OpenMetrics does not take becomes an underscore."""
    found = re.sub(r"[^a-zA-Z0-9_]+", "_", text).strip("_")
    return found if found and not found[0].isdecimal() else f"n{found}"


def _label(parameter: str) -> str:
    name = _name(parameter)
    return f"case_{name}" if name in _OWN else name


def _value(value: Any) -> str:
    """Return a parameter exactly, other than a page does: two cases that differ have other labels."""
    if isinstance(value, (list, tuple)) and value and all(type(i) is int and i >= 0 for i in value):
        return format_list(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{k}: {_value(v)}" for k, v in value.items())
    return "" if value is None else str(value)
