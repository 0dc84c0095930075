# SPDX-License-Identifier: Apache-2.0
"""The cases of the methodology on a system, from its facts and an effort."""

from msgspec.structs import replace

from firsttouch.benchmarks.cases import Cases, topology_of
from firsttouch.benchmarks.profiles import efforts
from firsttouch.systems.definition import load


def cases(effort="full", **facts):
    opteron = load("amd-opteron").facts
    return Cases(topology_of(replace(opteron, **facts)), efforts()[effort])


def test_weak_scaling_is_one_process_and_processes_of_16_threads():
    assert cases().weak_scaling() == [
        *(f"1x{t}-default" for t in (8, 16, 32, 48)),
        "1x64-default",
        *("2x16-unbound", "3x16-unbound", "4x16-unbound"),
    ]
    assert cases("quick").weak_scaling() == []


def test_weak_scaling_where_there_are_not_32_pus():
    small = {
        "numa_node_numbers": (0,),
        "package_of_numa_node": (0,),
        "cores_per_numa_node": (2,),
        "memory_per_numa_node": (1 << 34,),
        "distances": None,
        "threads_per_core": 1,
    }
    assert cases(**small).weak_scaling() == ["1x1-default", "1x2-default", "2x1-unbound"]
