# SPDX-License-Identifier: Apache-2.0
"""A check of this host within a given time, for a prolog: the measurements that tell most come first.

The time holds whatever happens: another process measures and judges after each step, and is killed when the time
is over. What it knows by then counts, and what is left is named.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttouch.benchmarks import cores, correctness, kernel_settings, measure, programs
from firsttouch.benchmarks.health import Watch
from firsttouch.benchmarks.measure import LEAST, AspectRequest
from firsttouch.benchmarks.profiles import FULL, VARIABLE
from firsttouch.benchmarks.recording import recording
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import FirstTouchError
from firsttouch.execution import child_process
from firsttouch.host.topology import Topology, load
from firsttouch.judge import judging, samples_table
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.systems import references
from firsttouch.systems.definition import System, available

Say = Callable[[str], None]
#: Time (s) in which a killed process may end before it is left to the kernel, and between two looks at the clock.
_PATIENCE, _LOOK = 0.2, 0.5
#: The metrics that are measured, by aspect: the first that the system has references for, or else the first. Of
#: latency's curve it is the largest size, which memory serves.
_METRICS = {
    "bandwidth": [f"{kernel}_bandwidth" for kernel in measure.ARRAYS],
    "latency": ["random_latency"],
}
#: What is measured on all PUs at once.
_OF_ALL = {correctness.CHECK: "known answers of all PUs", cores.CHECK: "clock of all PUs"}
#: The options of known answers: some thousands of each kind on each PU.
_ANSWERS = ("--seconds=0.1", "--array-bytes=64MB")
#: The parameters by which references name the place of a measurement.
_PLACE = ("pu_nodes", "bank", "relation")


@dataclass(frozen=True)
class Step:
    """A measurement: the PUs of one NUMA node and the memory of one bank, or known answers of all PUs."""

    aspect: str
    metric: str
    node: int = -1
    bank: int = -1

    @property
    def title(self) -> str:
        """The step in words."""
        if self.aspect in _OF_ALL:
            return _OF_ALL[self.aspect]
        return f"{self.aspect} of NUMA node {self.node} to bank {self.bank}"

    def run(self, say: Say) -> Iterator[list[Record]]:
        """Yield the records of the step."""
        if self.aspect == correctness.CHECK:
            return correctness.measured(_ANSWERS, say)
        if self.aspect == cores.CHECK:
            return cores.measured([], say)
        options = [f"--pu-nodes={self.node}", f"--banks={self.bank}"]
        if self.aspect == "bandwidth":
            options += [
                "--set-sizes=1",
                f"--kernels={self.metric.removesuffix('_bandwidth')}",
                "--interleave=none",
            ]
        else:
            options += ["--sizes=memory", "--order=random"]
        return measure.run(AspectRequest(self.aspect, repetitions=LEAST), options, say, most=LEAST)

    def is_of(self, record: Record) -> bool:
        """Return whether a record is of this step."""
        p = record.parameters
        place = (p.get("pu_nodes"), p.get("bank")) == ([self.node], self.bank)
        return record.check == self.aspect and (place or self.aspect in _OF_ALL)


def steps(host: Topology, system: System) -> list[Step]:
    """Return the measurements of a host, those first that tell most.

    Known answers and clocks take two seconds, and one wrong answer or slow core decides. Each NUMA node's own bank
    comes before far ones, and bandwidth, which takes the shortest time, before latency. Before all of these are
    measurements that a reference of the system judges, the narrowest first: without one, a value tells nothing of
    one host.
    """
    near = {node: programs.nearest(host, (node,)) for node in host.cpu_nodes}
    far = {node: max(host.memory_nodes, key=lambda bank: (host.distance(node, bank), bank)) for node in near}
    judged = {reference.metric for reference in system.references}
    metrics = {aspect: next((m for m in names if m in judged), names[0]) for aspect, names in _METRICS.items()}
    places = [near, {node: bank for node, bank in far.items() if bank != near[node]}]
    ordered = [
        Step(aspect, metric, node, bank)
        for banks in places
        for aspect, metric in metrics.items()
        for node, bank in banks.items()
    ]

    def limit(step: Step) -> float:
        place = references.normalise({"pu_nodes": [step.node], "bank": step.bank}, system.facts)
        ends = [
            abs(end)
            for reference in system.references
            if (reference.check, reference.metric) == (step.aspect, step.metric)
            and all(place.get(name) == value for name, value in reference.parameters.items() if name in _PLACE)
            for end in (reference.lower, reference.upper)
            if end is not None
        ]
        return min(ends, default=math.inf)

    of_all = [Step(correctness.CHECK, correctness.ANSWERS), Step(cores.CHECK, cores.CLOCK)]
    return [*of_all, *sorted(ordered, key=limit)]


# ----------------------------------------------------------------------
# In the process that measures


@dataclass(frozen=True)
class State:
    """How far a check is: the *verdict* so far (see :meth:`HostVerdict.to_dict`; None: nothing is known yet).

    *measured* are metric, value, unit and status of each measurement, *left* the titles of the steps that are not
    done, *troubles* why steps failed.
    """

    verdict: dict[str, Any] | None
    measured: list[dict[str, Any]]
    left: list[str]
    troubles: list[str]


def states(system: System, file: Path | None, *, share_host: bool, say: Say) -> Iterator[State]:
    """Yield the state of the check after each step: the verdict so far, and the steps that are left.

    Steps are repeated until the references of the *system* decide about all cases. Records are appended to *file*.
    """
    os.environ["FIRSTTOUCH_SYSTEM"], os.environ[VARIABLE] = system.name, FULL
    if system.path and available().get(system.name) != system.path:  # records name the system
        folders = [str(system.path.absolute().parent), os.environ.get("FIRSTTOUCH_SYSTEMS", "")]
        os.environ["FIRSTTOUCH_SYSTEMS"] = ":".join(filter(None, folders))
    host = load()
    left = {step.title: step for step in steps(host, system)}
    watch, records = Watch(), [*measure.topology(host, say=say)]
    troubles: list[str] = []

    def state() -> State:
        table = samples_table.of_records([*records, *watch.records()])
        verdict = judging.judged(table, system, fleet=False).of(table.hosts[0])
        measured = [
            {"metric": Case.of(r).title, "value": r.value, "unit": r.unit, "status": r.status}
            for r in records
            if r.check in _METRICS
        ]
        return State(verdict.to_dict(), measured, [*left], [*troubles])

    yield state()
    with recording(file, share_host=share_host, say=say) as keep:
        keep(records)
        queue = [*left.values()]
        while queue:
            for step in queue:
                try:
                    # Other processes may use the host, which is recorded before each step.
                    for measured in ([*kernel_settings.records()], *step.run(say)):
                        records += measured
                        keep(measured)
                except FirstTouchError as error:
                    troubles.append(f"{step.title}: {error}")
                left.pop(step.title, None)
                yield state()
            open_cases = judging.undecided(records, system)
            again = [record for record in records if Case.of(record).key in open_cases]
            queue = [step for step in queue if any(step.is_of(record) for record in again)]


# ----------------------------------------------------------------------
# In the process that keeps the time


@dataclass(frozen=True)
class Checked:
    """How far a check got: its last *state* (None: not even the facts of the host), and its exit *status*.

    The status is None if the time was over before.
    """

    state: State | None
    status: int | None


def started(clock: Clock = SYSTEM_CLOCK) -> float:
    """Return when this process was started, on the clock of :meth:`Clock.monotonic`."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    up = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    return clock.monotonic() - max(0.0, up - int(fields[19]) / os.sysconf("SC_CLK_TCK"))


def follow(argv: Sequence[str], until: float, clock: Clock = SYSTEM_CLOCK) -> Checked:
    """Run the process that measures until a time (see :func:`started`), and return how far it got.

    It prints a state in each line. Then it is killed with all that it has started, and waited for a moment only:
    what hangs in the kernel does not end.
    """
    process = child_process.start(
        child_process.guarded(argv), env={}, fds=(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        last = _last_line(process, until, clock)
        status = process.wait() if child_process.has_ended(process.pid, _PATIENCE, clock) else None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        child_process.has_ended(process.pid, _PATIENCE, clock)
    return Checked(State(**json.loads(last)) if last else None, status)


def _last_line(process: subprocess.Popen[bytes], until: float, clock: Clock) -> bytes:
    """Return the last whole line that a process prints until a time, or until it ends."""
    if process.stdout is None:
        return b""
    last = text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (seconds_left := until - clock.monotonic()) > 0:
            if not selector.select(min(seconds_left, _LOOK)):
                continue
            if not (piece := os.read(process.stdout.fileno(), 1 << 16)):
                break
            *lines, text = (text + piece).split(b"\n")
            last = lines[-1] if lines else last
    return last
