# SPDX-License-Identifier: Apache-2.0
"""Copies the run-time files of some packages of an environment, without a compiler. Run by ``spack python``.

``copy_programs.py FOLDER PACKAGE...`` creates FOLDER/store, with the prefixes of the packages and their libraries
as in Spack's store, and FOLDER/view/bin, with links to the packages' programs. Moved to the parent of Spack's
store, it works without Spack.
"""

import shutil
import sys
from pathlib import Path

import spack.environment
import spack.store


def main():
    """Copy the packages named on the command line."""
    folder, names = Path(sys.argv[1]), set(sys.argv[2:])
    store = Path(spack.store.STORE.root)
    roots = [spec for spec in spack.environment.active_environment().concrete_roots() if spec.name in names]
    if lacking := names - {spec.name for spec in roots}:
        sys.exit(f"stack: not in the environment: {', '.join(sorted(lacking))}")
    needed = {
        spec.prefix: spec
        for root in roots
        for spec in root.traverse(deptype=("link", "run"))
        # External packages belong to the host or to the base of an image.
        if not spec.external
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
