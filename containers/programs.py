# SPDX-License-Identifier: Apache-2.0
"""Where an image's programs come from: Debian's packages, or Spack by a profile of spack-env/."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from debian import CannotBuild

from firsttouch.records import atomic_files

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "spack-env"))

import stack  # noqa: E402  (a folder that is no package)
from sources import Wrong  # noqa: E402

PACKAGES = tomllib.loads((HERE / "packages.toml").read_text(encoding="utf-8"))
IMAGES = tuple(PACKAGES["images"])
#: Where the build image sees what is handed in.
_SPACK, _RECIPES, _MIRROR = "/mnt/spack", "/mnt/recipes", "/mnt/mirror"
#: And where Spack builds: packages hold this path, so that it is the same in a run image.
_BUILT = "/opt/spack"


@dataclass(frozen=True)
class Programs:
    """The programs of images: *profile* of spack-env/ (none: Debian's), *target* by archspec's name.

    *spack*, *recipes* and *mirror* are folders (None: not needed); *only* names packages of Spack, empty: all.
    """

    profile: str
    target: str
    spack: Path | None = None
    recipes: Path | None = None
    mirror: Path | None = None
    only: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The profile as images are labelled with it."""
        return "debian packages" if self.profile == "none" else f"spack {self.profile}"

    def debian(self, image: str) -> list[str]:
        """Return the packages of Debian that a run image has."""
        kinds = PACKAGES["images"][image] if self.profile == "none" else ["spack"]
        return [*PACKAGES["packages"]["base"], *(p for kind in kinds for p in PACKAGES["packages"][kind])]

    def build(self) -> list[str]:
        """Return the packages of Debian that the build image has."""
        kinds = ["build"] if self.profile == "none" else ["build", "spack-build"]
        return [p for kind in kinds for p in PACKAGES["packages"][kind]]

    def of(self, image: str) -> list[str]:
        """Return the packages of Spack that an image has."""
        if self.profile == "none":
            return []
        without = stack.left_out(self.target)
        every = [p for kind in PACKAGES["images"][image] for p in PACKAGES["spack"][kind] if p not in without]
        return [p for p in every if not self.only or p in self.only]

    def expected(self, image: str) -> list[str]:
        """Return the programs that an image must have."""
        if self.profile == "none":
            return [p for kind in PACKAGES["images"][image] for p in PACKAGES["programs"][kind]]
        return [program for p in self.of(image) for program in PACKAGES["spack-programs"].get(p, ())]

    def all(self) -> list[str]:
        """Return IMAGE=PACKAGE:… for each image, for spack.sh (to Apptainer a comma is the end of an argument)."""
        return [f"{image}={':'.join(self.of(image))}" for image in IMAGES]

    def binds(self, store: Path) -> list[str]:
        """Return Apptainer's options that show the build image what is handed in, and what was built before.

        That is kept in *store*: a change of firsttouch alone builds nothing again.
        """
        if self.profile == "none":
            return []
        given = ((self.spack, _SPACK), (self.recipes, _RECIPES), (self.mirror, _MIRROR))
        kept = store / f"spack-{self.profile}-{self.target}"
        kept.mkdir(parents=True, exist_ok=True)
        read = [f"--bind={folder}:{place}:ro" for folder, place in given if folder is not None]
        return [*read, f"--bind={kept}:{_BUILT}"]

    def locked(self, build_image: Path, image: str) -> str:
        """Return the SHA-256 of the spack.lock that an image's programs are of; ``none`` without Spack."""
        file = build_image / "opt/programs" / image / "spack.lock"
        return atomic_files.digest(file) if file.is_file() else "none"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose where programs come from."""
    parser.add_argument("--spack", choices=stack.PROFILES, help="programs built by Spack, with this profile")
    parser.add_argument("--mirror", type=Path, help="directory of sources, filled by spack-env/stack.py mirror")
    parser.add_argument("--only", type=stack.names, default=[], metavar="NAME,...", help="of Spack's packages")
    parser.add_argument("--target", help="instruction set, by archspec's name (default: any of this machine's)")


def chosen(args: argparse.Namespace) -> Programs:
    """Return what the command line chose; raises CannotBuild for what is missing or does not fit."""
    try:
        return _chosen(args)
    except Wrong as error:
        raise CannotBuild(str(error)) from error


def _chosen(args: argparse.Namespace) -> Programs:
    if args.spack is None:
        if args.mirror or args.only:
            raise CannotBuild("--mirror and --only are of Spack: give --spack PROFILE as well")
        target = args.target or platform.machine()
        stack.family(target)
        return Programs("none", target)
    stack.check_spack(args.spack)
    target = stack.target(argparse.Namespace(target=args.target, system=None))
    stack.family(target)
    known = {p for packages in PACKAGES["spack"].values() for p in packages}
    if unknown := set(args.only) - known:
        raise CannotBuild(f"no image has {', '.join(sorted(unknown))}: there are {', '.join(sorted(known))}")
    if args.spack != "online" and (args.mirror is None or not args.mirror.is_dir()):
        raise CannotBuild("without a network sources come from a mirror: --mirror DIR (spack-env/stack.py mirror)")
    given = (os.environ["SPACK_ROOT"], os.environ.get("SPACK_PACKAGES"), args.mirror)
    folders = [Path(folder).resolve() if folder else None for folder in given]
    for folder in folders:
        if folder is not None and set(",:") & set(str(folder)):
            raise CannotBuild(f"{folder}: Apptainer cannot bind a folder with a comma or a colon in its name")
    return Programs(args.spack, target, *folders, only=tuple(args.only))
