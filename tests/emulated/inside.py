# SPDX-License-Identifier: Apache-2.0
"""Runs scenarios inside the guest with firsttouch's own launcher: `inside.py ORDER.json` prints one JSON document.

The order names scenarios (none: those that tell most of the machine) and either ``touch`` (MiB that each instance
touches and holds; ``wrap`` is put before each instance's argv) or ``align`` (index and reads for BWA-MEM).
"""

import json
import sys
import tempfile
from pathlib import Path

from firsttouch import launch, supervise
from firsttouch.aligners import aligner
from firsttouch.placement import Plan, Scenario, plan
from firsttouch.supervise import Job, run_together
from firsttouch.topology import of_this_host

# Emulated, a look takes a tenth of a second: at the usual share of the time there would be hardly any.
supervise.LOOK_SHARE = 0.5
TOUCH = Path(__file__).with_name("touch.py")
HOLD = "1.5"


def touched(scenario: Scenario, order: dict) -> dict:
    """Return what was found of instances that touch and hold memory, and the verdict on each."""
    with tempfile.TemporaryDirectory() as name:
        jobs = []
        for number, placement in enumerate(scenario.placements):
            threads = str(scenario.threads)
            argv = [*order.get("wrap", []), sys.executable, "-S", str(TOUCH), str(order["touch"]), HOLD, threads]
            out, err = Path(name) / f"{number}.out", Path(name) / f"{number}.err"
            jobs.append(Job(argv, out, err, placement, scenario.threads))
        outcomes = run_together(jobs, timeout=120)
        return {
            "misplaced": [o.misplaced() for o in outcomes],
            "found": [o.found.to_dict() for o in outcomes],
            "own": [json.loads(o.job.stdout.read_text()) for o in outcomes],
        }


def aligned(scenario: Scenario, work: launch.Work) -> dict:
    """Return what was found of aligners, the verdict on each, and the checksum of their alignments."""
    result = launch.run(work, scenario, None, timeout=300)
    return {
        "misplaced": [o.misplaced() for o in result.outcomes],
        "found": [o.found.to_dict() for o in result.outcomes],
        "sha256": result.alignments.sha256,
    }


def telling(planned: Plan) -> list[str]:
    """Return the scenarios that tell most of a machine: of each policy the one with most whole NUMA nodes."""
    nodes = len(of_this_host().cpu_nodes)
    most = max(s.instances for s in planned.scenarios if s.instances <= nodes)
    return ["1Inst_Interleave", *(s.name for s in planned.scenarios if s.instances == most)]


def main(order: dict) -> None:
    """Plan on this machine, run what is ordered, and print it."""
    planned = plan(of_this_host())
    names = order.get("scenarios") or telling(planned)
    work = None
    if "align" in order:
        reads = [Path(r) for r in order["align"]["reads"]]
        work = launch.prepare(
            aligner("bwa-mem"), Path(order["align"]["index"]), reads, order["align"]["batch_bases"]
        )
    results = {}
    for scenario in map(planned.scenario, names):
        found = aligned(scenario, work) if work else touched(scenario, order)
        results[scenario.name] = {"scenario": scenario.to_dict(), **found}
    print(json.dumps(results))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
