# SPDX-License-Identifier: Apache-2.0
"""``firsttouch path``: prints the folders that firsttouch reads and writes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from firsttouch import paths
from firsttouch.cli import options

EXAMPLES = """\
  firsttouch path                                all of them
  reframe -c $(firsttouch path checks) -l        ReFrame with the checks of an installed copy"""
#: Name -> the folder, which may not exist yet, and its content.
_FOLDERS: dict[str, tuple[Callable[[], Path], str]] = {
    "checks": (lambda: paths.CHECKS, "the ReFrame checks"),
    "systems": (lambda: paths.SYSTEMS, "the built-in system files"),
    "templates": (lambda: paths.TEMPLATES, "the sbatch templates and the NHC check"),
    "config": (
        paths.config,
        "your own systems/, datasets/, aligners/, checks/, and the tables policies.toml, "
        "memory_options.toml, causes.toml, metrics.toml, and the settings fleet.yaml",
    ),
    "site": (paths.site, "the same files of the site"),
    "data": (paths.data, "datasets and indexes"),
    "cache": (paths.cache, "a cache, which may be deleted"),
    "results": (paths.results, "reports, campaigns and verdicts"),
}


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "path", run, EXAMPLES)
    parser.add_argument("name", nargs="?", choices=_FOLDERS, help="print only this folder")


def run(args: argparse.Namespace) -> int:
    """Print one folder, or all with their content."""
    folders = {name: str(folder()) for name, (folder, _) in _FOLDERS.items() if args.name in (None, name)}
    if args.json:
        options.print_json(folders)
    elif args.name:
        print(folders[args.name])
    else:
        width = max(map(len, folders.values()))
        for name, folder in folders.items():
            print(f"{name:10} {folder:{width}}  {_FOLDERS[name][1]}")
    return 0
