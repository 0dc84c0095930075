# SPDX-License-Identifier: Apache-2.0
"""The theoretical bandwidth of a host's memory (thesis section 3.2, formula 3.1), and where it is known from.

From the SMBIOS tables, where they may be read (root, with dmidecode): transfers per second x populated
channels x word size. Else from the facts of the system's file, else it is unknown, with the reason.
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

#: Memory types that hold no program's data at the rate of its channel.
_NO_MAIN_MEMORY = frozenset({"Flash", "ROM", "Logical non-volatile device"})
_FIELD = re.compile(r"^\s+([^:]+): (.*?)\s*$")
_RATE = re.compile(r"(\d+) (?:MT/s|MHz)\Z")
_BITS = re.compile(r"(\d+) bits\Z")
#: How firmware names a channel: "P1_Node1_Channel0_Dimm0", "NODE 1 CHANNEL 0 DIMM 0", "P0 CHANNEL A" ...
_CHANNEL = re.compile(r"(?P<before>.*?)channel[ _-]?(?P<channel>[0-9]+|[a-z]\b)", re.IGNORECASE)
#: ... or by a letter after the word DIMM, with the place on the channel behind it: "P2-DIMMD1", "DIMM_E1".
_LETTER = re.compile(r"(?P<before>.*?)DIMM[ _-]?(?P<channel>[A-Z])[0-9]\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Module:
    """A populated memory module: transfers per second as configured, data width (bits), and its channel.

    ``transfer_rate`` and ``data_bits`` are 0, ``channel`` is empty where the firmware does not tell.
    """

    locator: str
    channel: str
    transfer_rate: float
    data_bits: int


@dataclass(frozen=True)
class Theoretical:
    """The highest bandwidth of all memory of a host (bytes/s), None where it is unknown for *reason*."""

    bytes_per_second: float | None
    channels: int | None = None
    transfer_rate: float | None = None
    source: str = ""
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of ``firsttouch probe --json``."""
        return asdict(self)

    def percent(self, bytes_per_second: float, banks: int, all_banks: int) -> float | None:
        """Return what a rate on *banks* of *all_banks* equal banks is of their share, None where unknown."""
        if not self.bytes_per_second or not all_banks:
            return None
        return 100 * bytes_per_second / (self.bytes_per_second * banks / all_banks)


def parse(text: str) -> tuple[Module, ...]:
    """Return the populated modules of ``dmidecode --type 17``; raises BadInput where it is not that."""
    modules, found = [], False
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip("\n").splitlines()
        if "Memory Device" not in (line.strip() for line in lines):
            continue
        found = True
        fields = {m[1].strip(): m[2] for m in map(_FIELD.match, lines) if m}
        size = fields.get("Size", "")
        if not size[:1].isdigit() or size.startswith("0 ") or fields.get("Type") in _NO_MAIN_MEMORY:
            continue
        # Older versions of dmidecode say "Clock" and MHz, and mean transfers as well.
        rates = (fields.get(f"{name}Speed", "") for name in ("Configured Memory ", "Configured Clock ", ""))
        rate = next((float(m[1]) * 1e6 for m in map(_RATE.match, rates) if m), 0.0)
        bits = _BITS.match(fields.get("Data Width", ""))
        locator, bank = fields.get("Locator", ""), fields.get("Bank Locator", "")
        modules.append(Module(locator, _channel(locator, bank), rate, int(bits[1]) if bits else 0))
    if not found:
        raise BadInput("not the output of dmidecode --type 17: it has no 'Memory Device'")
    return tuple(modules)


def _channel(locator: str, bank: str) -> str:
    for pattern, text in ((_CHANNEL, bank), (_CHANNEL, locator), (_LETTER, locator)):
        if match := pattern.match(text):
            # Of several packages, each has a channel A: what stands before it is part of the name, unless
            # only the locator has it ("P1-DIMMA1" beside a bank locator that says no package).
            return f"{match['before']}{match['channel']}".strip().lower()
    return ""


def of_modules(modules: Sequence[Module]) -> Theoretical:
    """Return the figure for these modules: every channel as fast as the slowest of its modules."""
    source = "SMBIOS"
    if not modules:
        return Theoretical(None, source=source, reason="the firmware tells of no populated memory module")
    for missing, what in ((lambda m: not m.transfer_rate, "speed"), (lambda m: not m.data_bits, "width")):
        if any(map(missing, modules)):
            return Theoretical(None, source=source, reason=f"the firmware does not tell the modules' {what}")
    if any(not m.channel for m in modules):
        names = ", ".join(dict.fromkeys(m.locator for m in modules if not m.channel))
        return Theoretical(None, source=source, reason=f"the modules' names do not tell their channels: {names}")
    channels: dict[str, float] = {}
    for module in modules:
        rate = module.transfer_rate * module.data_bits / 8
        channels[module.channel] = min(rate, channels.get(module.channel, rate))
    return Theoretical(sum(channels.values()), len(channels), min(m.transfer_rate for m in modules), source=source)


def of_facts(facts: Facts, source: str) -> Theoretical:
    """Return the figure from a system's facts: that of one package, times the packages."""
    one = facts.theoretical_bandwidth()
    if one is None or facts.memory is None or facts.memory.channels_per_package is None:
        reason = "the facts tell neither channels nor transfer rate of the memory"
        return Theoretical(None, source=source, reason=reason)
    channels = facts.memory.channels_per_package * facts.packages
    return Theoretical(one * facts.packages, channels, facts.memory.transfer_rate, source=source)


def read() -> Theoretical:
    """Return the figure from this host's SMBIOS tables, or why it cannot be had."""
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
        said = [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("#")]
        # The last line is the reason: Permission denied, or no SMBIOS at all.
        reason = f"dmidecode reads no memory device: {said[-1].strip() if said else 'it said nothing'}"
        return Theoretical(None, source="SMBIOS", reason=reason)


def of_this_host(system: str | None = None) -> Theoretical:
    """Return the figure from SMBIOS, else from the file of *system*, else None with both reasons."""
    found = read()
    if found.bytes_per_second or system is None:
        return found
    fallback = of_facts(load_system(system).facts, f"facts of the system '{system}'")
    if fallback.bytes_per_second:
        return fallback
    return Theoretical(None, source=fallback.source, reason=f"{found.reason}; {fallback.reason}")
