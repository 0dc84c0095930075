# SPDX-License-Identifier: Apache-2.0
"""What a container costs: bandwidth, latency and BWA-MEM inside it and outside in the same run; its start.

    python bench/container.py [IMAGE]        (default: containers/firsttouch.sif; `make images` builds it)

Method. Inside and outside take turns, ROUNDS times, with the same programs of Debian's; what is compared is what
firsttouch measured beside the program, so that the container's start is not in it. The figure is the median
of the rounds' ratios (a slower turn of the host hits both of a round), with their range. The start is the wall
time of `firsttouch inside apptainer` less that of `firsttouch` alone, and that of Apptainer by itself.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from firsttouch.datasets import fetch
from firsttouch.errors import FirstTouchError
from firsttouch.execution import backends

ROUNDS = 5
BANDWIDTH = ("probe", "bandwidth", "--pu-nodes=0", "--banks=0", "--json")
LATENCY = ("probe", "latency", "--pu-nodes=0", "--banks=0", "--json")
#: What does nothing but start.
START = ("plan", "--help")
BWA = ("run", "1Inst_Original", "--aligner", "bwa-mem", "--dataset", "lambda", "--repetitions", "1", "--json")


def said(prefix: Sequence[str], argv: Sequence[str]) -> dict[str, object]:
    """Return the JSON document that a command printed; the command must succeed."""
    done = subprocess.run([*prefix, *argv], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def probed(document: dict[str, object]) -> float:
    """Return the median over all results of their medians (GB/s, or ns)."""
    results = document["results"]
    assert isinstance(results, list)  # noqa: S101  (the probe's own schema)
    return statistics.median(statistics.median(result["samples"]) for result in results)


def aligned(document: dict[str, object]) -> float:
    """Return the seconds in the aligner."""
    return float(str(document["value"]))


def seconds(argv: Sequence[str]) -> float:
    """Return the wall seconds of a program that must succeed."""
    start = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - start


def compare(inside: Sequence[str], argv: Sequence[str], take: Callable[[dict[str, object]], float]) -> list[float]:
    """Return the ratios inside / outside of ROUNDS rounds; which of the two begins changes."""
    ratios = []
    for number in range(ROUNDS):
        order = [inside, backends.command(backends.NATIVE)]
        values = {}
        for prefix in order if number % 2 else reversed(order):
            values[prefix is inside] = take(said(prefix, argv))
        ratios.append(values[True] / values[False])
        print(f"  {argv[0]} {argv[1]} ({number + 1}/{ROUNDS}): {ratios[-1]:.4f}", file=sys.stderr, flush=True)
    return ratios


def show(title: str, values: Sequence[float], unit: str = "") -> None:
    """Print a figure with its range."""
    middle, low, high = statistics.median(values), min(values), max(values)
    print(f"{title}: median {middle:.4f}{unit} (range {low:.4f} to {high:.4f})")


def main() -> int:
    """Measure and print; 3 where there is no image or no Apptainer."""
    image = str(Path(sys.argv[1]).absolute()) if len(sys.argv) > 1 else ""
    try:
        start = backends.prepared("apptainer", image, START)
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
        "start of a command inside, more than outside",
        [seconds([*inside, *START]) - statistics.median(alone) for _ in range(ROUNDS)],
        " s",
    )
    bare = [*start.argv[:cut], "true"]
    show("start of Apptainer itself", [seconds(bare) for _ in range(ROUNDS)], " s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
