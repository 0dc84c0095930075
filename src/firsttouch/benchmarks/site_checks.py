# SPDX-License-Identifier: Apache-2.0
"""Measures any program under a verified placement: a site's own check is one YAML file in checks/."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from firsttouch import documents, paths
from firsttouch.documents import FileTable, Regex, Word
from firsttouch.errors import BadInput, RunFailed, none_such
from firsttouch.execution.process_runner import Job, run_together
from firsttouch.execution.progress import say
from firsttouch.host.topology import load as load_topology
from firsttouch.records import catalogue
from firsttouch.records.catalogue import Unit
from firsttouch.records.schema import Record, software, wrong_parameter
from firsttouch.scenarios import evidence
from firsttouch.scenarios.placement import Scenario, plan, with_threads

_Name = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z", description="a name: letters, digits and _")]


class ProgramSpec(FileTable, frozen=True):
    """The command to run and the value to read from its output; the fields are the keys of a YAML file.

    *regex* has one group, a number in *unit*; the last match in the program's output is used, or in *file*, which
    the program writes into its working folder. Without it, the run time is measured. *scenario* has one instance.
    """

    program: Annotated[tuple[str, ...], Meta(min_length=1)]
    check: _Name
    metric: _Name = "time"
    unit: Unit = "s"
    better: Literal["higher", "lower", "neither"] | None = None
    regex: Regex = Regex("")
    file: Word = ""
    scenario: str = "1x-default"
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise BadInput for contradictory keys, or if there is no program."""
        if not self.program:
            raise BadInput("no program is named")
        if self.regex:
            Regex.parse(self.regex)
        if self.regex and (groups := re.compile(self.regex).groups) != 1:
            raise BadInput(f"the regular expression has {groups} groups, one is needed: the number")
        if not self.regex and (self.unit, self.metric, self.file) != ("s", "time", ""):
            raise BadInput("a regular expression is needed for any metric other than the run time (s)")
        if wrong := wrong_parameter(self.parameters):
            raise BadInput(f"parameters {wrong}")

    @property
    def direction(self) -> Literal["higher", "lower", "neither"]:
        """Whether higher or lower values are better: as stated, else as in the catalogue, else by the unit."""
        return self.better or catalogue.direction(self.check, self.metric, self.unit)


def names() -> list[str]:
    """Return the names of the checks in the user's and the site's folders."""
    return list(paths.data_files("checks", ".yaml"))


def load(name_or_file: str) -> ProgramSpec:
    """Return the check of that name, or of that file; raises BadInput with file and line."""
    files = paths.data_files("checks", ".yaml")
    file = Path(name_or_file) if name_or_file.endswith(".yaml") else files.get(name_or_file)
    if file is None:
        raise BadInput(none_such("check", name_or_file, list(files)))
    document = documents.parse_yaml(documents.read_text(file), file)
    if isinstance(document.data, dict):
        document.data.setdefault("check", file.stem)
    return document.convert(ProgramSpec)


def measure_program(
    spec: ProgramSpec, *, repetitions: int = 3, timeout: float | None = None, threads: int | None = None
) -> Record:
    """Run the program and return the record, which is invalid if a placement did not hold.

    The program gets its number of threads (None: the scenario's) in OMP_NUM_THREADS, and in place of {threads} in
    its words. Raises BadInput for a scenario of several instances, and RunFailed if the program fails, exceeds
    *timeout* (s), or prints no number.
    """
    if repetitions < 1:
        raise BadInput(f"repetitions: at least 1, not {repetitions}")
    scenario = plan(load_topology()).single_instance(spec.scenario, threads)
    words = with_threads(spec.program, scenario.threads)
    place = scenario.placements[0]
    samples: list[float] = []
    reasons: list[str] = []
    observed: dict[str, Any] = {}
    for number in range(repetitions):
        before = _changed(spec)
        with tempfile.TemporaryDirectory(prefix="firsttouch-") as name:
            out, err = Path(name, "out"), Path(name, "err")
            env = {"OMP_NUM_THREADS": str(scenario.threads)}
            (outcome,) = run_together([Job(words, out, err, place, 1, env)], timeout=timeout)
            if spec.file and before == _changed(spec):
                raise RunFailed(f"{spec.program[0]} did not write {spec.file}")
            samples.append(_number(spec, [out, err]) if spec.regex else outcome.seconds)
        reasons.append(outcome.misplaced)
        observed = outcome.observed.to_dict()
        state = evidence.describe(outcome)
        say(f"{spec.check} ({number + 1}/{repetitions}): {spec.metric} {samples[-1]:g} {spec.unit}, {state}")
    return record_of(spec, scenario, samples, next(filter(None, reasons), ""), [observed])


def record_of(
    spec: ProgramSpec,
    scenario: Scenario,
    samples: Sequence[float],
    reason: str,
    observed: Sequence[Mapping[str, Any]],
    *,
    lacking: Sequence[str] = (),
) -> Record:
    """Return the record of runs of a program under *scenario*; *reason* is why it is invalid, or empty.

    *observed* are the placements that the kernel showed in the last run, *lacking* names the missing grants.
    """
    program = Path(shutil.which(spec.program[0]) or spec.program[0]).name
    own = {"program": program, "scenario": scenario.name, "threads": scenario.threads, "policy": scenario.policy}
    return Record(
        spec.check,
        spec.metric,
        spec.unit,
        spec.direction,
        tuple(samples),
        {**own, **spec.parameters},
        status="invalid" if reason else "valid",
        reason=reason,
        software=software(),
        placement_asked=[p.to_dict() | ({"lacking": [*lacking]} if lacking else {}) for p in scenario.placements],
        placement_found=[dict(each) for each in observed],
    )


def _changed(spec: ProgramSpec) -> int | None:
    """Return when the file that the program writes was changed (ns), None if it does not exist."""
    try:
        return Path(spec.file).stat().st_mtime_ns if spec.file else None
    except FileNotFoundError:
        return None


def _number(spec: ProgramSpec, outputs: Sequence[Path]) -> float:
    """Return the last number that the regular expression finds; raises RunFailed without one."""
    places = [Path(spec.file)] if spec.file else outputs
    text = "\n".join(documents.read_text(place) for place in places)
    where = spec.file or "its output"
    matches = re.findall(spec.regex, text, re.MULTILINE)
    if not matches:
        raise RunFailed(f"{spec.program[0]}: '{spec.regex}' matches nothing in {where}")
    try:
        return float(matches[-1])
    except ValueError:
        raise RunFailed(
            f"{spec.program[0]}: '{spec.regex}' gives '{matches[-1]}', which is not a number"
        ) from None
