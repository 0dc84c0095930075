# SPDX-License-Identifier: Apache-2.0
"""The real dmidecode on generated tables (DMTF DSP0134, type 17) and on this host's tables."""

import shutil
import struct

import pytest

from factories.processes import captured
from firsttouch.host import memory_modules
from firsttouch.systems import definition

DMIDECODE = shutil.which("dmidecode", path="/usr/sbin:/sbin:/usr/bin:/bin")
NOT_THERE = pytest.mark.skipif(DMIDECODE is None, reason="dmidecode is not installed")
DDR4, FLASH = 0x1A, 0x09


def memory_device(number, size_mib, locator, *, bank="", speed=2400, kind=DDR4):
    """Return structure 17 (SMBIOS 3.2, up to the configured speed) with its strings."""
    size, most = min(size_mib, 0x7FFF), speed and speed + 133
    fixed = struct.pack(
        "<BBHHHHHHBBBBBHHBBBBBIH",
        *(17, 34, 0x1100 + number, 0x1000, 0xFFFE, 72, 64, size, 9, 0, 1, 2, kind, 0, most),
        *(0, 0, 0, 0, 1, size_mib if size == 0x7FFF else 0, speed),
    )
    return fixed + b"\0".join(text.encode() for text in (locator, bank)) + b"\0\0"


def dump(file, devices):
    """Write a file as ``dmidecode --dump-bin`` does: an entry point, followed by the table."""
    table = b"".join(devices) + struct.pack("<BBH", 127, 4, 0xFFFE) + b"\0\0"

    def summed(data, at):
        return data[:at] + bytes([-sum(data) % 256]) + data[at + 1 :]

    second = summed(struct.pack("<5sBHIHB", b"_DMI_", 0, len(table), 32, len(devices) + 1, 0x28), 5)
    first = summed(struct.pack("<4sBBBBHB5s", b"_SM_", 0, 31, 2, 8, 256, 0, b"") + second, 4)
    file.write_bytes(first.ljust(32, b"\0") + table)


def decoded(tmp_path, devices):
    dump(tmp_path / "dmi.bin", devices)
    done = captured([DMIDECODE, "--from-dump", tmp_path / "dmi.bin", "--type", "17"], check=True)
    return done.stdout


@NOT_THERE
def test_two_packages_with_two_modules_on_a_channel_and_empty_slots(tmp_path):
    devices = []
    for package in (0, 1):
        for channel in range(4):
            for slot in (0, 1):
                bank = f"P{package}_Node{package}_Channel{channel}_Dimm{slot}"
                size = 0 if (channel, slot) == (3, 1) else 16384
                devices.append(
                    memory_device(len(devices), size, f"P{package + 1}-DIMM{slot}", bank=bank, speed=1600)
                )
    devices.append(memory_device(99, 16, "FLASH", bank="BIOS", speed=33, kind=FLASH))
    modules = memory_modules.parse(decoded(tmp_path, devices))
    assert len(modules) == 14
    # The configured speed counts, which is slower than the module's own.
    assert {(m.transfer_rate, m.data_bits) for m in modules} == {(1.6e9, 64)}
    memory = definition.theoretical_of_modules(modules)
    # Formula 3.1: 1600 x 4 x 64 / 8 for each of the two packages.
    assert (memory.bytes_per_second, memory.channels) == (2 * 51.2e9, 8)


@NOT_THERE
@pytest.mark.parametrize(
    ("locators", "channels"),
    [
        ([("DIMM 0", "P0 CHANNEL A"), ("DIMM 1", "P0 CHANNEL A"), ("DIMM 0", "P0 CHANNEL B")], 2),
        # These names contain the slot but not the channel.
        ([("A1", "Not Specified"), ("B1", "Not Specified")], None),
        ([("PROC 1 DIMM 1", "Not Specified"), ("PROC 1 DIMM 3", "Not Specified")], None),
    ],
)
def test_how_vendors_name_channels(tmp_path, locators, channels):
    devices = [
        memory_device(i, 32768, locator, bank=bank, speed=2933) for i, (locator, bank) in enumerate(locators)
    ]
    memory = definition.theoretical_of_modules(memory_modules.parse(decoded(tmp_path, devices)))
    if channels is None:
        assert memory.bytes_per_second is None
        assert "do not contain their channels" in memory.reason
        assert locators[0][0] in memory.reason
    else:
        assert memory.bytes_per_second == pytest.approx(channels * 2.933e9 * 8)


@NOT_THERE
def test_no_speed_and_no_module(tmp_path):
    silent = [memory_device(0, 8192, "DIMM_A1", speed=0)]
    assert "speed" in definition.theoretical_of_modules(memory_modules.parse(decoded(tmp_path, silent))).reason
    empty = [memory_device(0, 0, "DIMM_A1")]
    assert (
        "no populated" in definition.theoretical_of_modules(memory_modules.parse(decoded(tmp_path, empty))).reason
    )


def test_this_host_has_a_figure_or_a_reason():
    memory = definition.theoretical_of_host()
    assert (memory.bytes_per_second is None) == bool(memory.reason)
    assert memory.bytes_per_second is None or memory.bytes_per_second > 1e9
