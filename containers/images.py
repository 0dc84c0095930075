#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Apptainer images of this folder (`make images`), a SHA-256 and an SPDX list of packages next to each.

A build has two stages. The build image (build.def) has the toolchain and builds /opt/firsttouch. A run image
(run.def.j2 with images.toml) is a base without a toolchain, its packages (packages.toml) and that folder. Parts
that did not change are kept in .cache/images, or in images/ of FIRSTTOUCH_CACHE.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import sbom
from debian import CannotBuild, call, root
from debian import sources as apt_sources
from definitions import definition
from programs import HERE, IMAGES, PACKAGES, Programs, add_options, chosen, sources

from firsttouch.execution import build_info, host_lock
from firsttouch.records import atomic_files, file_lock

ROOT = HERE.parent
STORE = Path(os.environ.get("FIRSTTOUCH_CACHE") or ROOT / ".cache").absolute() / "images"
#: Folders of the checkout that the images are built from.
PARTS = ("src", "probe", "datasets", "reframe", "setup", "containers", "spack-env")
#: Generated files in these folders, which are left out.
GENERATED = ("*.sif*", "local.yaml")
FILES = ("pyproject.toml", "README.md", "LICENSE")
EXAMPLES = """
examples:
  make images                                         # all images, with Debian's packages
  make images IMAGE=membench
  containers/images.py --base docker://debian:12      # base image from a registry (needs internet)
  containers/images.py --base /data/debian.sif        # base image from a file; packages from its own apt sources
  containers/images.py --spack airgap --mirror /data/mirror   # programs built by Spack, without a network
  containers/images.py --definition aligners          # print the definition file of a run image
  containers/images.py aligners --spack debian --mirror /data/mirror --only bwa,snap-berkeley
  apptainer run containers/firsttouch.sif topology"""


def main() -> int:
    """Build the images that the command line names; return 3 if a requirement is missing or a build fails."""
    args = _parser().parse_args()
    start = time.monotonic()
    # A terminated build cleans up like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if args.definition:
            for name in map(_checked, args.images):
                print(definition(name), end="")
            return 0
        programs = chosen(args)
        if programs.snapshot and args.base:
            raise CannotBuild("--snapshot and --base exclude each other: a base has its own packages")
        check_host(args.base)
        os.environ.setdefault("SOURCE_DATE_EPOCH", str(_date()))
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
        print("images: interrupted; the images that were built before are kept", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", nargs="*", default=list(IMAGES), metavar="IMAGE", help=f"of {', '.join(IMAGES)}")
    parser.add_argument(
        "--base", default="", help="base image of both stages (default: Debian from this host's mirror)"
    )
    parser.add_argument("--definition", action="store_true", help="print the definitions instead of building")
    add_options(parser)
    parser.add_argument(
        "-o", "--output", type=Path, default=HERE, help="folder for the images (default: containers/)"
    )
    return parser


def check_host(base: str) -> None:
    """Raise CannotBuild with all that this host lacks for a build, and where to get it."""
    wanted = {
        "apptainer": "Apptainer (packages of it: github.com/apptainer/apptainer/releases; Debian 12 has none)",
        "mksquashfs": "squashfs-tools",
        "newuidmap": "uidmap",
        **({} if base else {"mmdebstrap": "mmdebstrap"}),
    }
    lacking = [text for program, text in wanted.items() if shutil.which(program) is None]
    if not any(line.split(":")[0] in {getpass.getuser(), str(os.getuid())} for line in _lines("/etc/subuid")):
        lacking.append(f"a range of user ids (usermod --add-subuids 1000000-1065535 {getpass.getuser()})")
    if lacking:
        raise CannotBuild(f"this host lacks {', '.join(lacking)}")


def _lines(file: str) -> list[str]:
    return Path(file).read_text(encoding="utf-8").splitlines() if Path(file).exists() else []


def _date() -> int:
    """Return the date of the last commit in seconds since 1970: no file in an image is newer."""
    with contextlib.suppress(CannotBuild, OSError):
        return int(call("git", "-C", ROOT, "log", "-1", "--format=%ct"))
    return 315532800  # 1980, before which archives have no dates


@contextmanager
def alone(start: float) -> Iterator[None]:
    """Hold the lock of STORE, which all builds share, and remove the leftovers of killed builds."""
    STORE.mkdir(parents=True, exist_ok=True)
    message = "another build is running in this checkout: waiting for its end"
    with file_lock.lock_file(STORE, on_wait=lambda: say(message, start)):
        for left in STORE.glob("making-*"):
            shutil.rmtree(left, ignore_errors=True)
        atomic_files.clear(STORE)
        yield


def _checked(name: str) -> str:
    """Return the name of an image; raises CannotBuild for other names."""
    if name not in IMAGES:
        raise CannotBuild(f"there is no image '{name}': there are {', '.join(IMAGES)}")
    return name


def build(name: str, output: Path, programs: Programs, *, base: str, start: float) -> Path:
    """Build one image and return its file; raises CannotBuild."""
    _checked(name)
    output.mkdir(parents=True, exist_ok=True)
    packages = programs.debian(name)
    origin = build_info.copied_origin(ROOT, programs.target)
    build_image = _build_image(origin, programs, base, start)
    run_base = base or str(_root(packages, programs.snapshot, start))
    say(f"{name}: building the run image on {run_base}", start)
    image = output / f"{name}.sif"
    with (
        tempfile.TemporaryDirectory(dir=STORE, prefix="making-") as folder,
        atomic_files.replace(image) as partial,
    ):
        arguments = {
            **_based(run_base),
            "build": str(build_image),
            "checkout": str(ROOT),
            "packages": " ".join(packages),
            "version": origin.version,
            "interface": str(origin.interface),
            "revision": origin.revision or "unknown",
            "machine": origin.machine,
            "target": origin.target,
            "profile": programs.label,
            "spack_lock": programs.locked(build_image, name),
            "programs": " ".join(programs.expected(name)),
        }
        file = Path(folder) / f"{name}.def"
        file.write_text(definition(name), encoding="utf-8")
        sandbox = Path(folder) / "image"
        _apptainer(file, sandbox, arguments, Path(folder), "--sandbox")
        # Apptainer's copy of the definition has paths of this host.
        (sandbox / ".singularity.d" / "Singularity").write_text(definition(name), encoding="utf-8")
        _assemble(sandbox, partial, int(os.environ["SOURCE_DATE_EPOCH"]))
    _describe(image, origin.version, start)
    return image


def _build_image(origin: build_info.Origin, programs: Programs, base: str, start: float) -> Path:
    """Return the folder of the build image for this state of the checkout, programs, base and target."""
    packages = programs.build()
    state = (origin, digest(), programs, base, packages)
    key = hashlib.sha256(repr(state).encode()).hexdigest()[:16]
    kind = f"build-{programs.profile}-{programs.target}"
    image = STORE / f"{kind}-{key}"
    if image.is_dir():
        say(f"reusing the build image {image.name}", start)
        return image
    wheels = _wheels(start, programs.mirror)
    build_base = base or str(_root(packages, programs.snapshot, start))
    software = f"firsttouch {origin.version} {origin.revision} for {origin.target}"
    say(f"building the build image on {build_base}: {software}", start)
    with tempfile.TemporaryDirectory(dir=STORE, prefix="making-") as folder:
        checkout = Path(folder) / "checkout"
        _copy(checkout, wheels)
        (checkout / "REVISION").write_text(origin.revision + "\n", encoding="utf-8")
        arguments = {
            **_based(build_base),
            "checkout": str(checkout),
            "packages": " ".join(packages),
            "target": origin.target,
            "profile": programs.profile,
            "images": " ".join(programs.all()),
        }
        options = ("--sandbox", *programs.binds(STORE))
        _apptainer(HERE / "build.def", Path(folder) / "image", arguments, Path(folder), *options)
        (Path(folder) / "image").rename(image)
    for old in STORE.glob(f"{kind}-*"):
        if old != image:
            shutil.rmtree(old, ignore_errors=True)
    return image


def _root(packages: Sequence[str], snapshot: str, start: float) -> Path:
    suite = PACKAGES["debian"]["suite"]
    lines = apt_sources(suite, PACKAGES["debian"]["components"], snapshot)
    return root(STORE, lines, suite, packages, lambda text: say(text, start))


def _based(base: str) -> dict[str, str]:
    """Return the build arguments for a base: AGENT://NAME, or a file or folder."""
    agent, separator, name = base.partition("://")
    return {"bootstrap": agent, "base": name} if separator else {"bootstrap": "localimage", "base": base}


def _wheels(start: float, mirror: Path | None) -> Path:
    """Return the folder of the Python packages of an image: the mirror's, or one that pip fills."""
    if mirror is not None and (mirror / "wheels").is_dir():
        return mirror / "wheels"
    lock = ROOT / "setup" / "requirements.lock"
    key = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    folder = STORE / f"wheels-{platform.machine()}-{key}"
    if not folder.is_dir():
        try:
            with atomic_files.replace(folder) as partial:
                sources.fill_wheels(ROOT, partial, None, say=lambda text: say(text, start))
        except sources.Wrong as error:
            raise CannotBuild(str(error)) from error
    return folder / "wheels"


def _files() -> Iterator[Path]:
    """Yield the files of the checkout that an image is built from, without what was generated or downloaded."""
    for place in (*PARTS, *FILES):
        for file in sorted((ROOT / place).rglob("*")) if (ROOT / place).is_dir() else [ROOT / place]:
            left_out = any(file.match(pattern) for pattern in GENERATED) or "__pycache__" in file.parts
            if file.is_file() and not left_out and not file.is_relative_to(ROOT / "datasets" / "store"):
                yield file


def digest() -> str:
    """Return the SHA-256 of the names and contents of the files that an image is built from."""
    total = hashlib.sha256()
    for file in _files():
        total.update(f"{file.relative_to(ROOT)}\0{atomic_files.digest(file)}\0".encode())
    return total.hexdigest()


def _copy(checkout: Path, wheels: Path) -> None:
    """Copy the parts of the checkout that an image is built from."""
    for file in _files():
        copied = checkout / file.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copied)
    shutil.copytree(wheels, checkout / "wheels")


def _apptainer(definition: Path, image: Path, arguments: dict[str, str], scratch: Path, *options: str) -> None:
    """Build *image* and run its %test. Raises CannotBuild with the last lines of the build's log."""
    build_args = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    log = STORE / f"{definition.stem}.log"
    # The probe of this host, which FIRSTTOUCH_PROBE may name, is not in the image.
    env = {name: value for name, value in os.environ.items() if name != "FIRSTTOUCH_PROBE"}
    env |= {"APPTAINER_TMPDIR": str(scratch), "APPTAINER_CACHEDIR": str(STORE / "apptainer")}
    argv = ["apptainer", "build", "--fakeroot", *options, *build_args, str(image), str(definition)]
    # An interrupted Apptainer does not end the processes of its %post.
    with log.open("wb") as out, host_lock.no_process_left():
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise CannotBuild(f"{definition.name} cannot be built ({log}): {' | '.join(lines[-3:])}")


def _assemble(sandbox: Path, image: Path, date: int) -> None:
    """Write the image of a *sandbox*, in which no date is later than *date*: the same files give the same bytes.

    ``apptainer build`` states the time of the build in a label and in the image's header, and draws an identifier.
    """
    labels = sandbox / ".singularity.d" / "labels.json"
    stated = json.loads(labels.read_text(encoding="utf-8"))
    of_build = ("org.label-schema.build-date", "org.label-schema.usage.singularity.deffile.from")
    kept = {key: value for key, value in stated.items() if key not in of_build}
    labels.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    files = sandbox.with_name("files.squashfs")
    compression = shlex.split(os.environ.get("APPTAINER_MKSQUASHFS_ARGS", ""))
    call("mksquashfs", sandbox, files, "-noappend", "-no-progress", "-quiet", "-all-root", *compression)
    facts = sandbox.with_name("inspect-metadata.json")
    facts.write_text(json.dumps(_facts(sandbox), sort_keys=True), encoding="utf-8")
    machine = {"x86_64": "2", "aarch64": "4"}[platform.machine()]
    part = ("--datatype", "4", "--parttype", "2", "--partfs", "1", "--partarch", machine)
    image.unlink(missing_ok=True)
    call("apptainer", "sif", "new", image)
    for options, file in ((("--datatype", "6", "--filename", facts.name), facts), (part, files)):
        call("apptainer", "sif", "add", *options, "--groupid", "1", "--alignment", "4096", image, file)
    with image.open("r+b") as sif:
        _state(sif, bytes.fromhex(atomic_files.digest(files))[:16], date)


def _facts(sandbox: Path) -> dict[str, Any]:
    """Return what ``apptainer inspect`` shows of an image without starting it."""

    def read(folder: Path, **names: str) -> dict[str, str]:
        files = {key: folder / name for key, name in names.items()}
        return {key: file.read_text(encoding="utf-8") for key, file in files.items() if file.is_file()}

    metadata = sandbox / ".singularity.d"
    scripts = {"runscript": "runscript", "helpfile": "runscript.help"}
    apps = {folder.parent.name: read(folder, **scripts) for folder in sorted(sandbox.glob("scif/apps/*/scif"))}
    facts = {
        **read(metadata, test="test", startscript="startscript", deffile="Singularity", **scripts),
        "labels": json.loads((metadata / "labels.json").read_text(encoding="utf-8")),
        "environment": {f"/{f.relative_to(sandbox)}": f.read_text() for f in sorted(metadata.glob("env/9*.sh"))},
        "apps": apps,
    }
    return {"data": {"attributes": facts}, "type": "container"}


def _state(file: BinaryIO, identifier: bytes, date: int) -> None:
    """State the identifier and the dates in the header of a SIF, version 01, and in its two descriptors."""
    times = struct.pack("<2q", date, date)
    header = file.read(128)
    (descriptors,) = struct.unpack_from("<q", header, 96)
    for place, value in ((48, identifier), (64, times), (descriptors + 41, times), (descriptors + 626, times)):
        file.seek(place)
        file.write(value)


def _describe(image: Path, version: str, start: float) -> None:
    """Write the checksum and the list of packages next to the image."""
    sha256 = atomic_files.digest(image)
    # Root without capabilities can only start an image without privileges.
    options = ["--no-privs"] if os.geteuid() == 0 else []
    listing = call("apptainer", "--silent", "exec", *options, "--cleanenv", image, "/bin/sh", "-c", sbom.LISTING)
    packages = sbom.packages(listing)
    date = int(os.environ["SOURCE_DATE_EPOCH"])
    sbom.write(image.with_name(f"{image.name}.spdx.json"), sbom.document(image, sha256, packages, version, date))
    image.with_name(f"{image.name}.sha256").write_text(f"{sha256}  {image.name}\n", encoding="ascii")
    say(
        f"{image}: {image.stat().st_size / 1e6:.0f} MB, {sbom.kinds(packages)} packages, sha256 {sha256[:16]}…",
        start,
    )


def say(text: str, start: float) -> None:
    """Print a progress message with the seconds since *start*."""
    print(f"images: [{time.monotonic() - start:4.0f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
