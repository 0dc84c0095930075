# SPDX-License-Identifier: Apache-2.0
"""Which parts this host consists of, so that a replaced board or processor is noticed.

Two hosts of a system have equal boards and processors, but not the same ones: serial numbers tell them apart, as
far as they can be read (most only by root), and the addresses of network cards (by anybody). Only hashes leave the
host.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from firsttouch.host import kernel_files

#: Texts that are no serial number.
_NONE = kernel_files.UNSTATED | {"0", "0x0"}
#: An address that the card was made with (``addr_assign_type``).
_PERMANENT = 0
#: The bit of the first byte of addresses that software has chosen.
_LOCAL = 0x02


def identities(root: Path = Path("/")) -> dict[str, str]:
    """Return the hashes of the ``board``, the ``processors`` and the network ``interfaces`` that can be read."""
    processors = {
        kernel_files.text(pu / "topology/ppin")
        for pu in kernel_files.numbered(root / "sys/devices/system/cpu", "cpu")
    }
    serials = {
        "board": [kernel_files.text(root / "sys/class/dmi/id/board_serial")],
        "processors": [" ".join(sorted(processors - _NONE))],
        "interfaces": _addresses(root / "sys/class/net"),
    }
    hashes = {
        name: [hashlib.sha256(text.encode()).hexdigest()[:12] for text in texts if text not in _NONE]
        for name, texts in serials.items()
    }
    return {name: " ".join(sorted(of_part)) for name, of_part in hashes.items() if of_part}


def _addresses(folder: Path) -> list[str]:
    """Return the permanent addresses of network cards; virtual ones have none, or another one after each start."""
    try:
        interfaces = sorted(folder.iterdir())
    except OSError:
        return []
    addresses = []
    for interface in interfaces:
        # A bond gives its address to all its cards.
        address = kernel_files.text(interface / "bonding_slave/perm_hwaddr")
        if not address and kernel_files.number(interface / "addr_assign_type") == _PERMANENT:
            address = kernel_files.text(interface / "address")
        first = address.split(":")[0]
        if (interface / "device").exists() and first and not int(first, 16) & _LOCAL:
            addresses.append(address)
    return addresses
