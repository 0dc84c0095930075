# SPDX-License-Identifier: Apache-2.0
"""What this host is called, and whether an emulator made it up: its placement is real then, its speed is not.

A virtual machine is not: its memory and its PUs are a real host's, and what it reaches is what its users get.
"""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Collection
from pathlib import Path

#: The manufacturer in the firmware of the machines of tests/emulated/.
MANUFACTURER = "firsttouch"
#: How QEMU calls a processor that it emulates, where it was not told to call it otherwise.
EMULATED_PROCESSOR = "QEMU TCG CPU"
#: The name of one host, which neither Slurm nor a file system takes for anything else.
HOST = re.compile(r"[^\W_][\w.-]*", re.ASCII)


def host_name() -> str:
    """Return this host's name: Slurm's inside of a job, else the host name without its domain."""
    return os.environ.get("SLURMD_NODENAME") or short_name(platform.node())


def short_name(name: str) -> str:
    """Return a host name without its domain; an IP address has none."""
    return name if name.replace(".", "").isdecimal() else name.partition(".")[0]


def name_among(name: str, names: Collection[str]) -> str:
    """Return the name that a host has among *names*: its own, or the short one that stands there instead."""
    short = short_name(name)
    return short if name not in names and short in names else name


@functools.cache
def emulator(root: Path = Path("/")) -> str:
    """Return which emulator made up the host whose files are below *root*, or an empty string for a real one.

    Only the host itself says so, in its firmware's name of the machine or of its processor: no setting does.
    """
    firmware = root / "sys" / "class" / "dmi" / "id"
    if _text(firmware / "sys_vendor") == MANUFACTURER:
        return _text(firmware / "product_name")
    model = next((li for li in _text(root / "proc" / "cpuinfo").splitlines() if li.startswith("model name")), "")
    return EMULATED_PROCESSOR if EMULATED_PROCESSOR in model else ""


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # a host without such firmware
        return ""
