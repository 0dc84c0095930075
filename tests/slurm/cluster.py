# SPDX-License-Identifier: Apache-2.0
"""A real Slurm with several hosts on this machine: each is a slurmd in its own namespaces and can be killed."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# The Slurm of the emulated machines consists of the same modules, which are scripts there.
sys.path.append(str(Path(__file__).parents[1] / "emulated"))
from slurm_config import Cluster, Host
from slurm_inside import Daemons

from factories.processes import captured

#: Settings for tests of failures: Slurm notices a dead host and kills a job after a short time.
IMPATIENT = {
    "SlurmdTimeout": 8,
    "MessageTimeout": 20,
    "KillWait": 2,
    "UnkillableStepTimeout": 10,
    "BatchStartTimeout": 60,
}
#: PUs of each host in Slurm's configuration; the machine need not have them.
PUS = 64
DOMAIN = ".cluster.example"
#: /proc/stat of a host, reduced to the lines that programs read.
STAT = "cpu 0 0 0 1000 0 0 0 0 0 0\n" + "cpu0 0 0 0 0 0 0 0 0 0 0\n" * 64
#: sacct's state of a job whose end it does not know.
_UNFINISHED = {"RUNNING", "PENDING", "COMPLETING", "REQUEUED"}
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd", "unshare")


class Impatient(Cluster):
    """The configuration with the settings for tests; Slurm adds a line to the file ``ended`` when a job ends."""

    def slurm_conf(self) -> str:
        settings = {**IMPATIENT, "JobCompType": "jobcomp/filetxt", "JobCompLoc": self.folder / "ended"}
        kept = [li for li in super().slurm_conf().splitlines() if li.partition("=")[0] not in settings]
        return "\n".join([*(f"{k}={v}" for k, v in settings.items()), *kept]) + "\n"


class Slurm(Daemons):
    """Slurm with *count* hosts n1, n2, … below *folder*, and the commands of its users.

    The host names of the last *full* of them have a domain, and the last name has a capital: n6X.
    """

    def __init__(self, folder: Path, count: int, full: int = 0) -> None:
        base = free_ports(count + 2)
        names = [f"n{i}" + "X" * (full > 0 and i == count) for i in range(1, count + 1)]
        hosts = [Host(name, PUS, 200_000, base + 1 + i, ("opteron",)) for i, name in enumerate(names, start=1)]
        super().__init__(Impatient("tests", folder, socket.gethostname(), hosts, port=base))
        self.folder, self.ended = folder, folder / "ended"
        self.names = [h.name for h in hosts]
        self.hostnames = {name: name + DOMAIN * (i >= count - full) for i, name in enumerate(self.names)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        local_names = Path("/etc/hosts").read_text()
        (self.folder / "hosts").write_text(
            local_names + "".join(f"127.0.0.1 {name}\n" for name in self.hostnames.values())
        )
        for name in self.names:
            # Constant ticks: the hosts are idle, whatever else runs on this machine.
            (self.folder / f"stat.{name}").write_text(STAT)
        super().up()

    def start(self, name: str, argv: Sequence[str]) -> None:
        """Start a daemon and keep its process; a slurmd starts as the first process of a new host."""
        if name.startswith("slurmd."):
            host = name.removeprefix("slurmd.")
            hosts_file = shlex.quote(str(self.folder / "hosts"))
            stat = shlex.quote(str(self.folder / f"stat.{host}"))
            inside = (
                f"hostname {self.hostnames[host]} && mount --bind {hosts_file} /etc/hosts && "
                f"mount --bind {stat} /proc/stat && exec {shlex.join(argv)}"
            )
            spaces = [
                "--uts",
                "--mount",
                "--propagation",
                "private",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ]
            argv = ["unshare", *spaces, "sh", "-c", inside]
        with (self.cluster.folder / "log" / f"{name}.out").open("ab") as out:
            self.running[name] = subprocess.Popen(
                argv, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def kill(self, host: str) -> None:
        """Kill a host with all its processes."""
        process = self.running.pop(f"slurmd.{host}")
        process.kill()
        process.wait()

    def revive(self, host: str) -> None:
        """Boot a host again and wait until it can be used."""
        self.start(f"slurmd.{host}", ["slurmd", "-D", "-N", host])
        self.until(lambda: self.node(host)["State"] == "IDLE", f"{host} to come back")

    def down(self) -> None:
        """Kill all daemons. Nothing is kept, and an orderly shutdown of Slurm would take half a minute."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int((self.folder / "munge" / "pid").read_text()), signal.SIGKILL)

    # ------------------------------------------------------------ a user's commands
    def ask(self, *argv: object, env: Mapping[str, str] | None = None, check: bool = True) -> str:
        """Run a command as a user of the cluster, in the checkout, and return its output."""
        done = self.call(*argv, env=env)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def call(
        self, *argv: object, env: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        root = Path(__file__).parents[2]
        more |= {"env": {**self.env, **(env or {})}, "cwd": root, "stdin": subprocess.DEVNULL, "timeout": 240}
        return captured([str(a) for a in argv], **more)

    def sbatch(self, *argv: object, env: Mapping[str, str]) -> str:
        """Submit and return the job's number."""
        return self.ask("sbatch", "--parsable", f"--output={self.folder}/%A_%a.out", *argv, env=env).strip()

    def output(self, job: str, element: str = "*") -> str:
        """Return the output of a job, or of all elements of an array."""
        return "".join(file.read_text() for file in sorted(self.folder.glob(f"{job}_{element}.out")))

    def ends(self, job: str) -> dict[str, tuple[str, str]]:
        """Wait for the end of a job (all of an array) and return, by its sacct number, (state, exit code)."""
        self.until(self._is_over(job), f"job {job} to end")
        rows: dict[str, tuple[str, str]] = {}

        # slurmdbd learns of it a moment later, and on a busy host of the exit code after the state.
        def is_accounted() -> bool:
            nonlocal rows
            rows = self._rows(job)
            return bool(rows) and not any(
                state in _UNFINISHED or (state, code) == ("FAILED", "0:0") for state, code in rows.values()
            )

        self.until(is_accounted, f"job {job} to be accounted for")
        return rows

    def _is_over(self, job: str) -> Callable[[], bool]:
        """Return a function that tells whether a job has ended; it asks Slurm only if some job has ended since."""
        asked_at = -1

        def is_over() -> bool:
            nonlocal asked_at
            size = self.ended.stat().st_size if self.ended.exists() else 0
            if size == asked_at:
                return False
            states = self.ask("squeue", "-h", "-j", job, "-o", "%T", check=False).split()
            asked_at = -1 if "COMPLETING" in states else size
            return not states

        return is_over

    def _rows(self, job: str) -> dict[str, tuple[str, str]]:
        lines = self.ask("sacct", "-nPX", "-j", job, "-o", "JobID,State,ExitCode").splitlines()
        return {row[0]: (row[1].split(" ")[0], row[2]) for row in (line.split("|") for line in lines)}

    def node(self, host: str) -> dict[str, str]:
        """Return the description of a host by scontrol."""
        text = self.ask("scontrol", "-o", "show", "node", host)
        return {m[1]: m[2].strip() for m in re.finditer(r"(\w+)=(.*?)(?=\s\w+=|$)", text)}

    def states(self) -> dict[str, str]:
        """Return the states of all hosts, such as idle+drain."""
        lines = self.ask("sinfo", "-h", "-N", "-O", "NodeList:64,StateComplete:128").splitlines()
        return dict(line.split() for line in lines)

    def until(self, good: Callable[[], object], what: str, patience: float = 240) -> None:
        """Wait until a condition holds."""
        deadline, pause = time.monotonic() + patience, 0.05
        while not good():
            if time.monotonic() > deadline:
                state = self.ask("squeue", check=False) + self.ask("sinfo", "-N", "-l", check=False)
                raise AssertionError(f"waited in vain for {what}:\n{state}")
            time.sleep(pause)
            pause = min(1.5 * pause, 0.3)


def free_ports(count: int) -> int:
    """Return the first of *count* consecutive ports that are free at every address, as slurmd needs them.

    Two processes that ask at once try different ones.
    """
    for base in range(26_000 + os.getpid() % (6_000 // count) * count, 33_000, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base, base + count):
                    listener = stack.enter_context(socket.socket())
                    listener.bind(("", port))
            except OSError:
                continue
            return base
    raise RuntimeError("no free ports")


def why_not() -> str:
    """Return the reason why Slurm cannot run here, or an empty string."""

    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [p for p in PROGRAMS if shutil.which(p, path=path) is None]
    if missing:
        return f"missing here: {', '.join(missing)} (`make test` installs them)"
    if os.getuid():
        return "hosts in separate namespaces need root"
    done = captured(["unshare", "--uts", "--mount", "--pid", "--fork", "true"])
    return f"unshare: {done.stderr.strip()}" if done.returncode else ""
