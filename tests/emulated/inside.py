# SPDX-License-Identifier: Apache-2.0
"""Runs scenarios inside the guest with firsttouch's own launcher: `inside.py ORDERS.json` prints their results.

An order names scenarios (none: the largest of each policy) and either ``touch`` (a program that touches and holds
memory as each instance, and the MiB for each NUMA node that the instance may use), ``align`` (index and reads for
BWA-MEM) or ``cache`` (a file to put into the states of the index cache).
A scenario may be a list: its name, and the words before each instance's argv. The JSON document has a list for
each order, with a result for each scenario, in the same order. Orders share a process, whose start takes seconds.
"""

import json
import os
import select
import sys
import tempfile
from pathlib import Path

from msgspec.structs import replace

from firsttouch.execution import placement_check
from firsttouch.execution.process_runner import Job, Outcome, Watching, run_together
from firsttouch.host.topology import read_host
from firsttouch.scenarios.memory_fit import Need
from firsttouch.scenarios.placement import Plan, Scenario, plan

# In the emulator, a sample takes a tenth of a second; with the usual share of the time there would be hardly any.
SHARE = 0.5
PAGES_PER_MIB = 256


def touched(scenario: Scenario, wrap: list[str], order: dict) -> dict:
    """Return the observed placements of instances that touch and hold memory, and the verdict on each."""
    program, each = order["touch"]
    # Just enough pages on every bank for the verdict to judge evenness.
    mebibytes = each * max(len(placement.numa_nodes) for placement in scenario.placements)
    with tempfile.TemporaryDirectory() as name:
        jobs, seen = [], Path(name) / "seen"
        for number, placement in enumerate(scenario.placements):
            argv = [*wrap, program, str(mebibytes), str(seen), str(scenario.threads)]
            out, err = Path(name) / f"{number}.out", Path(name) / f"{number}.err"
            jobs.append(Job(argv, out, err, placement, scenario.threads))
        started: list[Outcome] = []
        watching = once_each(seen, started, scenario, mebibytes)
        outcomes = run_together(jobs, timeout=120, watching=watching, on_start=started.append)
        return {
            "misplaced": [o.misplaced for o in outcomes],
            "found": [o.observed.to_dict() for o in outcomes],
            "own": [json.loads(o.job.stdout.read_text()) for o in outcomes],
        }


def once_each(seen: Path, started: list[Outcome], scenario: Scenario, mebibytes: int) -> Watching:
    """Return a watcher that samples each instance when it holds all its memory and threads, until that is seen.

    The instances print then, and end when the file *seen* is there. One thread emulates all PUs: samples before
    that, and more of them, would only delay the instances.
    """
    complete = set[int]()

    def look(pid: int, observed: placement_check.Observed) -> None:
        (out,) = (outcome.job.stdout for outcome in started if outcome.observed is observed)
        if pid in complete or not out.stat().st_size:
            return
        placement_check.look(pid, observed)
        if observed.threads >= scenario.threads and sum(observed.pages.values()) >= mebibytes * PAGES_PER_MIB:
            complete.add(pid)
        if len(complete) == scenario.instances:
            seen.touch()

    return Watching(SHARE, look, grown=lambda *_: False)


def aligned(scenario: Scenario, wrap: list[str], order: dict) -> dict:
    """Return the observed placements of BWA-MEM, the verdict on each, and the checksum of the alignments.

    The scenario needs several instances: a single one reads the files itself, and may end before it is sampled.
    """
    # Imported here because its import takes as long as all other imports together in the emulator.
    from firsttouch.genomics import launch, stream  # noqa: PLC0415
    from firsttouch.genomics.aligners import aligner  # noqa: PLC0415

    with_index, all_sampled = set[int](), os.eventfd(0)

    class HeldDealer(stream.Dealer):
        """Leaves the instances' pipes open until each instance has been sampled with its index."""

        def deal(self) -> None:
            super().deal()
            self._feeds[0]._stop.wait_for(all_sampled, select.POLLIN)

    def look(pid: int, observed: placement_check.Observed) -> None:
        if pid in with_index:
            return
        placement_check.look(pid, observed)
        if observed.index.pages:
            with_index.add(pid)
        if len(with_index) == scenario.instances:
            os.eventfd_write(all_sampled, 1)

    stream.Dealer = HeldDealer
    files = [Path(file) for file in order["align"]["reads"]]
    work = launch.prepare(aligner("bwa-mem"), Path(order["align"]["index"]), files, order["align"]["batch_bases"])
    watching = Watching(SHARE, look, grown=lambda *_: False)
    result = launch.run(replace(work, summed=True), scenario, None, timeout=300, watching=watching)
    os.close(all_sampled)
    stream.Dealer = HeldDealer.__base__
    return {
        "misplaced": [o.misplaced for o in result.outcomes],
        "found": [o.observed.to_dict() for o in result.outcomes],
        "sha256": result.alignments.sums.exact,
    }


def cached(scenario: Scenario, _: list[str], order: dict) -> dict:
    """Return the page cache of a file in each state, or why it cannot be had."""
    from firsttouch.errors import CannotHere  # noqa: PLC0415 - see aligned
    from firsttouch.execution import index_cache  # noqa: PLC0415

    states = {}
    for state in ("local", "interleave", "cold"):
        try:
            restored = index_cache.restore([Path(order["cache"])], state, scenario.placements)
            states[state] = {**restored.to_dict(), "reason": restored.reason}
        except CannotHere as error:
            states[state] = {"reason": str(error)}
    return states


def telling(planned: Plan) -> list[str]:
    """Return the largest scenario of each policy: the one with most whole NUMA nodes."""
    nodes = len(read_host().cpu_nodes)
    most = max(s.instances for s in planned.scenarios if s.instances <= nodes)
    return ["1x-interleave", *(s.name for s in planned.scenarios if s.instances == most)]


def results(order: dict) -> list[dict]:
    """Plan for this machine, run the ordered scenarios and return their results."""
    # BWA-MEM maps an index that another command has loaded.
    need = Need(index_use="loaded" if "align" in order else "none")
    planned = plan(read_host(), need, policies="usual")
    names = order.get("scenarios") or telling(planned)
    ways = {"align": aligned, "cache": cached}
    run = next((ways[key] for key in ways if key in order), touched)
    results = []
    for name, *wrap in (n if isinstance(n, list) else [n] for n in names):
        scenario = planned.scenario(name)
        results.append({"scenario": scenario.to_dict(), **run(scenario, wrap, order)})
    return results


if __name__ == "__main__":
    print(json.dumps([results(order) for order in json.loads(Path(sys.argv[1]).read_text())]))
