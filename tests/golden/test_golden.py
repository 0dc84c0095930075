# SPDX-License-Identifier: Apache-2.0
"""Stored outputs of the real programs: complete ones give the right figures, and truncated ones none."""

import re

import pytest

from firsttouch.benchmarks import likwid, lmbench, stream
from firsttouch.errors import BadInput, CannotHere, RunFailed
from firsttouch.execution import counters
from firsttouch.genomics import aligners
from firsttouch.genomics.sam import shared_lines
from firsttouch.genomics.sam_stream import SamTail
from firsttouch.host import cpusets
from firsttouch.host.topology import parse_xml
from firsttouch.scenarios.placement import plan

MIB = 1 << 20


def prefixes(text):
    """Yield every prefix of *text* that lacks more than the last line feed."""
    return (text[:end] for end in range(len(text.rstrip("\n"))))


@pytest.mark.parametrize(("name", "first", "last"), [("random", 3.845, None), ("sequential", 2.960, None)])
def test_lat_mem_rd(golden, name, first, last):
    text = golden(f"lat_mem_rd_{name}.txt")
    curve = lmbench.parse(text, largest_bytes=64 * MIB)
    assert len(curve) == 33
    assert list(curve)[:5] == [512, 1024, 2048, 3072, 4096]
    assert list(curve)[-3:] == [32 * MIB, 48 * MIB, 64 * MIB]
    assert curve[512] == first
    assert [f"{ns:.3f}" for ns in curve.values()] == re.findall(r"\d+\.\d{3}$", text, re.MULTILINE)
    for cut in prefixes(text):
        with pytest.raises(RunFailed, match="lat_mem_rd"):
            lmbench.parse(cut, largest_bytes=64 * MIB)


@pytest.mark.parametrize(
    ("name", "threads", "rate"),
    [
        ("copy_avx512", 2, None),
        ("scale_avx512", 2, 2.20261),
        ("add_avx512", 2, None),
        ("stream_avx512", 2, None),
        ("copy_short", 1, 9.51494),
    ],
)
def test_likwid_bench(golden, name, threads, rate):
    text = golden(f"likwid_{name}.txt")
    result = likwid.parse(text, threads=threads)
    assert f"{result * 1000:.2f}" == re.search(r"^MByte/s:\s+(\S+)$", text, re.MULTILINE)[1]
    assert rate is None or result == pytest.approx(rate)
    if name == "copy_short":
        assert re.search(r"^Time:\s+\S+e-01 sec$", text, re.MULTILINE)
    # The last line consists of dashes; a shorter line of dashes is also truncated.
    for cut in prefixes(text):
        with pytest.raises(RunFailed, match="likwid-bench"):
            likwid.parse(cut, threads=threads)


def test_kernels_of_likwid_bench(golden, stand_in, tmp_path):
    file = tmp_path / "kernels"
    file.write_text(golden("likwid_kernels.txt"))
    stand_in("likwid-bench", f"cat {file}")
    kernels = likwid.available()
    assert {"copy", "copy_avx512", "stream", "stream_avx", "stream_sse", "triad_mem_avx"} <= kernels


@pytest.mark.parametrize(("name", "threads"), [("1_thread", 1), ("2_threads", 2), ("no_openmp", 1)])
def test_stream(golden, name, threads):
    text = golden(f"stream_{name}.txt")
    rates, array = stream.parse(text, threads=threads)
    printed = re.findall(r"^(?:Copy|Scale|Add|Triad): +(\S+)", text, re.MULTILINE)
    assert list(rates) == ["copy", "scale", "add", "triad"]
    assert [f"{r * 1000:.1f}" for r in rates.values()] == printed
    assert array == 160_000_000
    for cut in prefixes(text.rstrip("-\n") + "-" * 20):
        with pytest.raises(RunFailed, match="stream"):
            stream.parse(cut, threads=threads)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("bwa-mem", "0.7.17-r1188"),  # in its usage, as an error
        ("bwa-mem2", "2.2.1"),
        ("bwa-mem3", "0.15.0"),
        ("minibwa", "0.7-r421"),
        ("minimap2", "2.24-r1122"),
        ("strobealign", "0.17.0"),
    ],
)
def test_versions_of_aligners(golden, stand_in, tmp_path, name, version):
    file = tmp_path / "version"
    program = aligners.aligner(name).program
    file.write_text(golden(f"{program}_version.txt"))
    stand_in(program, f"cat {file}{' >&2; exit 1' if name == 'bwa-mem' else ''}")
    assert aligners.aligner(name).version() == version


def read(file):
    """Return the tail of a finished SAM file."""
    with SamTail(file) as tail:
        tail.look(ended=True)
    return tail


@pytest.mark.parametrize(
    ("name", "mapped"), [("bwa-mem2", 8), ("bwa-mem3", 8), ("minibwa", 8), ("minimap2", 7), ("strobealign", 8)]
)
def test_sam_of_aligners(golden, tmp_path, name, mapped):
    file = tmp_path / "x.sam"
    file.write_text(golden(f"{name}_paired.sam"))
    tail = read(file)
    assert (tail.primary, tail.mapped, len(shared_lines(tail.header))) == (8, mapped, 1)


@pytest.mark.parametrize(("name", "reads"), [("single", 4), ("paired", 8)])
def test_sam_of_bwa(golden, tmp_path, name, reads):
    text = golden(f"bwa_{name}.sam").encode()
    file = tmp_path / "x.sam"
    file.write_bytes(text)
    tail = read(file)
    assert (tail.primary, tail.mapped) == (reads, reads)
    ends = {i + 1 for i, c in enumerate(text) if c == ord("\n")} | set(range(0, len(text), 17))
    for end in sorted(ends - {len(text)}):
        file.write_bytes(text[:end])
        if text[end - 1 : end] == b"\n" or end == 0:
            assert read(file).primary < reads
        elif not text[:end].splitlines()[-1].startswith(b"@"):
            with pytest.raises(RunFailed, match=r"x\.sam:\d+: "):
                read(file)


def test_perf_stat(golden):
    text = golden("perf_stat.txt")
    assert counters.parse(text) == {"context-switches": 5, "cpu-migrations": 2, "page-faults": 162}
    for cut in prefixes(text):
        if ";cache-misses;" not in cut:
            with pytest.raises((RunFailed, CannotHere)):
                counters.parse(cut)


def test_status(golden):
    status = golden("status.txt")
    assert cpusets.status_list(status, "Cpus_allowed_list") == {0, 1}
    assert cpusets.status_list(status, "Mems_allowed_list") == {0}


@pytest.mark.parametrize(
    ("name", "nodes", "pus", "banks"),
    [
        ("host", {0: 2}, 2, (0,)),
        ("synthetic", dict.fromkeys(range(8), 8), 64, tuple(range(8))),
        ("smt", {0: 8, 1: 8}, 16, ()),
        ("attached", {0: 8, 1: 0, 2: 8, 3: 0}, 16, (0, 1, 2, 3)),
        ("three_kinds", {0: 2, 1: 0, 2: 2, 3: 0, 4: 0, 5: 2, 6: 0, 7: 2, 8: 0, 9: 0}, 8, tuple(range(10))),
        ("pu_indexes", {2: 4, 4: 4}, 8, ()),
        ("memoryless", {0: 2, 1: 2}, 4, ()),
    ],
)
def test_lstopo(golden, name, nodes, pus, banks):
    text = golden(f"lstopo_{name}.xml")
    topology = parse_xml(text)
    assert {n.index: len(n.pus) for n in topology.numa_nodes} == nodes
    assert len(topology.pus) == len(topology.allowed_pus) == pus
    assert topology.memory_nodes == banks
    if banks:
        everything = plan(topology)
        groups = sum(1 for count in nodes.values() if count)
        assert {s.instances for s in everything.scenarios} >= {1, groups}
    for end in range(0, len(text.rstrip()), 37):
        with pytest.raises(BadInput, match=r"^x\.xml: not XML"):
            parse_xml(text[:end], file="x.xml")


def test_smt_siblings_of_lstopo(golden):
    topology = parse_xml(golden("lstopo_pu_indexes.xml"))
    core = {p.index: p.core for p in topology.pus}
    assert topology.usable_pus(4) == (0, 1, 4, 5)
    assert core[0] == core[4] != core[1] == core[5]
    assert {p.package for p in topology.pus} == {p.package for p in topology.pus if p.numa_node in {2, 4}}


def test_caches_of_this_hosts_lstopo(golden):
    topology = parse_xml(golden("lstopo_host.xml"))
    assert {(c.level, c.size_bytes) for c in topology.caches} == {(1, 32768), (2, 1048576), (3, 37486592)}
    assert topology.numa_nodes[0].memory_bytes == 7476568064
