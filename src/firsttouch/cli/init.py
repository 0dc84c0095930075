# SPDX-License-Identifier: Apache-2.0
"""``firsttouch init``: creates a folder for an installed copy's jobs and the site's own files."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.records import atomic_files

EXAMPLES = """\
  firsttouch init /shared/firsttouch       then: cd /shared/firsttouch && sbatch slurm/characterize.sbatch
  firsttouch init --force .                the templates of a newer firsttouch; the site's files stay"""
_ENVIRONMENT = """\
# Job scripts read this file, and so may your shell: . firsttouch.env
# Variables that are already set have precedence.
export FIRSTTOUCH_BIN=${FIRSTTOUCH_BIN:-%(bin)s}
export FIRSTTOUCH_OUT=${FIRSTTOUCH_OUT:-%(folder)s/reports}
export FIRSTTOUCH_SITE=${FIRSTTOUCH_SITE:-%(folder)s/site}
"""
_README = """\
The site's own data files, which firsttouch finds because firsttouch.env names this folder as FIRSTTOUCH_SITE.

systems/NAME.yaml    the hosts of a system and its references: firsttouch system draft NAME -o systems/NAME.yaml
aligners/NAME.toml   how to run an aligner
datasets/NAME.toml   where reads and a reference come from
checks/NAME.yaml     how to measure a program of the site
policies.toml        further memory policies
memory_options.toml  further memory options
causes.toml          further signatures of faults
metrics.toml         further checks and metrics that systems may have references for
fleet.yaml           which hosts are held and tested again, how many are screened

A file here replaces the built-in one of the same name. Files of a user (firsttouch path config) replace both.
"""
_KINDS = ("systems", "aligners", "datasets", "checks")


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "init", run, EXAMPLES)
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder that all hosts share")
    parser.add_argument("--force", action="store_true", help="overwrite the templates and firsttouch.env")


def run(args: argparse.Namespace) -> int:
    """Write the files and print the next step; raises BadInput if any of them exist."""
    folder: Path = args.folder.absolute()
    copied = {"slurm": paths.TEMPLATES, "monitoring": paths.MONITORING}
    targets = {
        file: folder / name / file.relative_to(source)
        for name, source in copied.items()
        for file in sorted(source.rglob("*"))
        if file.is_file()
    }
    environment, readme = folder / "firsttouch.env", folder / "site" / "README"
    if not args.force:
        for file in (environment, *targets.values()):
            if file.exists():
                raise BadInput("already exists: --force overwrites it", file=file)
    for source, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_files.replace(target) as partial:
            shutil.copy(source, partial)
    values = {"bin": shlex.quote(str(Path(sys.executable).parent)), "folder": shlex.quote(str(folder))}
    atomic_files.write(environment, _ENVIRONMENT % values)
    for kind in _KINDS:
        (folder / "site" / kind).mkdir(parents=True, exist_ok=True)
    atomic_files.write(readme, _README)
    if args.json:
        written = [environment, readme, *targets.values()]
        options.print_json({"folder": str(folder), "files": [str(file) for file in written]})
    else:
        print(f"cd {shlex.quote(str(folder))} && sbatch slurm/characterize.sbatch")
    return 0
