# SPDX-License-Identifier: Apache-2.0
"""``firsttouch aligner``: lists the aligners, and checks a file by running the aligner."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from firsttouch import documents
from firsttouch.cli import options
from firsttouch.errors import BadInput, FirstTouchError, RunFailed
from firsttouch.execution.progress import say
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import Aligner, aligner
from firsttouch.units import format_bytes

if TYPE_CHECKING:
    from firsttouch.datasets.fetch import LocalDataset
    from firsttouch.genomics.launch import Result, Work

EXAMPLES = """\
  firsttouch aligner list
  firsttouch aligner check minimap2.toml                     with the reads of the lambda phage
  firsttouch aligner check bwa-mem --dataset synthetic --json"""
#: How the check runs the aligner: the way, the scenario, and whether batches are given as instances take them.
_WAYS = (("1 instance", "1Inst_Unbound_2t", False), ("2 instances", "2Inst_Unbound_1t", False))
_DYNAMIC = ("2 instances, --dynamic", "2Inst_Unbound_1t", True)


@dataclass(frozen=True)
class _Row:
    """One step of the check; *error* is empty if it passed."""

    step: str
    detail: str
    error: str = ""


def register(subparsers: options.Subparsers) -> None:
    """Add ``aligner`` and its two actions to the command line."""
    parser = options.command(subparsers, "aligner", EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = options.action(actions, "list", "list the aligners with their versions and files", EXAMPLES)
    listing.set_defaults(run=list_aligners)
    checking = options.action(
        actions, "check", "run an aligner in one and in two instances, and compare the alignments", EXAMPLES
    )
    checking.add_argument("aligner", metavar="FILE", help="an aligner's TOML file, or the name of an aligner")
    options.add(checking, "--dataset", default="lambda", help="index and reads (default: lambda)")
    checking.set_defaults(run=check)


def list_aligners(args: argparse.Namespace) -> int:
    """Print all aligners; a wrong file is listed with its error (exit 2)."""
    rows, wrong = [], False
    for name in aligners.names():
        row = {"name": name, "version": "", "file": str(aligners.file_of(name)), "error": ""}
        try:
            row["version"] = aligner(name).version()
        except FirstTouchError as error:
            row["error"] = str(error)
            wrong = wrong or error.exit_status == BadInput.exit_status
        rows.append(row)
    if args.json:
        options.print_json({"aligners": rows})
    else:
        for row in rows:
            print(f"{row['name']:<16} {row['version'] or row['error']}\n{'':<16} {row['file']}")
    return BadInput.exit_status if wrong else 0


def check(args: argparse.Namespace) -> int:
    """Run the steps and print them; 1 if the alignments depend on the number of instances."""
    is_file = "/" in args.aligner or args.aligner.endswith(".toml")
    file = Path(args.aligner) if is_file else aligners.file_of(args.aligner)
    chosen = aligners.parse(file.stem, documents.read_text(file), str(file))
    rows = [_Row("file", str(file))]
    try:
        for row in _steps(chosen, args.dataset):
            rows.append(row)
    except RunFailed as error:
        rows.append(_Row("run", "", str(error)))
    if args.json:
        options.print_json({"aligner": chosen.name, "steps": [vars(row) for row in rows]})
    else:
        for row in rows:
            print(f"{row.step:<32} {f'FAILED: {row.error}' if row.error else f'OK  {row.detail}'}")
    return 1 if any(row.error for row in rows) else 0


def _steps(chosen: Aligner, dataset: str) -> Iterator[_Row]:
    """Yield the steps of the check as they end; raises Missing, or RunFailed if the aligner fails.

    The index is built anew, because the file may say now how to build it differently.
    """
    from firsttouch.datasets import fetch  # noqa: PLC0415 - `aligner list` needs none of these

    yield _Row("version", chosen.version())
    data = fetch.get(dataset)
    with tempfile.TemporaryDirectory(prefix="firsttouch-") as folder:
        prefix = aligners.built(chosen, data.reference, Path(folder), say=say)
        yield _Row("index", f"{format_bytes(chosen.index_bytes(prefix))}")
        yield from _runs(chosen, data, prefix)


def _runs(chosen: Aligner, data: LocalDataset, prefix: Path) -> Iterator[_Row]:
    """Yield what the runs with single and with paired reads show."""
    from firsttouch.genomics import launch  # noqa: PLC0415

    peak = 0
    for mates, files in (("single", data.reads[:1]), ("paired", data.reads))[: 1 + bool(chosen.paired)]:
        work = launch.prepare(chosen, prefix, files, data.expect.get("batch_bases"))
        work = replace(work, summed=True)
        ways = _WAYS if len(chosen.steps(len(files))) > 1 else (*_WAYS, _DYNAMIC)
        first: Result | None = None
        for way, scenario, dynamic in ways:
            say(f"{mates} reads, {way}")
            result = _run(replace(work, dynamic=dynamic), scenario)
            peak = max(peak, result.peak_bytes) if first is None else peak
            yield _Row(
                f"{mates}, {way}", f"{result.alignments.mapped_fraction:.1%} mapped", _differs(first, result)
            )
            first = first or result
    stated = chosen.need(chosen.index_bytes(prefix)).of(2)
    detail = f"{format_bytes(peak)} with 2 threads; index and file state {format_bytes(stated)}"
    error = "" if peak <= stated else f"{detail}: raise memory.instance or memory.thread"
    yield _Row("memory", detail, error)


def _run(work: Work, scenario: str) -> Result:
    from firsttouch.genomics import launch  # noqa: PLC0415
    from firsttouch.host.topology import load  # noqa: PLC0415
    from firsttouch.scenarios.placement import plan  # noqa: PLC0415

    need = work.aligner.need(work.aligner.index_bytes(work.index))
    return launch.run(work, plan(load(), need).scenario(scenario), None)


def _differs(first: Result | None, other: Result) -> str:
    """Return how the alignments differ from those of one instance, or an empty string."""
    if first is None or first.alignments.sums is None or other.alignments.sums is None:
        return ""
    if first.alignments.sums.common != other.alignments.sums.common:
        return (
            "the alignments differ from those of 1 instance: the file lacks the option or the batch size that "
            "makes them independent of other reads"
        )
    return ""
