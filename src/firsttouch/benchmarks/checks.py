# SPDX-License-Identifier: Apache-2.0
"""The base classes of the ReFrame checks in reframe/."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reframe.utility.sanity as sn
from reframe.core.builtins import fixture, parameter, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import JobSchedulerError, SanityError
from reframe.core.logging import getlogger
from reframe.core.meta import make_test
from reframe.core.pipeline import RunOnlyRegressionTest

from firsttouch.benchmarks import drawn_order, profiles
from firsttouch.benchmarks.cases import cases, system
from firsttouch.errors import CANNOT_HERE
from firsttouch.execution import backends
from firsttouch.records.catalogue import checks, of_kind
from firsttouch.records.schema import Record, read

if TYPE_CHECKING:
    from firsttouch.benchmarks.measure import ReframeTest

#: States of a job that succeeded. Slurm's exit code is 0 after a time limit, and until it is accounted for.
_SUCCEEDED = {"COMPLETED", "SUCCESS"}


class OneHost(RunOnlyRegressionTest):
    """Runs ``firsttouch`` on one exclusive host. The base class of the checks and of the choice of their host.

    A subclass sets ``executable_opts``, the arguments of ``firsttouch``, before the run phase. Set here in the
    setup phase: ``executable``, ``env_vars``, ``num_tasks``.

    Tags are the aspect (``latency``, ``placement``, …), ``production`` for checks that judge, ``cross-check`` for
    measurements by other programs, and ``quick`` for checks that end within a minute on any host.
    """

    #: Where the programs come from: native, apptainer or spack (default: the partition's backend).
    backend = variable(str, value="")
    #: The image or the view (default: the one of the partition or of the backend).
    image = variable(str, value="")

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    maintainers = ["firsttouch developers"]
    exclusive_access = True
    time_limit = "2h"

    @run_after("setup")
    def occupy_the_host(self) -> None:
        """Set the executable and request the whole host."""
        chosen = system().programs(self.current_partition.name, self.backend, self.image)
        self.executable = shlex.join(backends.command(*chosen))
        # A scheduler may not pass on the environment that ReFrame was started with.
        self.env_vars[profiles.VARIABLE] = cases().effort.name
        self.env_vars[drawn_order.VARIABLE] = drawn_order.seed()
        # Records name the system and the partition.
        self.env_vars["FIRSTTOUCH_SYSTEM"] = system().name
        self.env_vars["FIRSTTOUCH_PARTITION"] = self.current_partition.name
        # An exclusive job has all CPUs of its host, however Slurm counts them, but a step of srun must request
        # them.
        self.num_tasks = 1
        if self.current_partition.launcher_type.registered_name == "srun":
            self.job.launcher.options = ["--whole", "--cpu-bind=none"]

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


# ReFrame warns of each use of this older name of env_vars, even its own, and walks through the stack (8 ms).
OneHost.var_space.vars["variables"] = variable(alias=OneHost.var_space["env_vars"], loggable=False)


class HostOfRun(OneHost):
    """Chooses the host of a run: the first that Slurm allocates, or ``-S host=NAME``.

    A run describes one host: all checks wait for this fixture and then request the same host. If Slurm is not
    installed or the host does not match the system, it fails with one line, and the checks are skipped.
    """

    #: The name of the host in Slurm (default: the first free one).
    host = variable(str, value="")

    descr = "the host of this run"
    time_limit = "10m"

    @run_before("run")
    def ask_for_it(self) -> None:
        """Compare the host with the system; raises JobSchedulerError if jobs cannot be submitted."""
        self.executable_opts = ["topology", "--system", system().name]
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
        if self.job.state not in _SUCCEEDED:
            raise SanityError(self.reason().removeprefix("firsttouch: ").removeprefix("error: "))
        return True

    @property
    def slurm_name(self) -> str:
        """The host's name in Slurm."""
        lines = (re.match(r"host of this run: (\S+)$", line) for line in self._text(self.stdout))
        return next((m[1] for m in lines if m), "")


class FirstTouchCheck(OneHost):
    """Runs a command of ``firsttouch`` on the host of the run, and takes its records as performance variables.

    A subclass sets, or overrides:

    ===================== ================ ================================================================
    attribute             by               meaning
    ===================== ================ ================================================================
    ``descr``             end of init      the title of the check
    :attr:`command`       end of init      arguments of ``firsttouch``, without --repetitions and --records
    :attr:`repetitions`   end of init      timed repetitions (default: 3; None: without that option); the effort
                                           may allow fewer
    :attr:`least_records` before sanity    records that the command writes at least (default: 1)
    :meth:`labels`        performance      the name of a record's performance variable (default: its metric)
    ===================== ================ ================================================================

    Set here: ``executable_opts`` in setup, ``perf_variables`` and ``reference`` before performance. The check
    passes if the command exits with 0, writes :attr:`least_records` records, and all of them are valid. It is
    skipped if the command writes none and reports that this host cannot do the step.
    """

    #: Arguments of ``firsttouch``.
    command = variable(list, value=[])
    #: Timed repetitions of each measurement.
    repetitions = variable(int, type(None), value=3)
    #: If there are fewer records, the command did less than it should.
    least_records = variable(int, value=1)
    #: The host that all checks of a run measure.
    host_of_run = fixture(HostOfRun, scope="partition")

    keep_files = ["records.jsonl"]
    #: Wait for a host that is in use, but not forever for one that is down.
    max_pending_time = "1d"

    def labels(self, record: Record) -> str | None:
        """Return the name of a record's performance variable, or None if it has none."""
        return record.metric

    @run_after("setup")
    def prepare(self) -> None:
        """Set the command line. The partition's environment names system and partition for the records."""
        again: list[str] = []
        if self.repetitions:
            again = ["--repetitions", str(cases().effort.limit(self.repetitions))]
        self.executable_opts = [*self.command, *again, "--records", "records.jsonl"]

    @run_before("run")
    def stay_on_the_host(self) -> None:
        """Request the host of the run, unless ``--distribute`` has set one."""
        if self.by_slurm and not hasattr(self, ".nid"):
            self.job.pin_nodes = [self.host_of_run.slurm_name]

    @run_before("sanity")
    def skip_what_cannot_be_done(self) -> None:
        """Skip, with the command's reason, if the host cannot do this step."""
        for line in self._text(self.stderr):
            if line.startswith(CANNOT_HERE) and not self._records():
                self.skip(line.removeprefix(CANNOT_HERE))

    @sanity_function
    def records_are_whole_and_valid(self) -> bool:
        """Check the exit status, and the number and validity of the records."""
        if self.job.state not in _SUCCEEDED:
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
        """Set the performance variables by the records, and their references by the system."""
        references: dict[str, tuple[Any, ...]] = {}
        for record in self._records():
            label = self.labels(record)
            if label is None:
                continue
            self.perf_variables[label] = sn.make_performance_function(sn.defer(record.value), record.unit)
            reference = system().reference(record.check, record.metric, record.parameters)
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
    """Return a check's measurements; the file is read again only if it has changed.

    Values that commands read from the host in addition to their measurements have no performance variables.
    """
    facts = checks()["topology"].metrics
    return tuple(r for r in read(file) if r.check not in of_kind("read") or r.metric in facts)


class AspectCheck(FirstTouchCheck):
    """Measures an aspect as its benchmark states; :func:`aspect_tests` makes one for each test."""

    #: The aspect, and its test.
    aspect: str
    test: ReframeTest

    @run_after("init")
    def set_command(self) -> None:
        """Take arguments, repetitions and tags from the test."""
        test, here = self.test, cases()
        self.descr = test.title(here)
        self.command = ["measure", self.aspect, *test.options(here)]
        self.least_records = test.least_records(here)
        if reason := test.refused(here):
            self.skip(reason)

    def labels(self, record: Record) -> str | None:
        """Return the name that the test gives a record."""
        return self.test.label(record, cases())


def aspect_tests(module: str) -> Iterator[type[AspectCheck]]:
    """Yield the tests of ReFrame of all aspects, as classes of *module* with the tests' names."""
    from firsttouch.benchmarks import measure  # noqa: PLC0415 - the other checks need none of the aspects

    for aspect, benchmark in measure.aspects().items():
        for test in benchmark.tests:
            production = {"production"} if benchmark.validates else set()
            body = {
                **{"aspect": aspect, "test": test, "tags": {aspect, *test.tags, *production}},
                # Defined in the class itself, so that -S may set them.
                **{"repetitions": test.repetitions, "time_limit": test.time_limit},
            }
            yield make_test(test.name, (AspectCheck,), body, module=module)


class ReferenceRun(FirstTouchCheck):
    """Builds the index and aligns all reads with one instance. All scenarios must give the same alignments.

    ``-S index_cache=STATE`` chooses the state of the page cache before each run, equally for all scenarios.
    """

    aligner = parameter(cases().aligners())
    dataset = variable(str, value=profiles.default("dataset"))
    index_cache = variable(str, value=profiles.index_cache())
    repetitions = 1
    keep_files = []  # its time, before anything is cached, is not a result: the step scaling measures it

    @run_after("init")
    def set_command(self) -> None:
        """Run the default scenario."""
        self.descr = f"reference run of {self.aligner} on {self.dataset}"
        asked = ["--aligner", self.aligner, "--dataset", self.dataset, "--checksum"]
        asked += ["--index-cache", self.index_cache]
        self.command = ["run", "1x-default", *asked]

    @property
    def alignments(self) -> str:
        """The alignments' checksums and numbers of reads, as ``--expect-sha256`` takes them."""
        facts = self._records()[0].parameters
        mapped = round(facts["mapped_fraction"] * facts["reads"])
        return f"{facts['common_sha256']},{facts['alignments_sha256']},{facts['reads']},{mapped}"


class ScenarioCheck(FirstTouchCheck):
    """Runs one scenario of one aligner on the data of the reference run; ``-S dataset=NAME`` chooses them.

    A subclass defines the parameter :attr:`scenario` and may extend ``executable_opts`` in setup.
    """

    reference_run = fixture(ReferenceRun, scope="partition")
    #: A parameter of scenario names.
    scenario: str

    @run_before("run")
    def set_command(self) -> None:
        """Run the scenario, on the data of the reference run."""
        first = self.reference_run
        self.executable_opts = [
            *("run", self.scenario, "--aligner", first.aligner, "--dataset", first.dataset),
            *("--index-cache", first.index_cache),
            *("--expect-sha256", first.alignments, *self.executable_opts),
        ]
