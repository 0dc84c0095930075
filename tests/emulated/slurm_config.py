# SPDX-License-Identifier: Apache-2.0
"""The configuration of a small Slurm whose controller, database and hosts are all on one machine.

It uses neither systemd nor cgroups, and all files are below one folder, so that several clusters can run at once
next to the machine's own Slurm. Standard library only, because the guest uses it too.
"""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Sequence
from pathlib import Path

#: Slurm's setting for whole hosts: a job gets all of a host, whatever it requests.
WHOLE_HOSTS = "EXCLUSIVE"


@dataclasses.dataclass(frozen=True)
class Host:
    """A host of Slurm's configuration; its slurmd listens on *port* of the machine."""

    name: str
    pus: int
    memory_mebibytes: int
    port: int
    features: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster of *hosts* below *folder*; *machine* is the name of the machine that runs all of them.

    The controller listens on *port*, the accounting daemon on the next one.
    """

    name: str
    folder: Path
    machine: str
    hosts: Sequence[Host]
    port: int = 6817
    partition: str = "all"

    @property
    def config(self) -> Path:
        """The file for SLURM_CONF."""
        return self.folder / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.folder / "munge" / "socket"

    @property
    def database_socket(self) -> Path:
        return self.folder / "database" / "socket"

    def write(self) -> None:
        """Make the folders and write slurm.conf and slurmdbd.conf."""
        for name in ("munge", "state", "database/data", "log", *(f"spool/{host.name}" for host in self.hosts)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # The database has no authentication: only its owner may reach its socket.
        self.database_socket.parent.chmod(0o700)
        # munged demands a folder that only its owner can write to and all can enter.
        (self.folder / "munge").chmod(0o711)
        self.config.write_text(self.slurm_conf())
        # slurmd demands a cgroup version, although nothing here uses cgroups; version 1 needs no support of the
        # machine.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        accounting = self.folder / "slurmdbd.conf"
        # slurmdbd refuses a file that others may read.
        accounting.touch(mode=0o600)
        accounting.write_text(self.slurmdbd_conf())

    def slurm_conf(self) -> str:
        """Return slurm.conf."""
        names = ",".join(host.name for host in self.hosts)
        settings = {
            "ClusterName": self.name,
            "SlurmctldHost": f"{self.machine}(127.0.0.1)",
            "SlurmctldPort": self.port,
            "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
            "SlurmUser": _user(),
            "SlurmdUser": _user(),
            "AuthType": "auth/munge",
            "CredType": "cred/munge",
            "AuthInfo": f"socket={self.munge_socket}",
            "MpiDefault": "none",
            # No cgroups, and no binding by Slurm, because numactl binds the processes.
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "spool" / "%n",
            # Where PMIx makes folders of the same name for each host.
            "TmpFS": self.folder / "spool" / "%n",
            "SlurmctldPidFile": self.folder / "slurmctld.pid",
            "SlurmdPidFile": self.folder / "slurmd.%n.pid",
            "SlurmctldLogFile": self.folder / "log" / "slurmctld",
            "SlurmdLogFile": self.folder / "log" / "slurmd.%n",
            "MailProg": "/bin/true",
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": "sched_interval=2,bf_interval=2,sched_min_interval=0,batch_sched_delay=0",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            # Take the hosts' properties from this file, not from slurmd's detection.
            "SlurmdParameters": "config_overrides",
            "EnforcePartLimits": "ALL",
            "ReturnToService": 2,
            "InactiveLimit": 0,
            "KillWait": 2,
            "CompleteWait": 0,
            "MinJobAge": 3600,
            "MessageTimeout": 60,
            "SlurmdTimeout": 300,
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": self.port + 1,
            "AccountingStoragePass": self.munge_socket,
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        for host in self.hosts:
            features = f" Feature={','.join(host.features)}" if host.features else ""
            lines.append(
                f"NodeName={host.name} NodeHostname={self.machine} NodeAddr=127.0.0.1 Port={host.port} "
                f"CPUs={host.pus} RealMemory={host.memory_mebibytes}{features}"
            )
        lines.append(
            f"PartitionName={self.partition} Nodes={names} Default=YES MaxTime=INFINITE DefaultTime=60 State=UP "
            f"OverSubscribe={WHOLE_HOSTS}"
        )
        return "\n".join(lines) + "\n"

    def slurmdbd_conf(self) -> str:
        """Return slurmdbd.conf. The socket of the database has no setting here: it is set by $MYSQL_UNIX_PORT."""
        settings = {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.munge_socket}",
            "DbdHost": self.machine,
            "DbdAddr": "127.0.0.1",
            "DbdPort": self.port + 1,
            "SlurmUser": _user(),
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "localhost",
            "StorageUser": _user(),
            "LogFile": self.folder / "log" / "slurmdbd",
            "PidFile": self.folder / "slurmdbd.pid",
        }
        return "\n".join(f"{key}={value}" for key, value in settings.items()) + "\n"


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
