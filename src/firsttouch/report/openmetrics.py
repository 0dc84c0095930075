# SPDX-License-Identifier: Apache-2.0
"""metrics.prom and summary.prom: a report's values and verdicts for monitoring, in the OpenMetrics text format.

metrics.prom has a series per host and case, with the parameters of the case as labels. summary.prom has at most
fifteen series per host, whose only labels are host, system and verdict: it is what a large fleet scrapes.

All metrics are gauges, so that node exporter's textfile collector reads the file, too: it knows only the older
text format of Prometheus, which has no state sets, info metrics and timestamps.
"""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

import firsttouch
from firsttouch.documents import attributes
from firsttouch.host.cpusets import format_list
from firsttouch.judge.common_loss import CommonLoss
from firsttouch.judge.findings import Findings
from firsttouch.judge.verdict import ORDER, HostSummary, Word
from firsttouch.records.cases import grouped, identifying
from firsttouch.records.schema import Record
from firsttouch.report.aspects import bandwidth, latency
from firsttouch.report.model import HostView
from firsttouch.report.text import clean
from firsttouch.units import UNITS

#: With more cases, the file has only the verdicts and the numbers of records, because a scrape reads all of it.
MOST_CASES = 100_000
#: Units of counts, which have none in OpenMetrics.
_COUNTS = frozenset({"", "1", "NUMA nodes", "PUs"})
_MISSING = "Measurements that a host lacks."
_MEASURED = "Time of the newest valid result of a host."
_LOSS = "Largest loss against the expected value among the metrics of a host that do not pass."
_RECORDS = "Cases with a result, and invalid records, by status."
_SPREAD = "(Largest - smallest repetition) / median."
_AHEAD = "Time of records of a host that are dated in the future and do not count."
_COMMON = "Loss that most hosts of a system share: an update, or references that are out of date (0: none)."
_LATENCY = "Latency of a random load from the local memory of the lowest NUMA node."
_BANDWIDTH = "Highest bandwidth of a NUMA node to its own memory."
_LOCAL = (
    ("local_latency", _LATENCY, latency.local_latency),
    ("local_bandwidth", _BANDWIDTH, bandwidth.local_bandwidth),
)
_PLACE = ("host", "system", "partition")
_OWN = (*_PLACE, "check", "metric")


def text(
    views: Sequence[HostView], hosts: Sequence[HostSummary], *, generated: float, findings: Sequence[Findings] = ()
) -> str:
    """Return metrics.prom; *generated* is the time of the report (s since 1970).

    Values are medians in base units: those of the records of *views*, and those of *findings*. The labels of a
    series are host, system, partition, check and the parameters of the case. An emulated host has only counts,
    because its speed is meaningless.
    """
    families = _Families(generated)
    for view in views:
        for status, records in (("valid", view.valid), ("invalid", view.invalid)):
            families.add("records", "", _RECORDS, {**attributes(view, *_PLACE), "status": status}, len(records))
    judged = [(view, record) for view in views for record in view.valid if record.judged]
    if sum(len(view.valid) for view in views) > MOST_CASES:
        judged = []
    for view, record in judged:
        case = identifying(record.check, record.parameters)
        labels = {**attributes(view, *_PLACE), **_labels(record.check, case)}
        families.value(record.metric, record.unit, labels, record.value)
        if record.repetitions > 1:
            families.add("spread", "ratio", _SPREAD, {**labels, "metric": record.metric}, record.spread)
    for fleet in findings:
        _values(families, fleet)
    partitions = grouped(views, lambda view: (view.host, view.system))
    for h in hosts:
        # A verdict names no partition; the records do if all are of the same one.
        names = {view.partition for view in partitions.get((h.host, h.system), ())}
        place = {"host": h.host, "system": h.system, "partition": names.pop() if len(names) == 1 else ""}
        families.verdict(place, h.verdict, h.counts)
    return families.text()


def summary(
    views: Sequence[HostView],
    hosts: Sequence[HostSummary],
    *,
    generated: float,
    common_losses: Mapping[str, CommonLoss | None] = MappingProxyType({}),
    dated_ahead: Mapping[tuple[str, str], int] = MappingProxyType({}),
) -> str:
    """Return summary.prom.

    *common_losses* has the loss that most hosts share by system, *dated_ahead* the latest time (ms since 1970) of
    records of the future by system and host. The other arguments are those of :func:`text`.
    """
    families = _Families(generated)
    for (system, host), latest in sorted(dated_ahead.items()):
        place = {"host": host, "system": system}
        families.add("dated_ahead_timestamp", "seconds", _AHEAD, place, latest / 1000)
    for system, loss in common_losses.items():
        families.add("common_loss", "ratio", _COMMON, {"system": system}, loss.loss if loss else 0.0)
    # The labels name no partition: of several partitions of a host, the newest record counts.
    of_hosts = grouped(views, lambda view: (view.host, view.system))
    for h in hosts:
        place = {"host": h.host, "system": h.system}
        families.verdict(place, h.verdict, h.counts)
        families.add("missing", "", _MISSING, place, h.missing)
        if h.newest and (h.host, h.system) not in of_hosts:
            families.add("measured_timestamp", "seconds", _MEASURED, place, h.newest / 1000)
        families.add("worst_loss", "ratio", _LOSS, place, h.loss)
    for (host, system), partitions in of_hosts.items():
        place = {"host": host, "system": system}
        times = [_seconds(r) for view in partitions for r in view.valid if r.time]
        if times:
            families.add("measured_timestamp", "seconds", _MEASURED, place, max(times))
        for name, description, find in _LOCAL:
            records = [record for view in partitions if (record := find(view)) is not None and record.judged]
            if records:
                newest = max(records, key=_seconds)
                unit, factor = base_unit(newest.unit)
                families.add(name, unit, description, place, newest.value * factor)
    return families.text()


def _seconds(record: Record) -> float:
    """Return the time of a record in seconds since 1970, 0 if it has none."""
    return datetime.datetime.fromisoformat(record.time).timestamp() if record.time else 0.0


def base_unit(unit: str) -> tuple[str, float]:
    """Return the base unit of *unit* in OpenMetrics (empty for counts), and the factor to convert to it."""
    if unit in _COUNTS:
        return "", 1.0
    # The signs for micro and for the Greek letter.
    if (plain := re.sub("^[\u00b5\u03bc]", "u", unit)) in UNITS:
        dimension, factor = UNITS[plain]
        return _name(dimension), factor
    return _name(unit).lower(), 1.0


class _Families(Collector):
    """The metric families of a file; *generated* is the time of the report (s since 1970)."""

    def __init__(self, generated: float) -> None:
        self._by_name: dict[str, GaugeMetricFamily] = {}
        self._seen: dict[str, set[frozenset[tuple[str, str]]]] = {}
        labels = {"version": firsttouch.__version__}
        self.add("report_generated_timestamp", "seconds", "Time of the report.", labels, generated)

    def add(self, metric: str, unit: str, description: str, labels: Mapping[str, str], value: float) -> None:
        """Add a series; a second one with the same labels is left out, because collectors refuse it."""
        name = "_".join(filter(None, ("firsttouch", _name(metric).removesuffix(f"_{unit}"), unit)))
        family = self._by_name.setdefault(name, GaugeMetricFamily(name, description, unit=unit))
        shown = {k: clean(v) for k, v in labels.items() if v != ""}
        key = frozenset(shown.items())
        if key not in self._seen.setdefault(name, set()):
            self._seen[name].add(key)
            family.add_sample(name, shown, value)

    def value(self, metric: str, unit: str, labels: Mapping[str, str], value: float) -> None:
        """Add the value of a case, in the base unit."""
        base, factor = base_unit(unit)
        # The text names no check, because checks may share a metric.
        description = f"{metric.replace('_', ' ').capitalize()}, median of the repetitions."
        self.add(metric, base, description, labels, value * factor)

    def verdict(self, place: Mapping[str, str], verdict: str, counts: Mapping[Word, int]) -> None:
        """Add the verdict of a host, and the number of its metrics by verdict."""
        for word in ORDER:
            labels = {**place, "verdict": word}
            self.add("verdict", "", "1 for the verdict of the host, 0 for the others.", labels, verdict == word)
            if counts.get(word, 0):
                self.add("judged_metrics", "", "Judged metrics of a host, by verdict.", labels, counts[word])

    def text(self) -> str:
        """Return the file."""
        registry = CollectorRegistry()
        registry.register(self)
        return bytes(generate_latest(registry)).decode()

    def collect(self) -> Iterable[Metric]:
        """Return the families (called by the registry)."""
        return self._by_name.values()


def _values(families: _Families, findings: Findings) -> None:
    """Add the values of a fleet that count."""
    samples = findings.samples
    for number, case in enumerate(samples.cases):
        labels = {"system": case.system, **_labels(case.check, case.parameters)}
        rows = samples.groups(number)
        columns = samples.host[rows], findings.value[rows], findings.measured.is_judged[rows]
        for host, value, is_judged in zip(*(column.tolist() for column in columns), strict=True):
            if is_judged and not math.isnan(value):
                families.value(case.metric, case.unit, {"host": samples.hosts[host], **labels}, value)


def _labels(check: str, parameters: Mapping[str, Any]) -> dict[str, str]:
    names = {name: _name(name) for name in parameters}
    texts = {f"case_{name}" if name in _OWN else name: _value(parameters[key]) for key, name in names.items()}
    return {"check": check, **texts}


@functools.cache
def _name(text: str) -> str:
    """Return the name of a metric or label, with underscores for what OpenMetrics does not accept."""
    name = re.sub(r"[^a-zA-Z0-9_]+", "_", text).strip("_")
    return name if name and not name[0].isdecimal() else f"n{name}"


def _value(value: Any) -> str:
    """Return the exact value of a parameter (pages round it), so that different cases have different labels."""
    if isinstance(value, (list, tuple)) and value and all(type(i) is int and i >= 0 for i in value):
        return format_list(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{k}: {_value(v)}" for k, v in value.items())
    return "" if value is None else str(value)
