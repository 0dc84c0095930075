# SPDX-License-Identifier: Apache-2.0
"""The theoretical bandwidth of a host's memory (thesis section 3.2, formula 3.1).

It is transfers per second x populated channels x word size, from the SMBIOS tables if they can be read (by
dmidecode as root, or from udev), or else from the facts of the system's file. Otherwise it is unknown, with a
reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from firsttouch.host import memory_modules
from firsttouch.host.memory_modules import Installed, Module
from firsttouch.systems.definition import load as load_system
from firsttouch.systems.facts import Facts


class Theoretical(Struct, frozen=True):
    """The theoretical bandwidth of all memory of a host (bytes/s), None if it is unknown because of *reason*."""

    bytes_per_second: float | None
    channels: int | None = None
    transfer_rate: float | None = None
    source: str = ""
    reason: str = ""


def from_modules(modules: Sequence[Module]) -> Theoretical:
    """Return the bandwidth of these modules; a channel is as fast as its slowest module."""
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


def from_facts(facts: Facts, source: str) -> Theoretical:
    """Return the bandwidth from a system's facts: one package's, times the number of packages."""
    per_package = facts.theoretical_bandwidth()
    if per_package is None or facts.channels_per_package is None:
        reason = "the facts lack the memory's channels or transfer rate"
        return Theoretical(None, source=source, reason=reason)
    channels = facts.channels_per_package * facts.packages
    return Theoretical(per_package * facts.packages, channels, facts.transfer_rate, source=source)


def read_host(system: str | None = None, installed: Installed | None = None) -> Theoretical:
    """Return the bandwidth from SMBIOS, else from the file of *system*, else the reasons against both.

    *installed* are the host's modules (None: they are read).
    """
    installed = installed or memory_modules.read_modules()
    # EDAC shows no speed: the reason is why SMBIOS could not be read.
    no_smbios = Theoretical(None, source="SMBIOS", reason=installed.reason)
    smbios = no_smbios if installed.reason else from_modules(installed.modules)
    if smbios.bytes_per_second or system is None:
        return smbios
    fallback = from_facts(load_system(system).facts, f"facts of the system '{system}'")
    if fallback.bytes_per_second:
        return fallback
    return Theoretical(None, source=fallback.source, reason=f"{smbios.reason}; {fallback.reason}")
