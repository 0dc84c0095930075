# SPDX-License-Identifier: Apache-2.0
"""``firsttouch system``: lists systems and aligners, checks their files, drafts a system from this host."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.errors import BadInput, FirstTouchError, one_line
from firsttouch.genomics import aligners
from firsttouch.records import atomic_files
from firsttouch.systems import draft
from firsttouch.systems.definition import available, load

EXAMPLES = """\
  firsttouch system list
  firsttouch system check reframe/systems/*.yaml
  firsttouch system draft myhosts          # on one of these hosts; then fill in what the comments ask for
  firsttouch system draft myhosts -o -     # print it
  firsttouch system aligners"""


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


def list_systems(args: argparse.Namespace) -> int:
    """Print all systems; an invalid file is listed with its error (exit 2)."""
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
    """Validate each file; return 2 if one is invalid."""
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
    text = draft.draft_host(args.name)
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
    """Print all aligners; an invalid file is listed with its error (exit 2)."""
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
