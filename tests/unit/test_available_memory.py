# SPDX-License-Identifier: Apache-2.0
"""The memory that programs can still take: the least of what the host and all cgroups have left."""

import pytest

from firsttouch.host.available_memory import available_bytes, available_on, huge_pages_free

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
