# SPDX-License-Identifier: Apache-2.0
"""``firsttouch system``: lists systems and aligners, checks their files, drafts a system from this host."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from firsttouch import documents, paths
from firsttouch.cli import options
from firsttouch.errors import BadInput, FirstTouchError, RunFailed, one_line
from firsttouch.execution.progress import say
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import Aligner
from firsttouch.records import atomic_files
from firsttouch.systems import draft
from firsttouch.systems.definition import available, load
from firsttouch.units import format_bytes

if TYPE_CHECKING:
    from firsttouch.datasets.fetch import LocalDataset
    from firsttouch.genomics.launch import Result, Work

EXAMPLES = """\
  firsttouch system list
  firsttouch system check reframe/systems/*.yaml
  firsttouch system draft myhosts          # on one of these hosts; then fill in what the comments ask for
  firsttouch system draft myhosts -o -     # print it
  firsttouch system aligners
  firsttouch system check-aligner minimap2.toml                     with the reads of the lambda phage
  firsttouch system check-aligner bwa-mem --dataset synthetic --json"""
#: How the check runs the aligner: the way, the scenario, and whether batches are given as instances take them.
_WAYS = (("1 instance", "1x2-unbound", False), ("2 instances", "2x1-unbound", False))
_DYNAMIC = ("2 instances, --dynamic", "2x1-unbound", True)


class _Row(Struct, frozen=True):
    """One step of the check; *error* is empty if it passed."""

    step: str
    detail: str
    error: str = ""


def register(subparsers: options.Subparsers) -> None:
    """Add ``system`` and its actions to the command line."""
    add_action = options.actions(subparsers, "system", EXAMPLES)
    add_action("list", "list the systems with their files and partitions", list_systems)
    parser = add_action("check", "validate system files: the first error of each, with its line", check_files)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a system's YAML file")
    parser = add_action("draft", "write the file of a system from the topology of this host", draft_system)
    parser.add_argument("name", metavar="NAME", help="the system's name: letters, digits, _ and -")
    options.add(parser, "--output", help="write FILE instead of reframe/systems/NAME.yaml; - prints")
    options.add(parser, "--force")
    add_action("aligners", "list the aligners with their versions and files", list_aligners)
    summary = "run an aligner in one and in two instances, and compare the alignments"
    parser = add_action("check-aligner", summary, check_aligner)
    parser.add_argument("aligner", metavar="FILE", help="an aligner's TOML file, or the name of an aligner")
    options.add(parser, "--dataset", default="lambda", help="index and reads (default: lambda)")


def list_systems(args: argparse.Namespace) -> int:
    """Print all systems; a wrong file is listed with its error (exit 2)."""
    described = [_describe(name, file) for name, file in available().items()]
    rows = [row for row, _ in described]
    if args.json:
        options.print_json({"systems": rows})
    else:
        for row in rows:
            print(one_line(f"{row['name']:<16} {row['description'] or row['error']}"))
            if row["error"] is None:
                names = ", ".join(f"{p['name']} ({p['scheduler']})" for p in row["partitions"])
                print(one_line(f"{'':<16} partitions: {names}; references: {row['references']}"))
                print(one_line(f"{'':<16} {row['file'] or 'drafted from this host whenever it is used'}"))
    return max(status for _, status in described)


def _describe(name: str, file: Path | None) -> tuple[dict[str, Any], int]:
    """Return the description of a system, and the exit status of loading it."""
    row: dict[str, Any] = {"name": name, "file": None if file is None else str(file), "error": None}
    row |= {"description": "", "partitions": [], "references": 0}
    try:
        system = load(name if file is None else file)
    except FirstTouchError as error:
        return row | {"error": str(error)}, error.exit_status
    row |= {"description": system.description, "references": len(system.references)}
    row["partitions"] = [{"name": p.name, "scheduler": p.scheduler} for p in system.partitions]
    return row, 0


def check_files(args: argparse.Namespace) -> int:
    """Validate each file; return 2 if one is wrong."""
    rows: list[dict[str, Any]] = []
    for file in args.files:
        row: dict[str, Any] = {"file": str(file), "system": None, "error": None, "line": None}
        try:
            row["system"] = load(file).name
        except BadInput as error:
            row |= {"error": str(error), "line": error.line}
            print(one_line(f"firsttouch: {error}"), file=sys.stderr)
        else:
            if not args.json:
                print(one_line(f"{file}: system {row['system']}: OK"))
        rows.append(row)
    if args.json:
        options.print_json({"files": rows})
    return 2 if any(row["error"] for row in rows) else 0


def draft_system(args: argparse.Namespace) -> int:
    """Write or print the draft; raises BadInput if the file exists or the name is invalid."""
    draft.check_name(args.name)
    target: Path = args.output or paths.drafts() / f"{args.name}.yaml"
    printed = str(target) == "-"
    if not printed and not args.force and target.exists():
        raise BadInput("already exists: --force overwrites it", file=target)
    text = draft.of_this_host(args.name)
    if not printed:
        _write(target, text)
    if args.json:
        document = {"system": args.name, "file": None if printed else str(target), "text": text}
        options.print_json(document)
    elif printed:
        print(text, end="")
    else:
        print(f"{target}: drafted; its comments say what to fill in", file=sys.stderr)
    return 0


def _write(target: Path, text: str) -> None:
    try:
        atomic_files.write(target, text, creates=target.parent == paths.drafts())
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", file=target) from error


def list_aligners(args: argparse.Namespace) -> int:
    """Print all aligners; a wrong file is listed with its error (exit 2)."""
    rows, wrong = [], False
    for name in aligners.names():
        row = {"name": name, "version": "", "file": str(aligners.file_of(name)), "error": ""}
        try:
            row["version"] = aligners.aligner(name).version()
        except FirstTouchError as error:
            row["error"] = str(error)
            wrong = wrong or isinstance(error, BadInput)
        rows.append(row)
    if args.json:
        options.print_json({"aligners": rows})
    else:
        for row in rows:
            print(f"{row['name']:<16} {row['version'] or row['error']}\n{'':<16} {row['file']}")
    return BadInput.exit_status if wrong else 0


def check_aligner(args: argparse.Namespace) -> int:
    """Run the steps and print them; 1 if the alignments depend on the number of instances."""
    is_file = "/" in args.aligner or args.aligner.endswith(".toml")
    file = Path(args.aligner) if is_file else aligners.file_of(args.aligner)
    if is_file:
        chosen = aligners.parse(file.stem, documents.read_text(file), str(file))
    else:
        chosen = aligners.aligner(args.aligner)
    rows = [_Row("file", str(file))]
    try:
        for row in _steps(chosen, args.dataset):
            rows.append(row)
    except RunFailed as error:
        rows.append(_Row("run", "", str(error)))
    if args.json:
        options.print_json({"aligner": chosen.name, "steps": [asdict(row) for row in rows]})
    else:
        for row in rows:
            print(f"{row.step:<32} {f'FAILED: {row.error}' if row.error else f'OK  {row.detail}'}")
    return 1 if any(row.error for row in rows) else 0


def _steps(chosen: Aligner, dataset: str) -> Iterator[_Row]:
    """Yield the steps of the check as they end; raises Missing, or RunFailed if the aligner fails.

    The index is built anew, because the file may say now how to build it differently.
    """
    from firsttouch.datasets import fetch  # noqa: PLC0415 - the other actions need none of these

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
    for mates, count in (("single", 1), ("paired", 2))[: 1 + bool(chosen.paired)]:
        files = data.reads[:count]
        work = launch.prepare(chosen, prefix, files, data.expect.batch_bases)
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
