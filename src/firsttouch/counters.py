# SPDX-License-Identifier: Apache-2.0
"""Counters of an aligner's run by perf stat: the events of thesis section 2.5.2, as far as the kernel lets us."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from firsttouch.errors import CannotHere, RunFailed
from firsttouch.supervise import guarded, require

#: perf's names of the thesis's events.
EVENTS = (
    "context-switches",
    "cpu-migrations",
    "page-faults",
    "cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "instructions",
    "branches",
    "branch-misses",
    "LLC-load-misses",
    "cache-misses",
)
_LINE = re.compile(r"(<not supported>|<not counted>|\d+);[^;]*;([\w-]+)(?::\w+)?;")


def wrap(argv: Sequence[str], log: Path) -> list[str]:
    """Return the argv that runs *argv* under perf stat, which writes its counts to *log*; raises Missing."""
    require("perf")
    return ["perf", "stat", "-x", ";", "-o", str(log), "-e", ",".join(EVENTS), "--", *guarded(argv)]


def parse(text: str) -> dict[str, int]:
    """Return the counts by event; those that processor or kernel do not count are left out.

    Raises RunFailed where perf printed something else, CannotHere where it may count nothing at all.
    """
    found = {m[2]: m[1] for line in text.splitlines() if (m := _LINE.match(line))}
    if not found:
        raise RunFailed(f"perf stat printed no counts: {' | '.join(text.splitlines()[-2:]) or 'nothing'}")
    if missing := [e for e in EVENTS if e not in found]:
        raise RunFailed(f"perf stat printed no count of {', '.join(missing)}")
    counts = {event: int(count) for event, count in found.items() if count.isdecimal()}
    if not counts:
        raise CannotHere("the kernel lets this user count nothing (/proc/sys/kernel/perf_event_paranoid)")
    return counts
