# SPDX-License-Identifier: Apache-2.0
"""What an installed copy of firsttouch was made from: an image's or Spack's may be older than the checkout.

``python -m firsttouch.execution.build_info CHECKOUT FILE TARGET`` writes it down where such a copy is made.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from firsttouch import __version__, paths
from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.tools import run_tool

#: What decides how a copy measures; the rest of a checkout (tests, reports, documentation) does not.
_PARTS = ("src/firsttouch", "probe", "datasets", "setup/requirements.lock")
#: In a checkout's datasets, and no part of it.
_FETCHED = ("datasets", "store")
#: Packages that work on records afterwards, in the checkout: no measurement depends on them.
_AFTERWARDS = tuple(f"src/firsttouch/{name}" for name in ("fleet", "judge", "report"))
_SUFFIXES = frozenset(
    {".c", ".css", ".def", ".h", ".j2", ".js", ".json", ".lock", ".py", ".sh", ".toml", ".txt", ".yaml"}
)


@dataclass(frozen=True)
class Origin:
    """A copy's source.

    *source* is the digest of the checkout's files, *revision* Git's (with ``+`` where the checkout differed from
    it, empty without Git), *machine* the architecture as ``uname`` says and *target* the instruction set by
    archspec's name that its programs are built for.
    """

    version: str
    source: str
    revision: str
    machine: str
    target: str


def of(checkout: Path, target: str) -> Origin:
    """Return the origin of a copy that is made of *checkout* for *target* now."""
    stored = checkout / "REVISION"
    revision = stored.read_text(encoding="utf-8").strip() if stored.is_file() else _revision(checkout)
    return Origin(__version__, digest(checkout), revision, platform.machine(), target)


def read(file: Path) -> Origin:
    """Return the origin that was written to *file*; raises BadInput where it is none."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return Origin(**{key: str(value) for key, value in data.items()})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"tells no origin of a copy of firsttouch: {error}", file=file) from error


def digest(checkout: Path) -> str:
    """Return the SHA-256 of what decides how a copy of *checkout* measures: names and contents of its files."""
    return files_digest(*(checkout / part for part in _PARTS), below=checkout, without=_AFTERWARDS)


def files_digest(*places: Path, below: Path = paths.ROOT, without: Sequence[str] = ()) -> str:
    """Return the SHA-256 of the names (as seen from *below*) and contents of all source files in *places*.

    Folders *without* (as seen from *below*) are left out.
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

    found = git("rev-parse", "--short=12", "HEAD")
    return found + ("+" if found and git("status", "--porcelain", "--untracked-files=no") else "")


def main(argv: list[str]) -> int:
    """Write the origin of CHECKOUT for TARGET to FILE."""
    checkout, file, target = argv
    text = json.dumps(asdict(of(Path(checkout), target)), indent=1) + "\n"
    Path(file).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
