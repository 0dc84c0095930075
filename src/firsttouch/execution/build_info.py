# SPDX-License-Identifier: Apache-2.0
"""The origin of an installed copy of firsttouch, to detect images and views that are older than the checkout.

``python -m firsttouch.execution.build_info CHECKOUT FILE TARGET`` writes it when a copy is built.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from firsttouch import __version__, paths
from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.tools import run_tool

#: The measuring interface: what a copy measures, and the form of its command line and records. Raise it with any
#: change after which results of an older copy are no longer comparable, or an older copy cannot be started.
INTERFACE = 1
#: The parts of a checkout that decide how a copy measures.
_PARTS = ("src/firsttouch", "probe", "datasets", "setup/requirements.lock")
#: Fetched datasets, which are not part of the checkout.
_FETCHED = ("datasets", "store")
#: Packages that only process records; no measurement depends on them.
_AFTERWARDS = tuple(f"src/firsttouch/{name}" for name in ("fleet", "campaign", "judge", "report"))
_SUFFIXES = frozenset(
    {".c", ".css", ".def", ".h", ".j2", ".js", ".json", ".lock", ".py", ".sh", ".toml", ".txt", ".yaml"}
)


class Origin(Struct, frozen=True):
    """The origin of a copy of firsttouch.

    *source* is the digest of the checkout's files, *revision* Git's (with ``+`` for a changed checkout, empty
    without Git), *machine* the architecture by ``uname``, *target* the instruction set by archspec's name, and
    *interface* the measuring interface (:data:`INTERFACE`).
    """

    version: str
    source: str
    revision: str
    machine: str
    target: str
    interface: int = INTERFACE


def of(checkout: Path, target: str) -> Origin:
    """Return the origin of a copy of *checkout* for *target*."""
    stored = checkout / "REVISION"
    revision = stored.read_text(encoding="utf-8").strip() if stored.is_file() else _revision(checkout)
    return Origin(__version__, digest(checkout), revision, platform.machine(), target)


def read(file: Path) -> Origin:
    """Return the origin in *file*; raises BadInput."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return convert(data, Origin)
    except (OSError, ValueError, ValidationError) as error:
        raise BadInput(f"not the origin of a copy of firsttouch: {error}", file=file) from error


def digest(checkout: Path) -> str:
    """Return the SHA-256 of the names and contents of the files that decide how a copy of *checkout* measures."""
    return files_digest(*(checkout / part for part in _PARTS), below=checkout, without=_AFTERWARDS)


def files_digest(*places: Path, below: Path = paths.ROOT, without: Sequence[str] = ()) -> str:
    """Return the SHA-256 of the names and contents of all source files in *places*.

    Names are relative to *below*, as are the folders *without*, which are left out.
    """
    total = hashlib.sha256()
    for place in places:
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            name = file.relative_to(below)
            if any(name.is_relative_to(folder) for folder in without) or name.parts[:2] == _FETCHED:
                continue
            if file.is_file() and file.suffix in _SUFFIXES:
                total.update(f"{name}\0{file.stat().st_size}\0".encode())
                total.update(file.read_bytes())
    return total.hexdigest()


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
    text = json.dumps(asdict(of(Path(checkout), target)), indent=1) + "\n"
    Path(file).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
