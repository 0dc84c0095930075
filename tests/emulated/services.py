# SPDX-License-Identifier: Apache-2.0
"""What makes a booted machine a host of a cluster: Slurm, and an environment that keeps ReFrame's results."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from firsttouch import paths
from firsttouch.systems import definition

from .guest import Guest

SLURM_INSIDE = Path(__file__).with_name("slurm_inside.py")
#: On the guest's /run, which is no overlay: sockets and a database are at home there.
SLURM_FOLDER = Path("/run/cluster")
DAEMONS = ("slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged")


def has_slurm(system: str) -> bool:
    """Tell whether there is a system of that name, and a partition of it that Slurm hands out."""
    return system in definition.available() and any(
        partition.scheduler == "slurm" for partition in definition.load(system).partitions
    )


def start_slurm(guest: Guest) -> Mapping[str, str]:
    """Bring up a Slurm of one host inside and return its users' environment; CommandError says why not."""
    guest.run(["/usr/bin/python3", "-S", SLURM_INSIDE, SLURM_FOLDER], timeout=300, check=True)
    return {"SLURM_CONF": str(SLURM_FOLDER / "slurm.conf")}


def stop_slurm(guest: Guest) -> None:
    """End what start_slurm began: a daemon at rest takes an emulated processor's time, too."""
    guest.run(["pkill", "-KILL", "-x", "|".join(DAEMONS)], check=True)


def settle(guest: Guest) -> Mapping[str, str]:
    """Forget what is known of the host outside, and return the environment of ReFrame and firsttouch inside."""
    guest.run(["rm", "-f", paths.SYSTEMS / f"{paths.LOCAL}.yaml"], check=True)
    return {
        "FIRSTTOUCH_OUT": str(guest.shared / "reports"),
        # All of the methodology would take days in here, and a quick look hours; who wants them can say so.
        "FIRSTTOUCH_EFFORT": os.environ.get("FIRSTTOUCH_EFFORT") or "smoke",
        # Each question to Slurm takes the one emulating thread from what is being measured.
        "RFM_POLL_RATE_MAX": "0.5",
        # ReFrame and firsttouch are found beside the interpreter of whoever runs this.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
