# SPDX-License-Identifier: Apache-2.0
"""Installs Snakemake, Nextflow and MultiQC in the cache of the tests, as the files next to this one pin them.

    python tests/workflows/engines.py

Snakemake and MultiQC have separate environments, because they need other dependencies than firsttouch. Nextflow's
own launcher downloads the program; here Maven gets the same files, and their checksums are compared. This is for
test hosts only.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import venv
from collections.abc import Callable
from pathlib import Path

# This file is started by its path, so tests/ is not on sys.path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from factories import caches
from factories.installation import PIP, CannotInstall, call
from factories.processes import write_program
from firsttouch.records.file_lock import lock_file

HERE = Path(__file__).parent
#: Maven's plugin that copies a program and all that it needs into a folder.
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
#: Packages of Java that Nextflow's cache needs open: without them, it keeps nothing for -resume, and says nothing.
OPENED = (
    "java.io java.lang java.net java.nio java.util java.util.concurrent.atomic java.util.concurrent.locks "
    "java.util.regex jdk.internal.misc sun.nio.ch sun.nio.fs"
)
#: The two options for the virtual machine make short runs faster.
LAUNCHER = """\
export NXF_OFFLINE=true NXF_ANSI_LOG=false NXF_HOME='{folder}/home'
exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC {opened} -cp '{folder}/jars/*' nextflow.cli.Launcher "$@"
"""


def snakemake() -> Path:
    """Return the program ``snakemake``; install it first if it is missing. Raises CannotInstall."""
    return _environment("snakemake")


def multiqc() -> Path:
    """Return the program ``multiqc``; install it first if it is missing. Raises CannotInstall.

    Its lock leaves out what only exports of pictures and uploads need, which is 500 MB.
    """
    return _environment("multiqc")


def _environment(name: str) -> Path:
    """Return a program of the Python package *name*, in an environment with the packages that its lock pins."""
    lock = HERE / f"{name}.lock"

    def install(folder: Path) -> None:
        venv.create(folder, symlinks=True, with_pip=False)
        pip = [*PIP, "--python", folder / "bin" / "python"]
        call(*pip, "install", "--no-deps", "--no-compile", "--require-hashes", "-r", lock)

    return _installed(name, [lock], install) / "bin" / name


def nextflow() -> Path:
    """Return the program ``nextflow``; install it first if it is missing. Raises CannotInstall."""
    project, sums = HERE / "nextflow.xml", HERE / "nextflow.sha256"

    def install(folder: Path) -> None:
        if shutil.which("mvn") is None:
            raise CannotInstall("mvn is not on PATH (`make test` installs it)")
        jars = folder / "jars"
        call("mvn", "-B", "-q", "-f", project, COPY, f"-DoutputDirectory={jars}", "-DincludeScope=runtime")
        pinned = {name: digest for digest, name in map(str.split, sums.read_text().splitlines())}
        copied = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in jars.iterdir()}
        if different := sorted(name for name, _ in pinned.items() ^ copied.items()):
            raise CannotInstall(f"Nextflow's {different[0]} is not the file in {sums.name}")
        opened = " ".join(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED.split())
        write_program(folder / "nextflow", LAUNCHER.format(folder=folder, opened=opened))

    return _installed("nextflow", [project, sums, Path(__file__)], install) / "nextflow"


def _installed(name: str, pins: list[Path], install: Callable[[Path], None]) -> Path:
    """Return the folder of an engine that *pins* describe; install it first if it is missing."""
    digest = hashlib.sha256("".join([sys.version, *(file.read_text() for file in pins)]).encode()).hexdigest()
    folder = caches.folder("engines") / f"{name}-{digest[:16]}"
    complete = folder / "complete"
    with lock_file(folder.parent / "lock"):
        if not complete.exists():
            # A virtual environment contains its own path, so it cannot be made elsewhere and renamed.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            install(folder)
            complete.touch()
    return folder


if __name__ == "__main__":
    caches.choose()
    print(snakemake(), nextflow(), multiqc(), sep="\n")
