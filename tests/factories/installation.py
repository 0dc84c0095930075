# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with wheels and the dependencies of the tests' environment."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from factories.processes import captured

PIP = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")
#: It takes a tenth of pip's time, because it writes no bytecode.
UV = (Path(sys.executable).with_name("uv"), "pip", "install", "-q", "--offline", "--reinstall")


class CannotInstall(Exception):
    """A program of tests cannot be installed on this host; the text is the reason in one line."""


def call(*argv: object, cwd: Path | None = None) -> str:
    """Return the output of a program; if it fails or takes too long, raises CannotInstall with its first error."""
    words = [str(word) for word in argv]
    try:
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = captured(words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, timeout=280)
    except subprocess.TimeoutExpired as error:
        raise CannotInstall(f"{words[0]} {words[1]}: it did not end in {error.timeout} s") from error
    if done.returncode:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["it printed nothing"]
        reason = next((line for line in lines if "ERROR" in line), lines[-1])
        raise CannotInstall(f"{words[0]} {words[1]}: {reason}")
    return done.stdout


def virtual_environment(folder: Path, *wheels: Path) -> Path:
    """Create an environment with *wheels* in *folder* and return it."""
    packages = _empty(folder)
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = folder / "bin" / "python"
    _run(*UV, "--python", python, "--no-index", "--no-deps", *wheels)
    # A script that starts with another interpreter would import another copy.
    text = Path(sys.executable).with_name("reframe").read_text().split("\n", 1)[1]
    (folder / "bin" / "reframe").write_text(f"#!{python}\n{text}")
    (folder / "bin" / "reframe").chmod(0o755)
    return folder


def light_environment(folder: Path, *wheels: Path) -> Path:
    """Create an environment with *wheels* and what they need without extras, and return it."""
    packages = _empty(folder)
    for name in dependencies("firsttouch"):
        for entry in entries(name):
            (packages / entry.name).symlink_to(entry)
    python = folder / "bin" / "python"
    _run(*PIP, "--python", python, "install", "--no-index", "--no-deps", "--force-reinstall", *wheels)
    return folder


def dependencies(name: str, extra: str = "") -> set[str]:
    """Return the names of the packages that *name* needs, and that those need, as they are installed here."""
    done: set[tuple[str, str]] = set()
    new = {(name, extra)}
    while new:
        done.add(package := new.pop())
        for requirement in map(Requirement, importlib.metadata.requires(package[0]) or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": package[1]}):
                new |= {(canonicalize_name(requirement.name), e) for e in ("", *requirement.extras)} - done
    return {package for package, _ in done if not package.startswith("firsttouch")}


def entries(name: str) -> Iterator[Path]:
    """Yield the files and folders of an installed package that lie directly in site-packages."""
    distribution = importlib.metadata.distribution(name)
    for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        yield Path(str(distribution.locate_file(top)))


def _empty(folder: Path) -> Path:
    """Create an environment without packages, and return the folder of its packages."""
    venv.create(folder, symlinks=True, with_pip=False)
    return Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))


def _run(*argv: str | Path) -> None:
    """Run a program that installs wheels; raises AssertionError with its output if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
