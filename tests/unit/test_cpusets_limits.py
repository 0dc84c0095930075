# SPDX-License-Identifier: Apache-2.0
"""The CPUs, NUMA nodes and memory that a process may use, from files as the kernel writes them."""

import pytest

from firsttouch.host import cpusets

pytestmark = pytest.mark.unit


@pytest.fixture
def root(tmp_path):
    """Return a function that lays out proc/ and sys/ below a folder."""

    def make(cgroup, files):
        for name, text in {"proc/self/cgroup": cgroup, **files}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return make


V2 = {"sys/fs/cgroup/cgroup.controllers": "cpu memory\n"}


def test_this_process():
    limits = cpusets.of_this_process()
    assert limits.pus
    assert limits.numa_nodes
    assert limits.memory_bytes is None or limits.memory_bytes > 0


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
def test_cgroup_v2_the_smallest_of_all_levels_counts(root, files, limit):
    files = V2 | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    assert cpusets.memory_limit(root("0::/a/b\n", files)) == limit


@pytest.mark.parametrize(("text", "limit"), [("9223372036854771712\n", None), ("1073741824\n", 1 << 30)])
def test_cgroup_v1(root, text, limit):
    cgroup = "12:cpuset:/x\n5:memory:/slurm/job_7\n1:name=systemd:/\n0::/\n"
    files = {"sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": text}
    assert cpusets.memory_limit(root(cgroup, files)) == limit


def test_cgroup_v1_with_joined_controllers(root):
    files = {"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "5\n"}
    assert cpusets.memory_limit(root("4:cpu,memory:/a\n", files)) == 5


def test_hybrid_cgroups_have_the_second_version_beside(root):
    files = {"sys/fs/cgroup/unified/a/memory.max": "12\n"}
    assert cpusets.memory_limit(root("0::/a\n", files)) == 12


def test_a_path_above_the_namespace_is_not_followed(root):
    files = V2 | {"sys/fs/cgroup/memory.max": "64\n"}
    assert cpusets.memory_limit(root("0::/../../x\n", files)) == 64


def test_a_colon_in_a_cgroups_name(root):
    files = V2 | {"sys/fs/cgroup/a:b/memory.max": "12\n"}
    assert cpusets.memory_limit(root("0::/a:b\n", files)) == 12


def test_a_kernel_without_cgroups(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    assert cpusets.memory_limit(tmp_path) is None


def test_status_lists():
    status = "Name:\tbwa\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1,4\nMems_allowed_list:\t0\n"
    assert cpusets.status_list(status, "Cpus_allowed_list") == {0, 1, 4}
    assert cpusets.status_list(status, "Mems_allowed_list") == {0}
    assert cpusets.status_list(status, "Nothing") == frozenset()


def test_memory_settings(tmp_path):
    assert cpusets.memory_settings(tmp_path) == {}
    files = {
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "proc/sys/kernel/numa_balancing": "1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert cpusets.memory_settings(tmp_path) == {"transparent_hugepage": "madvise", "numa_balancing": "1"}
