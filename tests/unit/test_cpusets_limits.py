# SPDX-License-Identifier: Apache-2.0
"""The CPUs, NUMA nodes and memory that a process may use, from files as the kernel writes them."""

import pytest

from factories.stored_roots import stored_root
from firsttouch.host import cpusets
from firsttouch.host.topology import load


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


def test_cgroup_v1_with_joined_controllers(memory_limit):
    files = {"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "5\n"}
    assert memory_limit("4:cpu,memory:/a\n", files) == 5


def test_hybrid_cgroups_have_the_second_version_beside(memory_limit):
    files = {"sys/fs/cgroup/unified/a/memory.max": "12\n"}
    assert memory_limit("0::/a\n", files) == 12


def test_a_path_above_the_namespace_is_not_followed(memory_limit):
    files = V2 | {"sys/fs/cgroup/memory.max": "64\n"}
    assert memory_limit("0::/../../x\n", files) == 64


def test_a_colon_in_a_cgroups_name(memory_limit):
    files = V2 | {"sys/fs/cgroup/a:b/memory.max": "12\n"}
    assert memory_limit("0::/a:b\n", files) == 12


def test_a_kernel_without_cgroups(memory_limit):
    assert memory_limit(None, {}) is None


def test_status_lists():
    status = "Name:\tbwa\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1,4\nMems_allowed_list:\t0\n"
    assert cpusets.status_list(status, "Cpus_allowed_list") == {0, 1, 4}
    assert cpusets.status_list(status, "Mems_allowed_list") == {0}
    assert cpusets.status_list(status, "Nothing") == frozenset()
