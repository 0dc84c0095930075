# SPDX-License-Identifier: Apache-2.0
"""Debian's packages on the host that builds: its own mirror, and root file systems made with mmdebstrap."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from firsttouch.records import atomic_files

Say = Callable[[str], None]
#: What a root file system leaves behind: devices are the host's, lists of packages are old tomorrow.
_WITHOUT = ("./dev", "./var/lib/apt/lists", "./var/cache/apt")


class CannotBuild(Exception):
    """What is missing or failed, in one line."""


def sources(suite: str, components: Sequence[str]) -> list[str]:
    """Return the lines of apt's sources for *suite*, of the very mirrors that this host has its packages from."""
    if shutil.which("apt-get") is None:
        raise CannotBuild("this is no Debian host: no apt-get (another profile needs none)")
    lines = []
    for label, ending in (("Debian", ""), ("Debian-Security", "-security")):
        words = ("--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Identifier: Packages", f"Label: {label}")
        listed = call("apt-get", "indextargets", *words).splitlines()
        found = [row[0] for row in map(str.split, listed) if row[2] == "main" and row[1].endswith(ending)]
        if found:
            lines.append(f"deb {found[0]} {suite}{ending} {' '.join(components)}")
    if not lines:
        raise CannotBuild("this host's apt sources name no mirror of Debian")
    return lines


def root(store: Path, suite: str, components: Sequence[str], packages: Sequence[str], say: Say) -> Path:
    """Return a folder with the root file system of *suite* with *packages*, made where *store* has none yet."""
    lines = sources(suite, components)
    key = hashlib.sha256("\n".join([*lines, *sorted(packages)]).encode()).hexdigest()[:16]
    made = store / f"root-{suite}-{key}"
    if made.is_dir():
        return made
    if shutil.which("mmdebstrap") is None:
        raise CannotBuild("mmdebstrap is not on PATH: apt-get install mmdebstrap uidmap")
    say(f"root file system of Debian {suite} with {len(packages)} packages: {' '.join(sorted(packages))}")
    with atomic_files.replacing(made) as partial, atomic_files.scratch(store / f"{made.name}.tar") as tarball:
        partial.mkdir()
        call(
            *("mmdebstrap", "--quiet", "--mode=unshare", "--variant=minbase", f"--include={','.join(packages)}"),
            # By the name's ending mmdebstrap would choose a compression.
            *("--dpkgopt=force-unsafe-io", "--format=tar", suite, tarball, *lines),
        )
        without = [f"--exclude={name}" for name in _WITHOUT]
        # Its other users are not there in the name space that an image is built in.
        call("tar", "-C", partial, "-xf", tarball, "--no-same-owner", *without)
        (partial / "dev").mkdir(exist_ok=True)
        (partial / "var/lib/apt/lists/partial").mkdir(parents=True, exist_ok=True)
        (partial / "var/cache/apt/archives/partial").mkdir(parents=True, exist_ok=True)
    return made


def call(*argv: object, cwd: Path | None = None) -> str:
    """Return what a program printed; raises CannotBuild with its last words where it failed."""
    done = subprocess.run(
        [str(a) for a in argv], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise CannotBuild(f"{argv[0]} failed: {' | '.join(lines[-2:]) or f'status {done.returncode}'}")
    return done.stdout
