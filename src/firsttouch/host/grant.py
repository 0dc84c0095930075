# SPDX-License-Identifier: Apache-2.0
"""Compares what Slurm, a cpuset or a cgroup grants this process with what a command requests.

A job gets one CPU by default, and a step that srun starts does not inherit the CPUs of sbatch's
``--cpus-per-task`` (srun(1), since 22.05). Programs start their threads nevertheless, and share the granted PUs.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence

from firsttouch.errors import BadInput
from firsttouch.host.topology import Topology
from firsttouch.units import format_bytes

#: Variables that state how many threads a program starts.
_STATED = ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK")
#: Options of programs that state how many threads they start.
_OPTION = r"--(n|num|max)?[-_]?(threads|cores|cpus)|-@"
#: A value in Slurm's lists, and the number of consecutive hosts that share it.
_COUNTS = r"(\d+)(?:\(x(\d+)\))?"


def number_of_job(variable: str, default: int = 0) -> int:
    """Return the number in a job's variable, *default* if it is not set; raises BadInput for anything else."""
    text = os.environ.get(variable, str(default))
    if not text.isdecimal():
        raise BadInput(f"{variable} is {text!r}, not a number: only Slurm or mpirun should set it")
    return int(text)


def numbers_of_job(variable: str) -> list[int]:
    """Return the numbers per host in one of Slurm's variables, such as "72(x2),36"; empty if it is not set."""
    counts = re.findall(_COUNTS, os.environ.get(variable, ""))
    return [int(count) for count, times in counts for _ in range(int(times or 1))]


def asked_threads(command: Sequence[str]) -> int:
    """Return the most threads that OMP_NUM_THREADS, the job, or an option of *command* requests; 0 if none does.

    Only options with the same meaning in most programs are read, such as ``--threads 64``, but not ``-t 64``.
    """
    values = [os.environ.get(name, "").split(",")[0] for name in _STATED]
    values += [word.removeprefix("-@") for word in command if word.startswith("-@")]
    for word, after in itertools.zip_longest(command, command[1:], fillvalue=""):
        option, equals, value = word.partition("=")
        if option.startswith("-") and re.fullmatch(_OPTION, option):
            values.append(value if equals else after)
    return max((int(value) for value in values if value.isascii() and value.isdecimal()), default=0)


def lacking_pus(threads: int, host: Topology, granted: int | None = None) -> str:
    """Return a message with the remedy if *threads* exceeds the PUs that this process may use, else "".

    *granted* is the number of PUs of its share if it is one of several tasks (None: all that it may use).
    """
    granted, whole = host.usable_pu_count if granted is None else granted, len(host.pus)
    if threads <= granted:
        return ""
    may_use = f"of the host's {whole} PUs" if granted < whole else f"PU{'s' * (whole != 1)}, all of this host"
    remedy = more_pus(threads, host, granted)
    return f"{threads} threads are asked for, and this process may use {granted} {may_use}{remedy}"


def more_pus(threads: int, host: Topology, granted: int | None = None) -> str:
    """Return how this process gets *threads* PUs, as the end of a sentence; "" if the host has too few."""
    enough = min(threads, len(host.pus))
    if not host.here or (host.usable_pu_count if granted is None else granted) >= enough:
        return ""
    shared = host.usable_pu_count if granted is not None else 0
    if shared >= enough and ("SLURM_JOB_ID" not in os.environ or number_of_job("SLURM_CPUS_PER_TASK") >= enough):
        return f": the tasks of this host divide {shared} PUs, start fewer tasks"
    if "SLURM_JOB_ID" not in os.environ:
        return ": a cpuset or an affinity mask excludes the others"
    is_step = "SLURM_STEP_NODELIST" in os.environ
    tasks = max(numbers_of_job("SLURM_STEP_TASKS_PER_NODE"), default=1) if is_step else 1
    of_job = min(numbers_of_job("SLURM_JOB_CPUS_PER_NODE"), default=0)
    if of_job >= enough * tasks and not is_step:
        return ": an affinity mask excludes others of the job"
    by = "srun" if of_job >= enough * tasks else "sbatch"
    return f": {by} --cpus-per-task={enough} grants {'them' if enough == threads else f'{enough} of them'}"


def _granted_memory() -> int:
    """Return the bytes per host that Slurm granted this job; 0 if it states none (it may enforce no limit)."""
    if per_host := number_of_job("SLURM_MEM_PER_NODE", 0):
        return per_host << 20
    each, pus = number_of_job("SLURM_MEM_PER_CPU", 0), min(numbers_of_job("SLURM_JOB_CPUS_PER_NODE"), default=0)
    return each * pus << 20


def lacking_memory(need: int, available: int | None) -> str:
    """Return a message with the remedy if *need* exceeds the *available* bytes (None: unknown), else ""."""
    if granted := _granted_memory():
        available = granted if available is None else min(available, granted)
    if available is None or need <= available:
        return ""
    lack = f"about {format_bytes(need)} of memory are needed, and this process may take {format_bytes(available)}"
    if "SLURM_JOB_ID" not in os.environ:
        return lack
    # A tenth more, for the programs themselves and the kernel memory of the job.
    return f"{lack}: sbatch --mem={-(-need * 11 // 10 >> 30)}G grants it"
