# SPDX-License-Identifier: Apache-2.0
"""Cost of the harness: seconds per check beyond the program that it runs.

Method. ReFrame runs the checks ``scaling`` with one repetition each. The cost per check is ReFrame's wall time
minus the alignment times of the records, divided by the number of checks. It includes the launcher, the
verification of the placement, the count of reads and the sum of the alignments. ReFrame's own start-up is measured
by listing the same checks, and subtracted. The figures are the median and range of ROUNDS rounds. (launch.py
measures the launcher's CPU time.)
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from firsttouch.records import schema

ROUNDS = 5
ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def seconds(argv: list[str]) -> float:
    """Return the wall seconds of a program that must succeed; its output goes to a file."""
    with tempfile.TemporaryFile() as out:
        start = time.monotonic()
        env = {**os.environ, "FIRSTTOUCH_MEASURED_ALIGNERS": "bwa-mem"}
        subprocess.run(argv, check=True, stdout=out, stderr=subprocess.DEVNULL, cwd=ROOT, env=env)
        return time.monotonic() - start


def per_check() -> float:
    """Return the seconds per check beyond its program."""
    with tempfile.TemporaryDirectory() as folder:
        common = [str(BIN / "reframe"), "-c", "reframe/scaling.py", "-n", "^scaling", "--system", "local"]
        common += ["--prefix", folder]
        listing = seconds([*common, "-l"])
        whole = seconds([*common, "-r", "--exec-policy", "serial", "-S", "scaling.repetitions=1"])
        records = schema.collect([Path(folder)])
        return (whole - listing - sum(r.value for r in records)) / len(records)


def main() -> None:
    """Measure and print."""
    values = []
    for number in range(ROUNDS):
        values.append(per_check())
        print(f"  seconds per check ({number + 1}/{ROUNDS}): {values[-1]:.3f}", file=sys.stderr, flush=True)
    middle, low, high = statistics.median(values), min(values), max(values)
    print(f"harness, seconds per check beyond the program: {middle:.3f} (range {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
