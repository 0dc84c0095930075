# SPDX-License-Identifier: Apache-2.0
"""Debian packages from the build host's own mirror, and root file systems by mmdebstrap."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from firsttouch.records import atomic_files

Say = Callable[[str], None]
#: Left out of a root file system: devices belong to the host, and package lists expire.
_WITHOUT = ("./dev", "./var/lib/apt/lists", "./var/cache/apt")


class CannotBuild(Exception):
    """A requirement is missing or a step failed; the message is one line."""


def sources(suite: str, components: Sequence[str], snapshot: str = "") -> list[str]:
    """Return apt source lines for *suite* at the address *snapshot*, or on the mirrors that this host uses.

    A snapshot, ``…/debian/DATE``, is out of date by design. Security updates are in ``…/debian-security/DATE``.
    Raises CannotBuild.
    """
    if snapshot:
        security = re.sub(r"/debian(?=/|$)", "/debian-security", snapshot)
        places = ((snapshot, ""), (security, "-security"))
        return [f"deb [check-valid-until=no] {at} {suite}{ending} {' '.join(components)}" for at, ending in places]
    if shutil.which("apt-get") is None:
        raise CannotBuild("apt-get is not on PATH: this host is not Debian (another profile needs none)")
    lines = []
    for label, ending in (("Debian", ""), ("Debian-Security", "-security")):
        words = ("--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Identifier: Packages", f"Label: {label}")
        listed = call("apt-get", "indextargets", *words).splitlines()
        mirrors = [row[0] for row in map(str.split, listed) if row[2] == "main" and row[1].endswith(ending)]
        if mirrors:
            lines.append(f"deb {mirrors[0]} {suite}{ending} {' '.join(components)}")
    if not lines:
        raise CannotBuild("this host's apt sources name no mirror of Debian")
    return lines


def root(store: Path, lines: Sequence[str], suite: str, packages: Sequence[str], say: Say) -> Path:
    """Return the folder in *store* with a root file system of *suite*, from the apt sources *lines*; create it."""
    key = hashlib.sha256("\n".join([*lines, *sorted(packages)]).encode()).hexdigest()[:16]
    folder = store / f"root-{suite}-{key}"
    if folder.is_dir():
        return folder
    if shutil.which("mmdebstrap") is None:
        raise CannotBuild("mmdebstrap is not on PATH: apt-get install mmdebstrap uidmap")
    say(f"root file system of Debian {suite} with {len(packages)} packages: {' '.join(sorted(packages))}")
    with (
        atomic_files.replace(folder) as partial,
        atomic_files.scratch(store / f"{folder.name}.tar") as tarball,
    ):
        partial.mkdir()
        call(
            *("mmdebstrap", "--quiet", "--mode=unshare", "--variant=minbase", f"--include={','.join(packages)}"),
            # mmdebstrap would otherwise choose a compression by the file's suffix.
            *("--dpkgopt=force-unsafe-io", "--format=tar", suite, tarball, *lines),
        )
        without = [f"--exclude={name}" for name in _WITHOUT]
        # The user namespace of the image build does not map the archive's other users.
        call("tar", "-C", partial, "-xf", tarball, "--no-same-owner", *without)
        (partial / "dev").mkdir(exist_ok=True)
        (partial / "var/lib/apt/lists/partial").mkdir(parents=True, exist_ok=True)
        (partial / "var/cache/apt/archives/partial").mkdir(parents=True, exist_ok=True)
    return folder


def call(*argv: object, cwd: Path | None = None) -> str:
    """Return the output of a program; raises CannotBuild with its last lines if it fails."""
    done = subprocess.run(
        [str(a) for a in argv], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise CannotBuild(f"{argv[0]} failed: {' | '.join(lines[-2:]) or f'status {done.returncode}'}")
    return done.stdout
