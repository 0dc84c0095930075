# SPDX-License-Identifier: Apache-2.0
"""Builds the native probe from the checkout, also with sanitizers or another compiler."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from factories import caches
from firsttouch.host.topology import PROBE
from firsttouch.paths import ROOT
from firsttouch.records import atomic_files
from firsttouch.records.file_lock import lock_file
from firsttouch.tools import run_tool

SOURCE = ROOT / "probe"


def build(
    folder: Path, *options: str, sanitize: str = "", compiler: str = "", env: Mapping[str, str] | None = None
) -> Path:
    """Build the probe in *folder* incrementally and return the program.

    *sanitize* names sanitizers ("address,undefined"), *compiler* the C compiler (default: CMake's choice).
    *options* are more options of CMake, *env* is the whole environment. Builds in the same folder wait.
    """
    folder.mkdir(parents=True, exist_ok=True)
    configure = ["cmake", "-S", str(SOURCE), "-B", str(folder), f"-DSANITIZE={sanitize}", "-DWERROR=ON"]
    configure += options
    if compiler:
        configure.append(f"-DCMAKE_C_COMPILER={compiler}")
    with lock_file(folder / "lock"):
        for argv in (configure, ["cmake", "--build", str(folder)]):
            done = run_tool(argv, timeout=None, env=env)
            assert done.returncode == 0, done.stdout + done.stderr
    return folder / PROBE


def built_once(
    *options: str,
    sanitize: str = "",
    compiler: str = "",
    env: Mapping[str, str] | None = None,
    libraries: Sequence[Path] = (),
) -> Path:
    """Return the program that :func:`build` builds, from the cache of all checkouts if it has these sources.

    *libraries* are the files that *options* and *env* make it link. A program that is not the one that was built,
    because its file is damaged, is built again.
    """
    version = run_tool([compiler or "cc", "--version"], env=env).stdout
    digest = hashlib.sha256(repr((sanitize, compiler, version, options)).encode())
    for file in (*sorted(f for f in SOURCE.rglob("*") if f.is_file()), *libraries):
        name = file.relative_to(SOURCE) if file.is_relative_to(SOURCE) else file.name
        digest.update(f"{name} ".encode() + file.read_bytes())
    folder = caches.folder("probe") / digest.hexdigest()[:20]
    program, checksum = folder / PROBE, folder / "sha256"
    with lock_file(folder.with_suffix(".lock")):
        if not (checksum.exists() and program.exists() and checksum.read_text() == atomic_files.digest(program)):
            atomic_files.remove(folder)
            with atomic_files.replace(folder) as partial:
                built = build(partial, *options, sanitize=sanitize, compiler=compiler, env=env)
                (partial / checksum.name).write_text(atomic_files.digest(built))
    return program
