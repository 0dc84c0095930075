# SPDX-License-Identifier: Apache-2.0
"""What the harness costs: seconds per check around the program that it runs, and a run against the plain program.

Method. (1) ReFrame runs the checks ``scaling`` with one repetition each; its wall time less the alignment times
of the records, over the number of checks, is the cost per check, with the launcher, placement verification,
counting of reads and sum of alignments in it; ReFrame's own start-up is measured by listing the same checks and
taken out. (2) The plain aligner and ``firsttouch run 1Inst_Original`` align the same reads in turn, and the
ratio is of the times that each spends in the aligner. Medians and ranges over ROUNDS rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from firsttouch import datasets, index, records
from firsttouch.aligners import aligner
from firsttouch.datasets import store

ROUNDS = 5
ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def seconds(argv: list[str]) -> float:
    """Return the wall seconds of a program that must succeed, and that writes its output to a file."""
    with tempfile.TemporaryFile() as out:
        start = time.monotonic()
        subprocess.run(argv, check=True, stdout=out, stderr=subprocess.DEVNULL, cwd=ROOT)
        return time.monotonic() - start


def per_check() -> float:
    """Return the seconds per check around its program."""
    with tempfile.TemporaryDirectory() as folder:
        common = [str(BIN / "reframe"), "-c", "reframe/scaling.py", "--system", "local", "--prefix", folder]
        listing = seconds([*common, "-l"])
        whole = seconds([*common, "-r", "--exec-policy", "serial", "-S", "scaling.repetitions=1"])
        found = records.collect([Path(folder)])
        return (whole - listing - sum(r.value for r in found)) / len(found)


def against_plain() -> float:
    """Return the time in the aligner under ``firsttouch run`` over that of the plain aligner."""
    one, data = aligner("bwa-mem"), datasets.get("lambda")
    prefix = index.built(one, data.reference, store.root() / "index")
    batch = int(data.expect["batch_bases"])
    threads = len(os.sched_getaffinity(0))
    argv = one.align_argv(index=prefix, reads=[str(r) for r in data.reads], threads=threads, batch_bases=batch)
    plain = seconds(argv)
    ours = [
        str(BIN / "firsttouch"),
        "run",
        "1Inst_Original",
        "--aligner",
        one.name,
        "--dataset",
        "lambda",
        "--json",
    ]
    return float(json.loads(subprocess.check_output(ours, stderr=subprocess.DEVNULL))["value"]) / plain


def main() -> None:
    """Measure and print."""
    for title, measure, unit in (
        ("harness, seconds per check around the program", per_check, "s"),
        ("time in the aligner, firsttouch run / plain", against_plain, ""),
    ):
        values = []
        for number in range(ROUNDS):
            values.append(measure())
            print(f"  {title} ({number + 1}/{ROUNDS}): {values[-1]:.3f} {unit}", file=sys.stderr, flush=True)
        middle, low, high = statistics.median(values), min(values), max(values)
        print(f"{title}: median {middle:.3f} {unit} (range {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
