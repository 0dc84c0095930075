# SPDX-License-Identifier: Apache-2.0
"""What reports derive from records: contention, matrices, cache levels, agreement, theoretical bandwidth."""

from __future__ import annotations

from firsttouch.records.schema import Record
from firsttouch.report.model import HostView, banks
from firsttouch.report.text import percent

# ----------------------------------------------------------------------
# Measured bandwidth as a fraction of the theoretical one (thesis, section 3.2, formula 3.1).

METRIC = "theoretical_bandwidth"
KNOWN = "theoretical_bandwidth_known"


def fraction(view: HostView, record: Record) -> float | None:
    """Return the record's rate over the theoretical bandwidth of its banks, None if that is unknown.

    Formula 3.1 gives the theoretical bandwidth of a package, and all banks are assumed to be alike.
    """
    bank = bank_bandwidth(view)
    if bank is None or record.unit != "GB/s" or not banks(record):
        return None
    return record.value / (bank * len(banks(record)))


def of_theory(view: HostView, record: Record) -> str:
    """Return the record's rate as a share of the theoretical one, an empty text if that is unknown."""
    share = fraction(view, record)
    return "" if share is None else f"{percent(share)} of theory"


def bank_bandwidth(view: HostView) -> float | None:
    """Return the theoretical bandwidth of one bank (GB/s), None if it is unknown; all are assumed to be alike."""
    theory = theoretical(view)
    if theory is None or theory.unit != "GB/s":
        return None
    packages, all_banks = theory.parameters.get("packages"), theory.parameters.get("banks")
    if not isinstance(packages, int) or not isinstance(all_banks, int) or not all_banks or theory.value <= 0:
        return None
    return theory.value * packages / all_banks


def theoretical(view: HostView) -> Record | None:
    """Return the newest record of the theoretical bandwidth, whatever its source: verdicts take the same one."""
    return max(view.of("topology", metric=METRIC), key=lambda r: (r.time, r.value), default=None)


def unknown(view: HostView) -> str:
    """Return why the theoretical bandwidth of the host is unknown, an empty text if any record has it."""
    if theoretical(view) is not None:
        return ""
    record = max(view.of("topology", metric=KNOWN), key=lambda r: r.time, default=None)
    return str(record.parameters.get("reason", "")) if record is not None and not record.value else ""
