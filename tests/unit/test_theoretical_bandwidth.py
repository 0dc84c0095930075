# SPDX-License-Identifier: Apache-2.0
"""The theoretical bandwidth (formula 3.1) from SMBIOS, from a system's facts, or unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttouch.errors import BadInput
from firsttouch.host import memory_modules
from firsttouch.host.memory_modules import Module, socket_of
from firsttouch.systems import definition


def test_stored_output(golden):
    modules = memory_modules.parse(golden("dmidecode_type_17.txt"))
    assert [m.locator for m in modules] == [f"P{p}-DIMM{c}1" for p in "12" for c in "ABCD"]
    theoretical = definition.theoretical_of_modules(modules)
    assert (theoretical.bytes_per_second, theoretical.channels, theoretical.transfer_rate) == (
        2 * 51.2e9,
        8,
        1.6e9,
    )
    assert theoretical.reason == ""


def test_older_words_for_the_speed(golden):
    old = golden("dmidecode_type_17.txt").replace("Configured Memory Speed", "Configured Clock Speed")
    old = old.replace("MT/s", "MHz")
    assert memory_modules.parse(old) == memory_modules.parse(golden("dmidecode_type_17.txt"))
    without = "\n".join(line for line in old.splitlines() if "Configured" not in line)
    assert {m.transfer_rate for m in memory_modules.parse(without)} == {1.733e9}


@pytest.mark.parametrize(
    "text", ["", "# dmidecode 3.4\n/dev/mem: Permission denied\n", "\0\0", "Memory Device of"]
)
def test_other_output(text):
    with pytest.raises(BadInput, match="no 'Memory Device'"):
        memory_modules.parse(text)


@given(st.text())
def test_any_text_is_read_or_refused(text):
    for given_text in (text, f"\nMemory Device\n\t{text}: {text}\n"):
        try:
            modules = memory_modules.parse(given_text)
        except BadInput:
            continue
        theoretical = definition.theoretical_of_modules(modules)
        assert (theoretical.bytes_per_second is None) == bool(theoretical.reason)


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from([1.6e9, 2.4e9, 3.2e9])), min_size=1))
def test_each_channel_counts_once_at_its_slowest(modules):
    theoretical = definition.theoretical_of_modules([Module("", f"p0 channel {c}", r, 64) for c, r in modules])
    slowest = {c: min(r for d, r in modules if d == c) for c, _ in modules}
    assert theoretical.bytes_per_second == pytest.approx(8 * sum(slowest.values()))
    assert theoretical.channels == len(slowest)


def test_facts_replace_an_unreadable_smbios_table(stand_in):
    stand_in(
        "dmidecode", "echo '# dmidecode 3.4'; echo '/sys/firmware/dmi/tables/DMI: Permission denied' >&2; exit 1"
    )
    assert "Permission denied" in definition.theoretical_of_host().reason
    theoretical = definition.theoretical_of_host("amd-opteron")
    assert (theoretical.bytes_per_second, theoretical.source) == (204.8e9, "facts of the system 'amd-opteron'")


def test_smbios_comes_first(stand_in, tmp_path, golden):
    (tmp_path / "table").write_text(golden("dmidecode_type_17.txt"))
    stand_in("dmidecode", f'test "$*" = "--type 17" && cat {tmp_path / "table"}')
    theoretical = definition.theoretical_of_host("amd-opteron")
    assert (theoretical.bytes_per_second, theoretical.source) == (102.4e9, "SMBIOS")


# ----------------------------------------------------------------------
# Sockets and channels in the names that firmware gives to memory slots


LETTERS = "ABCDEFGH"


def table(*slots):
    """Return dmidecode's text of populated slots: locator, bank locator and asset tag."""
    return "\n\n".join(
        f"Handle 0x{number:04x}, DMI type 17, 84 bytes\nMemory Device\n\tSize: 32 GB\n\tLocator: {locator}\n"
        f"\tBank Locator: {bank}\n\tType: DDR5\n\tAsset Tag: {tag}"
        for number, (locator, bank, tag) in enumerate(slots)
    )


def channels(*slots):
    return [module.channel for module in memory_modules.parse(table(*slots))]


@pytest.mark.parametrize(
    ("locator", "bank", "tag", "channel", "socket"),
    [
        ("CPU0 CH1 D0", "BANK 1", "", "cpu0 1", 0),
        ("CPU1 Channel3 DIMM0", "NODE 5", "", "cpu1 3", 1),
        ("CPU1_C3D0", "NODE 1", "", "cpu1 3", 1),
        ("CPU1_DIMM_A1", "NODE 4", "", "cpu1 a", 1),
        ("CPU0_MC1_DIMM_A1", "", "", "cpu0 mc1 a", 0),
        ("P2-DIMMA1", "P0_Node0_Channel0_Dimm0", "", "p2 a", 2),
        ("DIMM", "Not Specified", "CPU0_DIMM_A_AssetTag", "cpu0 a", None),
        ("DIMM 1", "Not Specified", "P1-DIMMB1_AssetTag (date:21/05)", "p1 b", None),
        ("PROC 1 DIMM 4", "CHANNEL B", "", "p1 b", 1),
        ("A1", "P1_Node1_Channel2_Dimm0", "", "p1_node1_2", None),
        ("DIMM020", "_Node0_Channel2_Dimm0", "", "_node0_2", None),
        ("DIMM_E1", "NODE 1 CHANNEL 0 DIMM 0", "", "node 1 0", None),
        ("Controller1-ChannelA-DIMM0", "BANK 0", "", "controller1-a", None),
        # No channel, or nothing that is known.
        ("PROC  1 DIMM  6", "Not Specified", "", "", 1),
        ("A1", "Not Specified", "", "", None),
        ("RIMM X", "CPU", "CPU0_DIMM", "", None),
    ],
)
def test_channel_and_socket_of_a_slot(locator, bank, tag, channel, socket):
    assert channels((locator, bank, tag)) == [channel]
    assert socket_of(locator) == socket


@pytest.mark.parametrize(
    ("locator", "bank", "tag"),
    [
        ("CPU{s} CH{n} D0", "BANK {n}", ""),
        ("CPU{s}_DIMM_{c}1", "NODE {s}", ""),
        ("P{p}-DIMM{c}1", "P0_Node0_Channel{n}_Dimm0", ""),  # the bank locators of socket 0 twice
        ("DIMM_P{s}_{c}0", "BANK {n}", ""),
        ("DIMM {n}", "P{s} CHANNEL {c}", ""),
        ("{c}1", "P{s}_Node{s}_Channel{n}_Dimm0", ""),
        ("DIMM_{c}1", "NODE {p}", ""),
        ("DIMM{s}{n}0", "_Node{s}_Channel{n}_Dimm0", ""),
        ("DIMM", "", "CPU{s}_DIMM_{c}_AssetTag"),
        ("PROC {p} DIMM {n}", "CHANNEL {c}", ""),
        ("PROC {p} DIMM {n}", "Not Specified", ""),
        ("DIMM_{c}1", "BANK {n}", ""),  # nothing tells the sockets apart
        ("DIMM {n}", "CHANNEL {c}", ""),
    ],
)
def test_no_channel_has_slots_of_two_sockets(locator, bank, tag):
    places = [{"s": s, "p": s + 1, "n": n, "c": LETTERS[n]} for s in range(2) for n in range(8)]
    slots = [tuple(text.format(**place) for text in (locator, bank, tag)) for place in places]
    sockets = {}
    for place, channel in zip(places, channels(*slots), strict=True):
        if channel:
            sockets.setdefault(channel, set()).add(place["s"])
    assert all(len(numbers) == 1 for numbers in sockets.values())
    assert len(sockets) in {0, 16}


def test_a_slot_keeps_its_name_if_its_namesake_is_empty():
    text = table(("A1", "P0 CHANNEL A", ""), ("A1", "P1 CHANNEL A", ""))
    both = memory_modules.Installed(memory_modules.parse(text), "dmidecode").by_slot()
    second = memory_modules.parse(text.replace("32 GB", "No Module Installed", 1))
    assert list(both) == ["A1 p0 a", "A1 p1 a"]
    assert list(memory_modules.Installed(second, "dmidecode").by_slot()) == ["A1 p1 a"]


def test_rank_and_maker():
    text = table(("A1", "", "")) + "\n\tRank: 2\n\tManufacturer: Samsung"
    assert memory_modules.parse(text)[0].text() == "32 GiB DDR5, 2 ranks, Samsung"
