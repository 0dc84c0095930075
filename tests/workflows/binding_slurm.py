# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of this machine alone that binds a job to the PUs that it gets, as production clusters do."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# The clusters of the suites emulated and slurm give each job a whole host, and bind nothing.
sys.path += [str(Path(__file__).parents[1] / suite) for suite in ("emulated", "slurm")]
from cluster import free_ports
from slurm_config import Cluster, Host
from slurm_inside import Daemons

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
#: Settings that replace Cluster's.
SETTINGS = {
    "TaskPlugin=task/none": "TaskPlugin=task/affinity",
    "OverSubscribe=EXCLUSIVE": "OverSubscribe=NO",
    "AccountingStorageType=accounting_storage/slurmdbd": "AccountingStorageType=accounting_storage/none",
}


class Binding(Cluster):
    """The configuration: jobs share the host, each with its own PUs. There is no database."""

    def slurm_conf(self) -> str:
        text = super().slurm_conf()
        for usual, setting in SETTINGS.items():
            assert usual in text
            text = text.replace(usual, setting)
        return text


class BindingSlurm(Daemons):
    """The daemons. *env* is the environment of its users."""

    def __init__(self, folder: Path) -> None:
        port = free_ports(2)
        host = Host("n1", os.cpu_count() or 1, 8_000, port + 1)
        super().__init__(Binding("workflows", folder, socket.gethostname(), [host], port=port))
        self._running: list[subprocess.Popen[bytes]] = []

    def up(self) -> None:
        self.cluster.write()
        self._munge()
        self.start("slurmctld", ["slurmctld", "-D", "-i"])
        self.start("slurmd", ["slurmd", "-D", "-N", "n1"])
        self.wait_for("slurmd", ["sinfo", "-h", "-t", "idle", "-o", "%N"], lambda text: text.strip() == "n1")

    def start(self, name: str, argv: Sequence[str]) -> None:
        with (self.cluster.folder / "log" / f"{name}.out").open("wb") as out:
            process = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self._running.append(process)

    def down(self) -> None:
        """Cancel all jobs and kill all daemons."""
        # Unlike run, this does not end the process if Slurm never came up.
        self._ask(["scancel", "--user", str(os.getuid())])
        for process in self._running:
            process.kill()
            process.wait()
        pid = self.cluster.folder / "munge" / "pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGKILL)


def why_not() -> str:
    """Return the reason why Slurm cannot run here, or an empty string."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    return f"missing here: {', '.join(missing)} (`make test` installs them)" if missing else ""
