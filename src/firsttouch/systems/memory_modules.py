# SPDX-License-Identifier: Apache-2.0
"""The theoretical bandwidth of a host's memory (thesis section 3.2, formula 3.1).

It is transfers per second x populated channels x word size, from the SMBIOS tables if dmidecode can read them
(as root), or else from the facts of the system's file. If neither has it, it is unknown with a reason.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.systems.definition import load as load_system
from firsttouch.systems.facts import Facts
from firsttouch.tools import run_tool

#: Memory types that are not main memory.
_NO_MAIN_MEMORY = frozenset({"Flash", "ROM", "Logical non-volatile device"})
_FIELD = re.compile(r"^\s+([^:]+): (.*?)\s*$")
_RATE = re.compile(r"(\d+) (?:MT/s|MHz)\Z")
_BITS = re.compile(r"(\d+) bits\Z")
#: Firmware's names of channels: "P1_Node1_Channel0_Dimm0", "NODE 1 CHANNEL 0 DIMM 0", "P0 CHANNEL A" ...
_CHANNEL = re.compile(r"(?P<before>.*?)channel[ _-]?(?P<channel>[0-9]+|[a-z]\b)", re.IGNORECASE)
#: ... or a letter after DIMM, before the slot's number on the channel: "P2-DIMMD1", "DIMM_E1".
_LETTER = re.compile(r"(?P<before>.*?)DIMM[ _-]?(?P<channel>[A-Z])[0-9]\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Module:
    """A populated memory module: configured transfers per second, data width (bits), and channel.

    ``transfer_rate`` and ``data_bits`` are 0 and ``channel`` is empty if the firmware does not report them.
    """

    locator: str
    channel: str
    transfer_rate: float
    data_bits: int


@dataclass(frozen=True)
class Theoretical:
    """The theoretical bandwidth of all memory of a host (bytes/s), None if it is unknown because of *reason*."""

    bytes_per_second: float | None
    channels: int | None = None
    transfer_rate: float | None = None
    source: str = ""
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of ``firsttouch probe --json``."""
        return asdict(self)

    def percent(self, bytes_per_second: float, banks: int, all_banks: int) -> float | None:
        """Return a rate on *banks* of *all_banks* equal banks in percent of their share, None if it is unknown."""
        if not self.bytes_per_second or not all_banks:
            return None
        return 100 * bytes_per_second / (self.bytes_per_second * banks / all_banks)


def parse(text: str) -> tuple[Module, ...]:
    """Return the populated modules in the output of ``dmidecode --type 17``; raises BadInput for other text."""
    modules, has_device = [], False
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip("\n").splitlines()
        if "Memory Device" not in (line.strip() for line in lines):
            continue
        has_device = True
        fields = {m[1].strip(): m[2] for m in map(_FIELD.match, lines) if m}
        size = fields.get("Size", "")
        if not size[:1].isdigit() or size.startswith("0 ") or fields.get("Type") in _NO_MAIN_MEMORY:
            continue
        # Older versions of dmidecode print "Clock" and MHz for transfers.
        rates = (fields.get(f"{name}Speed", "") for name in ("Configured Memory ", "Configured Clock ", ""))
        rate = next((float(m[1]) * 1e6 for m in map(_RATE.match, rates) if m), 0.0)
        bits = _BITS.match(fields.get("Data Width", ""))
        locator, bank = fields.get("Locator", ""), fields.get("Bank Locator", "")
        modules.append(Module(locator, _channel(locator, bank), rate, int(bits[1]) if bits else 0))
    if not has_device:
        raise BadInput("not the output of dmidecode --type 17: it has no 'Memory Device'")
    return tuple(modules)


def _channel(locator: str, bank: str) -> str:
    for pattern, text in ((_CHANNEL, bank), (_CHANNEL, locator), (_LETTER, locator)):
        if match := pattern.match(text):
            # Each package has a channel A, so the text before it is part of the name, unless only the locator
            # has it ("P1-DIMMA1" and a bank locator without a package).
            return f"{match['before']}{match['channel']}".strip().lower()
    return ""


def of_modules(modules: Sequence[Module]) -> Theoretical:
    """Return the bandwidth of these modules: each channel is as fast as its slowest module."""
    source = "SMBIOS"
    if not modules:
        return Theoretical(None, source=source, reason="the firmware reports no populated memory module")
    for attribute, name in (("transfer_rate", "speed"), ("data_bits", "width")):
        if not all(getattr(module, attribute) for module in modules):
            return Theoretical(None, source=source, reason=f"the firmware does not report the modules' {name}")
    if any(not m.channel for m in modules):
        names = ", ".join(dict.fromkeys(m.locator for m in modules if not m.channel))
        return Theoretical(
            None, source=source, reason=f"the modules' names do not contain their channels: {names}"
        )
    channels: dict[str, float] = {}
    for module in modules:
        rate = module.transfer_rate * module.data_bits / 8
        channels[module.channel] = min(rate, channels.get(module.channel, rate))
    return Theoretical(sum(channels.values()), len(channels), min(m.transfer_rate for m in modules), source=source)


def of_facts(facts: Facts, source: str) -> Theoretical:
    """Return the bandwidth from a system's facts: that of one package times the number of packages."""
    per_package = facts.theoretical_bandwidth()
    if per_package is None or facts.channels_per_package is None:
        reason = "the facts lack the memory's channels or transfer rate"
        return Theoretical(None, source=source, reason=reason)
    channels = facts.channels_per_package * facts.packages
    return Theoretical(per_package * facts.packages, channels, facts.transfer_rate, source=source)


def read() -> Theoretical:
    """Return the bandwidth from this host's SMBIOS tables, or why it is unknown."""
    program = shutil.which("dmidecode") or shutil.which("dmidecode", path="/usr/sbin:/sbin")
    if program is None:
        return Theoretical(None, source="SMBIOS", reason="dmidecode is not installed")
    try:
        done = run_tool([program, "--type", "17"])
    except FirstTouchError as error:
        return Theoretical(None, source="SMBIOS", reason=str(error))
    try:
        return of_modules(parse(done.stdout))
    except BadInput:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("#")]
        # The last line is the reason: Permission denied, or no SMBIOS at all.
        reason = f"dmidecode reads no memory device: {lines[-1].strip() if lines else 'it printed nothing'}"
        return Theoretical(None, source="SMBIOS", reason=reason)


def of_this_host(system: str | None = None) -> Theoretical:
    """Return the bandwidth from SMBIOS, or else from the file of *system*, or else both reasons."""
    smbios = read()
    if smbios.bytes_per_second or system is None:
        return smbios
    fallback = of_facts(load_system(system).facts, f"facts of the system '{system}'")
    if fallback.bytes_per_second:
        return fallback
    return Theoretical(None, source=fallback.source, reason=f"{smbios.reason}; {fallback.reason}")
