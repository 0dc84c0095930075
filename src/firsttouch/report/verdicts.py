# SPDX-License-Identifier: Apache-2.0
"""Verdicts as a report shows them: a row per host, the worst first, with cause and evidence."""

from __future__ import annotations

from collections.abc import Sequence

from firsttouch.report.model import Table
from firsttouch.verdict import HostVerdict
from firsttouch.verdict.model import ORDER

#: Lines of evidence in a row; the document has all of them.
_SHOWN = 3


def verdict_table(verdicts: Sequence[HostVerdict]) -> Table | None:
    """Return the table, None without a verdict."""
    if not verdicts:
        return None
    worst_first = sorted(verdicts, key=lambda v: (-ORDER.index(v.verdict), v.host))
    counts = [f"{sum(v.verdict == w for v in verdicts)} {w}" for w in reversed(ORDER)]
    return Table(
        caption=f"Verdicts: {', '.join(c for c in counts if not c.startswith('0 '))}",
        header=("host", "verdict", "judged", "cause", "evidence"),
        rows=[
            (v.host, v.verdict, f"{_passed(v)} of {len(v.findings)} pass", "; ".join(v.causes), _evidence(v))
            for v in worst_first
        ],
    )


def _passed(verdict: HostVerdict) -> int:
    return sum(f.verdict == "pass" for f in verdict.findings)


def _evidence(verdict: HostVerdict) -> str:
    lines = verdict.evidence[len(verdict.causes) :]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "; ".join([*lines[:_SHOWN], *more])
