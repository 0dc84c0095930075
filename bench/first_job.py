# SPDX-License-Identifier: Apache-2.0
"""How often one job of eight new hosts finds the one that lacks a memory channel, and blames no other.

Each seed is a fleet of modelled hosts (tests/drills/modelled_host.py); bank 0 of n7 has 6 of 8 channels. There are
no references: the hosts judge each other in rounds, as the tasks of `sbatch -N8 slurm/validate.sbatch` do. The
answer is right if n7 fails and no other host does. For example: python bench/first_job.py --seeds 20 --noise 0.02
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "drills"))
import modelled_host
from job import Cluster

HOSTS, BAD = tuple(f"n{number}" for number in range(1, 9)), "n7"
STEPS = ("topology", "bandwidth-1", "latency-0", "stores")


def main() -> None:
    """Print a line for each fleet, and the number of right answers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--spread", type=float, default=0.01)
    parser.add_argument("--noise", type=float, default=0.01)
    args = parser.parse_args()
    right = 0
    for seed in range(1, args.seeds + 1):
        faults = {BAD: {"memory 0": {"bandwidth": 0.75}}}
        fleet = modelled_host.Fleet(seed, args.spread, args.noise, faults)
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(Path(folder) / "cluster", fleet, HOSTS)
            tasks = cluster.job(1, "new", *(f"--step={step}" for step in STEPS))
        lines = [line for line in tasks["n1"].out.splitlines() if line.startswith("verdict ")]
        words = {line.split()[1]: line.split()[2].rstrip(":") for line in lines}
        others = Counter(word for host, word in words.items() if host != BAD)
        right += words[BAD] == "fail" and "fail" not in others
        print(
            f"seed {seed}: {BAD} {words[BAD]}; others {dict(others)}; {tasks['n1'].err.splitlines()[-1]}",
            flush=True,
        )
    print(f"{right} of {args.seeds} right")


if __name__ == "__main__":
    main()
