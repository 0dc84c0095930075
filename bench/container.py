# SPDX-License-Identifier: Apache-2.0
"""Cost of a container: bandwidth, latency and BWA-MEM inside and outside of it in the same run, and its start-up.

    python bench/container.py [IMAGE]        (default: containers/firsttouch.sif; `make images` builds it)

Method. Each of ROUNDS rounds runs the same Debian programs inside and outside of the container. The compared
values are those that firsttouch measures, which exclude the container's start-up. The figure is the median of the
rounds' ratios with their range, because a slow phase of the host affects both runs of a round. The start-up is the
wall time of `firsttouch inside apptainer` minus the time of `firsttouch` alone; Apptainer's own start-up is
printed as well.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from firsttouch.datasets import fetch
from firsttouch.errors import FirstTouchError
from firsttouch.execution import backends

ROUNDS = 5
BANDWIDTH = ("measure", "bandwidth", "--json", "--pu-nodes=0", "--banks=0")
LATENCY = ("measure", "latency", "--json", "--pu-nodes=0", "--banks=0")
#: A command that does nothing but start.
START = ("plan", "--help")
BWA = ("run", "1x-default", "--aligner", "bwa-mem", "--dataset", "lambda", "--repetitions", "1", "--json")


def json_output(prefix: Sequence[str], argv: Sequence[str]) -> Any:
    """Return the JSON document that a command printed; the command must succeed."""
    done = subprocess.run([*prefix, *argv], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def probed(records: Sequence[Mapping[str, Any]]) -> float:
    """Return the median of the records' medians (GB/s or ns)."""
    return statistics.median(statistics.median(record["samples"]) for record in records)


def aligned(document: dict[str, object]) -> float:
    """Return the alignment time in seconds."""
    return float(str(document["value"]))


def seconds(argv: Sequence[str]) -> float:
    """Return the wall seconds of a program that must succeed."""
    start = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - start


def compare(inside: Sequence[str], argv: Sequence[str], take: Callable[[Any], float]) -> list[float]:
    """Return the ratio inside / outside of each round. The order of the two alternates."""
    ratios = []
    for number in range(ROUNDS):
        order = [inside, backends.command(backends.NATIVE)]
        values = {}
        for prefix in order if number % 2 else reversed(order):
            values[prefix is inside] = take(json_output(prefix, argv))
        ratios.append(values[True] / values[False])
        print(f"  {argv[0]} {argv[1]} ({number + 1}/{ROUNDS}): {ratios[-1]:.4f}", file=sys.stderr, flush=True)
    return ratios


def show(title: str, values: Sequence[float], unit: str = "") -> None:
    """Print a figure with its range."""
    middle, low, high = statistics.median(values), min(values), max(values)
    print(f"{title}: median {middle:.4f}{unit} (range {low:.4f} to {high:.4f})")


def main() -> int:
    """Measure and print. Return 3 if the image or Apptainer is missing."""
    image = str(Path(sys.argv[1]).absolute()) if len(sys.argv) > 1 else ""
    try:
        start = backends.start_with("apptainer", image, START)
        fetch.get("lambda")
    except FirstTouchError as error:
        print(f"container: not measured: {error}", file=sys.stderr)
        return error.exit_status
    inside, native = backends.command("apptainer", image), backends.command(backends.NATIVE)
    cut = start.argv.index("firsttouch")
    print(f"{start.argv[cut - 1]}, {ROUNDS} rounds, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} PUs")
    for title, argv, take in (
        ("bandwidth inside / outside", BANDWIDTH, probed),
        ("latency inside / outside", LATENCY, probed),
        ("time in BWA-MEM inside / outside", BWA, aligned),
    ):
        show(title, compare(inside, argv, take))
    alone = [seconds([*native, *START]) for _ in range(ROUNDS)]
    show(
        "start-up of a command, inside minus outside",
        [seconds([*inside, *START]) - statistics.median(alone) for _ in range(ROUNDS)],
        " s",
    )
    bare = [*start.argv[:cut], "true"]
    show("start-up of Apptainer", [seconds(bare) for _ in range(ROUNDS)], " s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
