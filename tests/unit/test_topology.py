# SPDX-License-Identifier: Apache-2.0
"""Topologies from hwloc's XML: what belongs to whom, what may be used, and what is refused."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import topologies
from factories.processes import write_program
from factories.stored_roots import stored_root
from firsttouch.cli import main
from firsttouch.cli.topology import describe
from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.host import topology
from firsttouch.host.topology import parse_xml
from firsttouch.scenarios import tiers
from firsttouch.scenarios.placement import plan


def pus(numbers, core=None):
    objects = "".join(f'<object type="PU" os_index="{n}" cpuset="{1 << n:#x}"/>' for n in numbers)
    return objects if core is None else f'<object type="Core" os_index="{core}">{objects}</object>'


def node(index, members, memory=1000, subtype=""):
    kind = f'subtype="{subtype}"' if subtype else ""
    cpuset = hex(sum(1 << m for m in members))
    return f'<object type="NUMANode" os_index="{index}" cpuset="{cpuset}" local_memory="{memory}" {kind}/>'


def machine(content, *, allowed_pus=0xFFFF, allowed_nodes=0xFF, version="2.0", after=""):
    return (
        f'<topology version="{version}"><object type="Machine" cpuset="0xffff" allowed_cpuset="{allowed_pus:#x}" '
        f'nodeset="0xff" allowed_nodeset="{allowed_nodes:#x}">{content}</object>{after}</topology>'
    )


def distances(kind, values, name="NUMALatency", indexing="os"):
    return (
        f'<distances2 type="{kind}" nbobjs="2" kind="5" name="{name}" indexing="{indexing}">'
        f'<indexes length="4">4 2 </indexes><u64values length="9">{values}</u64values></distances2>'
    )


SMALL = node(4, [0, 1]) + pus([0, 1]) + node(2, [2, 3]) + pus([2, 3])


@pytest.mark.parametrize("version", ["2.0", "3.0"])
def test_nodes_come_in_the_kernels_order(version):
    parsed = parse_xml(machine(SMALL, version=version))
    assert [n.index for n in parsed.numa_nodes] == [2, 4]
    assert parsed.node(4).pus == (0, 1)
    assert {p.index: p.numa_node for p in parsed.pus} == {0: 4, 1: 4, 2: 2, 3: 2}
    with pytest.raises(BadInput, match=r"NUMA node 3: .*2,4"):
        parsed.node(3)


def test_usable_pus_are_whole_cores_first():
    content = node(0, range(8)) + pus([0, 4], 0) + pus([1, 5], 1) + pus([2, 6], 0) + pus([3, 7], 1)
    parsed = parse_xml(machine(content))
    assert len({p.core for p in parsed.pus}) == 4  # the kernel's numbers of cores repeat
    assert parsed.usable_pus(0) == (0, 1, 2, 3, 4, 5, 6, 7)
    parsed = parse_xml(machine(content, allowed_pus=0b11110001))
    assert parsed.usable_pus(0) == (0, 5, 6, 7, 4)


def test_what_may_not_be_used_is_there_but_not_usable():
    parsed = parse_xml(machine(SMALL, allowed_pus=0b0111, allowed_nodes=1 << 4))
    assert parsed.allowed_pus == {0, 1, 2}
    assert parsed.usable_pus(2) == (2,)
    assert parsed.memory_nodes == (4,)
    assert parsed.cpu_nodes == (2, 4)
    assert [n["allowed"] for n in parsed.to_dict()["numa_nodes"]] == [False, True]


def test_memory_of_other_kinds_near_the_same_pus():
    near = [0, 1]
    content = (
        node(0, near, subtype="HBM")
        + node(1, near, subtype="DRAM")
        + node(2, near, subtype="GPUMemory")
        + node(3, near, memory=0)
        + pus(near)
    )
    parsed = parse_xml(machine(content))
    assert [n.pus for n in parsed.numa_nodes] == [(), (0, 1), (), ()]
    assert parsed.memory_nodes == (0, 1)
    assert parsed.cpu_nodes == (1,)


def test_ordinary_memory_comes_first():
    near = [0, 1]
    others = node(1, [], subtype="CXL-DRAM") + node(2, [], subtype="HBM") + node(3, [], subtype="CXL-GPUMemory")
    parsed = parse_xml(machine(node(0, near, subtype="DRAM") + others + pus(near)))
    assert parsed.memory_nodes == (0, 1, 2)
    assert parsed.data_nodes == (0,)
    only = parse_xml(machine(node(0, near, memory=0) + others + pus(near)))
    assert only.data_nodes == (1, 2)
    # High-bandwidth memory alone: it is what the PUs have.
    assert parse_xml(machine(node(2, near, subtype="HBM") + node(1, []) + pus(near))).data_nodes == (1, 2)


def test_huge_pages_are_set_aside():
    pages = "".join(
        f'<page_type size="{s}" count="{c}"/>' for s, c in ((4096, 100), (2097152, 3), (1073741824, 0))
    )
    content = node(0, [0], memory=9_000_000).replace("/>", f">{pages}</object>") + pus([0])
    assert parse_xml(machine(content)).node(0).huge_bytes == 3 * 2097152
    assert parse_xml(machine(SMALL)).node(4).huge_bytes == 0


def test_distances_are_the_firmwares():
    slit = distances("NUMANode", "10 21 31 10")
    others = distances("NUMANode", "1 2 3 4", name="NUMABandwidth") + distances("PU", "1 2 3 4")
    parsed = parse_xml(machine(SMALL, after=others + slit))
    assert (parsed.distance(4, 2), parsed.distance(2, 4), parsed.distance(4, 4)) == (21, 31, 10)
    assert parsed.to_dict()["distances"] == [[10, 31], [21, 10]]


@pytest.mark.parametrize("after", ["", distances("NUMANode", "10 20 10"), distances("NUMANode", "1 2 3 4", "x")])
def test_without_distances_those_of_linux(after):
    parsed = parse_xml(machine(SMALL, after=after))
    assert (parsed.distance(4, 4), parsed.distance(4, 2)) == (10, 20)
    assert parsed.to_dict()["distances"] is None


def test_caches_are_those_of_data():
    content = SMALL + "".join(
        f'<object type="{kind}" cpuset="0x3" depth="{kind[1]}" cache_size="{size}" cache_type="{what}"/>'
        for kind, size, what in (("L1Cache", 32, 1), ("L1iCache", 64, 2), ("L3Cache", 4096, 0))
    )
    parsed = parse_xml(machine(content))
    assert sorted((c.level, c.size_bytes) for c in parsed.caches) == [(1, 32), (3, 4096)]
    assert parsed.last_cache_bytes() == 4096
    assert parse_xml(machine(SMALL)).last_cache_bytes() == 0


@pytest.mark.parametrize("source", [topologies.made_up, topologies.of_corpus])
def test_memory_as_a_cache_of_memory_is_no_cache_of_a_processor(source):
    """Two Cascade Lakes with Optane in memory mode: DRAM of 96 GB lies in front of each bank."""
    parsed = parse_xml(source("side-caches"))
    assert {(c.level, c.size_bytes) for c in parsed.caches} == {(2, 1 << 20), (3, 28160 << 10)}
    assert parsed.last_cache_bytes() == 28160 << 10
    assert {n.side_cache_bytes for n in parsed.numa_nodes} == {96 << 30}


TIERED = node(0, [0, 1], subtype="DRAM") + pus([0, 1]) + node(1, [2, 3], subtype="DRAM") + pus([2, 3])


def test_tiers_by_kind_and_by_what_the_kernel_states():
    def layers(content):
        return [(tier.name, tier.banks) for tier in tiers.tiers(parse_xml(machine(content)))]

    assert layers(TIERED) == [("DRAM", (0, 1))]
    assert layers(TIERED + node(2, range(4), subtype="CXL-DRAM") + node(3, [0, 1], subtype="HBM")) == [
        *(("HBM", (3,)), ("DRAM", (0, 1)), ("CXL-DRAM", (2,)))
    ]
    # Without HMAT hwloc states no kind; the kernel states a tier for memory of the driver kmem.
    unnamed = node(0, [0, 1]) + pus([0, 1]) + node(2, [])
    assert layers(unnamed) == [("DRAM", (0,)), ("memory without PUs", (2,))]
    slower = node(2, []).replace("/>", '><info name="KernelMemoryTier" value="22"/></object>')
    fast = node(0, [0, 1]).replace("/>", '><info name="KernelMemoryTier" value="4"/></object>')
    assert layers(fast + pus([0, 1]) + slower) == layers(unnamed)
    assert parse_xml(machine(unnamed)).data_nodes == (0, 2)
    assert parse_xml(machine(fast + pus([0, 1]) + slower)).data_nodes == (0,)
    assert parse_xml(machine(fast + pus([0, 1]) + slower.replace("22", "1"))).data_nodes == (0,)
    assert parse_xml(machine(fast + pus([0, 1]) + slower.replace("22", "4"))).data_nodes == (0, 2)
    # The firmware states bandwidths.
    rates = "".join(
        f'<memattr_value target_obj_type="NUMANode" target_obj_gp_index="{g}" value="{v}" initiator_cpuset="0x3"/>'
        for g, v in ((10, 100), (12, 400), (13, 30))
    )
    banks = [(0, [0, 1]), (2, []), (3, [])]
    numbered = "".join(node(n, m).replace("/>", f' gp_index="{10 + n}"/>') for n, m in banks) + pus([0, 1])
    seen = parse_xml(machine(numbered, after=f'<memattr name="Bandwidth" flags="5">{rates}</memattr>'))
    assert [(tier.name, tier.banks) for tier in tiers.tiers(seen)] == [
        *(("high-bandwidth memory", (2,)), ("DRAM", (0,)), ("memory without PUs", (3,)))
    ]
    # Banks next to PUs without other memory belong to these, whatever their number.
    assert layers(node(0, [0, 1], memory=0) + pus([0, 1]) + node(2, [0, 1])) == [("DRAM", (2,))]


def test_the_own_banks_of_numa_nodes(golden):
    attached = TIERED + node(2, [0, 1], subtype="HBM") + node(3, range(4), subtype="CXL-DRAM")
    host = parse_xml(machine(attached))
    assert [tiers.own_banks(host, nodes) for nodes in ([0], [1], [0, 1])] == [(0, 2, 3), (1, 3), (0, 1, 2, 3)]
    # hwloc knows no initiators of a bank: the firmware's distances decide.
    far = parse_xml(
        machine(node(4, [0, 1]) + pus([0, 1]) + node(2, []), after=distances("NUMANode", "10 17 17 10"))
    )
    assert tiers.own_banks(far, [4]) == (2, 4)


def test_the_probe_states_side_caches_and_the_kernels_tiers(tmp_path):
    cache = "sys/devices/system/node/node1/memory_side_cache/index1/"
    files = {cache + "size": str(8 << 20), cache + "line_size": "64", cache + "indexing": "0"}
    files |= {f"sys/devices/virtual/memory_tiering/memory_tier{4 + 18 * n}/nodelist": str(n) for n in range(2)}
    host = topology.load(fsroot=stored_root(tmp_path, files))
    assert [n.tier for n in host.numa_nodes] == [4, 22]
    assert [n.side_cache_bytes for n in host.numa_nodes] == [0, 8 << 20]
    assert "cached by" in describe(host)
    assert "memory tiers, the fastest first: DRAM (0), DRAM (1)" in describe(host)


@given(st.data())
def test_a_damaged_document_is_a_topology_or_refused(golden, data):
    text = golden("lstopo_smt.xml")
    at = data.draw(st.integers(0, len(text) - 1))
    cut = data.draw(st.integers(0, 12))
    damaged = text[:at] + data.draw(st.text('"<>/=0x9-a ', max_size=4)) + text[at + cut :]
    reason = "host.xml: "
    try:
        parse_xml(damaged, file="host.xml")
    except BadInput as error:
        reason = str(error)
    assert reason.startswith("host.xml: ")


@pytest.fixture
def fake_probe(monkeypatch, tmp_path):
    """Returns a function that replaces the probe by a shell script."""

    def make(script):
        monkeypatch.setenv("FIRSTTOUCH_PROBE", str(write_program(tmp_path / "probe", script)))

    return make


def test_what_the_probe_adds_to_hwlocs_xml(fake_probe, tmp_path):
    infos = "".join(
        f'<info name="{name}" value="{value}"/>'
        for name, value in (
            *(
                ("HostName", "n1"),
                ("MemoryLimit", 12345),
                ("LeftOutNUMANode", "7:4096"),
                ("LeftOutNUMANode", "9:8"),
            ),
            ("transparent_hugepage", "madvise"),
        )
    )
    (tmp_path / "x.xml").write_text(machine(infos + SMALL, allowed_pus=0b11, allowed_nodes=0b10000))
    fake_probe(f'[ "$*" = "topology --xml" ] && cat {tmp_path}/x.xml')
    host = topology.load()
    assert host.here
    assert host.memory_limit_bytes == 12345
    assert host.left_out == {7: 4096, 9: 8}
    assert host.info == {"HostName": "n1", "transparent_hugepage": "madvise"}
    stored = topology.load(xml=tmp_path / "x.xml")
    assert not stored.here
    assert stored.to_dict() == host.to_dict()


def test_the_kernels_list_decides_where_a_pu_belongs():
    """hwloc attaches memory without PUs to nearby PUs, here to the PUs of NUMA node 2."""
    listed = '<info name="cpulist" value="{}"/></object>'
    bare = node(1, [2, 3]).replace("/>", ">") + listed.format("")
    parsed = parse_xml(machine(bare + node(2, [2, 3]).replace("/>", ">") + listed.format("2-3") + pus([2, 3])))
    assert {n.index: n.pus for n in parsed.numa_nodes} == {1: (), 2: (2, 3)}


def test_the_pus_and_nodes_of_a_process(tmp_path):
    """The status lists PUs and NUMA nodes that do not exist, as it does on a real host."""
    assert topology.load().allowed_pus == os.sched_getaffinity(0)
    status = "Name:\tsh\nCpus_allowed_list:\t0,3,99\nMems_allowed_list:\t1,77-1023"
    host = topology.load(fsroot=stored_root(tmp_path / "root", {"proc/self/status": status}))
    assert host.allowed_pus == {0, 3}
    assert host.cpu_nodes == (0, 1)
    assert host.memory_nodes == (1,)
    status = "Cpus_allowed_list:\t99\nMems_allowed_list:\t0"
    with pytest.raises(BadInput, match="no PU"):
        topology.load(fsroot=stored_root(tmp_path / "root", {"proc/self/status": status}))


def test_the_kernels_memory_settings(tmp_path):
    files = {
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "proc/sys/kernel/numa_balancing": "1",
    }
    info = topology.load(fsroot=stored_root(tmp_path / "root", files)).info
    assert (info["transparent_hugepage"], info["numa_balancing"]) == ("madvise", "1")
    assert "zone_reclaim_mode" not in info
    assert topology.load().info["transparent_hugepage"] in {"always", "madvise", "never"}


def test_the_probe_is_missing(monkeypatch, tmp_path):
    monkeypatch.delenv("FIRSTTOUCH_PROBE", raising=False)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match=r"firsttouch-probe .*make setup"):
        topology.load()


@pytest.mark.parametrize("script", ["echo broken >&2; exit 1", "exit 0", "kill -9 $$"])
def test_the_probe_fails(fake_probe, script, tmp_path):
    fake_probe(script)
    with pytest.raises(RunFailed, match="firsttouch-probe topology"):
        topology.load()
    with pytest.raises(BadInput, match=f"^{tmp_path}/root: "):
        topology.load(fsroot=stored_root(tmp_path / "root"))


def test_the_probe_hangs(monkeypatch, fake_probe):
    monkeypatch.setattr(topology, "_PATIENCE", 0.2)
    fake_probe("exec sleep 60")
    with pytest.raises(RunFailed, match=r"firsttouch-probe .*0\.2 s"):
        topology.load()


def test_numa_nodes_that_hwloc_leaves_out(tmp_path, capsys):
    """The firmware lists all PUs in each of the NUMA nodes: hwloc keeps the first one."""
    stored_root(tmp_path / "root", {f"sys/devices/system/node/node{n}/cpumap": "f" for n in range(2)})
    parsed = topology.load(fsroot=tmp_path / "root")
    assert parsed.left_out == {1: 1 << 30}
    remark = "hwloc leaves out NUMA nodes 1 of /sys, which have 1 GiB of the 2 GiB of memory"
    assert [remark in r for r in parsed.remarks()] == [True]
    assert parsed.to_dict()["remarks"] == parsed.remarks()
    # numactl's "all" has NUMA node 1 as well.
    whole = next(s for s in plan(parsed).scenarios if s.name.endswith("-interleave"))
    assert whole.placements[0].numactl == ("--interleave=0",)
    fsroot = ["--fsroot", str(tmp_path / "root")]
    for command in (["topology"], ["plan", "--aligner", "bwa-mem"]):
        assert main([*command, *fsroot]) == 0
        assert remark in " ".join(capsys.readouterr().out.split())
    (tmp_path / "root/sys/devices/system/node/online").write_text("0\n")
    assert topology.load(fsroot=tmp_path / "root").left_out == {}
    (tmp_path / "root/sys/devices/system/node/online").unlink()
    assert topology.load(fsroot=tmp_path / "root").left_out == {1: 1 << 30}


def test_pus_without_a_numa_node_are_listed(tmp_path, capsys):
    file = tmp_path / "x.xml"
    file.write_text(machine(SMALL + pus([5, 6, 7, 9]), allowed_pus=0x2FF))
    # With 2 KiB of memory no scenario can be run.
    for command, status in ((["topology"], 0), (["plan", "--aligner", "bwa-mem"], 3)):
        assert main([*command, "--xml", str(file)]) == status
        assert "note: PUs 5-7,9 belong to no NUMA node: no scenario uses them" in capsys.readouterr().out


def test_a_stored_root(tmp_path):
    root = tmp_path / "root"
    stored_root(root)
    folder = topology.load(fsroot=root)
    assert [n.pus for n in folder.numa_nodes] == [(0, 1), (2, 3)]
    assert folder.distance(0, 1) == 21
