# SPDX-License-Identifier: Apache-2.0
"""Hardware counters of an aligner's run by perf stat: the events of thesis section 2.5.2."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from firsttouch.errors import CannotHere, RunFailed
from firsttouch.execution.child_process import guarded_argv
from firsttouch.tools import require

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
#: COUNT;UNIT;EVENT;… A hybrid processor has a line for each kind of core, such as cpu_core/cycles/.
_LINE = re.compile(r"(<not supported>|<not counted>|\d+);[^;]*;(?:\w+/)?([\w-]+)(?:/\w*)?(?::\w+)?;")


def wrap(argv: Sequence[str], log: Path) -> list[str]:
    """Return the argv that runs *argv* under perf stat, which writes to *log*; raises Missing without perf."""
    require("perf")
    perf = ["perf", "stat", "-x", ";", "-o", str(log), "-e", ",".join(EVENTS), "--"]
    return [*perf, *guarded_argv(argv, by_this_process=False)]


def parse(text: str) -> dict[str, int]:
    """Return the counts by event; events that processor or kernel do not count are left out.

    The counts of a hybrid processor's kinds of cores are added. Raises RunFailed if *text* is not perf's output,
    CannotHere if the kernel permits no event.
    """
    lines = [(m[2], m[1]) for line in text.splitlines() if (m := _LINE.match(line))]
    if not lines:
        raise RunFailed(f"perf stat printed no counts: {' | '.join(text.splitlines()[-2:]) or 'nothing'}")
    if missing := [e for e in EVENTS if e not in dict(lines)]:
        raise RunFailed(f"perf stat printed no count of {', '.join(missing)}")
    counts: dict[str, int] = {}
    for event, count in lines:
        if count.isdecimal():
            counts[event] = counts.get(event, 0) + int(count)
    if not counts:
        raise CannotHere("the kernel does not let this user count events (/proc/sys/kernel/perf_event_paranoid)")
    return counts
