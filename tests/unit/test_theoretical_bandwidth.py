# SPDX-License-Identifier: Apache-2.0
"""The theoretical bandwidth (formula 3.1) from SMBIOS, from a system's facts, or unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttouch.errors import BadInput
from firsttouch.host import memory_modules
from firsttouch.host.memory_modules import Module
from firsttouch.systems import theoretical_bandwidth
from firsttouch.systems.theoretical_bandwidth import Theoretical


def test_stored_output(golden):
    modules = memory_modules.parse(golden("dmidecode_type_17.txt"))
    assert [m.locator for m in modules] == [f"P{p}-DIMM{c}1" for p in "12" for c in "ABCD"]
    theoretical = theoretical_bandwidth.of_modules(modules)
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
        theoretical = theoretical_bandwidth.of_modules(modules)
        assert (theoretical.bytes_per_second is None) == bool(theoretical.reason)


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from([1.6e9, 2.4e9, 3.2e9])), min_size=1))
def test_each_channel_counts_once_at_its_slowest(modules):
    theoretical = theoretical_bandwidth.of_modules([Module("", f"p0 channel {c}", r, 64) for c, r in modules])
    slowest = {c: min(r for d, r in modules if d == c) for c, _ in modules}
    assert theoretical.bytes_per_second == pytest.approx(8 * sum(slowest.values()))
    assert theoretical.channels == len(slowest)


def test_facts_replace_an_unreadable_smbios_table(stand_in):
    stand_in(
        "dmidecode", "echo '# dmidecode 3.4'; echo '/sys/firmware/dmi/tables/DMI: Permission denied' >&2; exit 1"
    )
    assert "Permission denied" in theoretical_bandwidth.of_this_host().reason
    theoretical = theoretical_bandwidth.of_this_host("amd-opteron")
    assert (theoretical.bytes_per_second, theoretical.source) == (204.8e9, "facts of the system 'amd-opteron'")


def test_smbios_comes_first(stand_in, tmp_path, golden):
    (tmp_path / "table").write_text(golden("dmidecode_type_17.txt"))
    stand_in("dmidecode", f'test "$*" = "--type 17" && cat {tmp_path / "table"}')
    theoretical = theoretical_bandwidth.of_this_host("amd-opteron")
    assert (theoretical.bytes_per_second, theoretical.source) == (102.4e9, "SMBIOS")


def test_percent_of_the_banks_share():
    assert Theoretical(80e9).percent(5e9, 1, 8) == pytest.approx(50)
    assert Theoretical(80e9).percent(15e9, 2, 8) == pytest.approx(75)
    assert Theoretical(None, reason="x").percent(5e9, 1, 8) is None
