# SPDX-License-Identifier: Apache-2.0
"""The base of all checks: runs one firsttouch command and takes its records as performance and references."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import reframe.utility.sanity as sn
from reframe.core.builtins import run_after, run_before, sanity_function, variable
from reframe.core.exceptions import SanityError
from reframe.core.logging import getlogger
from reframe.core.pipeline import RunOnlyRegressionTest

from firsttouch import backend
from firsttouch.checks import cases
from firsttouch.errors import CANNOT_HERE
from firsttouch.measure import effort
from firsttouch.records import Record, read


class FirstTouchCheck(RunOnlyRegressionTest):
    """Runs ``firsttouch`` with :attr:`command` on one exclusive host.

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
    #: Where the programs come from: native, apptainer or spack (default: what the partition says).
    backend = variable(str, value="")
    #: The image or the view (default: the partition's, or the backend's own).
    image = variable(str, value="")

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    exclusive_access = True
    time_limit = "2h"
    keep_files = ["records.jsonl"]

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
        chosen = cases.system().programs(self.current_partition.name, self.backend, self.image)
        self.executable = shlex.join(backend.command(*chosen))
        # Schedulers need not hand on the environment that ReFrame was started with.
        self.env_vars[effort.VARIABLE] = cases.effort().name
        self.num_tasks = 1
        self.num_cpus_per_task = cases.system().facts.pus

    @run_before("sanity")
    def skip_what_cannot_be_done(self) -> None:
        """Skip with the command's own reason where the host cannot do this step."""
        for line in self._text(self.stderr):
            if line.startswith(CANNOT_HERE) and not self._records():
                self.skip(line.removeprefix(CANNOT_HERE))

    @sanity_function
    def records_are_whole_and_valid(self) -> bool:
        """Look at exit status, number and validity of the records."""
        said = next(
            (li for li in reversed(self._text(self.stderr)) if li.startswith("firsttouch: ")),
            "no reason on stderr",
        )
        if self.job.exitcode not in {0, None}:
            raise SanityError(f"exit status {self.job.exitcode}: {said}")
        records = self._records()
        if len(records) < self.least_records:
            raise SanityError(f"{len(records)} records, at least {self.least_records} are needed: {said}")
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
            found = cases.system().reference(record.check, record.metric, record.parameters)
            if found is not None and not record.judged:
                _say_once(f"{record.host} is emulated ({record.software['emulator']}): its speed is not judged")
            elif found is not None:
                references[label] = found.as_tuple()
        self.reference = {self.current_partition.fullname: references} if references else {}

    def _records(self) -> Sequence[Record]:
        file = Path(self.stagedir) / "records.jsonl"
        return _read(file, file.stat().st_mtime_ns) if file.exists() else ()

    def _text(self, name: Any) -> list[str]:
        file = Path(self.stagedir) / str(sn.evaluate(name))
        return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []


@functools.cache
def _say_once(text: str) -> None:
    getlogger().warning(text)


@functools.lru_cache(maxsize=1)
def _read(file: Path, _written: int) -> Sequence[Record]:
    """Return the records of a check, read once for all its questions while the file stays as it is."""
    return tuple(read(file))
