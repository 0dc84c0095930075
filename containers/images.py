#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Apptainer images of this folder (`make images`), a SHA-256 and an SPDX list of packages beside each.

Two stages: the build image has the toolchain and makes /opt/firsttouch, a run image is a base without one, the
packages that it needs (packages.toml) and that folder. What does not change is kept in .cache/images.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sbom
from debian import CannotBuild, call, root
from programs import HERE, IMAGES, PACKAGES, Programs, add_options, chosen

from firsttouch.execution import build_info, host_lock
from firsttouch.records import atomic_files

ROOT = HERE.parent
STORE = ROOT / ".cache" / "images"
#: What the images are made of, of the checkout.
PARTS = ("src", "probe", "datasets", "reframe", "reports", "setup", "containers", "spack-env")
#: And what was made or fetched there.
MADE = {"datasets": ("store",), "reports": ("out",)}
FILES = ("pyproject.toml", "README.md", "LICENSE")
EXAMPLES = """
examples:
  make images                                         # all, of Debian's packages
  make images IMAGE=membench
  containers/images.py --base docker://debian:12      # with internet: the base from a registry of images
  containers/images.py --base /data/debian.sif        # the base handed in; packages from its own apt sources
  containers/images.py --spack airgap --mirror /data/mirror   # programs built by Spack, without a network
  containers/images.py aligners --spack debian --mirror /data/mirror --only bwa,snap-berkeley
  apptainer run containers/firsttouch.sif topology"""


def main() -> int:
    """Build what the command line asks for; 3 where something needed is missing or fails."""
    args = _parser().parse_args()
    start = time.monotonic()
    # A terminated build cleans up as an interrupted one does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        programs = chosen(args)
        with alone(start):
            for number, name in enumerate(args.images, start=1):
                say(f"({number}/{len(args.images)}) {name}", start)
                build(name, args.output.absolute(), programs, base=args.base, start=start)
    except CannotBuild as error:
        print(f"images: error: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"images: error: {error.filename or args.output}: {error.strerror or error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("images: interrupted; what was built before is kept", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("images", nargs="*", default=list(IMAGES), metavar="IMAGE", help=f"of {', '.join(IMAGES)}")
    made.add_argument("--base", default="", help="base of both stages (default: Debian's, of this host's mirror)")
    add_options(made)
    made.add_argument(
        "-o", "--output", type=Path, default=HERE, help="folder of the images (default: containers/)"
    )
    return made


@contextmanager
def alone(start: float) -> Iterator[None]:
    """Hold the lock of STORE, which builds share, and remove what a killed build left there."""
    STORE.mkdir(parents=True, exist_ok=True)
    lock = os.open(STORE, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is running in this checkout: waiting for its end", start)
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in STORE.glob("making-*"):
            shutil.rmtree(left, ignore_errors=True)
        atomic_files.clear(STORE)
        yield
    finally:
        os.close(lock)


def build(name: str, output: Path, programs: Programs, *, base: str, start: float) -> Path:
    """Build one image and return its file; raises CannotBuild."""
    if name not in IMAGES:
        raise CannotBuild(f"there is no image '{name}': there are {', '.join(IMAGES)}")
    if shutil.which("apptainer") is None:
        raise CannotBuild("apptainer is not on PATH")
    output.mkdir(parents=True, exist_ok=True)
    packages = programs.debian(name)
    found = build_info.of(ROOT, programs.target)
    build_image = _build_image(found, programs, base, start)
    run_base = base or str(_root(packages, start))
    say(f"{name}: the run image, of {run_base}", start)
    image = output / f"{name}.sif"
    with (
        tempfile.TemporaryDirectory(dir=STORE, prefix="making-") as folder,
        atomic_files.replacing(image) as partial,
    ):
        arguments = {
            **_based(run_base),
            "build": str(build_image),
            "checkout": str(ROOT),
            "packages": " ".join(packages),
            "version": found.version,
            "revision": found.revision or "unknown",
            "source": found.source,
            "machine": found.machine,
            "target": found.target,
            "profile": programs.label,
            "spack_lock": programs.locked(build_image, name),
            "programs": " ".join(programs.expected(name)),
        }
        _apptainer(HERE / f"{name}.def", partial, arguments, Path(folder))
    _describe(image, found.version, start)
    return image


def _build_image(found: build_info.Origin, programs: Programs, base: str, start: float) -> Path:
    """Return the build image, a folder: of this state of the checkout, programs, base and target."""
    packages = programs.build()
    state = (found.source, build_info.files_digest(ROOT / "spack-env"), programs, base, packages)
    key = hashlib.sha256(repr(state).encode()).hexdigest()[:16]
    kind = f"build-{programs.profile}-{programs.target}"
    made = STORE / f"{kind}-{key}"
    if made.is_dir():
        say(f"the build image is there: {made.name}", start)
        return made
    wheels = _wheels(start)
    build_base = base or str(_root(packages, start))
    say(f"the build image, of {build_base}: firsttouch {found.version} {found.revision} for {found.target}", start)
    with tempfile.TemporaryDirectory(dir=STORE, prefix="making-") as folder:
        checkout = Path(folder) / "checkout"
        _copy(checkout, wheels)
        (checkout / "REVISION").write_text(found.revision + "\n", encoding="utf-8")
        arguments = {
            **_based(build_base),
            "checkout": str(checkout),
            "packages": " ".join(packages),
            "target": found.target,
            "profile": programs.profile,
            "images": " ".join(programs.all()),
        }
        options = ("--sandbox", *programs.binds(STORE))
        _apptainer(HERE / "build.def", Path(folder) / "image", arguments, Path(folder), *options)
        (Path(folder) / "image").rename(made)
    for old in STORE.glob(f"{kind}-*"):
        if old != made:
            shutil.rmtree(old, ignore_errors=True)
    return made


def _root(packages: Sequence[str], start: float) -> Path:
    debian = PACKAGES["debian"]
    return root(STORE, debian["suite"], debian["components"], packages, lambda text: say(text, start))


def _based(base: str) -> dict[str, str]:
    """Return the arguments of a definition file for a base: AGENT://NAME, or a file or folder."""
    agent, found, name = base.partition("://")
    return {"bootstrap": agent, "base": name} if found else {"bootstrap": "localimage", "base": base}


def _wheels(start: float) -> Path:
    """Return the folder with Python's packages, of the versions and checksums that are locked."""
    lock = ROOT / "setup" / "requirements.lock"
    version = PACKAGES["debian"]["python"]
    key = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    made = STORE / f"wheels-{version}-{platform.machine()}-{key}"
    if made.is_dir():
        return made
    say(f"Python's packages for Python {version}, of setup/requirements.lock", start)
    platforms = [f"--platform=manylinux_2_{n}_{platform.machine()}" for n in (36, 34, 31, 28, 27, 24, 17, 12, 5)]
    with atomic_files.replacing(made) as folder:
        folder.mkdir()
        argv = [sys.executable, "-m", "pip", "download", "-q", "--require-hashes", "--no-deps"]
        argv += ["--only-binary=:all:", f"--python-version={version}", *platforms, "-r", str(lock)]
        call(*argv, "-d", folder)
    return made


def _copy(checkout: Path, wheels: Path) -> None:
    """Copy what an image is made of, and nothing that was made or fetched here."""
    for part in PARTS:
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.sif*", "*.pyc", "local.yaml", *MADE.get(part, ()))
            shutil.copytree(ROOT / part, checkout / part, ignore=ignored)
    for name in FILES:
        shutil.copy2(ROOT / name, checkout / name)
    shutil.copytree(wheels, checkout / "wheels", copy_function=os.link)


def _apptainer(definition: Path, image: Path, arguments: dict[str, str], scratch: Path, *options: str) -> None:
    """Build *image*; its %test is part of it. Raises CannotBuild with what the build said last."""
    given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    log = STORE / f"{definition.stem}.log"
    env = {**os.environ, "APPTAINER_TMPDIR": str(scratch), "APPTAINER_CACHEDIR": str(STORE / "apptainer")}
    argv = ["apptainer", "build", "--fakeroot", *options, *given, str(image), str(definition)]
    # An interrupted Apptainer leaves what runs in its %post to itself.
    with log.open("wb") as out, host_lock.no_process_left():
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise CannotBuild(f"{definition.name} cannot be built ({log}): {' | '.join(lines[-3:])}")


def _describe(image: Path, version: str, start: float) -> None:
    """Write the checksum and the list of packages beside the image."""
    sha256 = atomic_files.digest(image)
    # A root that lacks capabilities can only start an image without any.
    options = ["--no-privs"] if os.geteuid() == 0 else []
    listing = call("apptainer", "--silent", "exec", *options, "--cleanenv", image, "/bin/sh", "-c", sbom.LISTING)
    found = sbom.packages(listing)
    sbom.write(image.with_name(f"{image.name}.spdx.json"), sbom.document(image, sha256, found, version))
    image.with_name(f"{image.name}.sha256").write_text(f"{sha256}  {image.name}\n", encoding="ascii")
    say(
        f"{image}: {image.stat().st_size / 1e6:.0f} MB, {sbom.kinds(found)} packages, sha256 {sha256[:16]}…", start
    )


def say(text: str, start: float) -> None:
    """Tell what is being done, with the seconds since the beginning."""
    print(f"images: [{time.monotonic() - start:4.0f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
