# SPDX-License-Identifier: Apache-2.0
"""The real dmidecode on generated tables (DMTF DSP0134, types 17 and 20) and on this host's tables."""

import shutil
import struct

import pytest

from factories.processes import captured
from firsttouch.benchmarks import correctness
from firsttouch.host import memory_modules, topology
from firsttouch.systems import theoretical_bandwidth

DMIDECODE = shutil.which("dmidecode", path="/usr/sbin:/sbin:/usr/bin:/bin")
NOT_THERE = pytest.mark.skipif(DMIDECODE is None, reason="dmidecode is not installed")
DDR4, FLASH = 0x1A, 0x09


def memory_device(number, size_mib, locator, *, bank="", speed=2400, kind=DDR4, serial=""):
    """Return structure 17 (SMBIOS 3.2, up to the configured speed) with its strings."""
    size, most = min(size_mib, 0x7FFF), speed and speed + 133
    fixed = struct.pack(
        "<BBHHHHHHBBBBBHHBBBBBIH",
        *(17, 34, 0x1100 + number, 0x1000, 0xFFFE, 72, 64, size, 9, 0, 1, 2, kind, 0, most),
        *(0, 3 if serial else 0, 0, 0, 1, size_mib if size == 0x7FFF else 0, speed),
    )
    strings = [locator, bank, *([serial] if serial else [])]
    return fixed + b"\0".join(text.encode() for text in strings) + b"\0\0"


def mapped_address(number, first, last, module):
    """Return structure 20 of the bytes from *first* to *last*, in the long form beyond 4 TiB."""
    long = last >= 1 << 42
    ends = (0xFFFFFFFF, 0xFFFFFFFF, first, last) if long else (first >> 10, last >> 10, 0, 0)
    fields = (20, 35, 0x1400 + number, *ends[:2], 0x1100 + module, 0x1300, 1, 0, 0, *ends[2:])
    return struct.pack("<BBHIIHHBBBQQ", *fields) + b"\0\0"


def dump(file, devices):
    """Write a file as ``dmidecode --dump-bin`` does: an entry point, followed by the table."""
    table = b"".join(devices) + struct.pack("<BBH", 127, 4, 0xFFFE) + b"\0\0"

    def summed(data, at):
        return data[:at] + bytes([-sum(data) % 256]) + data[at + 1 :]

    second = summed(struct.pack("<5sBHIHB", b"_DMI_", 0, len(table), 32, len(devices) + 1, 0x28), 5)
    first = summed(struct.pack("<4sBBBBHB5s", b"_SM_", 0, 31, 2, 8, 256, 0, b"") + second, 4)
    file.write_bytes(first.ljust(32, b"\0") + table)


def decoded(tmp_path, devices, types="17"):
    dump(tmp_path / "dmi.bin", devices)
    done = captured([DMIDECODE, "--from-dump", tmp_path / "dmi.bin", "--type", types], check=True)
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
    memory = theoretical_bandwidth.of_modules(modules)
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
    memory = theoretical_bandwidth.of_modules(memory_modules.parse(decoded(tmp_path, devices)))
    if channels is None:
        assert memory.bytes_per_second is None
        assert "do not contain their channels" in memory.reason
        assert locators[0][0] in memory.reason
    else:
        assert memory.bytes_per_second == pytest.approx(channels * 2.933e9 * 8)


@NOT_THERE
def test_no_speed_and_no_module(tmp_path):
    silent = [memory_device(0, 8192, "DIMM_A1", speed=0)]
    assert "speed" in theoretical_bandwidth.of_modules(memory_modules.parse(decoded(tmp_path, silent))).reason
    empty = [memory_device(0, 0, "DIMM_A1")]
    assert (
        "no populated" in theoretical_bandwidth.of_modules(memory_modules.parse(decoded(tmp_path, empty))).reason
    )


GIB, TIB = 1 << 30, 1 << 40


@NOT_THERE
def test_the_modules_of_an_address(tmp_path):
    """Two interleaved modules, one that is not, and one beyond 4 TiB; some firmware has no serial numbers."""
    devices = [
        memory_device(0, 16384, "DIMM_A1", bank="P0 CHANNEL A", serial="0A1B2C"),
        memory_device(1, 16384, "DIMM_B1", bank="P0 CHANNEL B", serial="3D4E5F"),
        memory_device(2, 16384, "DIMM_C1", bank="Not Specified"),
        memory_device(3, 16384, "DIMM_D1", bank="P1", serial="Unknown"),
        *(mapped_address(number, 0, 32 * GIB - 1, number) for number in (0, 1)),
        mapped_address(2, 32 * GIB, 48 * GIB - 1, 2),
        mapped_address(3, 5 * TIB, 5 * TIB + 16 * GIB - 1, 3),
    ]
    text = decoded(tmp_path, devices, "17,20")
    both = ["DIMM_A1, P0 CHANNEL A, serial number 0A1B2C", "DIMM_B1, P0 CHANNEL B, serial number 3D4E5F"]
    for address, modules in {
        0: both,
        32 * GIB - 8: both,
        32 * GIB: ["DIMM_C1"],
        5 * TIB + 8: ["DIMM_D1, P1"],
    }.items():
        assert memory_modules.mapped(text, address) == (modules, "")
    modules, reason = memory_modules.mapped(text, 48 * GIB)
    assert (modules, "no module has this address" in reason) == ([], True)
    # The modules themselves are the same as without their addresses.
    assert memory_modules.parse(text) == memory_modules.parse(decoded(tmp_path, devices))


@NOT_THERE
def test_a_wrong_word_names_the_module_that_holds_it(tmp_path, stand_in):
    """The real dmidecode prints made-up tables, in which one module has all addresses of this host."""
    devices = [
        memory_device(0, 16384, "DIMM_A1", bank="P0", serial="0A1B2C"),
        mapped_address(0, 0, 4 * TIB - 1, 0),
    ]
    dump(tmp_path / "dmi.bin", devices)
    stand_in("dmidecode", f'exec {DMIDECODE} --from-dump {tmp_path}/dmi.bin "$@"')
    messages = []
    fault = f"--inject={min(topology.load().allowed_pus)},memory,5,1000"
    records = [r for step in correctness.measured(["--sanity", fault], messages.append) for r in step]
    (word,) = (r for r in records if r.metric == correctness.WORDS and r.value)
    if "physical_address" not in word.parameters:
        pytest.skip("the kernel shows physical addresses to root only")
    assert word.parameters["modules"] == ["DIMM_A1, P0, serial number 0A1B2C"]
    assert any(word.parameters["physical_address"] in line and "DIMM_A1" in line for line in messages)


@NOT_THERE
def test_firmware_that_states_no_addresses(tmp_path):
    modules, reason = memory_modules.mapped(decoded(tmp_path, [memory_device(0, 16384, "A1")], "17,20"), 0)
    assert (modules, "SMBIOS type 20" in reason) == ([], True)


def test_this_host_has_a_figure_or_a_reason():
    memory = theoretical_bandwidth.of_this_host()
    assert (memory.bytes_per_second is None) == bool(memory.reason)
    assert memory.bytes_per_second is None or memory.bytes_per_second > 1e9
