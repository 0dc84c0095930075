# SPDX-License-Identifier: Apache-2.0
"""sources.lock (version, SHA-256 and upstream URL of each source), and the mirror that Spack reads them from.

The mirror's folder wheels/ has the Python packages of setup/requirements.lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().with_name("sources.lock")
#: Seconds without a byte after which a download is aborted.
PATIENCE = 60
#: The version of Python in images and environments.
PYTHON = "3.11"
#: What firsttouch needs in an image or a view: to run, to be built, and Spack's solver.
EXTRAS = ("report", "build", "spack")


class Wrong(Exception):
    """An error of one line; *status* is the exit status (2: bad input, 3: missing on this host)."""

    def __init__(self, reason: str, *, status: int = 2) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Source:
    """A source file or patch of a recipe; *path* is its place in a mirror of Spack.

    The *url* ``pypi:NAME==VERSION`` is a wheel of the package index that pip uses, and ``sdist:NAME==VERSION`` a
    source archive.
    """

    name: str
    version: str
    sha256: str
    url: str
    path: str

    def order(self) -> tuple[str, ...]:
        """Return the key of the order in a lock file."""
        return (self.name, self.version, self.sha256)


def read(lock: Path) -> list[Source]:
    """Return the sources of a lock file (one JSON object per line); raises Wrong with the line that is wrong."""
    sources = []
    try:
        lines = lock.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Wrong(f"{lock}: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            source = Source(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise Wrong(f"{lock}:{number}: not a source: {error}") from error
        _check(source, f"{lock}:{number}")
        sources.append(source)
    return sources


def _check(source: Source, where: str) -> None:
    if len(source.sha256) != 64 or set(source.sha256) - set("0123456789abcdef"):
        raise Wrong(f"{where}: '{source.sha256}' is not a SHA-256")
    if not source.url.startswith(("https://", "http://", "ftp://", "pypi:", "sdist:")):
        raise Wrong(f"{where}: '{source.url}' is not a URL")
    path = Path(source.path)
    if path.is_absolute() or ".." in path.parts or source.sha256 not in path.name:
        raise Wrong(f"{where}: '{source.path}' is not a path in a mirror")


def write(lock: Path, sources: Sequence[Source]) -> None:
    """Write a lock file."""
    head = "# SPDX-License-Identifier: Apache-2.0\n# Made by `spack-env/stack.py lock`: one source a line.\n"
    lines = sorted({json.dumps(asdict(source)) for source in sources})
    with replacing(lock) as partial:
        partial.write_text(head + "".join(f"{line}\n" for line in lines), encoding="utf-8")


def fill(lock: Path, mirror: Path, given: Path | None, only: Sequence[str], *, say: Callable[[str], None]) -> int:
    """Put every source of *lock* into *mirror* and verify it. Return 0, or 1 if some are missing.

    The files come from the directory *given*, where checksums identify them, or by download. Files that are
    already in the mirror are verified again and replaced if their checksum is wrong. Raises Wrong for a name in
    *only* that the lock does not contain, and for a missing directory.
    """
    sources = read(lock)
    if unknown := set(only) - {source.name for source in sources}:
        raise Wrong(f"{lock.name} has no source of {', '.join(sorted(unknown))}")
    sources = [s for s in sources if not only or s.name in only]
    by_sum = _sums(given) if given else None
    missing = 0
    for number, source in enumerate(sources, start=1):
        place = mirror / source.path
        text = f"({number}/{len(sources)}) {source.name} {source.version}"
        if place.is_file() and _sum(place) == source.sha256:
            say(f"{text}: verified")
            continue
        try:
            if by_sum is None:
                _place(place, source.sha256, lambda out, url=source.url: _download(url, out))
            elif source.sha256 in by_sum:
                _place(place, source.sha256, lambda out, file=by_sum[source.sha256]: _copy(file, out))
            else:
                raise Wrong(f"no file with this checksum in {given}")
            say(f"{text}: {'downloaded' if by_sum is None else 'taken'}, verified")
        except (Wrong, OSError) as error:
            missing += 1
            say(f"{text}: MISSING: {error} ({source.url})")
    say(f"{mirror}: {len(sources) - missing} of {len(sources)} sources are there and verified")
    return 1 if missing else 0


def fill_wheels(root: Path, mirror: Path, given: Path | None, *, say: Callable[[str], None]) -> Path:
    """Put the wheels that firsttouch needs into ``wheels/`` of *mirror*, verified by setup/requirements.lock.

    *root* is the checkout; the files come from the directory *given* or from the package index of pip. Return the
    folder; raises Wrong with pip's last line.
    """
    folder = mirror / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    machine = platform.machine()
    platforms = [f"--platform=manylinux_2_{n}_{machine}" for n in (36, 34, 31, 28, 27, 24, 17, 12, 5)]
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch, "requirements.txt")
        lock = (root / "setup" / "requirements.lock").read_text(encoding="utf-8")
        requirements.write_text(locked_for(PYTHON, lock, needed("firsttouch", EXTRAS)), encoding="utf-8")
        words = ["--require-hashes", "--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}", *platforms]
        words += ["--no-index", "--find-links", str(given)] if given else ["--find-links", str(folder)]
        _pip(*words, "-r", str(requirements), "-d", str(folder))
    say(f"wheels/: {len(list(folder.glob('*.whl')))} wheels for Python {PYTHON} on {machine}, verified")
    return folder


def needed(name: str, extras: Sequence[str]) -> set[str]:
    """Return the packages that *name* with *extras* requires, and those that they require, as installed here."""
    from importlib import metadata  # noqa: PLC0415  (Spack's own Python runs this module, too)

    from packaging.requirements import Requirement  # noqa: PLC0415
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    packages: set[str] = set()
    queue = [(name, tuple(extras))]
    while queue:
        package, wanted = queue.pop()
        try:
            requires = metadata.requires(package) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, requires):
            chosen = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in (*wanted, "")
            )
            key = canonicalize_name(requirement.name)
            if chosen and (key not in packages or requirement.extras):
                packages.add(key)
                queue.append((requirement.name, tuple(requirement.extras)))
    return packages


def locked_for(version: str, lock: str, only: set[str]) -> str:
    """Return the entries of a lock file for the packages *only* whose markers hold for Python *version*.

    The markers are removed: pip download evaluates them for the interpreter that runs it.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    python = {"python_version": version, "python_full_version": f"{version}.0"}
    entries = []
    for entry in re.split(r"\n(?=\S)", lock.strip()):
        pinned, hashes = entry.split(" \\\n", 1)
        requirement = Requirement(pinned)
        holds = requirement.marker is None or requirement.marker.evaluate(python)
        if holds and canonicalize_name(requirement.name) in only:
            entries.append(f"{pinned.partition(' ;')[0]} \\\n{hashes}\n")
    return "".join(entries)


@contextlib.contextmanager
def replacing(place: Path) -> Iterator[Path]:
    """Yield a path beside *place* for a file that takes its place if the block ends without an error.

    Spack's own Python runs this module, so firsttouch's atomic_files cannot be used here.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".")
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o644)
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)


def _sums(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise Wrong(f"{folder} is not a directory")
    return {_sum(file): file for file in sorted(folder.rglob("*")) if file.is_file()}


def _sum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _place(place: Path, sha256: str, get: Callable[[Any], None]) -> None:
    """Write *place* if the checksum of its content is right; raises Wrong if not."""
    with replacing(place) as partial:
        with partial.open("wb") as out:
            get(out)
        if (actual := _sum(partial)) != sha256:
            raise Wrong(f"its SHA-256 is {actual}, not {sha256}")


def _download(url: str, out: Any) -> None:
    kind, _, requirement = url.partition(":")
    if kind in {"pypi", "sdist"}:
        with tempfile.TemporaryDirectory() as folder:
            _pip("--no-deps", f"--{'only' if kind == 'pypi' else 'no'}-binary=:all:", requirement, "-d", folder)
            _copy(next(Path(folder).iterdir()), out)
        return
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310  (read() accepts no other schemes)
        shutil.copyfileobj(answer, out)


def _pip(*words: str) -> None:
    """Run ``pip download``; raises Wrong with its last line."""
    argv = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"pip download failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}", status=3)


def _copy(file: Path, out: Any) -> None:
    with file.open("rb") as stream:
        shutil.copyfileobj(stream, out)
