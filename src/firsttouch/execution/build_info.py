# SPDX-License-Identifier: Apache-2.0
"""The origin of an installed copy of firsttouch. It shows images and views that are older than the checkout.

``python -m firsttouch.execution.build_info CHECKOUT FILE TARGET`` writes it when a copy is built.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from firsttouch import __version__
from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.tools import run_tool

#: The measuring interface: what a copy measures, its command line, and the form of its records. Increment it with
#: any change after which results of an older copy are not comparable, or an older copy cannot be started.
INTERFACE = 1


class Origin(Struct, frozen=True):
    """The origin of a copy of firsttouch.

    *revision* is Git's (with ``+`` for a changed checkout, empty without Git), *machine* the architecture by
    ``uname``, *target* the instruction set by archspec's name, and *interface* the measuring interface
    (:data:`INTERFACE`).
    """

    version: str
    revision: str
    machine: str
    target: str
    interface: int = INTERFACE


def copied_origin(checkout: Path, target: str) -> Origin:
    """Return the origin of a copy of *checkout* for *target*."""
    stored = checkout / "REVISION"
    revision = stored.read_text(encoding="utf-8").strip() if stored.is_file() else _revision(checkout)
    return Origin(__version__, revision, platform.machine(), target)


def read(file: Path) -> Origin:
    """Return the origin in *file*; raises BadInput."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return convert(data, Origin)
    except (OSError, ValueError, ValidationError) as error:
        raise BadInput(f"not the origin of a copy of firsttouch: {error}", file=file) from error


def _revision(checkout: Path) -> str:
    def git(*argv: str) -> str:
        try:
            done = run_tool(["git", "-C", str(checkout), *argv])
        except FirstTouchError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "--short=12", "HEAD")
    return commit + ("+" if commit and git("status", "--porcelain", "--untracked-files=no") else "")


def main(argv: list[str]) -> int:
    """Write the origin of CHECKOUT for TARGET to FILE."""
    checkout, file, target = argv
    text = json.dumps(asdict(copied_origin(Path(checkout), target)), indent=1) + "\n"
    Path(file).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
