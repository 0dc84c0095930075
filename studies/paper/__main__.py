# SPDX-License-Identifier: Apache-2.0
"""Writes the papers' tables and figures from published values, and where the prose disagrees (`make paper`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.records import atomic_files
from paper import page

#: The published tables.
TABLES = Path(__file__).parents[1] / "published"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page that the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="paper", description=__doc__)
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="DIR", help="the page's folder")
    parser.add_argument(
        "--tables",
        type=Path,
        default=TABLES,
        metavar="DIR",
        help="the published tables (default: studies/published)",
    )
    args = parser.parse_args(argv)
    try:
        print(write(args.output, args.tables))
    except FirstTouchError as error:
        print(f"paper: error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def write(folder: Path, tables: Path = TABLES) -> str:
    """Write the page into *folder*; return how many statements agree, and the page's path, as two lines."""
    if folder.exists() and not folder.is_dir():
        raise BadInput("not a folder", file=folder)
    files, outcomes = page.build(tables)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            atomic_files.write(folder / name, text)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", file=folder) from error
    agree = sum(o.agrees for o in outcomes)
    return (
        f"{len(outcomes)} statements of the papers: "
        f"{agree} agree with their tables, {len(outcomes) - agree} do not\n"
        f"page: {folder / 'index.html'}"
    )


if __name__ == "__main__":
    sys.exit(main())
