# SPDX-License-Identifier: Apache-2.0
"""``firsttouch doctor``: what this host lacks, the features that need it, and where to get it."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator

from firsttouch.benchmarks import likwid, lmbench, stream
from firsttouch.cli import options
from firsttouch.errors import FirstTouchError, Missing
from firsttouch.execution import backends, counters, slurm
from firsttouch.execution.progress import wrap_text
from firsttouch.genomics import aligners
from firsttouch.host import memory_modules, topology
from firsttouch.tools import require, require_report, run_tool

EXAMPLES = """\
  firsttouch doctor
  firsttouch doctor --image /images/aligners.sif     does that image run here?"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "doctor", run, EXAMPLES)
    options.add(parser, "--image", type=str, help="image ($FIRSTTOUCH_IMAGE or containers/firsttouch.sif)")


def run(args: argparse.Namespace) -> int:
    """Print what is lacking; 3 if measuring or placing is impossible without it."""
    needs = {
        **_NEEDED,
        **_OPTIONAL,
        "--backend apptainer": lambda: backends.start_with("apptainer", args.image or "", []),
    }
    lacks = {without: reason for without, need in needs.items() if (reason := "; ".join(_reasons(need)))}
    if args.json:
        options.print_json({"checked": len(needs), "lacks": lacks})
    else:
        for without, reason in lacks.items():
            print(wrap_text(f"no {without}: {reason}", 4))
        print(f"{len(needs) - len(lacks)} of {len(needs)} needs are met")
    return Missing.exit_status if lacks.keys() & _NEEDED.keys() else 0


def _reasons(need: Callable[[], object]) -> Iterator[str]:
    try:
        need()
    except FirstTouchError as error:
        yield str(error)


def _aligners() -> None:
    if lacking := [name for name, aligner in aligners.aligners().items() if not shutil.which(aligner.program)]:
        raise Missing(f"{', '.join(lacking)}: `firsttouch system aligners` says where each is from")


def _counters() -> None:
    require("perf")
    done = run_tool(["perf", "stat", "-x", ";", "-e", ",".join(counters.EVENTS), "--", "true"])
    counters.parse(done.stderr)


def _modules() -> None:
    installed = memory_modules.read_modules()
    if not installed.modules:
        raise Missing(installed.reason)


#: Feature -> a function that raises an error with the remedy if this host lacks a requirement.
_NEEDED: dict[str, Callable[[], object]] = {
    "measurement, no topology": topology.probe_program,
    "placement of programs (run, advise)": lambda: require("numactl"),
}
_OPTIONAL: dict[str, Callable[[], object]] = {
    "verdicts, reports and checks by ReFrame": require_report,
    "cross-check of bandwidth by likwid": likwid.version,
    "cross-check of latency by lmbench": lmbench.program,
    "cross-check of bandwidth by STREAM": lambda: require(stream.program() or "stream"),
    "theoretical bandwidth and memory modules": _modules,
    "counters of events by perf": _counters,
    "sorted or compressed alignments": lambda: require("samtools"),
    "dataset 'synthetic'": lambda: require("dwgsim"),
    "runs of some aligners": _aligners,
    "campaigns and fleets through Slurm": slurm.require,
    "--backend spack": lambda: backends.start_with("spack", "", []),
}
