# SPDX-License-Identifier: Apache-2.0
"""The configuration of a host, from stored files of the kernel, and its memory modules from every source."""

from pathlib import Path

import pytest
from msgspec import structs

from factories.stored_roots import configured_root
from firsttouch.benchmarks import measure
from firsttouch.host import configuration, memory_modules, topology
from firsttouch.records.schema import Record
from firsttouch.report.pages import build

HUGE, MODES = "sys/kernel/mm/transparent_hugepage", ("always", "inherit", "madvise", "never")
MEMPOLICY, TIERING = "sys/kernel/mm/mempolicy/weighted_interleave", "sys/devices/virtual/memory_tiering"
SCHED_EXT, CGROUP, LIMIT = "sys/kernel/sched_ext", "sys/fs/cgroup", "cgroup.memory.max"
OPS = str(Path(SCHED_EXT, "root", "ops"))
#: A process in a cgroup below its job's.
JOB = {"proc/self/cgroup": "12:cpuset:/\n0::/job/step"}


def host_of(nodes):
    """A topology whose PUs are in packages of these numbers of NUMA nodes."""
    host = topology.read_host()
    numbers = [(package, node) for package, count in enumerate(nodes) for node in range(count)]
    pus = tuple(topology.Pu(i, i, p, 10 * p + node) for i, (p, node) in enumerate(numbers))
    caches = [
        topology.Cache(level, size, frozenset()) for level, size in ((2, 1 << 20), (1, 48 << 10), (2, 1 << 20))
    ]
    distances = {(0, 0): 10, (0, 1): 21, (1, 0): 21, (1, 1): 10}
    shown = {"caches": tuple(caches), "distances": distances} if nodes else {"caches": (), "distances": {}}
    return structs.replace(host, pus=(*pus, topology.Pu(99, 99, 0, None)), **shown)


def test_the_settings_of_a_server(tmp_path):
    now = configuration.read(host_of([2, 2]), configured_root(tmp_path))
    assert now.settings["firmware.vendor"] == "Dell Inc."
    assert now.settings["firmware.version"] == "2.3.1"
    assert now.settings["cpu.microcode"] == "0x2b0004d0 (1 of 4), 0x2b000590 (3 of 4)"
    assert now.settings["cpu.model"] == "Xeon 6430"
    assert now.settings["cpu.governor"] == "performance (3 of 4), powersave (1 of 4)"
    assert now.settings["cpu.frequency_range"] == "800 to 3400 MHz"
    assert now.settings["cpu.turbo"] == "off"
    assert now.settings["cpu.caches"] == "L1 48 KiB, L2 1 MiB"
    assert now.settings["numa.distances"] == "0: 0=10 1=21; 1: 0=21 1=10"
    assert now.settings["cpu.idle_states"] == "POLL, C1 2 us, C6 170 us (disabled)"
    assert now.settings["kernel.mitigations.l1tf"] == "Not affected"
    assert now.settings["memory.huge_pages"] == "madvise"
    assert now.settings["memory.huge_pages_defrag"] == "defer+madvise"
    assert now.settings["memory.huge_pages_reserved"] == "2048 kB: 512, 1048576 kB: 4"
    assert now.settings["numa.nodes_per_package"] == "2"
    module = "memory.modules.CPU_SrcID#1_MC#0_Chan#1_DIMM#0"
    assert now.settings[module] == "32 GiB DDR5, channel mc1 1"
    assert now.provenance == {"memory.modules": "edac"}
    # A setting that cannot be read or says nothing is absent.
    assert {"board.vendor", "memory.huge_pages_shmem", "cpu.energy_preference"}.isdisjoint(now.settings)
    assert all(now.settings.values())


@pytest.mark.parametrize(
    ("files", "setting", "expected"),
    [
        ({"sys/devices/system/cpu/cpufreq/boost": "1"}, "cpu.turbo", "on"),
        ({"sys/devices/system/cpu/cpu2/cpuidle/state0/disable": "1"}, "cpu.idle_states", "POLL (disabled on 1 of"),
        (
            {
                f"sys/devices/system/cpu/intel_uncore_frequency/package_0{p}_die_00/{end}_freq_khz": text
                for p in range(2)
                for end, text in (("min", "800000"), ("max", "2500000"))
            },
            "cpu.uncore_frequency_range",
            "800 to 2500 MHz",
        ),
        (
            {
                "proc/cpuinfo": "processor\t: 0",
                "sys/devices/system/cpu/cpu0/regs/identification/midr_el1": "0x00000000413fd0c1",
            },
            "cpu.model",
            "MIDR 0x00000000413fd0c1",
        ),
        (
            {
                f"{HUGE}/hugepages-{size}kB/enabled": " ".join(f"[{m}]" if m == mode else m for m in MODES)
                for size, mode in (("2048", "inherit"), ("64", "always"), ("128", "never"), ("16", "never"))
            },
            "memory.huge_pages_sizes",
            "always: 64 kB; inherit: 2048 kB; never: 16, 128 kB",
        ),
        ({"sys/kernel/mm/numa/demotion_enabled": "true"}, "memory.demotion", "true"),
        (
            {f"{MEMPOLICY}/node{node}": str(weight) for node, weight in ((10, 1), (2, 9))},
            "memory.interleave_weights",
            "2: 9, 10: 1",
        ),
        (
            {f"{TIERING}/memory_tier{tier}/nodelist": nodes for tier, nodes in ((22, "2-3"), (4, "0-1"))},
            "memory.tiers",
            "4: 0-1, 22: 2-3",
        ),
        ({f"{SCHED_EXT}/state": "disabled"}, "kernel.sched_ext", "disabled"),
        ({f"{SCHED_EXT}/state": "enabled", OPS: "scx_lavd"}, "kernel.sched_ext", "scx_lavd"),
        ({**JOB, f"{CGROUP}/job/memory.max": "4096", f"{CGROUP}/job/step/memory.max": "max"}, LIMIT, "4096"),
        ({**JOB, f"{CGROUP}/job/step/cpu.max": "max 100000"}, "cgroup.cpu.max", "max"),
        ({**JOB, f"{CGROUP}/job/cpu.max": "150000 100000"}, "cgroup.cpu.max", "150000 100000"),
    ],
)
def test_other_processors_and_kernels(tmp_path, files, setting, expected):
    root = configured_root(tmp_path, files)
    if "boost" in str(files):
        (root / "sys/devices/system/cpu/intel_pstate/no_turbo").unlink()
    read = configuration.read(host_of([1]), root).settings.get(setting, "")
    assert read.startswith(expected)
    assert bool(read) == bool(expected)


@pytest.mark.parametrize(
    ("flags", "vendor", "product", "expected"),
    [
        ("flags\t: fpu hypervisor sse", "Dell Inc.", "", "yes"),
        ("flags\t: fpu sse", "Amazon EC2", "c6a.metal", None),
        ("", "Amazon EC2", "c7g.metal", None),
        ("", "Amazon EC2", "c7g.2xlarge", "yes"),
        ("", "QEMU", "KVM Virtual Machine", "yes"),
        ("", "", "", None),
    ],
)
def test_a_virtual_machine_says_so(tmp_path, flags, vendor, product, expected):
    dmi = {"sys/class/dmi/id/sys_vendor": vendor, "sys/class/dmi/id/product_name": product}
    root = configured_root(tmp_path, {"proc/cpuinfo": flags, **dmi})
    assert configuration.read(host_of([1]), root).settings.get(configuration.VIRTUAL) == expected


def test_a_host_that_shows_nothing(tmp_path):
    assert configuration.read(host_of([]), tmp_path).settings == {}
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_bytes(b"\xff\xfe")
    assert configuration.read(host_of([1, 2]), tmp_path).settings == {
        "numa.nodes_per_package": "1 or 2",
        "numa.distances": "0: 0=10 1=21; 1: 0=21 1=10",
        "cpu.caches": "L1 48 KiB, L2 1 MiB",
    }


UDEV = """\
I:62
E:MEMORY_ARRAY_NUM_DEVICES=4
E:MEMORY_DEVICE_0_DATA_WIDTH=64
E:MEMORY_DEVICE_0_SIZE=34359738368
E:MEMORY_DEVICE_0_LOCATOR=A1
E:MEMORY_DEVICE_0_BANK_LOCATOR=P0 CHANNEL A
E:MEMORY_DEVICE_0_TYPE=DDR4
E:MEMORY_DEVICE_0_SPEED_MTS=3200
E:MEMORY_DEVICE_0_CONFIGURED_SPEED_MTS=2933
E:MEMORY_DEVICE_1_PRESENT=0
E:MEMORY_DEVICE_1_LOCATOR=A2
E:MEMORY_DEVICE_10_SIZE=536870912
E:MEMORY_DEVICE_10_LOCATOR=A1
E:MEMORY_DEVICE_10_BANK_LOCATOR=P1 CHANNEL A
E:MEMORY_DEVICE_10_TYPE=<OUT OF SPEC>
"""


def test_modules_from_udev_need_no_root(tmp_path):
    root = configured_root(tmp_path, {"run/udev/data/+dmi:id": UDEV})
    installed = memory_modules.read_modules(root)
    assert (installed.source, installed.reason) == ("udev", "")
    assert {slot: module.text() for slot, module in installed.by_slot().items()} == {
        "A1 p0 a": "32 GiB DDR4-3200, configured 2933 MT/s, channel p0 a",
        "A1 p1 a": "512 MiB, channel p1 a",
    }
    assert installed.modules[0].data_bits == 64


def test_slots_of_equal_names_are_all_kept(golden):
    modules = memory_modules.parse(golden("dmidecode_type_17.txt"))
    unnamed = [structs.replace(module, locator="DIMM", channel="") for module in modules]
    assert list(memory_modules.Installed(tuple(unnamed), "dmidecode").by_slot())[:3] == [
        "DIMM",
        "DIMM #2",
        "DIMM #3",
    ]
    assert modules[0].text() == "16 GiB DDR4-1733, configured 1600 MT/s, 1 rank, channel p1 a"


def test_ranks_and_labels_of_other_edac_drivers(tmp_path):
    base = "sys/devices/system/edac/mc/mc0/"
    ranks = {"rank0/dimm_label": "mc#0csrow#0channel#0", "rank0/size": "8192", "rank1/size": "0"}
    for name, text in {**ranks, "rank0/dimm_location": "csrow 0 channel 0", "dimm2/size": "16384"}.items():
        (tmp_path / base / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / base / name).write_text(text + "\n")
    slots = memory_modules.read_modules(tmp_path).by_slot()
    assert {slot: module.text() for slot, module in slots.items()} == {
        "mc0 dimm2": "16 GiB, channel mc0",
        "mc#0csrow#0channel#0": "8 GiB, channel mc0 0",
    }


def test_a_measurement_of_the_topology_has_the_configuration(stand_in):
    stand_in("dmidecode", "exit 1")
    records = list(measure.topology(topology.read_host(), say=lambda _: None))
    (record,) = [r for r in records if r.check == "configuration"]
    settings = record.parameters["settings"]
    assert settings["kernel.release"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert record.value == len(settings)
    assert all(isinstance(value, str) and value for value in settings.values())


def test_the_page_of_a_host_lists_the_newest_settings(tmp_path):
    records = [
        Record(
            *("configuration", "settings", "1", "neither", (1,), {"settings": {"cpu.smt": smt}}),
            time=f"2026-01-0{day}T12:00:00+00:00",
            host="n1",
        )
        for day, smt in enumerate(["on", "off <b>"], start=1)
    ]
    build(records, tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert ">cpu.smt</th><td>off &lt;b&gt;<" in page
    assert page.count("cpu.smt") == 1


def card(folder, name, address, *, assigned="0", virtual=False, bonded=""):
    """Lay out a network interface; *assigned* is how it got its address, *bonded* the address of its bond."""
    interface = folder / "sys/class/net" / name
    interface.mkdir(parents=True)
    (interface / "addr_assign_type").write_text(f"{'3' if bonded else assigned}\n")
    (interface / "address").write_text(f"{bonded or address}\n")
    if not virtual:
        (interface / "device").mkdir()
    if bonded:
        (interface / "bonding_slave").mkdir()
        (interface / "bonding_slave/perm_hwaddr").write_text(f"{address}\n")


def test_parts_are_told_by_hashes_of_what_only_they_have(tmp_path):
    def read(number, board=None, ppin=None, **cards):
        root = tmp_path / str(number)
        card(root, "lo", "00:00:00:00:00:00", virtual=True)
        card(root, "veth1", "9a:00:00:00:00:01", assigned="1")
        card(root, "usb0", "02:11:22:33:44:55")
        card(root, "eth0", "10:00:00:00:00:01", **cards)
        card(root, "eth1", f"10:00:00:00:01:0{number}")
        files = {
            f"sys/devices/system/cpu/cpu{pu}/topology/ppin": f"0x{ppin + pu // 2:x}" for pu in range(4) if ppin
        }
        files |= {"sys/class/dmi/id/board_serial": board} if board else {}
        return configuration.identities(configured_root(root, files))

    seen = read(1)
    assert set(seen) == {"interfaces"}
    assert len(set(seen["interfaces"].split())) == 2
    assert all(len(word) == 12 for word in seen["interfaces"].split())
    # A bond changes no address that a card was made with.
    bonded = read(2, bonded="10:00:00:00:00:01")
    assert len({*seen["interfaces"].split(), *bonded["interfaces"].split()}) == 3
    as_root = read(3, board="CN123", ppin=0xA0)
    assert set(as_root) == {"board", "processors", "interfaces"}
    assert "CN123" not in str(as_root)
    assert read(4, board="CN124", ppin=0xA0)["board"] != as_root["board"]
    assert read(5, board="CN123", ppin=0xA1)["processors"] != as_root["processors"]
    assert read(6, board="Default string", ppin=0)["interfaces"]
    assert set(read(7, board="Default string")) == {"interfaces"}
    assert configuration.identities(tmp_path / "nothing") == {}
