# SPDX-License-Identifier: Apache-2.0
"""The base classes of the ReFrame checks in reframe/."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import reframe.utility.sanity as sn
from reframe.core.builtins import fixture, parameter, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import JobSchedulerError, SanityError
from reframe.core.logging import getlogger
from reframe.core.pipeline import RunOnlyRegressionTest

from firsttouch.benchmarks import cases, profiles
from firsttouch.errors import CANNOT_HERE
from firsttouch.execution import backends
from firsttouch.records.schema import Record, read

# ----------------------------------------------------------------------
# The base of all checks: runs one firsttouch command and takes its records as performance and references.


class OneHost(RunOnlyRegressionTest):
    """Runs ``firsttouch`` on one exclusive host; what all checks and the choice of their host have in common."""

    #: Where the programs come from: native, apptainer or spack (default: what the partition says).
    backend = variable(str, value="")
    #: The image or the view (default: the partition's, or the backend's own).
    image = variable(str, value="")

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    exclusive_access = True
    time_limit = "2h"

    @run_after("setup")
    def occupy_the_host(self) -> None:
        """Set the executable and ask for the whole host."""
        chosen = cases.system().programs(self.current_partition.name, self.backend, self.image)
        self.executable = shlex.join(backends.command(*chosen))
        # Schedulers need not hand on the environment that ReFrame was started with.
        self.env_vars[profiles.VARIABLE] = cases.effort().name
        self.num_tasks = 1
        self.num_cpus_per_task = cases.system().facts.pus

    @property
    def by_slurm(self) -> bool:
        """Whether the partition's jobs go through Slurm."""
        return self.current_partition.scheduler.registered_name in {"slurm", "squeue"}

    def reason(self) -> str:
        """Return the last message of ``firsttouch`` on standard error."""
        lines = (line for line in reversed(self._text(self.stderr)) if line.startswith("firsttouch: "))
        return next(lines, "no reason on stderr")

    def _text(self, name: Any) -> list[str]:
        file = Path(self.stagedir) / str(sn.evaluate(name))
        return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []


class HostOfRun(OneHost):
    """Chooses the host of a run: the first one that Slurm gives, or ``-S host=NAME``.

    All checks of a run wait for it and then ask for the same host, so that a run describes one host. It fails
    with one line where Slurm is not installed or the host is not one of the system's; the checks are skipped then.
    """

    #: The name of the host in Slurm (default: the first one that is free).
    host = variable(str, value="")

    descr = "the host of this run"
    time_limit = "10m"

    @run_before("run")
    def ask_for_it(self) -> None:
        """Compare the host with the system; raises JobSchedulerError where nothing can be submitted."""
        self.executable_opts = ["topology", "--system", cases.system().name]
        if not self.by_slurm:
            return
        if shutil.which("sbatch") is None:
            partition = self.current_partition.fullname
            raise JobSchedulerError(f"partition {partition} submits through Slurm, and 'sbatch' is not on PATH")
        self.prerun_cmds = ['echo "host of this run: $SLURMD_NODENAME"']
        if self.host:
            self.job.pin_nodes = [self.host]

    @sanity_function
    def is_of_the_system(self) -> bool:
        """Whether the host has the NUMA nodes and PUs of the system."""
        if self.job.exitcode not in {0, None}:
            raise SanityError(self.reason().removeprefix("firsttouch: ").removeprefix("error: "))
        return True

    @property
    def slurm_name(self) -> str:
        """The host's name in Slurm."""
        lines = (re.match(r"host of this run: (\S+)$", line) for line in self._text(self.stdout))
        return next((m[1] for m in lines if m), "")


class FirstTouchCheck(OneHost):
    """Runs ``firsttouch`` with :attr:`command` on the host of the run.

    A check sets :attr:`command` (the arguments) after init, and says in :meth:`labels` how its records are
    named in the performance log. It passes when the command ended with 0, at least :attr:`least_records`
    records are there and all are valid; an exit status alone is never trusted, nor are records alone.
    """

    #: Arguments of ``firsttouch``; the records' file is added.
    command = variable(list, value=[])
    #: Timed repetitions of each measurement.
    repetitions = variable(int, value=3)
    #: Fewer records than this mean that the command did less than it should.
    least_records = variable(int, value=1)
    #: The checks of one run measure one host.
    host_of_run = fixture(HostOfRun, scope="partition")

    keep_files = ["records.jsonl"]
    #: A host that others use is waited for; one that died would be waited for without end.
    max_pending_time = "1d"

    def labels(self, record: Record) -> str | None:
        """Return the name of a record's performance variable, None where it is in the records only."""
        return record.metric

    @run_after("setup")
    def prepare(self) -> None:
        """Set the command line; the partition's environment tells whose records these are."""
        self.executable_opts = [
            *self.command,
            "--repetitions",
            str(min(self.repetitions, cases.effort().repetitions)),
            "--records",
            "records.jsonl",
        ]

    @run_before("run")
    def stay_on_the_host(self) -> None:
        """Ask for the host of the run; ``--distribute`` has named one already."""
        if self.by_slurm and not hasattr(self, ".nid"):
            self.job.pin_nodes = [self.host_of_run.slurm_name]

    @run_before("sanity")
    def skip_what_cannot_be_done(self) -> None:
        """Skip with the command's own reason where the host cannot do this step."""
        for line in self._text(self.stderr):
            if line.startswith(CANNOT_HERE) and not self._records():
                self.skip(line.removeprefix(CANNOT_HERE))

    @sanity_function
    def records_are_whole_and_valid(self) -> bool:
        """Look at exit status, number and validity of the records."""
        if self.job.exitcode not in {0, None}:
            raise SanityError(f"exit status {self.job.exitcode}: {self.reason()}")
        records = self._records()
        if len(records) < self.least_records:
            raise SanityError(f"{len(records)} records, at least {self.least_records} are needed: {self.reason()}")
        for record in records:
            if record.status != "valid":
                raise SanityError(f"{record.metric} is invalid: {record.reason}")
        return True

    @run_before("performance")
    def take_records(self) -> None:
        """Make performance variables of the records, and references of the system's."""
        references: dict[str, tuple[Any, ...]] = {}
        for record in self._records():
            label = self.labels(record)
            if label is None:
                continue
            self.perf_variables[label] = sn.make_performance_function(sn.defer(record.value), record.unit)
            reference = cases.system().reference(record.check, record.metric, record.parameters)
            if reference is not None and not record.judged:
                _say_once(f"{record.host} is emulated ({record.software['emulator']}): its speed is not judged")
            elif reference is not None:
                references[label] = reference.as_tuple()
        self.reference = {self.current_partition.fullname: references} if references else {}

    def _records(self) -> Sequence[Record]:
        file = Path(self.stagedir) / "records.jsonl"
        return _read(file, file.stat().st_mtime_ns) if file.exists() else ()


@functools.cache
def _say_once(text: str) -> None:
    getlogger().warning(text)


@functools.lru_cache(maxsize=1)
def _read(file: Path, _written: int) -> Sequence[Record]:
    """Return the records of a check, read once for all its questions while the file stays as it is."""
    return tuple(read(file))


# ----------------------------------------------------------------------
# What the checks of scenarios share: the index, and a reference run whose alignments all others must equal.


class ReferenceRun(FirstTouchCheck):
    """Builds the index once and aligns all reads with one instance: the alignments every scenario must give."""

    aligner = parameter(cases.chosen_aligners())
    dataset = variable(str, value=profiles.default_dataset())
    repetitions = 1

    @run_after("init")
    def set_command(self) -> None:
        """Run the default scenario."""
        self.descr = f"reference run of {self.aligner} on {self.dataset}"
        asked = ["--aligner", self.aligner, "--dataset", self.dataset, "--checksum"]
        self.command = ["run", "1Inst_Original", *asked]

    @property
    def sha256(self) -> str:
        """The checksums of the alignments, as ``--expect-sha256`` takes them."""
        parameters = self._records()[0].parameters
        return f"{parameters['common_sha256']},{parameters['alignments_sha256']}"


class ScenarioCheck(FirstTouchCheck):
    """One scenario of one aligner; ``-S dataset=NAME`` chooses the data."""

    reference_run = fixture(ReferenceRun, scope="partition")
    #: Set by the check: a parameter of scenario names.
    scenario: str

    @run_before("run")
    def set_command(self) -> None:
        """Run the scenario, on the data of the reference run."""
        first = self.reference_run
        self.executable_opts = [
            *("run", self.scenario, "--aligner", first.aligner, "--dataset", first.dataset),
            *("--expect-sha256", first.sha256, *self.executable_opts),
        ]
