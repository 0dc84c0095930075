# SPDX-License-Identifier: Apache-2.0
"""Correctness: known answers of every PU at once, and patterns in every bank.

A wrong answer fails the host, and its record names the PU, the work and the bits: it is counted, never averaged.
A program of the user's, such as an aligner, checks the PUs as well: its output must be the same on all of them.
"""

from __future__ import annotations

import shlex
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from firsttouch.benchmarks import probe, profiles, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.measure import AspectRequest, Benchmark, ReframeTest, run
from firsttouch.errors import RunFailed
from firsttouch.execution.child_process import ending
from firsttouch.execution.host_lock import no_process_left
from firsttouch.execution.jobs import Job, last_words
from firsttouch.execution.process_runner import run_together
from firsttouch.host.topology import Topology
from firsttouch.records import atomic_files
from firsttouch.records.schema import Record, software

CHECK = "correctness"
#: The metrics: of computations, and of words in memory.
ANSWERS, WORDS = "wrong_answers", "wrong_words"


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Run all works that this host has instructions for on the PUs, and patterns in the banks."""
    if asked.compare_output:
        pus = programs.pus_of(host, tuple(asked.pu_nodes or host.cpu_nodes))
        return iter([compared(host, asked.compare_output, pus, rounds=asked.runs, say=say)])
    where = programs.place(host, asked.pu_nodes or (), asked.banks or ())
    return measured([f"--seconds={profiles.chosen().correctness_seconds:g}", *where], say)


def compared(
    host: Topology, argv: Sequence[str], pus: Sequence[int], *, rounds: int, say: probe.Say
) -> list[Record]:
    """Run a program on each of *pus*, all at once, in some *rounds*; return how many outputs of which PU differ.

    The output of most runs is the right one. If no output has more than half of the runs, the record is invalid.
    Raises RunFailed if the program fails in most runs.
    """
    outputs: dict[int, list[str]] = {pu: [] for pu in pus}
    with no_process_left(), tempfile.TemporaryDirectory(prefix="ft-") as name:
        jobs = [_job(host, argv, pu, Path(name)) for pu in pus]
        for number in range(1, rounds + 1):
            outcomes = run_together(jobs, timeout=programs.TIMEOUT)
            for pu, outcome in zip(pus, outcomes, strict=True):
                outputs[pu].append(f"{outcome.status} {atomic_files.digest(outcome.job.stdout)}")
            counted = Counter(output for of_pu in outputs.values() for output in of_pu)
            say(f"{argv[0]}: round {number} of {rounds} on {len(pus)} PUs, different outputs: {len(counted)}")
        common, runs = counted.most_common(1)[0]
        if failed := [o for o in outcomes if o.status and common.startswith(f"{o.status} ")]:
            raise RunFailed(ending(argv[0], failed[0].status) + last_words(failed[0].job))
        if not any(outcome.job.stdout.stat().st_size for outcome in outcomes):
            raise RunFailed(f"{argv[0]} printed nothing on standard output, so there is nothing to compare")
    reason = "" if 2 * runs > rounds * len(pus) else _undecided(outputs)
    # A run that is too short to be seen was bound before it began.
    reason = reason or next((o.misplaced for o in outcomes if o.misplaced and not o.unverified), "")
    wrong = {pu: sum(output != common for output in of_pu) for pu, of_pu in outputs.items()}
    blamed = [({"pu": pu}, count) for pu, count in wrong.items() if count] if not reason else []
    return [
        Record(
            *(CHECK, ANSWERS, "1", "lower", (float(count),)),
            {"program": Path(argv[0]).name, "work": shlex.join(argv), "units": rounds * len(pus), **of_pu},
            placement_found=[{"pus": sorted(pus), "held": sorted(pus), "policy": "bind"}],
            status="invalid" if reason else "valid",
            reason=reason,
            software=software(),
        )
        for of_pu, count in (blamed or [({}, 0)])
    ]


def _job(host: Topology, argv: Sequence[str], pu: int, folder: Path) -> Job:
    (node,) = (node for node in host.cpu_nodes if pu in host.usable_pus(node))
    placement = programs.bound([pu], programs.nearest(host, (node,)))
    return Job(argv, folder / f"{pu}.out", folder / f"{pu}.err", placement, excused=lambda: True)


def _undecided(outputs: Mapping[int, Sequence[str]]) -> str:
    """Return why outputs of which none has more than half of the runs blame no PU."""
    if all(len(set(of_pu)) == 1 for of_pu in outputs.values()):
        return "PUs differ in every round, and no output has more than half of them: use more PUs"
    return "the program's output differs from run to run on the same PU: compare one that always prints the same"


def measured(options: Sequence[str], say: probe.Say) -> Iterator[list[Record]]:
    """Yield the records of a run of the probe. Those of answers have no bank: they are of the PUs."""
    for records in run(AspectRequest(CHECK), options, say):
        yield [programs.without_bank(r) if r.metric == ANSWERS else r for r in records]


def _label(record: Record, _cases: Cases) -> str | None:
    """Name the works by their words, and the patterns by their bank."""
    p = record.parameters
    of_pu = f"_pu{p['pu']}" if "pu" in p else ""
    place = f"bank{p['bank']}" if record.metric == WORDS else str(p["work"]).replace(" ", "_").replace("-", "_")
    return f"{record.metric}_{place}{of_pu}"


_TEST = ReframeTest(
    CHECK,
    lambda _: "known answers of every PU, and patterns in every bank",
    least_records=lambda cases: 4 + len(cases.host.memory_nodes),
    label=_label,
    repetitions=None,
    time_limit="30m",
)
BENCHMARK = Benchmark(
    _measure,
    frozenset({"pu_nodes", "banks", "compare_output"}),
    repeats=lambda asked: asked.compare_output is not None,
    small=("--array-bytes=1MiB", "--seconds=0.01"),
    tests=(_TEST,),
)
