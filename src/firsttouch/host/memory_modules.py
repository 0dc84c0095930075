# SPDX-License-Identifier: Apache-2.0
"""The memory modules of this host: from the SMBIOS tables by dmidecode (as root) or udev, or from EDAC drivers.

udev's database has the SMBIOS fields of memory since systemd 248, and any user can read it. EDAC drivers show
sizes, types and slots, and no speeds.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from firsttouch.errors import BadInput, FirstTouchError, Missing, RunFailed
from firsttouch.host import kernel_files
from firsttouch.tools import run_tool

#: Memory types that are not main memory.
_NO_MAIN_MEMORY = frozenset({"Flash", "ROM", "Logical non-volatile device"})
_FIELD = re.compile(r"^\s+([^:]+): (.*?)\s*$")
_RATE = re.compile(r"(\d+) (?:MT/s|MHz)\Z")
_BITS = re.compile(r"(\d+) bits\Z")
_SIZE = re.compile(r"(\d+) (bytes|kB|MB|GB|TB)\Z")
_BYTES = {"bytes": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_SOCKET = r"(?P<socket>(?:CPU|PROCESSOR|PROC|SOCKET|P)[ _]*\d+)"
#: The firmware's names with socket and channel. For names of any other form, socket and channel are unknown.
_PLACES = tuple(
    re.compile(rf"{pattern}(?:_AssetTag.*)?\Z", re.IGNORECASE)
    for pattern in (
        # CPU0_DIMM_A1, CPU0_DIMM_A, P1-DIMMA1, CPU0_MC1_DIMM_A1
        rf"{_SOCKET}[ _-]*(?P<controller>MC\d+)?[ _-]*DIMM[ _-]*(?P<channel>[A-Z])\d*",
        # DIMM_P0_A0
        rf"DIMM[ _-]*{_SOCKET}[ _-]+(?P<channel>[A-Z])\d*",
        # CPU0 CH1 D0, CPU0 CH1/D0, CPU0 Channel0 DIMM0, CPU0_C1D0
        rf"{_SOCKET}[ _-]*(?:CHANNEL|CHAN|CH|C)[ _-]*(?P<channel>\d+|[A-Z])[ _/-]*(?:DIMM|D)[ _-]*\d+",
    )
)
#: Channels in bank locators: "P1_Node1_Channel0_Dimm0", "NODE 1 CHANNEL 0 DIMM 0", "P0 CHANNEL A" ...
_CHANNEL = re.compile(r"(?P<before>.*?)channel[ _-]?(?P<channel>[0-9]+|[a-z]\b)", re.IGNORECASE)
#: ... or a letter after DIMM, before the slot's number on the channel: "DIMM_E1".
_LETTER = re.compile(r"DIMM[ _-]?(?P<channel>[A-Z])[0-9]\Z", re.IGNORECASE)
_NODE = re.compile(r"NODE ?\d+\Z", re.IGNORECASE)
#: The socket at the beginning of a slot's or channel's name; EDAC drivers write "CPU_SrcID#0".
_SOCKET_OF = re.compile(
    r"(?:DIMM[ _-]*)?(?:CPU_SrcID#|CPU|PROCESSOR|PROC|SOCKET|P)[ _]*(\d+)(?!\d)", re.IGNORECASE
)
#: The firmware's placeholders for an unknown manufacturer.
_NO_MAKER = re.compile(r"(?:not specified|unknown|undefined|no dimm|n/?a|none|0x0+|0+)?\Z", re.IGNORECASE)
#: The text before the channel in the text of a module.
_CHANNEL_PART = ", channel "
_RATE_IN_TEXT = re.compile(r"configured ([0-9]+) MT/s|DDR[0-9]-([0-9]+)(?!.*configured)")
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
    "MANUFACTURER": ("Manufacturer", ""),
    "ASSET_TAG": ("Asset Tag", ""),
    "RANK": ("Rank", ""),
}
#: The longest time (s) that dmidecode may take; it takes some milliseconds.
_DMIDECODE_SECONDS = 10.0
Source = Literal["dmidecode", "udev", "edac", ""]


class Module(Struct, frozen=True):
    """A populated memory module: configured transfers per second, data width (bits), and channel.

    *rated_rate* is its maximum transfers per second, *kind* its type, such as DDR4. Numbers are 0 and texts empty
    if they are not reported. *ambiguous*: another slot, populated or empty, has the same locator.
    """

    locator: str
    channel: str
    transfer_rate: float
    data_bits: int
    size_bytes: int = 0
    kind: str = ""
    rated_rate: float = 0.0
    ranks: int = 0
    maker: str = ""
    ambiguous: bool = False

    def text(self) -> str:
        """Return the known facts: ``32 GiB DDR4-3200, configured 2933 MT/s, 2 ranks, Samsung, channel p0 a``."""
        kind = self.kind + (f"-{self.rated_rate / 1e6:.0f}" if self.kind and self.rated_rate else "")
        # Sizes below 1 GiB belong to virtual machines.
        large = self.size_bytes >= 1 << 30
        size = f"{self.size_bytes / (1 << (30 if large else 20)):g} {'GiB' if large else 'MiB'}"
        parts = [" ".join(part for part in (size, kind) if part)]
        parts += [f"configured {self.transfer_rate / 1e6:.0f} MT/s"] if self.transfer_rate else []
        parts += [f"{self.ranks} rank{'s' * (self.ranks > 1)}"] if self.ranks else []
        parts += [self.maker] if self.maker else []
        return ", ".join(parts) + (f"{_CHANNEL_PART}{self.channel}" if self.channel else "")


class Installed(Struct, frozen=True):
    """The populated modules of a host and their *source*; *reason* is why the SMBIOS tables could not be read."""

    modules: tuple[Module, ...]
    source: Source
    reason: str = ""

    def by_slot(self) -> dict[str, Module]:
        """Return the modules by unique names of their slots."""
        slots: dict[str, Module] = {}
        for module in self.modules:
            name = module.locator or "slot"
            if module.ambiguous or name in slots:
                # Each package may have a DIMM_A1: only the channel distinguishes them.
                name = f"{name} {module.channel}".strip()
            number = 2
            while name in slots:
                name, number = f"{name.split(' #')[0]} #{number}", number + 1
            slots[name] = module
        return slots


def read_modules(root: Path = Path("/")) -> Installed:
    """Return the modules of this host, or of the stored *root* (without dmidecode)."""
    if root == Path("/"):
        try:
            return Installed(parse(_dmidecode()), "dmidecode")
        except FirstTouchError as error:
            reason = str(error)
    else:
        reason = "a stored host has no SMBIOS tables"
    if modules := read_udev(kernel_files.text(root / "run/udev/data/+dmi:id")):
        return Installed(modules, "udev")
    if modules := read_edac(root):
        return Installed(modules, "edac", reason)
    return Installed((), "", reason)


def _dmidecode() -> str:
    """Return dmidecode's output about memory devices; raises Missing, RunFailed without any."""
    program = shutil.which("dmidecode") or shutil.which("dmidecode", path="/usr/sbin:/sbin")
    if program is None:
        raise Missing("dmidecode is not installed")
    done = run_tool([program, "--type", "17"], timeout=_DMIDECODE_SECONDS)
    if _devices(done.stdout):
        return done.stdout
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("#")]
    # The last line is the reason: Permission denied, or no SMBIOS at all.
    raise RunFailed(f"dmidecode reads no memory device: {lines[-1].strip() if lines else 'it printed nothing'}")


def parse(text: str) -> tuple[Module, ...]:
    """Return the populated modules in the output of ``dmidecode --type 17``; raises BadInput for other text."""
    if not (devices := _devices(text)):
        raise BadInput("not the output of dmidecode --type 17: it has no 'Memory Device'")
    return _populated(devices)


def _devices(text: str) -> list[dict[str, str]]:
    """Return the fields of the memory devices in dmidecode's output."""
    blocks = [block.splitlines() for block in re.split(r"\n\s*\n", text)]
    return [
        {m[1].strip(): m[2] for m in map(_FIELD.match, lines) if m}
        for lines in blocks
        if "Memory Device" in map(str.strip, lines)
    ]


def read_udev(text: str) -> tuple[Module, ...]:
    """Return the populated modules in udev's database entry of the SMBIOS tables."""
    devices: dict[int, dict[str, str]] = defaultdict(dict)
    for number, name, value in (m.groups() for m in map(_UDEV_FIELD.match, text.splitlines()) if m):
        if name in _UDEV:
            field, unit = _UDEV[name]
            devices[int(number)][field] = value.strip() + unit
    return _populated([fields for _, fields in sorted(devices.items())])


def _populated(devices: Sequence[Mapping[str, str]]) -> tuple[Module, ...]:
    """Return the modules in the slots that dmidecode's fields describe; some slots may be empty."""
    names = [_names(fields) for fields in devices]
    locators, slots = Counter(locator for locator, _, _ in names), Counter(names)
    modules = []
    for fields, slot in zip(devices, names, strict=True):
        # Slots with the same names may belong to different sockets.
        channel = _channel(*slot) if slots[slot] == 1 else ""
        modules += _modules(fields, channel, ambiguous=locators[slot[0]] > 1)
    return tuple(modules)


def _names(fields: Mapping[str, str]) -> tuple[str, str, str]:
    """Return locator, bank locator and asset tag of a slot; a tag that names no place is left out."""
    tag = fields.get("Asset Tag", "")
    named = any(place.match(tag) for place in _PLACES)
    return fields.get("Locator", ""), fields.get("Bank Locator", ""), tag if named else ""


def _modules(fields: Mapping[str, str], channel: str, *, ambiguous: bool) -> list[Module]:
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
    ranks, maker = fields.get("Rank", ""), fields.get("Manufacturer", "").strip()
    module = Module(
        fields.get("Locator", ""),
        channel,
        next((rate for rate in rates if rate), 0.0),
        int(bits[1]) if bits else 0,
        int(amount[1]) * _BYTES[amount[2]] if amount else 0,
        "" if kind in {"Unknown", "Other", "<OUT OF SPEC>"} else kind,
        rates[-1],
        int(ranks) if ranks.isdigit() else 0,
        "" if _NO_MAKER.match(maker) else maker,
        ambiguous=ambiguous,
    )
    return [module]


def _channel(locator: str, bank: str, asset_tag: str) -> str:
    """Return the name of a slot's channel, which no other channel of the host has; an empty text if unknown."""
    # Bank locators come second: some firmware repeats the first socket's for the second one.
    for text in (locator, bank, asset_tag):
        if match := next((m for m in (place.match(text.strip()) for place in _PLACES) if m), None):
            groups = match.groupdict()
            socket = re.sub(r"[ _]", "", groups["socket"])
            return " ".join(part for part in (socket, groups.get("controller"), groups["channel"]) if part).lower()
    for text in (bank, locator):
        if match := _CHANNEL.match(text):
            # Each package has a channel A. The name therefore includes the text before the channel, and the socket
            # of the other locator if this one states none.
            other = socket_of(locator if text == bank else bank) if socket_of(text) is None else None
            socket = "" if other is None else f"p{other} "
            return f"{socket}{match['before']}{match['channel']}".strip().lower()
    if match := _LETTER.match(locator):
        node = bank if _NODE.match(bank) else ""
        return f"{node} {match['channel']}".strip().lower()
    return ""


def socket_of(name: str) -> int | None:
    """Return the firmware's number of the socket in the *name* of a slot or channel; None if it has none.

    Some firmware counts from 0, some from 1.
    """
    match = _SOCKET_OF.match(name.strip())
    return int(match[1]) if match else None


def socket_of_slot(slot: str, text: str) -> int | None:
    """Return the socket in the name of a slot, or else in the channel in the *text* of its module."""
    socket = socket_of(slot)
    return socket_of(channel_of(text)) if socket is None else socket


def channel_of(text: str) -> str:
    """Return the channel in the text of a module (:meth:`Module.text`), empty if it has none."""
    return text.rpartition(_CHANNEL_PART)[2] if _CHANNEL_PART in text else ""


def rate_of(text: str) -> float:
    """Return the configured transfers per second in the text of a module, else the rated ones, else 0."""
    rate = _RATE_IN_TEXT.search(text)
    return float(rate[1] or rate[2]) * 1e6 if rate else 0.0


def without_channel(text: str) -> str:
    """Return the text of a module without its channel."""
    return text.rpartition(_CHANNEL_PART)[0] if _CHANNEL_PART in text else text


def read_edac(root: Path = Path("/")) -> tuple[Module, ...]:
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
    controllers = kernel_files.by_number(root / "sys/devices/system/edac/mc", "mc")
    return [f for mc in controllers for name in ("dimm", "rank") for f in kernel_files.by_number(mc, name)]


def edac_label(folder: Path) -> str:
    """Return a module's label, which the firmware or a site's labels file gave it, with its memory controller."""
    label = kernel_files.text(folder / "dimm_label")
    controller = folder.parent.name
    # The kernel's own labels contain the controller: "mc#0csrow#1channel#0", "CPU_SrcID#0_MC#0_Chan#0_DIMM#0".
    return label if "mc#" in label.lower() else f"{controller} {label or folder.name}"
