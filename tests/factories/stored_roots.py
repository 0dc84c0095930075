# SPDX-License-Identifier: Apache-2.0
"""Stored file-system roots of made-up hosts: the files of sys/ and proc/ that describe NUMA nodes and limits."""

from collections.abc import Mapping
from pathlib import Path


def stored_root(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """Lay out two NUMA nodes of two PUs each in *folder*, and more *files* (path -> text); return the folder."""
    texts = {"proc/cpuinfo": "", "sys/devices/system/cpu/online": "0-3", "sys/devices/system/node/online": "0-1"}
    for pu in range(4):
        base = f"sys/devices/system/cpu/cpu{pu}/topology/"
        texts |= {base + "core_id": str(pu), base + "physical_package_id": str(pu // 2)}
        texts |= {base + "thread_siblings": f"{1 << pu:x}", base + "core_siblings": "3" if pu < 2 else "c"}
    for number in range(2):
        base = f"sys/devices/system/node/node{number}/"
        texts |= {base + "cpumap": "c" if number else "3", base + "distance": "21 10" if number else "10 21"}
        texts[base + "meminfo"] = f"Node {number} MemTotal: 1048576 kB"
    for name, text in {**texts, **(files or {})}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return folder
