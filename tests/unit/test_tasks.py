# SPDX-License-Identifier: Apache-2.0
"""The tasks of srun and mpirun: which one this process is, and which PUs it has."""

import itertools
import os
import shutil
import subprocess
import sys

import pytest
from msgspec.structs import replace

from firsttouch.errors import BadInput, CannotHere
from firsttouch.execution import tasks
from firsttouch.execution.tasks import Task, this_task
from firsttouch.host.topology import load
from firsttouch.scenarios.placement import TaskShare, plan_task

STEP = {"SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_PROCID": "5", "SLURM_STEP_TASKS_PER_NODE": "4,2(x3)"}
OPEN_MPI = {
    f"OMPI_COMM_WORLD_{name}": value
    for name, value in {"LOCAL_RANK": "1", "LOCAL_SIZE": "2", "RANK": "5", "SIZE": "8"}.items()
}
HYDRA = {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_RANK": "5", "PMI_SIZE": "8"}


@pytest.fixture
def started(monkeypatch):
    """Returns a function that sets the variables of a task, and returns the task."""
    for name in (*itertools.chain(*tasks._OF_MPIRUN), "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST"):
        monkeypatch.delenv(name, raising=False)

    def enter(**changed):
        for name, value in {**dict.fromkeys(STEP), **changed}.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        return this_task()

    return enter


def test_what_srun_states(started):
    task = started(**STEP)
    assert (task.local, task.count, task.number, task.total, task.is_rank) == (1, 2, 5, 10, False)
    assert task.launcher == os.getppid()
    task = started(**STEP | {"SLURM_NODEID": "0", "SLURM_LOCALID": "3"})
    assert (task.local, task.count) == (3, 4)
    one_each = started(**STEP | {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0"})
    assert (one_each.count, one_each.number, one_each.total) == (1, 5, 2)
    for alone in ({"SLURM_STEP_TASKS_PER_NODE": None}, {"SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_NODEID": "0"}):
        assert started(**STEP | {"SLURM_LOCALID": "0"} | alone) is None
    for odd in ({"SLURM_LOCALID": "2"}, {"SLURM_NODEID": "9"}, {"SLURM_PROCID": "x"}):
        with pytest.raises(BadInput, match="SLURM_"):
            started(**STEP | odd)


@pytest.mark.parametrize("variables", [OPEN_MPI, HYDRA])
def test_what_mpirun_states(started, variables, monkeypatch):
    monkeypatch.setattr(tasks, "name_of", lambda pid: "hydra_pmi_proxy" if pid == os.getppid() else "sh")
    # srun has started mpirun.
    of_mpirun = {"SLURM_STEP_TASKS_PER_NODE": "1(x4)", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}
    task = started(**STEP | of_mpirun | variables)
    assert (task.local, task.count, task.number, task.total, task.is_rank) == (1, 2, 5, 8, True)
    assert task.launcher == os.getppid()
    local, count, number, total = variables
    # mpirun has started srun, one rank on each host, or one in all.
    assert not started(**variables | STEP | {local: "0", count: "1"}).is_rank
    assert (started(**variables | {local: "0", count: "1"}).count, this_task().number) == (1, 5)
    assert started(**variables | {local: "0", count: "1", number: "0", total: "1"}) is None
    for odd in ({local: "2", count: "2"}, {local: "1", number: "x"}):
        with pytest.raises(BadInput, match=f"{count} .*rank 2|PMI_RANK|WORLD_RANK"):
            started(**variables | odd)


def test_what_a_rank_has_started_is_not_a_rank(started):
    """Jobs that a rank submits, and shells, have its variables."""
    assert started(**HYDRA) is None
    assert not started(**HYDRA, **STEP).is_rank


@pytest.fixture
def share(opteron, monkeypatch):
    """Returns a function that returns the share of a task that may use some PUs."""

    def share_of(pus, local=1, count=2, *, cpuset=range(64), launcher=(), is_rank=False):
        monkeypatch.setattr(tasks, "_cpuset", lambda _: frozenset(cpuset))
        monkeypatch.setattr(Task, "_of_launcher", lambda *_: frozenset(launcher))
        task = Task(local, count, local, count, None, is_rank=is_rank)
        return task.share(replace(opteron, allowed_pus=frozenset(pus)))

    return share_of


def test_tasks_divide_what_was_bound_to_none_of_them(started, share):
    started()
    assert share(range(64)) == TaskShare(frozenset(range(64)), 1, 2)
    # The step's cpuset is a part of the host, or mpirun has been started on a part.
    assert share(range(8), cpuset=range(8)) == TaskShare(frozenset(range(8)), 1, 2)
    assert share(range(8), launcher=range(8)) == TaskShare(frozenset(range(8)), 1, 2)
    # taskset or mpirun has bound the task, or it runs below another firsttouch.
    assert share(range(8), launcher=range(64)) == TaskShare(frozenset(range(8)))


@pytest.mark.parametrize(
    ("variables", "pus_and_place"),
    [
        ("mask_cpu:0x000000FF,0x0000FF00", (range(8, 16), 0, 1)),
        ("mask_cpu:0x000000FF,0x000000FF", (range(8), 1, 2)),
        ("map_cpu:3,5", ((5,), 0, 1)),
        # Something else has bound this task afterwards; what Slurm bound is unknown.
        ("mask_cpu:0x000000FF,0x000000FF", (range(4), 0, 1)),
        ("mask_ldom:0x1,0x1", (range(8), 0, 1)),
    ],
)
@pytest.mark.usefixtures("started")
def test_tasks_that_slurm_binds_to_the_same_pus_divide_them(monkeypatch, share, variables, pus_and_place):
    pus, *place = pus_and_place
    kind, _, numbers = variables.partition(":")
    monkeypatch.setenv("SLURM_CPU_BIND_TYPE", f"{kind}:")
    monkeypatch.setenv("SLURM_CPU_BIND_LIST", numbers)
    assert share(pus) == TaskShare(frozenset(pus), *place)
    # In the ranks of mpirun, these are variables of the step in which it runs.
    assert share(pus, is_rank=True) == TaskShare(frozenset(pus))


#: Prints the PUs that a process may use, the PUs of its cpuset, and the first list again.
CPUSET = """\
import os
from firsttouch.execution import tasks
from firsttouch.host.topology import load
own = sorted(os.sched_getaffinity(0))
print(own, sorted(tasks._cpuset(load())), sorted(os.sched_getaffinity(0)), sep="\\n")
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")
def test_a_binding_is_told_from_the_cpuset():
    pus = sorted(os.sched_getaffinity(0))
    words = [shutil.which("taskset"), "-c", str(pus[-1]), sys.executable, "-c", CPUSET]
    own, cpuset, after = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert (own, after) == (f"[{pus[-1]}]",) * 2
    assert set(pus) <= {int(number) for number in cpuset.strip("[]").split(", ")}


def test_ranks_that_mpirun_binds_to_few_or_the_same_pus_are_named(opteron, monkeypatch):
    def crowded(pus, usable=range(64), *, count=2, is_rank=True):
        monkeypatch.setattr(Task, "_of_launcher", lambda *_: frozenset(usable))
        return Task(0, count, 4, 8, None, is_rank=is_rank).crowding(replace(opteron, allowed_pus=frozenset(pus)))

    assert crowded({0}) == (
        "mpirun has bound rank 4 to PU 0, and has 64 PUs for 2 ranks: mpirun --bind-to none lets firsttouch "
        "divide them"
    )
    # Four ranks on two sockets, or eight.
    assert crowded(range(32), count=4).startswith(
        "mpirun has bound rank 4 to PUs 0-31, and has 64 PUs for 4 ranks"
    )
    # A part each; ranks that are not bound; no others that mpirun could use; srun.
    assert crowded(range(8), count=8) == crowded(range(64)) == crowded({0}, {0, 1}) == ""
    assert crowded({0}, is_rank=False) == ""


def placed(host, grants, name="1x-default", threads=None):
    shares = [TaskShare(frozenset(pus), grants[:n].count(pus), grants.count(pus)) for n, pus in enumerate(grants)]
    scenarios = [plan_task(host, share, len(grants), name, threads) for share in shares]
    placements = [placement for scenario in scenarios for placement in scenario.placements]
    assert {p.extent for p in placements} == {"part"}
    return scenarios[0], [(set(p.pus), set(p.numa_nodes)) for p in placements]


def test_eight_tasks_that_slurm_does_not_bind_have_a_numa_node_each(opteron):
    scenario, places = placed(opteron, [range(64)] * 8)
    assert (scenario.name, scenario.instances, scenario.threads) == ("8x8-bound", 8, 8)
    assert places == [(set(opteron.node(n).pus), {n}) for n in range(8)]


def test_what_slurm_binds_to_a_task_stays_its_own(opteron):
    # Six PUs: four of one NUMA node and two of the next.
    scenario, places = placed(opteron, [range(4, 7), range(7, 10)], "1x-local")
    assert places == [({4, 5, 6}, {0}), ({7, 8, 9}, {0, 1})]
    assert (scenario.name, scenario.policy, scenario.threads) == ("2x3-local", "localalloc", 3)
    # One socket each for two tasks, which they divide.
    _, places = placed(opteron, [range(16), range(16), range(16, 32), range(16, 32)])
    assert [nodes for _, nodes in places] == [{0}, {1}, {2}, {3}]


def test_the_name_and_the_threads_of_tasks(opteron):
    _, places = placed(opteron, [range(64)] * 2, "2x-interleave", 4)
    assert [len(pus) for pus, _ in places] == [4, 4]
    assert placed(opteron, [range(8)] * 2, "1x3-default")[0].name == "2x3-bound"
    for name, threads, reason in (
        ("4x-bound", None, "2 tasks were started"),
        ("nonsense", None, "no scenario 'nonsense' for 2 tasks"),
        ("1x3-default", 4, "leave one of them out"),
        ("1x1-unbound", None, "leaves the PUs to the kernel"),
    ):
        with pytest.raises(BadInput, match=reason):
            placed(opteron, [range(8)] * 2, name, threads)
    with pytest.raises(CannotHere, match=r"2 x 5 .*8 PUs"):
        placed(opteron, [range(8)] * 2, threads=5)
    with pytest.raises(CannotHere, match=r"9 x 1 .*8 PUs"):
        placed(opteron, [range(8)] * 9)
    with pytest.raises(CannotHere, match=r"1 x 9 .*8 PUs"):
        placed(opteron, [range(8), range(8, 16)], threads=9)


def test_this_host_can_be_planned():
    host = load()
    scenario = plan_task(host, TaskShare(frozenset(host.allowed_pus)), 1, "1x-default")
    assert scenario.placements[0].extent == "part"


def test_a_share_that_does_not_fit_numa_nodes_is_divided(opteron):
    # Four PUs of one NUMA node and two of the next: three for each task, and one of them is on both.
    scenario, places = placed(opteron, [range(4, 10)] * 2)
    assert places == [({4, 5, 6}, {0}), ({7, 8, 9}, {0, 1})]
    assert scenario.threads == 3
    # A seventh PU stays idle.
    assert [len(pus) for pus, _ in placed(opteron, [range(4, 11)] * 2)[1]] == [3, 3]
