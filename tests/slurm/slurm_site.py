# SPDX-License-Identifier: Apache-2.0
"""A user's view of the cluster: submitting jobs, and the results of campaigns."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cluster
import pytest

from firsttouch import paths
from firsttouch.benchmarks import kernel_settings
from firsttouch.campaign import campaigns, state
from firsttouch.execution import backends

RunCli = Callable[..., tuple[int, str, str]]

#: Size of the small file system that tests fill.
SMALL = "512k"
#: firsttouch on a host that other programs do not use.
_ON_IDLE_HOST = """\
import sys
from firsttouch import cli
from firsttouch.benchmarks import kernel_settings as settings
settings.busy_pus = lambda *_: settings.Record("topology", "busy_pus", "1", "neither", (0.0,))
sys.exit(cli.main())
"""


class Site:
    """The cluster, the environment of the jobs, and the folder of the campaigns."""

    def __init__(self, slurm: cluster.Slurm, folder: Path, systems: Path, run_cli: RunCli) -> None:
        self.slurm, self.folder, self.run_cli = slurm, folder, run_cli
        self.env = {
            "FIRSTTOUCH_OUT": str(folder),
            "FIRSTTOUCH_EFFORT": "smoke",
            "FIRSTTOUCH_SYSTEMS": str(systems),
        }

    def sbatch(self, *argv: object) -> str:
        return self.slurm.sbatch(*argv, env=self.env)

    def call(self, *argv: object) -> subprocess.CompletedProcess[str]:
        """Run a firsttouch command as a user of the cluster, in the checkout and in this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.slurm.env, **self.env}.items():
                patch.setenv(name, value)
            patch.chdir(paths.ROOT)
            return subprocess.CompletedProcess(argv, *self.run_cli(*argv))

    def occupy(self, host: str) -> tuple[str, Path]:
        """Run a job on all of a host; return its number, and a FIFO: the job ends when the test writes into it."""
        fifo = self.folder / f"end.{host}"
        os.mkfifo(fifo)
        job = self.sbatch("--exclusive", f"--nodelist={host}", "--wrap", f"cat {fifo}")
        self.runs(job)
        return job, fifo

    def runs(self, job: str) -> None:
        """Wait until Slurm has started a job."""
        self.slurm.until(lambda: self.job_state(job) == "RUNNING", f"job {job} to run")

    def job_state(self, job: str) -> str:
        """Return the state of a job in the queue."""
        return self.slurm.ask("squeue", "-h", "-j", job, "-o", "%T").strip()

    def campaign(self, name: str) -> Path:
        return self.folder / "campaigns" / name

    def state(self, name: str) -> state.State:
        """Return the state of a campaign as `firsttouch campaign collect` sees it."""
        return state.state(campaigns.read(self.campaign(name)))

    def lines(self, name: str, host: str) -> list[dict[str, str]]:
        """Return the lines of a host's journal."""
        file = self.campaign(name) / "hosts" / host / "steps.jsonl"
        whole = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in whole]

    def begun(self, name: str, host: str, step: str) -> None:
        """Wait until a host runs a step."""

        def is_begun() -> bool:
            lines = self.lines(name, host)
            return bool(lines) and (lines[-1]["step"], lines[-1]["state"]) == (step, "began")

        self.slurm.until(is_begun, f"{host} to begin {step}")

    def rates(self, **factors: float) -> None:
        """Give hosts a share of the bandwidth (default 1); needs the shim."""
        (Path(self.env["FIRSTTOUCH_SHIM"]) / "factors.json").write_text(json.dumps(factors))

    def hold(self, *hosts: str) -> None:
        """Let no measurement on *hosts* end until they are released; needs the shim."""
        for host in hosts:
            (Path(self.env["FIRSTTOUCH_SHIM"]) / f"hold.{host}").touch()

    def release(self, *hosts: str) -> None:
        """Let measurements on *hosts* end."""
        for host in hosts:
            (Path(self.env["FIRSTTOUCH_SHIM"]) / f"hold.{host}").unlink()

    def verdicts(self) -> dict[str, str]:
        """Return the verdict in the file of each host."""
        files = sorted(f for f in (self.folder / "verdicts").iterdir() if f.is_file())
        return {f.name: f.read_text().split()[0] for f in files}

    def submitted(self, *argv: object, status: int = 0) -> dict[str, Any]:
        """Submit a campaign with ``campaign submit``, wait for all its jobs, and return the output."""
        done = self.call("campaign", "submit", *argv, "--json")
        assert done.returncode == status, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        for job in (*document["jobs"], document["collector"]):
            self.slurm.ends(job)
        return {**document, "stderr": done.stderr}

    def validated(self, *hosts: str, system: str, campaign: str) -> None:
        """Validate the bandwidth of *hosts* without jobs: in this process, under their names. Needs the shim."""
        argv = ("validate", "--system", system, "--step", "bandwidth-1", "--campaign", campaign)
        with pytest.MonkeyPatch.context() as patch:
            # Other programs of this machine do not make its hosts busy, before steps and in them.
            idle = kernel_settings.Record("topology", "busy_pus", "1", "neither", (0.0,))
            patch.setattr(kernel_settings, "busy_pus", lambda *_: idle)
            patch.setattr(backends, "command", lambda *_: [sys.executable, "-c", _ON_IDLE_HOST])
            patch.setenv("SLURM_JOB_PARTITION", "all")
            for host in hosts:
                patch.setenv("SLURMD_NODENAME", host)
                done = self.call("campaign", "run", *argv, "--no-collect")
                assert f"verdict {host} " in done.stdout, done.stderr
        assert "## Verdicts: " in self.call("campaign", "collect", campaign).stdout

    def collected(self, job: str, state: str = "COMPLETED") -> str:
        """Wait for the end of the job that collects after *job*, and return its output."""
        output = "".join(file.read_text() for file in self.slurm.folder.glob(f"{job}_*.out"))
        (number,) = re.findall(r"job (\d+) will collect", output)
        assert self.slurm.ends(number)[number][0] == state
        (log,) = self.folder.rglob(f"log/collect-{number}.out")
        return log.read_text()
