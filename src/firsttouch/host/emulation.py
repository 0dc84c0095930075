# SPDX-License-Identifier: Apache-2.0
"""The name of this host, and whether it is emulated. Placements on an emulated host are real; speeds are not.

A virtual machine is treated as real, because its users get the speeds that are measured in it.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

from firsttouch.host import kernel_files

#: The manufacturer in the firmware of the machines of tests/emulated/.
MANUFACTURER = "firsttouch"
#: QEMU's default name for an emulated processor.
EMULATED_PROCESSOR = "QEMU TCG CPU"
#: The name of a host, safe to use in Slurm's options and in file names.
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def host_name() -> str:
    """Return this host's name: the one that Slurm uses within a job, else the host name without its domain."""
    return os.environ.get("SLURMD_NODENAME") or short_name(os.uname().nodename)


def short_name(name: str) -> str:
    """Return a host name without its domain; an IP address has none."""
    return name if name.replace(".", "").isdecimal() else name.partition(".")[0]


@functools.cache
def emulator(root: Path = Path("/")) -> str:
    """Return the emulator of the host whose sys/ and proc/ are in *root*, or an empty string for a real host.

    The firmware's name of the machine, or the processor's name, decides; a setting does not exist.
    """
    firmware = root / "sys" / "class" / "dmi" / "id"
    if kernel_files.text(firmware / "sys_vendor") == MANUFACTURER:
        return kernel_files.text(firmware / "product_name")
    model = next(kernel_files.processor_values("model name", root), "")
    return EMULATED_PROCESSOR if EMULATED_PROCESSOR in model else ""
