# SPDX-License-Identifier: Apache-2.0
"""Start-up cost: CPU seconds of commands that do little else.

Method. Each command runs ROUNDS times after a first run that fills Python's caches. Its CPU time is the user and
system time of the process and its children (the probe reads the topology). It hardly depends on other load on the
host. Python's own start-up is printed for comparison.

`bench/startup.py PROGRAM` compares `run -- true` with the program `firsttouch` of another checkout: both run PAIRS
times, in a drawn order within each pair, and the median of the pairs' ratios is printed with its quartiles.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROUNDS, PAIRS = 15, 60
FIRSTTOUCH = str(Path(sys.executable).with_name("firsttouch"))
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "firsttouch --version": [FIRSTTOUCH, "--version"],
    "firsttouch --help": [FIRSTTOUCH, "--help"],
    "firsttouch topology": [FIRSTTOUCH, "topology"],
    "firsttouch plan": [FIRSTTOUCH, "plan", "--aligner", "bwa-mem"],
    "firsttouch run --help": [FIRSTTOUCH, "run", "--help"],
    "firsttouch run -- true": [FIRSTTOUCH, "run", "--", "true"],
    # Unlike true, it never ends before its placement is sampled.
    "firsttouch run -- sleep 0.2": [FIRSTTOUCH, "run", "--", "sleep", "0.2"],
}


def cpu_seconds(argv: list[str]) -> float:
    """Return the CPU seconds of a program that must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(other: str) -> None:
    """Print the CPU time of this `firsttouch run -- true` relative to that of the program *other*."""
    pairs: list[dict[str, float]] = []
    for number in range(2 + PAIRS):  # the first two fill caches
        programs = random.Random(number).sample([FIRSTTOUCH, other], 2)  # noqa: S311
        pairs.append({program: cpu_seconds([program, "run", "--", "true"]) for program in programs})
    ratios = [pair[FIRSTTOUCH] / pair[other] for pair in pairs[2:]]
    low, middle, high = statistics.quantiles(ratios, n=4)
    here, there = (statistics.median(pair[program] for pair in pairs[2:]) for program in (FIRSTTOUCH, other))
    print(f"firsttouch run -- true: {here:.3f} CPU seconds here, {there:.3f} by {other}")
    print(f"median ratio {middle:.3f} (quartiles {low:.3f} to {high:.3f}, {len(ratios)} pairs)")


def main() -> None:
    """Measure and print."""
    if sys.argv[1:]:
        compare(sys.argv[1])
        return
    for name, argv in COMMANDS.items():
        cpu_seconds(argv)
        values = [cpu_seconds(argv) for _ in range(ROUNDS)]
        middle, low, high = statistics.median(values), min(values), max(values)
        print(f"start-up, CPU seconds of {name}: {middle:.3f} (range {low:.3f} to {high:.3f})", flush=True)


if __name__ == "__main__":
    main()
