# SPDX-License-Identifier: Apache-2.0
"""A check of this host within a given time, for a prolog: the most informative measurements come first.

This process measures, and has the host judged after each step. :mod:`firsttouch.campaign.timekeeper` kills it when
the time is over; results up to then are used, and missing ones are named.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from firsttouch.benchmarks import cores, correctness, drawn_order, kernel_settings, measure, programs, stream
from firsttouch.benchmarks.drawn_order import shuffle
from firsttouch.benchmarks.measure import LEAST, AspectRequest
from firsttouch.benchmarks.profiles import FULL, VARIABLE
from firsttouch.benchmarks.recording import Watch, hold_and_record
from firsttouch.campaign.timekeeper import CheckState
from firsttouch.errors import FirstTouchError
from firsttouch.host.topology import Topology, load
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.systems import references
from firsttouch.systems.definition import System, available

Say = Callable[[str], None]
#: The metrics to measure, by aspect: the first one with references of the system, or else the first. Of latency's
#: curve only the largest size is measured, which exceeds all caches.
_METRICS = {
    "bandwidth": [f"{kernel}_bandwidth" for kernel in stream.KERNELS],
    "latency": ["random_latency"],
}
#: The measurements that use all PUs at once.
_OF_ALL = {correctness.CHECK: "known answers of all PUs", cores.CHECK: "clock of all PUs"}
#: The options of known answers: some thousands of each kind per PU.
_ANSWERS = ("--seconds=0.1", "--array-bytes=64MB")
#: The parameters of references that name the place of a measurement.
_PLACE = ("pu_nodes", "bank", "relation")


class HostJudge(Protocol):
    """Judges this host by its measurements so far."""

    def verdict(self, records: Sequence[Record]) -> tuple[dict[str, Any], int]:
        """Return the verdict as JSON, and its exit status."""

    def undecided(self, records: Sequence[Record]) -> Collection[str]:
        """Return the keys of the cases that another repetition may decide."""


class CheckStep(Struct, frozen=True):
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
            return correctness.probe_records(_ANSWERS, say)
        if self.aspect == cores.CHECK:
            return cores.probe_records(cores.ONLY_CLOCK, say)
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
        """Return whether a record belongs to this step."""
        p = record.parameters
        place = (p.get("pu_nodes"), p.get("bank")) == ([self.node], self.bank)
        return record.check == self.aspect and (place or self.aspect in _OF_ALL)


def steps(host: Topology, system: System) -> list[CheckStep]:
    """Return the measurements of a host, the most informative first.

    Known answers and clocks come first: they take two seconds, and one wrong answer or slow core decides. Then
    come measurements with a reference of the system, without which a value cannot judge a single host, the
    narrowest references first. Equal ones are in random order.
    """
    near = {node: programs.nearest(host, (node,)) for node in host.cpu_nodes}
    far = {node: max(host.memory_nodes, key=lambda bank: (host.distance(node, bank), bank)) for node in near}
    judged = {reference.metric for reference in system.references}
    metrics = {aspect: next((m for m in names if m in judged), names[0]) for aspect, names in _METRICS.items()}
    places = [near, {node: bank for node, bank in far.items() if bank != near[node]}]
    ordered = [
        CheckStep(aspect, metric, node, bank)
        for banks in places
        for aspect, metric in metrics.items()
        for node, bank in banks.items()
    ]

    def limit(step: CheckStep) -> float:
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

    of_all = [CheckStep(correctness.CHECK, correctness.ANSWERS), CheckStep(cores.CHECK, cores.CLOCK)]
    return [*of_all, *sorted(shuffle(ordered), key=limit)]


def states(
    system: System, file: Path | None, judge: HostJudge, *, share_host: bool, say: Say
) -> Iterator[CheckState]:
    """Yield the state of the check after each step: the verdict so far, and the remaining steps.

    Steps are repeated until the *judge* decides all cases. Records are appended to *file*. A proof, such as a
    wrong answer, yields a state at once, because the step may never end.
    """
    os.environ["FIRSTTOUCH_SYSTEM"], os.environ[VARIABLE] = system.name, FULL
    if system.path and available().get(system.name) != system.path:  # records name the system
        folders = [str(system.path.absolute().parent), os.environ.get("FIRSTTOUCH_SYSTEMS", "")]
        os.environ["FIRSTTOUCH_SYSTEMS"] = ":".join(filter(None, folders))
    host = load()
    watch, records = Watch(), [*measure.topology(host, say=say)]
    left = {step.title: step for step in steps(host, system)}
    troubles: list[str] = []
    if len(host.allowed_pus) < len(host.pus):
        # The affinity mask limits this process; it says nothing about the host.
        records = [record for record in records if record.metric != "pus"]
        usable = f"{len(host.allowed_pus)} of {len(host.pus)} PUs"
        troubles.append(f"this process may use {usable} (affinity or cpuset), so their number is not judged")

    def state() -> CheckState:
        verdict, status = judge.verdict([*records, *watch.records()])
        measured = [
            {"metric": Case.from_record(r).title, "value": r.value, "unit": r.unit, "status": r.status}
            for r in records
            if r.check in _METRICS
        ]
        return CheckState(verdict, status, measured, [*left], [*troubles])

    yield state()
    try:
        with _recorded(file, troubles, share_host=share_host, say=say) as keep:
            keep(records)
            queue, rounds = [*left.values()], itertools.count(1)
            while queue:
                for step in queue:
                    try:
                        # Other processes may use the host, so their load is recorded before each step.
                        for measured in itertools.chain([[*kernel_settings.records()]], step.run(say)):
                            records += measured
                            if any(record.is_proof for record in measured):
                                yield state()
                            keep(measured)
                    except FirstTouchError as error:
                        troubles.append(f"{step.title}: {error}")
                    except KeyboardInterrupt:  # somebody stopped the measuring program
                        troubles.append(f"{step.title}: it was interrupted")
                    left.pop(step.title, None)
                    yield state()
                open_cases = judge.undecided(records)
                again = [record for record in records if Case.from_record(record).key in open_cases]
                queue = [step for step in queue if any(step.is_of(record) for record in again)]
                queue = shuffle(queue, drawn_order.round_seed(next(rounds)))
    except FirstTouchError as error:
        troubles.append(str(error))
        yield state()


@contextlib.contextmanager
def _recorded(
    file: Path | None, troubles: list[str], *, share_host: bool, say: Say
) -> Iterator[Callable[[list[Record]], None]]:
    """Yield a function that stores records. If storing them fails, the check continues without."""
    with hold_and_record(file, share_host=share_host, with_settings=False, say=say) as keep:
        failed: list[str] = []

        def kept(records: list[Record]) -> None:
            if failed:
                return
            try:
                keep(records)
            except (FirstTouchError, OSError) as error:
                failed.append(f"records are not stored: {error}")
                troubles.extend(failed)

        yield kept
