# SPDX-License-Identifier: Apache-2.0
"""The tasks of a step of srun: what each is granted, who divides what, and who reports."""

import contextlib
import itertools
import json
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from factories.clocks import ManualClock
from firsttouch.errors import BadInput, CannotHere, RunFailed
from firsttouch.execution import tasks
from firsttouch.execution.tasks import Meeting, overlap, shares
from firsttouch.host.topology import load
from firsttouch.records.file_lock import locked, try_lock
from firsttouch.scenarios.placement import plan_tasks

STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "5",
    "SLURM_STEP_TASKS_PER_NODE": "4,2(x3)",
}


@pytest.fixture
def step(monkeypatch, tmp_path):
    """Returns a function that sets the variables of a task, and the folder of its meetings."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("SLURM_RESTART_COUNT", *itertools.chain(*tasks._OF_MPIRUN)):
        monkeypatch.delenv(name, raising=False)

    def enter(**changed):
        for name, value in {**STEP, **changed}.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        return tasks.of_this_step()

    return enter


def test_what_srun_says(step):
    with step() as here:
        assert (here.tasks.local, here.tasks.count, here.number) == (1, 2, 5)
    with step(SLURM_NODEID="0", SLURM_LOCALID="3") as here:
        assert (here.tasks.local, here.tasks.count) == (3, 4)
    for alone in ({"SLURM_STEP_TASKS_PER_NODE": None}, {"SLURM_STEP_TASKS_PER_NODE": "4,1", "SLURM_LOCALID": "0"}):
        with step(**alone) as here:
            assert here is None
    for odd in ({"SLURM_LOCALID": "2"}, {"SLURM_NODEID": "9"}, {"SLURM_PROCID": "x"}):
        with pytest.raises(BadInput, match="SLURM_"), step(**odd):
            pass


def test_a_task_that_starts_again_meets_the_others_again(step):
    with step() as first:
        pass
    with step() as second:
        assert first.tasks.folder.parent == second.tasks.folder.parent
        assert first.tasks.folder != second.tasks.folder
    with step(SLURM_LOCALID="0") as other:
        assert other.tasks.folder == first.tasks.folder
    with step(SLURM_STEP_ID="1") as next_step:
        assert next_step.tasks.folder.parent != first.tasks.folder.parent


def test_two_programs_of_a_task_at_a_time_are_refused(step, tmp_path):
    """Each task of `exec -- A | exec -- B` would take part in the meetings of A and B in any order."""
    with step() as first:
        with pytest.raises(BadInput, match="task 1 of this host already runs a program"), step():
            pass
        # A program that firsttouch runs may start it again: that process has this one as its ancestor.
        begun = first.tasks.folder.parent / "begun.1"
        begun.write_text(begun.read_text().replace(str(os.getpid()), str(os.getppid())))
        with step() as inner, step(SLURM_LOCALID="0") as other:
            assert (inner.tasks.folder.name, other.tasks.folder) == ("0.inner", first.tasks.folder)
    with step() as second:
        assert second.tasks.folder.name == "1"


def test_somebody_elses_folder_is_refused(step, tmp_path):
    with step():
        pass
    (base,) = tmp_path.iterdir()
    base.chmod(0o755)
    with pytest.raises(BadInput, match="not this user's own folder"), step():
        pass


def test_what_killed_tasks_left_is_removed_when_it_is_old(step, tmp_path):
    with step() as here:
        folder = here.tasks.folder.parent
        os.utime(folder, (time.time() - 7200,) * 2)
        with step(SLURM_JOB_ID="8"):
            assert folder.exists()  # a task is there
    os.utime(folder, (time.time() - 7200,) * 2)
    with step() as again:  # another task of the step, which starts now, may have looked into the folder
        assert again.tasks.folder == folder / "1"
    os.utime(folder, (time.time() - 7200,) * 2)
    with step(SLURM_JOB_ID="9"):
        assert not folder.exists()


def members(folder, count):
    """Return the tasks of a host, each with the descriptor that holds its lock."""
    steps = [Meeting(local, count, folder) for local in range(count)]
    handles = [os.open(folder / f"task.{local}", os.O_RDWR | os.O_CREAT) for local in range(count)]
    assert all(map(try_lock, handles))
    return steps, handles


def test_statements_are_those_of_all(tmp_path):
    steps, handles = members(tmp_path, 3)
    (tmp_path / "statement.0").write_text("[0, 1]")
    (tmp_path / "statement.2").write_text("[4]")
    assert steps[1].exchanged([2, 3], ManualClock()) == [[0, 1], [2, 3], [4]]
    for handle in handles:
        os.close(handle)


def test_a_task_that_does_not_come_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tasks, "_PAUSE", 1.0)
    steps, _ = members(tmp_path, 4)
    (tmp_path / "statement.2").write_text("[4]")
    clock = ManualClock()
    with pytest.raises(RunFailed, match="tasks 0,3 of this host did not start firsttouch within 120 s"):
        steps[1].exchanged([1], clock)
    assert capsys.readouterr().err == "firsttouch: waiting for tasks 0,3 of this host\n"


def test_the_last_task_gets_all_results(tmp_path):
    folder = tmp_path / "meeting"
    folder.mkdir()
    steps, handles = members(folder, 3)
    assert steps[1].ended({"seconds": 1}) is None
    assert steps[0].ended({"seconds": 0}) is None
    assert steps[2].ended({"seconds": 2}) == [{"seconds": 0}, {"seconds": 1}, {"seconds": 2}]
    assert not folder.exists()
    for handle in handles:
        os.close(handle)


def test_a_task_that_was_killed_leaves_no_result(tmp_path):
    folder = tmp_path / "meeting"
    folder.mkdir()
    steps, handles = members(folder, 3)
    assert steps[1].ended({}) is None
    os.close(handles[0])
    assert steps[2].ended({"seconds": 2}) == [None, {}, {"seconds": 2}]


def hosts_meeting(tmp_path, count=2):
    folder = tmp_path / "meeting"
    folder.mkdir()
    names = tuple(f"n{number + 1}" for number in range(count))
    return [Meeting(number, count, folder, names) for number in range(count)]


def test_one_result_of_hosts_is_kept_by_each_and_told_by_the_last(tmp_path):
    first, second = hosts_meeting(tmp_path)
    kept = []
    with first.attended(), second.attended():
        assert second.ended({"host": "n2"}, kept.append) is None
        assert first.ended({"host": "n1"}, kept.append) == [{"host": "n1"}, {"host": "n2"}]
    assert kept == [[None, {"host": "n2"}], [{"host": "n1"}, {"host": "n2"}]]
    assert not first.folder.exists()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_host_that_waits_while_the_last_one_reports_keeps_nothing(tmp_path, monkeypatch, killed):
    first, second, *others = hosts_meeting(tmp_path, 2 + killed)
    for other in others:
        with other.attended():
            pass
    results = [{"host": "n1"}, {"host": "n2"}, *[None] * killed]
    kept = []

    @contextlib.contextmanager
    def after_the_first(file):
        with first.attended(), monkeypatch.context() as context:
            context.setattr(tasks, "locked", locked)
            assert first.ended({"host": "n1"}, kept.append) == results
        yield

    monkeypatch.setattr(tasks, "locked", after_the_first)
    with second.attended():
        assert second.ended({"host": "n2"}, kept.append) is None
    assert kept == [results]
    assert bool([*tmp_path.iterdir()]) == bool(killed)


def test_a_member_whose_folder_was_removed_says_so(tmp_path):
    _, second = hosts_meeting(tmp_path)
    with second.attended():
        shutil.rmtree(second.folder)
        with pytest.raises(FileNotFoundError, match=r"meeting/result\.1"):
            second.ended({"host": "n2"})


def test_a_host_whose_tasks_were_killed_has_no_result(tmp_path):
    first, second = hosts_meeting(tmp_path)
    with first.attended():
        with second.attended(), second.attended():  # two tasks of one host
            assert first._has_ended(1) is False
        assert first.ended({"host": "n1"}) == [{"host": "n1"}, None]
    # Without locks between hosts, one that lives seems to have been killed. Its result completes the others'.
    assert second.ended({"host": "n2"}) == [{"host": "n1"}, {"host": "n2"}]
    assert not first.folder.exists()


def test_a_host_that_does_not_come_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tasks, "_PAUSE", 1.0)
    first, _, _ = hosts_meeting(tmp_path, 3)
    monkeypatch.chdir(tmp_path)
    first = replace(first, folder=Path("meeting"))
    place = re.escape(str(tmp_path))
    with pytest.raises(
        RunFailed, match=rf"^hosts n2, n3 did not appear in {place} within 120 s: .* --joined in a folder"
    ):
        first.exchanged("n1", ManualClock())
    assert capsys.readouterr().err == "firsttouch: waiting for hosts n2, n3\n"


def test_a_host_that_comes_late_does_not_start_without_those_that_gave_up(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "_PAUSE", 1.0)
    first, late = hosts_meeting(tmp_path)
    with pytest.raises(RunFailed, match=r"^host n2 did not appear"):
        first.exchanged("n1", ManualClock())
    with pytest.raises(RunFailed, match=r"^host n1 did not appear"):
        late.exchanged("n2", ManualClock())


def test_the_hosts_of_a_step_have_one_result_if_it_is_asked_for(step, tmp_path):
    one_each = {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "n[1-2]"}
    joined = tmp_path / "joined.json"
    with step(**one_each) as here:
        assert here is None
    step(**one_each)
    with tasks.of_this_step(joined) as here:
        assert (here.tasks.count, here.hosts.local, here.hosts.hosts) == (1, 1, ("n1", "n2"))
        assert here.hosts.folder == tmp_path / ".joined.json.7.0.0.0"
        assert here.hosts.folder.is_dir()
    step(**one_each | {"SLURM_STEP_TASKS_PER_NODE": "1,1,1"})
    with pytest.raises(BadInput, match="SLURM_STEP_NODELIST has 2 hosts"), tasks.of_this_step(joined):
        pass
    assert not (tmp_path / ".joined.json.7.0.0.1").exists()


def test_what_another_user_left_beside_the_joined_file_stays(step, tmp_path):
    step(SLURM_STEP_TASKS_PER_NODE="1(x2)", SLURM_LOCALID="0", SLURM_STEP_NODELIST="n[1-2]")
    folder = tmp_path / ".joined.6.0.0.0"
    folder.mkdir()
    (folder / "task.0").symlink_to("task.0")  # root can open every file that is one
    os.utime(folder, (time.time() - 7200,) * 2)
    with tasks.of_this_step(tmp_path / "joined"):
        assert folder.exists()


def test_only_what_earlier_steps_left_is_removed_beside_the_joined_file(step, tmp_path):
    step(SLURM_STEP_TASKS_PER_NODE="1(x2)", SLURM_LOCALID="0", SLURM_STEP_NODELIST="n[1-2]")
    users, step_folder = tmp_path / ".joined[1].old", tmp_path / ".joined[1].6.0.0.0"
    partial = tmp_path / ".partial-n1+joined[1]-0123abcd"
    for left in (users, step_folder, partial):
        left.touch() if left == partial else left.mkdir()
        os.utime(left, (time.time() - 7200,) * 2)
    with tasks.of_this_step(tmp_path / "joined[1]"):
        assert [left.exists() for left in (users, step_folder, partial)] == [True, False, False]


OPEN_MPI = {"LOCAL_RANK": "1", "LOCAL_SIZE": "2", "RANK": "5", "SIZE": "8"}
HYDRA = {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_RANK": "5", "PMI_SIZE": "8"}


@pytest.mark.parametrize("variables", [{f"OMPI_COMM_WORLD_{n}": v for n, v in OPEN_MPI.items()}, HYDRA])
def test_what_mpirun_says(step, variables, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "name_of", lambda pid: "hydra_pmi_proxy" if pid == os.getppid() else "sh")
    # srun has started mpirun.
    with step(SLURM_STEP_TASKS_PER_NODE="1", SLURM_NODEID="0", SLURM_LOCALID="0", **variables) as here:
        assert (here.tasks.local, here.tasks.count, here.number, here.launcher) == (1, 2, 5, "mpirun")
        assert here.pus == os.sched_getaffinity(os.getppid())
        assert here.tasks.folder.parent.name == f"mpirun.{os.getppid()}.0"
    with pytest.raises(BadInput, match="mpirun does not state the hosts"), tasks.of_this_step(tmp_path / "joined"):
        pass
    local, count, number, _ = variables
    # mpirun has started srun, or one rank on each host.
    with step(**{**variables, **STEP, local: "0", count: "1"}) as here:
        assert here.launcher == "srun"
    for odd in ({local: "2", count: "2"}, {local: "1", number: "x"}):
        with (
            pytest.raises(BadInput, match=f"{count} is 2: there is no rank 2|PMI_RANK is|WORLD_RANK is"),
            step(**odd),
        ):
            pass


def test_what_a_rank_has_started_is_no_rank(step):
    """Jobs that a rank submits, and shells, have its variables."""
    with step(**HYDRA, SLURM_STEP_TASKS_PER_NODE="1", SLURM_NODEID="0", SLURM_LOCALID="0") as here:
        assert here is None
    with step(**HYDRA, **STEP) as here:
        assert here.launcher == "srun"


def test_the_tasks_of_a_host_name_one_file(tmp_path):
    (tmp_path / "statement.1").write_text(json.dumps([1, [1], "/elsewhere.json", ""]))
    with pytest.raises(
        BadInput, match=r"--joined has one file for all tasks, and they name /elsewhere.json, /.*/here"
    ):
        tasks.Step(Meeting(0, 2, tmp_path), 0, joined=tmp_path / "here.json").grants(frozenset({0}))


def test_all_tasks_of_a_host_end_when_another_host_does_not_come(tmp_path, monkeypatch):
    absent = "host n2 did not appear in /joined"

    def exchanged(meeting, statement, **_):
        if meeting.hosts:
            raise RunFailed(absent)
        (tmp_path / f"stated.{meeting.local}").write_text(json.dumps(statement))
        return [json.loads((tmp_path / f"stated.{number}").read_text()) for number in range(meeting.local + 1)]

    monkeypatch.setattr(Meeting, "exchanged", exchanged)
    hosts = Meeting(0, 2, tmp_path, ("n1", "n2"))
    for local in range(2):
        with pytest.raises(RunFailed, match=f"^{absent}$"):
            tasks.Step(Meeting(local, 2, tmp_path), local, hosts=hosts).grants(frozenset({0}))


def test_who_divides_what():
    a, b, c = frozenset({0, 1}), frozenset({2, 3}), frozenset({3, 4})
    assert shares([a, b, a]) == [(a, 0, 2), (b, 0, 1), (a, 1, 2)]
    assert overlap({4: a, 5: b, 6: a}, "srun") == ""
    text = "tasks 5 and 6 may both use PUs 3, and each keeps its own: "
    assert overlap({4: a, 5: b, 6: c}, "srun").startswith(f"{text}srun --cpu-bind=cores gives")
    assert overlap({4: a, 5: b, 6: c}, "mpirun").startswith(f"{text}mpirun --bind-to core gives")


def test_ranks_that_mpirun_binds_to_one_numa_node_are_named(opteron):
    cores = {0: frozenset({0}), 1: frozenset({1})}
    free = frozenset(range(64))
    assert tasks.crowded(cores, free, opteron) == (
        "mpirun has bound its 2 ranks to NUMA node 0, and may use 8 NUMA nodes: mpirun --bind-to none lets "
        "firsttouch divide them"
    )
    # A NUMA node each; ranks that are not bound; no others that mpirun could use; srun.
    assert tasks.crowded({0: frozenset({0}), 1: frozenset({8})}, free, opteron) == ""
    assert tasks.crowded({0: free, 1: free}, free, opteron) == ""
    assert tasks.crowded(cores, frozenset(range(8)), opteron) == ""
    assert tasks.crowded(cores, None, opteron) == ""


def placed(host, grants, name="1Inst_Original", threads=None):
    scenario = plan_tasks(host, shares([frozenset(grant) for grant in grants]), name, threads)
    return scenario, [(set(p.pus), set(p.numa_nodes)) for p in scenario.placements]


def test_eight_tasks_that_slurm_does_not_bind_have_a_numa_node_each(opteron):
    scenario, places = placed(opteron, [range(64)] * 8)
    assert (scenario.name, scenario.threads) == ("8Inst_Original", 8)
    assert places == [(set(opteron.node(n).pus), {n}) for n in range(8)]
    assert {p.extent for p in scenario.placements} == {"part"}


def test_what_slurm_binds_to_a_task_stays_its_own(opteron):
    # Six PUs: four of one NUMA node and two of the next.
    scenario, places = placed(opteron, [{4, 5, 6}, {7, 8, 9}], "1Inst_Localalloc")
    assert places == [({4, 5, 6}, {0}), ({7, 8, 9}, {0, 1})]
    assert (scenario.name, scenario.policy, scenario.threads) == ("2Inst_Localalloc", "localalloc", 3)
    texts = tasks.described(dict(zip((4, 5), scenario.placements, strict=True)), opteron)
    assert texts.endswith("task 4 on PUs 4-6 (NUMA node 0), task 5 on PUs 7-9 (NUMA nodes 0-1)")
    # One socket each for two tasks, which they divide.
    _, places = placed(opteron, [range(16), range(16), range(16, 32), range(16, 32)])
    assert [nodes for _, nodes in places] == [{0}, {1}, {2}, {3}]


def test_the_name_and_the_threads_of_tasks(opteron):
    _, places = placed(opteron, [range(64)] * 2, "2Inst_Interleave", 4)
    assert [len(pus) for pus, _ in places] == [4, 4]
    assert placed(opteron, [range(8)] * 2, "1Inst_Original_3t")[0].name == "2Inst_Original_3t"
    for name, threads, reason in (
        ("4Inst_Original", None, "2 tasks were started"),
        ("nonsense", None, "no scenario 'nonsense' for 2 tasks"),
        ("1Inst_Original_3t", 4, "leave one of them out"),
    ):
        with pytest.raises(BadInput, match=reason):
            placed(opteron, [range(8)] * 2, name, threads)
    with pytest.raises(CannotHere, match="2 x 5 threads are more than the 8 PUs"):
        placed(opteron, [range(8)] * 2, threads=5)
    with pytest.raises(CannotHere, match="9 x 1 threads are more than the 8 PUs"):
        placed(opteron, [range(8)] * 9)
    with pytest.raises(CannotHere, match="1 x 9 threads are more than the 8 PUs"):
        placed(opteron, [range(8), range(8, 16)], threads=9)


def test_results_are_kept_as_json(tmp_path):
    folder = tmp_path / "meeting"
    folder.mkdir()
    (only,), _ = members(folder, 1)
    assert only.ended({"found": [{"pages": {"0": 3}}]}) == [json.loads('{"found": [{"pages": {"0": 3}}]}')]


def test_this_host_can_be_planned():
    host = load()
    pus = frozenset(host.allowed_pus)
    scenario = plan_tasks(replace(host, allowed_pus=pus), shares([pus]), "1Inst_Original")
    assert scenario.placements[0].extent == "part"


def test_a_grant_that_does_not_fit_numa_nodes_is_divided(opteron):
    # Four PUs of one NUMA node and two of the next: three for each task, and one of them is on both.
    scenario, places = placed(opteron, [range(4, 10)] * 2)
    assert places == [({4, 5, 6}, {0}), ({7, 8, 9}, {0, 1})]
    assert scenario.threads == 3
    # A seventh PU stays idle.
    assert [len(pus) for pus, _ in placed(opteron, [range(4, 11)] * 2)[1]] == [3, 3]
