# SPDX-License-Identifier: Apache-2.0
"""Starts a real Slurm with this machine as its only host: `slurm_inside.py FOLDER` returns when a job can start.

It starts munged, a database for slurmdbd (for sacct, which ReFrame needs), slurmctld and slurmd, all below FOLDER
and on loopback. Afterwards Slurm's commands need SLURM_CONF=FOLDER/slurm.conf only. It runs in the guest as root,
and does not stop the daemons: they end with the guest.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slurm_config import Cluster, Host

#: Seconds; in the emulator, slurmdbd needs many of them to create its tables.
PATIENCE = 180.0


class Daemons:
    """Starts a cluster's daemons one after the other, each as soon as the one that it needs answers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.env = {
            **os.environ,
            "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
            "SLURM_CONF": str(cluster.config),
            "MYSQL_UNIX_PORT": str(cluster.database_socket),
        }

    def up(self) -> None:
        """Start all of them and wait until every host is idle."""
        self.cluster.write()
        self._munge()
        self._database()
        self.start("slurmdbd", ["slurmdbd", "-D"])
        self.wait_for("slurmdbd", ["sacctmgr", "-n", "list", "cluster"])
        self.run(["sacctmgr", "-i", "add", "cluster", self.cluster.name])
        self.start("slurmctld", ["slurmctld", "-D", "-i"])
        for host in self.cluster.hosts:
            self.start(f"slurmd.{host.name}", ["slurmd", "-D", "-N", host.name])
        hosts = [host.name for host in self.cluster.hosts]
        self.wait_for(
            "slurmd",
            ["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"],
            lambda text: sorted(text.split()) == sorted(hosts),
        )

    def _munge(self) -> None:
        folder = self.cluster.folder / "munge"
        key = folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        others = [f"--{name}-file={folder / name}" for name in ("pid", "log", "seed")]
        # It answers once its first process has ended.
        self.run(["munged", "--force", f"--socket={self.cluster.munge_socket}", f"--key-file={key}", *others])

    def _database(self) -> None:
        # An empty database without tables of users, whose creation takes longer than everything else. Its
        # socket is the only access, and only its owner may open it.
        settings = {
            "datadir": self.cluster.database_socket.parent / "data",
            "socket": self.cluster.database_socket,
            "pid-file": self.cluster.folder / "database.pid",
            "innodb-buffer-pool-size": "16M",
            "innodb-log-file-size": "16M",
            "innodb-lock-wait-timeout": 900,
            "innodb-flush-log-at-trx-commit": 0,
            "innodb-doublewrite": 0,
            "innodb-use-native-aio": 0,
            "innodb-data-file-path": "ibdata1:4M:autoextend",
            "innodb-temp-data-file-path": "ibtmp1:4M:autoextend",
        }
        argv = ["mariadbd", "--no-defaults", "--user=root", "--skip-networking", "--skip-grant-tables"]
        self.start("database", [*argv, *(f"--{key}={value}" for key, value in settings.items())])
        asked = ["mariadb-admin", "--no-defaults", f"--socket={self.cluster.database_socket}", "ping"]
        self.wait_for("database", asked)

    def run(self, argv: Sequence[str]) -> None:
        """Run a command to its end; if it fails, its output is the reason."""
        done = self._ask(argv)
        if done.returncode:
            sys.exit(f"slurm: {argv[0]} failed: {done.stderr.strip() or done.stdout.strip()}")

    def _ask(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=self.env, check=False, capture_output=True, text=True, timeout=PATIENCE)

    def start(self, name: str, argv: Sequence[str]) -> None:
        """Start a daemon, with its output in log/NAME.out."""
        with (self.cluster.folder / "log" / f"{name}.out").open("wb") as out:
            subprocess.Popen(
                argv, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def wait_for(self, name: str, argv: Sequence[str], good: Callable[[str], bool] = lambda text: True) -> None:
        """Wait until the command *argv* prints a *good* text."""
        deadline = time.monotonic() + PATIENCE
        while True:
            asked = subprocess.run(
                argv, env=self.env, check=False, capture_output=True, text=True, timeout=PATIENCE
            )
            if asked.returncode == 0 and good(asked.stdout):
                return
            if time.monotonic() > deadline:
                sys.exit(f"slurm: {name} does not answer: {asked.stderr.strip()}; see {self.cluster.folder}/log")
            time.sleep(0.2)


def this_host(folder: Path) -> Cluster:
    """Return a cluster of this host alone."""
    name = socket.gethostname()
    kibibytes = int(Path("/proc/meminfo").read_text().split()[1])
    pus = os.sysconf("SC_NPROCESSORS_ONLN")
    return Cluster("emulated", folder, name, [Host(name, pus, kibibytes // 1024, port=6818 + 1)])


if __name__ == "__main__":
    Daemons(this_host(Path(sys.argv[1]).absolute())).up()
