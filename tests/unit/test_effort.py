# SPDX-License-Identifier: Apache-2.0
"""The effort profiles of a characterization, and which records may be judged."""

from types import SimpleNamespace

import pytest

from factories import topologies
from firsttouch.benchmarks import profiles, stream
from firsttouch.errors import BadInput
from firsttouch.host import emulation
from firsttouch.host.topology import load
from firsttouch.records.schema import Record, software


def test_full_is_the_default_and_needs_no_word(monkeypatch):
    monkeypatch.delenv(profiles.VARIABLE, raising=False)
    assert profiles.chosen_effort().name == "full"
    assert profiles.chosen_effort().parameters == {}
    monkeypatch.setenv(profiles.VARIABLE, "")
    assert profiles.chosen_effort().name == "full"


def test_quick_says_so(monkeypatch):
    monkeypatch.setenv(profiles.VARIABLE, "quick")
    assert profiles.chosen_effort().parameters == {"effort": "quick"}
    assert profiles.chosen_effort().repetitions == 1


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        (profiles.VARIABLE, "lazy", "FIRSTTOUCH_EFFORT .*'lazy': .*full, quick"),
        (profiles.ALIGNERS_VARIABLE, "bwa", "FIRSTTOUCH_MEASURED_ALIGNERS .*'bwa'"),
        (profiles.CACHE_VARIABLE, "warm", "FIRSTTOUCH_INDEX_CACHE .*'warm': .*as-is"),
    ],
)
def test_an_unknown_value(monkeypatch, variable, value, says):
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadInput, match=says):
        (profiles.index_cache if variable == profiles.CACHE_VARIABLE else profiles.chosen_effort)()


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("", ("bwa-mem",)), ("bowtie2, snap,bowtie2", ("bowtie2", "snap")), ("all", None), ("snap,all", None)],
)
def test_named_aligners_go_before_those_of_an_effort(monkeypatch, variable, expected):
    monkeypatch.setenv(profiles.VARIABLE, "quick")
    monkeypatch.setenv(profiles.ALIGNERS_VARIABLE, variable)
    assert profiles.chosen_effort().aligners == expected


def test_every_effort_is_whole():
    for effort in profiles.efforts().values():
        assert effort.title
        assert set(effort.kernels) <= set(stream.KERNELS)
        assert {effort.pu_nodes, effort.banks, effort.pu_sets, effort.threads, effort.instances} <= {"all", "ends"}
        assert min(effort.repetitions, effort.point_microseconds) >= 1
    assert profiles.efforts()["full"].kernels == stream.KERNELS


@pytest.mark.parametrize(("nodes", "banks"), [([0], [0, 7]), ([5], [5, 7]), (list(range(8)), [0, 7])])
def test_the_ends_are_the_nearest_and_the_farthest_bank(nodes, banks):
    host = load(xml=topologies.OPTERON)
    chosen = profiles.efforts()["quick"].banks_of(host, nodes, range(8))
    total = {bank: sum(host.distance(node, bank) for node in nodes) for bank in range(8)}
    assert {total[bank] for bank in chosen} == {min(total.values()), max(total.values())}
    assert profiles.efforts()["full"].banks_of(host, nodes, range(8)) == list(range(8))


@pytest.mark.parametrize(
    ("vendor", "product", "model", "emulator"),
    [
        ("firsttouch", "QEMU with tcg", "AMD Opteron(tm) Processor 6376", "QEMU with tcg"),
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "QEMU TCG CPU version 2.5+", "QEMU TCG CPU"),
        # Virtual machines run on real memory and are judged.
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "Intel(R) Xeon(R) Processor @ 2.50GHz", ""),
        ("Amazon EC2", "c7g.metal", "AMD EPYC 9R14", ""),
        (None, None, None, ""),
    ],
)
def test_only_the_host_itself_says_that_it_is_emulated(tmp_path, vendor, product, model, emulator):
    if vendor is not None:
        firmware = tmp_path / "sys/class/dmi/id"
        firmware.mkdir(parents=True)
        (firmware / "sys_vendor").write_text(f"{vendor}\n")
        (firmware / "product_name").write_text(f"{product}\n")
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {model}\nflags\t\t: fpu\n")
    assert emulation.emulator(tmp_path) == emulator


def test_speed_of_an_emulated_host_is_not_judged(monkeypatch):
    monkeypatch.setattr(emulation, "emulator", lambda: "QEMU with tcg")
    assert software(bwa="0.7")["emulator"] == "QEMU with tcg"
    rate = Record("bandwidth", "copy_bandwidth", "GB/s", "higher", (1.0,), software=software())
    count = Record("topology", "pus", "1", "neither", (64.0,), software=software())
    assert (rate.judged, count.judged) == (False, True)
    monkeypatch.setattr(emulation, "emulator", lambda: "")
    assert "emulator" not in software()
    assert Record("bandwidth", "copy_bandwidth", "GB/s", "higher", (1.0,), software=software()).judged


# ----------------------------------------------------------------------
# One name for a host, whatever its hostname has behind it


@pytest.mark.parametrize(
    ("hostname", "node", "name"),
    [
        ("n1", "", "n1"),
        ("n1.cluster.example", "", "n1"),
        ("n1.cluster.example", "node-1", "node-1"),
        ("10.0.0.7", "", "10.0.0.7"),
    ],
)
def test_slurms_name_or_the_short_one(monkeypatch, hostname, node, name):
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename=hostname))
    monkeypatch.setenv("SLURMD_NODENAME", node)
    assert emulation.host_name() == name
    assert Record("topology", "pus", "1", "neither", (1.0,)).host == name
