# SPDX-License-Identifier: Apache-2.0
"""The memory modules of this host: from the SMBIOS tables by dmidecode (as root) or udev, or from EDAC drivers.

udev's database has the SMBIOS fields of memory since systemd 248, and any user can read it. EDAC drivers show
sizes, types and slots, and no speeds.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.host import kernel_files
from firsttouch.tools import run_tool

#: Memory types that are not main memory.
_NO_MAIN_MEMORY = frozenset({"Flash", "ROM", "Logical non-volatile device"})
_FIELD = re.compile(r"^\s+([^:]+): (.*?)\s*$")
_RATE = re.compile(r"(\d+) (?:MT/s|MHz)\Z")
_BITS = re.compile(r"(\d+) bits\Z")
_SIZE = re.compile(r"(\d+) (bytes|kB|MB|GB|TB)\Z")
_BYTES = {"bytes": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
#: Firmware's names of channels: "P1_Node1_Channel0_Dimm0", "NODE 1 CHANNEL 0 DIMM 0", "P0 CHANNEL A" ...
_CHANNEL = re.compile(r"(?P<before>.*?)channel[ _-]?(?P<channel>[0-9]+|[a-z]\b)", re.IGNORECASE)
#: ... or a letter after DIMM, before the slot's number on the channel: "P2-DIMMD1", "DIMM_E1".
_LETTER = re.compile(r"(?P<before>.*?)DIMM[ _-]?(?P<channel>[A-Z])[0-9]\Z", re.IGNORECASE)
_UDEV_FIELD = re.compile(r"E:MEMORY_DEVICE_(\d+)_([A-Z_]+)=(.*)\Z")
#: The property of udev -> the field of dmidecode and the unit that dmidecode adds.
_UDEV = {
    "SIZE": ("Size", " bytes"),
    "LOCATOR": ("Locator", ""),
    "BANK_LOCATOR": ("Bank Locator", ""),
    "TYPE": ("Type", ""),
    "DATA_WIDTH": ("Data Width", " bits"),
    "SPEED_MTS": ("Speed", " MT/s"),
    "CONFIGURED_SPEED_MTS": ("Configured Memory Speed", " MT/s"),
}
Source = Literal["dmidecode", "udev", "edac", ""]


@dataclass(frozen=True)
class Module:
    """A populated memory module: configured transfers per second, data width (bits), and channel.

    *rated_rate* are the transfers per second that it is made for, *kind* its type, such as DDR4. Numbers are 0 and
    texts empty if they are not reported.
    """

    locator: str
    channel: str
    transfer_rate: float
    data_bits: int
    size_bytes: int = 0
    kind: str = ""
    rated_rate: float = 0.0

    def text(self) -> str:
        """Return size, type, speeds and channel: ``32 GiB DDR4-3200, configured 2933 MT/s, channel p0 a``."""
        kind = self.kind + (f"-{self.rated_rate / 1e6:.0f}" if self.kind and self.rated_rate else "")
        # Sizes below 1 GiB are those of virtual machines.
        large = self.size_bytes >= 1 << 30
        size = f"{self.size_bytes / (1 << (30 if large else 20)):g} {'GiB' if large else 'MiB'}"
        parts = [" ".join(part for part in (size, kind) if part)]
        parts += [f"configured {self.transfer_rate / 1e6:.0f} MT/s"] if self.transfer_rate else []
        parts += [f"channel {self.channel}"] if self.channel else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Installed:
    """The populated modules of a host and their *source*; *reason* is why the SMBIOS tables could not be read."""

    modules: tuple[Module, ...]
    source: Source
    reason: str = ""

    def by_slot(self) -> dict[str, Module]:
        """Return the modules by unique names of their slots."""
        slots: dict[str, Module] = {}
        for module in self.modules:
            name = module.locator or "slot"
            if name in slots:
                # Each package may have a DIMM_A1. Then only the channel tells them apart.
                name = f"{name} {module.channel}".strip()
            number = 2
            while name in slots:
                name, number = f"{name.split(' #')[0]} #{number}", number + 1
            slots[name] = module
        return slots


def installed(root: Path = Path("/")) -> Installed:
    """Return the modules of this host, or of the stored *root*, for which dmidecode is not asked."""
    if root == Path("/"):
        text, reason = _by_dmidecode()
        if not reason:
            return Installed(parse(text), "dmidecode")
    else:
        reason = "a stored host has no SMBIOS tables"
    if modules := of_udev(kernel_files.text(root / "run/udev/data/+dmi:id")):
        return Installed(modules, "udev")
    if modules := of_edac(root):
        return Installed(modules, "edac", reason)
    return Installed((), "", reason)


def _by_dmidecode() -> tuple[str, str]:
    """Return what dmidecode prints about memory, or why it cannot."""
    program = shutil.which("dmidecode") or shutil.which("dmidecode", path="/usr/sbin:/sbin")
    if program is None:
        return "", "dmidecode is not installed"
    try:
        done = run_tool([program, "--type", "17"])
    except FirstTouchError as error:
        return "", str(error)
    try:
        parse(done.stdout)
    except BadInput:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("#")]
        # The last line is the reason: Permission denied, or no SMBIOS at all.
        return "", f"dmidecode reads no memory device: {lines[-1].strip() if lines else 'it printed nothing'}"
    return done.stdout, ""


def parse(text: str) -> tuple[Module, ...]:
    """Return the populated modules in the output of ``dmidecode --type 17``; raises BadInput for other text."""
    modules, has_device = [], False
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip("\n").splitlines()
        if "Memory Device" not in (line.strip() for line in lines):
            continue
        has_device = True
        fields = {m[1].strip(): m[2] for m in map(_FIELD.match, lines) if m}
        modules += _modules(fields)
    if not has_device:
        raise BadInput("not the output of dmidecode --type 17: it has no 'Memory Device'")
    return tuple(modules)


def of_udev(text: str) -> tuple[Module, ...]:
    """Return the populated modules in udev's database entry of the SMBIOS tables."""
    devices: dict[int, dict[str, str]] = defaultdict(dict)
    for number, name, value in (m.groups() for m in map(_UDEV_FIELD.match, text.splitlines()) if m):
        if name in _UDEV:
            field, unit = _UDEV[name]
            devices[int(number)][field] = value.strip() + unit
    return tuple(module for _, fields in sorted(devices.items()) for module in _modules(fields))


def _modules(fields: Mapping[str, str]) -> list[Module]:
    """Return the module that dmidecode's *fields* describe; an empty list for an empty slot."""
    size, kind = fields.get("Size", ""), fields.get("Type", "")
    if not size[:1].isdigit() or size.startswith("0 ") or kind in _NO_MAIN_MEMORY:
        return []
    # Older versions of dmidecode print "Clock" and MHz for transfers.
    rates = [
        float(m[1]) * 1e6 if (m := _RATE.match(fields.get(f"{name}Speed", ""))) else 0.0
        for name in ("Configured Memory ", "Configured Clock ", "")
    ]
    bits, amount = _BITS.match(fields.get("Data Width", "")), _SIZE.match(size)
    locator, bank = fields.get("Locator", ""), fields.get("Bank Locator", "")
    module = Module(
        locator,
        _channel(locator, bank),
        next((rate for rate in rates if rate), 0.0),
        int(bits[1]) if bits else 0,
        int(amount[1]) * _BYTES[amount[2]] if amount else 0,
        "" if kind in {"Unknown", "Other", "<OUT OF SPEC>"} else kind,
        rates[-1],
    )
    return [module]


def _channel(locator: str, bank: str) -> str:
    for pattern, text in ((_CHANNEL, bank), (_CHANNEL, locator), (_LETTER, locator)):
        if match := pattern.match(text):
            # Each package has a channel A, so the text before it is part of the name, unless only the locator
            # has it ("P1-DIMMA1" and a bank locator without a package).
            return f"{match['before']}{match['channel']}".strip().lower()
    return ""


def of_edac(root: Path = Path("/")) -> tuple[Module, ...]:
    """Return the populated modules that EDAC drivers show."""
    modules = []
    for folder in edac_folders(root):
        size = kernel_files.number(folder / "size")  # MiB
        if size:
            kind = kernel_files.text(folder / "dimm_mem_type").rpartition("-")[2]  # Registered-DDR4
            # "channel 0 slot 1", "csrow 2 channel 0", "branch 0 channel 1 slot 0"
            location = kernel_files.text(folder / "dimm_location").split()
            channel = dict(zip(location[::2], location[1::2], strict=False)).get("channel", "")
            modules.append(
                Module(
                    *(edac_label(folder), f"{folder.parent.name} {channel}".strip(), 0.0, 0, int(size) << 20),
                    kind="" if kind in {"Unknown", "Unspecified"} else kind,
                )
            )
    return tuple(modules)


def edac_folders(root: Path = Path("/")) -> list[Path]:
    """Return the folders of the modules that EDAC drivers know; some drivers know ranks instead."""
    controllers = kernel_files.numbered(root / "sys/devices/system/edac/mc", "mc")
    return [f for mc in controllers for name in ("dimm", "rank") for f in kernel_files.numbered(mc, name)]


def edac_label(folder: Path) -> str:
    """Return a module's label, which the firmware or a site's labels file gave it, with its memory controller."""
    label = kernel_files.text(folder / "dimm_label")
    controller = folder.parent.name
    # The kernel's own labels contain the controller: "mc#0csrow#1channel#0", "CPU_SrcID#0_MC#0_Chan#0_DIMM#0".
    return label if "mc#" in label.lower() else f"{controller} {label or folder.name}"
