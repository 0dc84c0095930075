# SPDX-License-Identifier: Apache-2.0
"""What a measured bandwidth is of the theoretical one (thesis section 3.2, formula 3.1)."""

from __future__ import annotations

from firsttouch.records import Record
from firsttouch.report.hosts import HostView, banks

METRIC = "theoretical_bandwidth"
KNOWN = "theoretical_bandwidth_known"


def fraction(view: HostView, record: Record) -> float | None:
    """Return the record's rate over its banks' share of the host's theoretical bandwidth, None where unknown.

    All banks are taken to be alike; formula 3.1 gives the figure of one package.
    """
    known = view.metric("topology", METRIC)
    if known is None or record.unit != known.unit or not banks(record):
        return None
    packages, every = known.parameters.get("packages"), known.parameters.get("banks")
    if not isinstance(packages, int) or not isinstance(every, int) or not every or known.value <= 0:
        return None
    return record.value / (known.value * packages * len(banks(record)) / every)


def unknown(view: HostView) -> str:
    """Return why the theoretical bandwidth of the host is unknown, an empty text where it is not."""
    known = view.metric("topology", KNOWN)
    return str(known.parameters.get("reason", "")) if known is not None and not known.value else ""
