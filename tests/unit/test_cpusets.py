# SPDX-License-Identifier: Apache-2.0
"""Sets of PUs in the notations of the kernel and of hwloc."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories.stored_roots import stored_root
from firsttouch.errors import BadInput
from firsttouch.host import cpusets
from firsttouch.host.available_memory import available_bytes, available_on, huge_pages_free
from firsttouch.host.cpusets import format_list, parse_hwloc, parse_list
from firsttouch.host.topology import load

SETS = st.frozensets(st.integers(0, 1100), max_size=70)


def hwloc(members):
    """Write a set as hwloc does: words of 32 bits, the highest first."""
    mask = sum(1 << m for m in members)
    words = []
    while mask or not words:
        words.append(f"0x{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    return ",".join(reversed(words))


@pytest.mark.parametrize(
    ("text", "members"),
    [("", set()), ("\n", set()), ("0", {0}), ("0-3,8\n", {0, 1, 2, 3, 8}), ("7,1-2", {1, 2, 7}), ("5-5", {5})],
)
def test_kernel_lists(text, members):
    assert parse_list(text) == members


@pytest.mark.parametrize(
    "text", ["a", "-1", "1-", "-", "3-1", "1 2", "1;2", "0x3", "1-2-3", "1.5", "+1", "1_0", "²", "0-99999999999"]
)
def test_what_is_no_list(text):
    with pytest.raises(BadInput, match="is not a list of numbers"):
        parse_list(text)


@given(SETS)
def test_lists_there_and_back(members):
    text = format_list(members)
    assert parse_list(text) == members
    assert format_list(sorted(members, reverse=True)) == text


@pytest.mark.parametrize(
    ("members", "text"),
    [([], ""), ([3], "3"), ([1, 2], "1-2"), ([8, 0, 1, 2, 3, 3], "0-3,8"), ([0, 2, 4], "0,2,4")],
)
def test_format_list(members, text):
    assert format_list(members) == text


@given(SETS)
def test_bitmaps_there_and_back(members):
    assert parse_hwloc(hwloc(members)) == members


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("0x0", set()),
        ("0x0000010f", {0, 1, 2, 3, 8}),
        ("0x00000001,0x00000000", {32}),
        ("0x80000000,,0x00000001", {0, 95}),  # hwloc leaves empty words out
        ("0x1,,", {64}),
        ("0x1" + "," * 16384, {1 << 19}),  # of a host with more PUs than any kernel supports
    ],
)
def test_hwloc_bitmaps(text, members):
    assert parse_hwloc(text) == members


@pytest.mark.parametrize("text", ["0xf...f", "0-3", "x", "0x", "0xg", "-0x1", "0x1_0"])
def test_what_is_no_bitmap(text):
    with pytest.raises(BadInput, match="not an hwloc bitmap"):
        parse_hwloc(text)


# ----------------------------------------------------------------------
# The CPUs, NUMA nodes and memory that a process may use, from files as the kernel writes them


@pytest.fixture
def memory_limit(tmp_path):
    """Returns a function that gives the memory limit of a process by its cgroup file and other files."""

    def read(cgroup, files):
        given = {**({} if cgroup is None else {"proc/self/cgroup": cgroup}), **files}
        return load(fsroot=stored_root(tmp_path, given)).memory_limit_bytes

    return read


V2 = {"sys/fs/cgroup/cgroup.controllers": "cpu memory\n"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"a/b/memory.max": "4096\n", "a/memory.max": "max\n"}, 4096),
        ({"a/b/memory.max": "max\n", "a/memory.max": "8192\n"}, 8192),
        ({"a/b/memory.max": "9000\n", "a/memory.max": "8192\n"}, 8192),
        ({"a/b/memory.max": "max\n", "a/memory.max": "max\n"}, None),
        ({"a/b/memory.max": "0\n"}, None),
        ({"memory.max": "77\n"}, 77),  # a namespace hides the levels above ours
        ({}, None),
    ],
)
def test_cgroup_v2_the_smallest_of_all_levels_counts(memory_limit, files, limit):
    files = V2 | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    assert memory_limit("0::/a/b\n", files) == limit


@pytest.mark.parametrize(("text", "limit"), [("9223372036854771712\n", None), ("1073741824\n", 1 << 30)])
def test_cgroup_v1(memory_limit, text, limit):
    cgroup = "12:cpuset:/x\n5:memory:/slurm/job_7\n1:name=systemd:/\n0::/\n"
    files = {"sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": text}
    assert memory_limit(cgroup, files) == limit


@pytest.mark.parametrize(
    ("cgroup", "files", "limit"),
    [
        ("4:cpu,memory:/a\n", {"memory/a/memory.limit_in_bytes": "5\n"}, 5),  # with joined controllers
        ("0::/a\n", {"unified/a/memory.max": "12\n"}, 12),  # hybrid: both versions are mounted
        ("0::/../../x\n", {"cgroup.controllers": "memory\n", "memory.max": "64\n"}, 64),  # above the namespace
        ("0::/a:b\n", {"cgroup.controllers": "memory\n", "a:b/memory.max": "12\n"}, 12),
        (None, {}, None),
    ],
)
def test_cgroups_of_other_forms_and_a_kernel_without_them(memory_limit, cgroup, files, limit):
    assert memory_limit(cgroup, {f"sys/fs/cgroup/{name}": text for name, text in files.items()}) == limit


def test_status_lists():
    status = "Name:\tbwa\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1,4\nMems_allowed_list:\t0\n"
    assert cpusets.status_list(status, "Cpus_allowed_list") == {0, 1, 4}
    assert cpusets.status_list(status, "Mems_allowed_list") == {0}
    assert cpusets.status_list(status, "Nothing") == frozenset()


# ----------------------------------------------------------------------
# The memory that programs can still take: the least of what the host and all cgroups have left


MEMINFO = {"proc/meminfo": "MemTotal:  9000 kB\nMemFree:  5 kB\nMemAvailable:    8000 kB\n"}
SECOND = {
    "proc/self/cgroup": "0::/job/step\n",
    "sys/fs/cgroup/cgroup.controllers": "memory\n",
    "sys/fs/cgroup/job/step/memory.max": "max\n",
    "sys/fs/cgroup/job/step/memory.current": "5000000\n",
    "sys/fs/cgroup/job/memory.max": "6000000\n",
    "sys/fs/cgroup/job/memory.current": "5500000\n",
    "sys/fs/cgroup/job/memory.stat": "anon 7\ninactive_file 2000000\nfile_mapped 3\n",
}
FIRST = {
    "proc/self/cgroup": "5:cpu:/\n4:cpuacct,memory:/job\n1:name=systemd:/a:b\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
    "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "3000000\n",
    "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "3000001\n",
    "sys/fs/cgroup/memory/job/memory.stat": "inactive_file 9\ntotal_inactive_file 100\n",
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        (MEMINFO, 8000 << 10),
        (MEMINFO | SECOND, 2_500_000),
        (MEMINFO | FIRST, 99),
        ({"proc/self/cgroup": "0::/\n"}, None),
    ],
)
def test_the_least_of_all_limits(tmp_path, files, expected):
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert available_bytes(tmp_path) == expected


def test_a_numa_node_has_its_free_memory_and_its_cached_files(tmp_path):
    assert available_on(1, tmp_path) == (0, 0)
    host = tmp_path / "proc/meminfo"
    host.parent.mkdir()
    host.write_text("MemTotal: 90 kB\nMemFree: 5 kB\nActive(file): 3 kB\nInactive(file): 2 kB\n")
    assert available_on(0, tmp_path) == (10 << 10, 90 << 10)
    node = tmp_path / "sys/devices/system/node/node1/meminfo"
    node.parent.mkdir(parents=True)
    names = {"MemTotal": 100, "MemFree": 40, "Active": 9, "Active(file)": 7, "Inactive(file)": 3}
    node.write_text("".join(f"Node 1 {name}:   {kilobytes} kB\n" for name, kilobytes in names.items()))
    assert available_on(1, tmp_path) == (50 << 10, 100 << 10)
    assert available_on(0, tmp_path) == (0, 0)


MANY = "Node {}, zone   Normal" + " {}" * 11 + "\n"
BUDDYINFO = (
    MANY.format(0, *[9] * 9, 3, 5)
    + MANY.format(0, *[1] * 10, 2).replace("Normal", "DMA32 ")
    + MANY.format(1, *[7] * 9, 0, 0)
)


@pytest.mark.parametrize(
    ("buddyinfo", "size", "expected"),
    [
        # Blocks of 2 and 4 MiB: order 9 and 10 of 4 KiB pages.
        (BUDDYINFO, "Hugepagesize:  2048 kB", {0: (3 * 2 + 5 * 4 + 1 * 2 + 2 * 4) << 20, 1: 0}),
        (BUDDYINFO, "Hugepagesize:  1048576 kB", None),
        (BUDDYINFO, "HugePages_Total:  0", None),
        ("", "Hugepagesize:  2048 kB", None),
    ],
)
def test_huge_pages_that_the_kernel_could_give(tmp_path, buddyinfo, size, expected):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal:  9000 kB\n{size}\n")
    (tmp_path / "proc/buddyinfo").write_text(buddyinfo)
    assert huge_pages_free(tmp_path, 4096) == expected
