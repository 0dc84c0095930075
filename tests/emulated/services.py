# SPDX-License-Identifier: Apache-2.0
"""Makes a booted machine a host of a cluster: Slurm, and an environment that keeps ReFrame's results."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from firsttouch import paths
from firsttouch.systems import definition

from .guest import Guest

SLURM_INSIDE = Path(__file__).with_name("slurm_inside.py")
#: On the guest's /run, because sockets and a database do not work on its overlay.
SLURM_FOLDER = Path("/run/cluster")
DAEMONS = ("slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged")


def has_slurm(system: str) -> bool:
    """Return whether a system of that name exists and has a partition that Slurm schedules."""
    return system in definition.available() and any(
        partition.scheduler == "slurm" for partition in definition.load(system).partitions
    )


def start_slurm(guest: Guest) -> Mapping[str, str]:
    """Start a Slurm of one host in the guest, and return its users' environment; may raise CommandError."""
    guest.run(["/usr/bin/python3", "-S", SLURM_INSIDE, SLURM_FOLDER], timeout=300, check=True)
    return {"SLURM_CONF": str(SLURM_FOLDER / "slurm.conf")}


def stop_slurm(guest: Guest) -> None:
    """Stop the daemons of start_slurm: even idle ones take time of the emulated processor."""
    guest.run(["pkill", "-KILL", "-x", "|".join(DAEMONS)], check=True)


def settle(guest: Guest) -> Mapping[str, str]:
    """Remove the drafted system of the outer host, and return the environment of ReFrame and firsttouch."""
    guest.run(["rm", "-f", paths.SYSTEMS / f"{paths.LOCAL}.yaml"], check=True)
    return {
        "FIRSTTOUCH_OUT": str(guest.shared / "reports"),
        # The full effort would take days in the emulator, and the quick one hours; the caller can choose them.
        "FIRSTTOUCH_EFFORT": os.environ.get("FIRSTTOUCH_EFFORT") or "smoke",
        # Each poll of Slurm takes the only emulating thread away from the measurement.
        "RFM_POLL_RATE_MAX": "0.5",
        # ReFrame and firsttouch are installed next to the interpreter that runs this.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
