# SPDX-License-Identifier: Apache-2.0
"""Cost of the harness: CPU seconds per check beyond the program that it runs.

Method. ReFrame runs the checks ``scaling`` with one repetition each. The cost per check is the CPU time of ReFrame
and all its processes minus that of the instances in the records, divided by the number of checks. It includes the
launcher, the verification of the placement, the check of the output and the sum of the alignments. ReFrame's own
start-up is measured by listing the same checks, and subtracted. Python may keep its bytecode, as when installed.
The figures are the median and range of ROUNDS rounds. (launch.py measures the launcher alone.)
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from firsttouch.records import schema

ROUNDS = 7
ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def cpu_seconds(argv: list[str]) -> float:
    """Return the CPU seconds of a program that must succeed and of those that it starts."""
    env = {**os.environ, "FIRSTTOUCH_MEASURED_ALIGNERS": "bwa-mem"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def per_check() -> float:
    """Return the CPU seconds per check beyond its program."""
    with tempfile.TemporaryDirectory() as folder:
        common = [str(BIN / "reframe"), "-c", "reframe/scaling.py", "-n", "^scaling", "--system", "local"]
        common += ["--prefix", folder]
        listing = cpu_seconds([*common, "-l"])
        whole = cpu_seconds([*common, "-r", "--exec-policy", "serial", "-S", "scaling.repetitions=1"])
        records = schema.collect([Path(folder)])
        programs = sum(record.parameters["cpu_seconds"] for record in records)
        return (whole - listing - programs) / len(records)


def main() -> None:
    """Measure and print."""
    values = []
    for number in range(ROUNDS):
        values.append(per_check())
        print(f"  CPU seconds per check ({number + 1}/{ROUNDS}): {values[-1]:.3f}", file=sys.stderr, flush=True)
    middle, low, high = statistics.median(values), min(values), max(values)
    print(f"harness, CPU seconds per check beyond the program: {middle:.3f} (range {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
