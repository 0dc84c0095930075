# SPDX-License-Identifier: Apache-2.0
"""summary.prom: the values and verdicts of a report for monitoring, in the OpenMetrics text format.

It has at most fifteen series per host, with the labels host, system and verdict only, so that it suits large
fleets.

All metrics are gauges, because node exporter's textfile collector knows only the older text format of Prometheus,
without state sets, info metrics and timestamps.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

import firsttouch
from firsttouch.judge.findings import CommonLoss
from firsttouch.judge.verdict import ORDER, HostSummary, Word
from firsttouch.records.cases import by_key
from firsttouch.records.schema import Record
from firsttouch.report.aspects import bandwidth, latency
from firsttouch.report.model import HostView
from firsttouch.report.text import clean
from firsttouch.units import UNITS

_MISSING = "Measurements that a host lacks."
_MEASURED = "Time of the newest valid result of a host."
_LOSS = "Largest loss against the expected value among the metrics of a host that do not pass."
_COMMON = "Loss that most hosts of a system share: an update, or references that are out of date (0: none)."
_LATENCY = "Latency of a random load from the local memory of the lowest NUMA node."
_BANDWIDTH = "Highest bandwidth of a NUMA node to its own memory."
_LOCAL = (
    ("local_latency", _LATENCY, latency.local_latency),
    ("local_bandwidth", _BANDWIDTH, bandwidth.local_bandwidth),
)


def summary(
    views: Sequence[HostView],
    hosts: Sequence[HostSummary],
    *,
    generated: float,
    common_losses: Mapping[str, CommonLoss | None] = MappingProxyType({}),
) -> str:
    """Return summary.prom; *generated* is the time of the report (s since 1970).

    Values are medians in base units. An emulated host has none, because its speed is meaningless.
    *common_losses* has the loss that most hosts share by system.
    """
    gauges = _Gauges(generated)
    for system, loss in common_losses.items():
        gauges.add("common_loss", "ratio", _COMMON, {"system": system}, loss.loss if loss else 0.0)
    # The labels have no partition: the newest record of a host's partitions is used.
    of_hosts = by_key(views, lambda view: (view.host, view.system))
    for h in hosts:
        place = {"host": h.host, "system": h.system}
        gauges.verdict(place, h.verdict, h.counts)
        gauges.add("missing", "", _MISSING, place, h.missing)
        if h.newest and (h.host, h.system) not in of_hosts:
            gauges.add("measured_timestamp", "seconds", _MEASURED, place, h.newest / 1000)
        gauges.add("worst_loss", "ratio", _LOSS, place, h.loss)
    for (host, system), partitions in of_hosts.items():
        place = {"host": host, "system": system}
        times = [_seconds(r) for view in partitions for r in view.valid if r.time]
        if times:
            gauges.add("measured_timestamp", "seconds", _MEASURED, place, max(times))
        for name, description, find in _LOCAL:
            records = [
                record for view in partitions if (record := find(view)) and record.judged and record.unit in UNITS
            ]
            if records:
                newest = max(records, key=_seconds)
                dimension, factor = UNITS[newest.unit]
                gauges.add(name, dimension.replace(" ", "_"), description, place, newest.value * factor)
    return gauges.text()


def _seconds(record: Record) -> float:
    """Return the time of a record in seconds since 1970, 0 if it has none."""
    return datetime.datetime.fromisoformat(record.time).timestamp() if record.time else 0.0


class _Gauges:
    """The gauges of a file; *generated* is the time of the report (s since 1970)."""

    def __init__(self, generated: float) -> None:
        self._registry = CollectorRegistry()
        self._by_name: dict[str, Gauge] = {}
        labels = {"version": firsttouch.__version__}
        self.add("report_generated_timestamp", "seconds", "Time of the report.", labels, generated)

    def add(self, metric: str, unit: str, description: str, labels: Mapping[str, str], value: float) -> None:
        """Add a series."""
        if metric not in self._by_name:
            name = f"firsttouch_{metric}"
            self._by_name[metric] = Gauge(name, description, [*labels], unit=unit, registry=self._registry)
        self._by_name[metric].labels(*map(clean, labels.values())).set(value)

    def verdict(self, place: Mapping[str, str], verdict: str, counts: Mapping[Word, int]) -> None:
        """Add the verdict of a host, and the number of its metrics by verdict."""
        for word in ORDER:
            labels = {**place, "verdict": word}
            self.add("verdict", "", "1 for the verdict of the host, 0 for the others.", labels, verdict == word)
            if counts.get(word, 0):
                self.add("judged_metrics", "", "Judged metrics of a host, by verdict.", labels, counts[word])

    def text(self) -> str:
        """Return the file."""
        return bytes(generate_latest(self._registry)).decode()
