# SPDX-License-Identifier: Apache-2.0
"""The program firsttouch-probe: where it is, and building it from probe/."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from firsttouch.errors import Missing, RunFailed
from firsttouch.folders import ROOT

NAME = "firsttouch-probe"
SOURCE = ROOT / "probe"


def program() -> Path:
    """Return the probe: of FIRSTTOUCH_PROBE, beside Python (where it is installed), or on PATH.

    Raises Missing where it is not there.
    """
    if given := os.environ.get("FIRSTTOUCH_PROBE"):
        if not (Path(given).is_file() and os.access(given, os.X_OK)):
            raise Missing(f"FIRSTTOUCH_PROBE names {given}, which is no program")
        return Path(given)
    beside = Path(sys.executable).with_name(NAME)
    found = beside if os.access(beside, os.X_OK) else shutil.which(NAME)
    if not found:
        raise Missing(f"{NAME} is not there: `make setup` builds it, or build and install it with cmake -S probe")
    return Path(found)


def build(folder: Path, *, sanitize: str = "", compiler: str = "") -> Path:
    """Build the probe in *folder* (again only what changed) and return the program.

    *sanitize* are sanitizers ("address,undefined"), *compiler* the C compiler (default: CMake's choice). Two
    builds in one folder wait for each other. Raises Missing without cmake, RunFailed where the build fails.
    """
    if shutil.which("cmake") is None:
        raise Missing(f"{NAME} is not built, and cmake is not on PATH: `make setup` sees to both")
    folder.mkdir(parents=True, exist_ok=True)
    configure = ["cmake", "-S", str(SOURCE), "-B", str(folder), f"-DSANITIZE={sanitize}", "-DWERROR=ON"]
    if compiler:
        configure.append(f"-DCMAKE_C_COMPILER={compiler}")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for argv in (configure, ["cmake", "--build", str(folder)]):
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
                told = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
                raise RunFailed(f"{NAME} cannot be built ({' '.join(argv[:2])}): {told}")
    return folder / NAME


def helped() -> int:
    """Print the probe's own help and return its exit status."""
    return subprocess.run([program(), "--help"], check=False).returncode
