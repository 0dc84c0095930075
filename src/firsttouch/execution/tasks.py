# SPDX-License-Identifier: Apache-2.0
"""The tasks that srun or mpirun starts: each finds its part of the host in its environment.

A step of srun with several tasks on a host starts this program once for each, as mpirun does for its ranks. Their
variables state the number of tasks on the host, and the number of this one, so tasks need not communicate: each
takes the PUs that were bound to it, or its part of the PUs that all of them may use.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from msgspec import Struct

from firsttouch.errors import BadInput
from firsttouch.execution.child_process import name_of
from firsttouch.execution.host_lock import ancestors
from firsttouch.host.cpusets import format_list
from firsttouch.host.grant import number_of_job, numbers_of_job
from firsttouch.host.topology import Topology
from firsttouch.scenarios.placement import TaskShare

#: Slurm's variables in each task.
_OF_SRUN = ("SLURM_LOCALID", "SLURM_NODEID", "SLURM_PROCID")
#: The variables of Open MPI and of Hydra (MPICH, Intel MPI) in each rank: its number on this host, the ranks on
#: this host, its number among all ranks, and all ranks.
_OF_MPIRUN = (
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_RANK", "PMI_SIZE"),
)
#: Prefixes of the names of programs that start ranks on a host: mpirun, and Open MPI's, PRRTE's and Hydra's.
_MPIRUN = ("mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "hydra_")


class Task(Struct, frozen=True):
    """One of the tasks that srun or mpirun started together."""

    #: Its number on this host, and the number of tasks on this host.
    local: int
    count: int
    #: Its number on all hosts, and the number of tasks on all hosts.
    number: int
    total: int
    #: The process that started the tasks of this host, if it is known.
    launcher: int | None
    is_rank: bool = False

    def share(self, host: Topology) -> TaskShare:
        """Return which PUs of *host* this task has.

        Tasks that may use the same PUs divide them; otherwise a task keeps the PUs that are bound to it. Only
        Slurm states the PUs of the other tasks.
        """
        own = frozenset(host.allowed_pus)
        if bindings := self._bindings(host, own):
            return TaskShare(own, bindings[: self.local].count(own), bindings.count(own))
        if own in (self._of_launcher(host), _cpuset(host)):
            return TaskShare(own, self.local, self.count)
        return TaskShare(own)

    def _bindings(self, host: Topology, own: frozenset[int]) -> list[frozenset[int]]:
        """Return the PUs that Slurm bound each task of this host to; empty if it did not bind them."""
        kind, numbers = (os.environ.get(f"SLURM_CPU_BIND_{name}", "") for name in ("TYPE", "LIST"))
        if self.is_rank or not kind.startswith(("map_cpu:", "mask_cpu:")):
            return []
        try:
            values = [int(number, 0 if kind.startswith("map") else 16) for number in numbers.split(",")]
        except ValueError:
            return []
        masks = [1 << value for value in values] if kind.startswith("map") else values
        pus = [frozenset(pu.index for pu in host.pus if mask >> pu.index & 1) for mask in masks]
        # Slurm repeats the list if it has fewer entries than there are tasks.
        bindings = [pus[task % len(pus)] for task in range(self.count)]
        return bindings if bindings[self.local] == own else []

    def _of_launcher(self, host: Topology) -> frozenset[int]:
        """Return the PUs of the process that started the tasks of this host."""
        with contextlib.suppress(OSError):
            if self.launcher:
                return frozenset(os.sched_getaffinity(self.launcher)).intersection(pu.index for pu in host.pus)
        return frozenset()

    def crowding(self, host: Topology) -> str:
        """Return a warning if mpirun has bound its ranks to only some of its PUs, or to the same PUs; or "".

        For example, Open MPI binds each of two ranks to a core of NUMA node 0.
        """
        bound, usable = len(host.allowed_pus), len(self._of_launcher(host))
        if not self.is_rank or bound == usable or usable < 2 * bound * self.count <= 2 * usable:
            return ""
        return (
            f"mpirun has bound rank {self.number} to PU{'s' * (bound > 1)} {format_list(host.allowed_pus)}, and "
            f"has {usable} PUs for {self.count} ranks: mpirun --bind-to none lets firsttouch divide them"
        )


def this_task() -> Task | None:
    """Return the task that this process is; None if srun or mpirun started only one.

    Raises BadInput for variables that contradict each other.
    """
    rank, task = _of_mpirun(), _of_srun()
    # srun may have started mpirun, or mpirun srun.
    chosen = rank if rank and (rank.count > 1 or task is None) else task
    return chosen if chosen and chosen.total > 1 else None


def _of_srun() -> Task | None:
    """Return the task that srun states; None outside of its steps."""
    counts = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    if not counts or any(name not in os.environ for name in _OF_SRUN):
        return None
    local, node, number = map(number_of_job, _OF_SRUN)
    each = numbers_of_job("SLURM_STEP_TASKS_PER_NODE")
    if node >= len(each) or local >= each[node]:
        raise BadInput(f"SLURM_STEP_TASKS_PER_NODE is {counts!r}: it has no task {local} of host {node}")
    return Task(local, each[node], number, sum(each), _first_without(_OF_SRUN[0]))


def _of_mpirun() -> Task | None:
    """Return the task that mpirun states; None outside of its ranks. srun may have started mpirun."""
    names = next((names for names in _OF_MPIRUN if all(name in os.environ for name in names)), None)
    if names is None:
        return None
    launcher = _first_without(names[0])
    # A job or a shell that a rank started inherits its variables.
    if launcher and not _is_mpirun(launcher):
        return None
    local, count, number, total = map(number_of_job, names)
    if local >= count:
        raise BadInput(f"{names[1]} is {count}: there is no rank {local} of this host")
    return Task(local, count, number, total, launcher, is_rank=True)


def _first_without(variable: str) -> int | None:
    """Return the nearest ancestor that was started without a variable, which set it for this process."""
    return next((pid for pid in ancestors() if not _has_variable(pid, variable)), None)


def _is_mpirun(pid: int) -> bool:
    """Return whether a process starts ranks, by its name; False if it has ended."""
    try:
        return name_of(pid).startswith(_MPIRUN)
    except OSError:
        return False


def _has_variable(pid: int, name: str) -> bool:
    """Return whether a process was started with a variable; False if this cannot be read."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(variable.startswith(f"{name}=".encode()) for variable in variables)


def _cpuset(host: Topology) -> frozenset[int]:
    """Return the PUs of this process's cpuset, which the kernel assigns if the process requests all PUs."""
    affinity = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, [pu.index for pu in host.pus])
        return frozenset(os.sched_getaffinity(0))
    finally:
        os.sched_setaffinity(0, affinity)
