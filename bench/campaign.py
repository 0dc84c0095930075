# SPDX-License-Identifier: Apache-2.0
"""Cost of a campaign over many hosts: submitting a job per host, running the jobs and collecting the results.

Method. A real Slurm on this machine is configured with HOSTS hosts. AWAKE of them are up, each a slurmd in its own
namespaces (as in tests/slurm, so this needs root). Then one host is measured, and its results are written again
under the names of all other hosts, in order to collect a complete campaign. Prints the seconds of each step.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "slurm"))
import cluster
from msgspec.structs import asdict

from firsttouch.campaign import campaigns as model
from firsttouch.campaign.journal import Journal


class PartlyUp(cluster.Slurm):
    """A cluster of which only the first hosts are up."""

    def __init__(self, folder: Path, count: int, awake: int) -> None:
        super().__init__(folder, count)
        self.awake = self.names[:awake]

    def start(self, name: str, argv: Sequence[str]) -> None:
        """Start a daemon, a slurmd only where its host is to be up."""
        if not name.startswith("slurmd.") or name.removeprefix("slurmd.") in self.awake:
            super().start(name, argv)

    def wait_for(self, name: str, argv: Sequence[str], good: Callable[[str], bool] = lambda _: True) -> None:
        """Wait for a daemon's answer; for slurmd, until exactly the hosts that are to be up have answered."""
        wanted = set(self.awake)
        super().wait_for(name, argv, (lambda text: set(text.split()) == wanted) if name == "slurmd" else good)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print *what* and the wall seconds of the block."""
    began = time.monotonic()
    yield
    print(f"{what:<64} {time.monotonic() - began:8.2f} s", flush=True)


def main() -> None:
    """Start Slurm, measure, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--awake", type=int, default=20, help="how many of them are up (default: 20)")
    args = parser.parse_args()
    if why := cluster.why_not():
        sys.exit(f"Slurm cannot run here: {why}")
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    slurm = PartlyUp(folder / "slurm", args.hosts, args.awake)
    env = {"FIRSTTOUCH_OUT": str(folder / "out"), "FIRSTTOUCH_EFFORT": "smoke"}
    try:
        with timed(f"Slurm with {args.hosts} hosts, {args.awake} of them up"):
            slurm.up()
        run(slurm, env, args.hosts, args.awake, folder / "out" / "campaigns")
    finally:
        slurm.down()
        shutil.rmtree(folder, ignore_errors=True)


def run(slurm: PartlyUp, env: dict[str, str], hosts: int, awake: int, campaigns: Path) -> None:
    """Submit, wait and collect; then copy the results of one host to all hosts and collect again."""
    argv = ["firsttouch", "campaign", "submit", "validate", "--campaign", "fleet", "--json", "--step", "topology"]
    with timed(f"submit {hosts} jobs and the collecting job"):
        # Held, because all jobs share this machine's few PUs and would slow the submission down.
        jobs = json.loads(slurm.ask(*argv, "--hosts", f"n[1-{hosts}]", "--sbatch=--hold", env=env))["jobs"]
    slurm.ask("scontrol", "release", ",".join(jobs))
    with timed(f"{awake} jobs on {awake} hosts (all on this machine's {os.cpu_count()} PUs)"):
        verdicts = campaigns / "fleet" / "hosts"
        slurm.until(lambda: len(list(verdicts.glob("*/verdict"))) == awake, "the jobs", patience=600)
    time.sleep(5)  # slurmdbd learns of a job's end a moment later
    with timed(f"collect: {awake} hosts measured, {hosts - awake} missing"):
        print(slurm.call("firsttouch", "campaign", "collect", "fleet", env=env).stdout.splitlines()[2])
    slurm.ask("scancel", *jobs, check=False)

    measured = ("firsttouch", "campaign", "run", "validate", "--campaign", "replayed")
    with timed("all steps of one host"):
        slurm.call(*measured, env=env)
    campaign = model.read(campaigns / "replayed")
    (measured_host,) = campaign.hosts()
    for number in range(1, hosts):
        replay(measured_host, campaign.host(f"n{number}"))
    with timed(f"collect {hosts} hosts, without figures"):
        output = slurm.ask("firsttouch", "campaign", "collect", "replayed", "--no-figures", env=env, check=False)
    print(output.splitlines()[2])
    with timed(f"collect {hosts} hosts, with figures"):
        slurm.ask("firsttouch", "campaign", "collect", "replayed", env=env, check=False)
    with timed(f"validate {hosts} hosts"):
        slurm.ask("firsttouch", "validate", "--system", "local", campaigns / "replayed", env=env, check=False)


def replay(journal: Journal, other: Journal) -> None:
    """Copy the results of *journal* to the host of *other*."""
    other.open()
    for entry, measured in journal.finished_steps():
        records = [{**r.to_dict(), "host": other.host} for r in measured]
        text = "".join(json.dumps(r) + "\n" for r in records)
        with other.records.open("a") as out:
            begin = out.tell()
            out.write(text)
        line = {**asdict(entry), "host": other.host, "begin": begin, "end": begin + len(text.encode())}
        with other.file.open("a") as out:
            out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
