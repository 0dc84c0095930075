# SPDX-License-Identifier: Apache-2.0
"""Run by ``spack python`` on an environment: takes what some of its packages need to run, and no compiler.

``copy_programs.py FOLDER PACKAGE...`` makes FOLDER/store, the packages' prefixes with those of their libraries,
placed as in Spack's own store, and FOLDER/view/bin, links to the packages' programs. Moved to where the store's
parent is, it works without Spack.
"""

import shutil
import sys
from pathlib import Path

import spack.environment
import spack.store


def main():
    """Copy what the command line names."""
    folder, names = Path(sys.argv[1]), set(sys.argv[2:])
    store = Path(spack.store.STORE.root)
    roots = [spec for spec in spack.environment.active_environment().concrete_roots() if spec.name in names]
    if lacking := names - {spec.name for spec in roots}:
        sys.exit(f"stack: not in the environment: {', '.join(sorted(lacking))}")
    needed = {
        one.prefix: one
        for root in roots
        for one in root.traverse(deptype=("link", "run"))
        # The host's, or the base's of an image.
        if not one.external
    }
    for prefix in needed:
        shutil.copytree(prefix, folder / "store" / Path(prefix).relative_to(store), symlinks=True)
    programs = folder / "view" / "bin"
    programs.mkdir(parents=True)
    for root in roots:
        for program in sorted(Path(root.prefix, "bin").glob("*")):
            (programs / program.name).symlink_to(program)
    print(f"stack: {folder}: {len(needed)} packages, {len(list(programs.iterdir()))} programs", file=sys.stderr)


if __name__ == "__main__":
    main()
