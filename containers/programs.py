# SPDX-License-Identifier: Apache-2.0
"""The source of an image's programs: Debian packages, or Spack with a profile of spack-env/."""

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

import sources  # noqa: E402  (a folder that is no package)
import stack  # noqa: E402

PACKAGES = tomllib.loads((HERE / "packages.toml").read_text(encoding="utf-8"))
IMAGES = tuple(PACKAGES["images"])
#: Paths of the bound folders inside the build image.
_SPACK, _RECIPES, _MIRROR = "/mnt/spack", "/mnt/recipes", "/mnt/mirror"
#: Spack's prefix. Packages contain this path, so it is the same in the build image and in the run images.
_BUILT = "/opt/spack"


@dataclass(frozen=True)
class Programs:
    """The programs of the images.

    *profile* is one of spack-env/, or none for Debian packages; *target* is archspec's name of the instruction
    set. *spack*, *recipes* and *mirror* are folders, or None if not needed. *only* limits the Spack packages.
    *snapshot* is the address of Debian's packages, or empty for the host's mirror.
    """

    profile: str
    target: str
    spack: Path | None = None
    recipes: Path | None = None
    mirror: Path | None = None
    only: tuple[str, ...] = ()
    snapshot: str = ""

    @property
    def label(self) -> str:
        """The profile as it appears in the labels of an image."""
        return "debian packages" if self.profile == "none" else f"spack {self.profile}"

    def debian(self, image: str) -> list[str]:
        """Return the Debian packages of a run image."""
        kinds = PACKAGES["images"][image] if self.profile == "none" else ["spack"]
        return [*PACKAGES["packages"]["base"], *(p for kind in kinds for p in PACKAGES["packages"][kind])]

    def build(self) -> list[str]:
        """Return the Debian packages of the build image."""
        kinds = ["build"] if self.profile == "none" else ["build", "spack-build"]
        return [p for kind in kinds for p in PACKAGES["packages"][kind]]

    def spack_packages(self, image: str) -> list[str]:
        """Return the Spack packages of an image."""
        if self.profile == "none":
            return []
        without = stack.left_out(self.target)
        packages = [p for kind in PACKAGES["images"][image] for p in PACKAGES["spack"][kind] if p not in without]
        return [p for p in packages if not self.only or p in self.only]

    def expected(self, image: str) -> list[str]:
        """Return the programs that must be in an image."""
        if self.profile == "none":
            return [p for kind in PACKAGES["images"][image] for p in PACKAGES["programs"][kind]]
        return [program for p in self.spack_packages(image) for program in PACKAGES["spack-programs"].get(p, ())]

    def all(self) -> list[str]:
        """Return IMAGE=PACKAGE:… for each image, for spack.sh: Apptainer ends build arguments at commas."""
        return [f"{image}={':'.join(self.spack_packages(image))}" for image in IMAGES]

    def binds(self, store: Path) -> list[str]:
        """Return Apptainer options that bind the given folders and the programs built so far into the build image.

        Built programs are kept in *store*, so a change to firsttouch alone does not rebuild them.
        """
        if self.profile == "none":
            return []
        given = ((self.spack, _SPACK), (self.recipes, _RECIPES), (self.mirror, _MIRROR))
        kept = store / f"spack-{self.profile}-{self.target}"
        kept.mkdir(parents=True, exist_ok=True)
        read = [f"--bind={folder}:{place}:ro" for folder, place in given if folder is not None]
        return [*read, f"--bind={kept}:{_BUILT}"]

    def locked(self, build_image: Path, image: str) -> str:
        """Return the SHA-256 of the spack.lock of an image's programs; ``none`` without Spack."""
        file = build_image / "opt/programs" / image / "spack.lock"
        return atomic_files.digest(file) if file.is_file() else "none"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the source of the programs."""
    parser.add_argument("--spack", choices=stack.PROFILES, help="build the programs with Spack and this profile")
    parser.add_argument("--mirror", type=Path, help="directory of sources, filled by spack-env/stack.py mirror")
    parser.add_argument(
        "--only", type=stack.names, default=[], metavar="NAME,...", help="limit the Spack packages"
    )
    parser.add_argument("--target", help="instruction set by archspec's name (default: generic)")
    parser.add_argument(
        "--snapshot",
        default="",
        metavar="URL",
        help="take Debian from here, such as …/debian/20260301T000000Z (default: this host's mirror)",
    )


def chosen(args: argparse.Namespace) -> Programs:
    """Return the programs that the command line chose; raises CannotBuild if options are missing or contradict."""
    try:
        return _chosen(args)
    except sources.Wrong as error:
        raise CannotBuild(str(error)) from error


def _chosen(args: argparse.Namespace) -> Programs:
    if args.spack is None:
        if args.mirror or args.only:
            raise CannotBuild("--mirror and --only are of Spack: give --spack PROFILE as well")
        target = args.target or platform.machine()
        stack.family(target)
        return Programs("none", target, snapshot=args.snapshot)
    stack.check_spack(args.spack)
    target = stack.target(argparse.Namespace(target=args.target, system=None))
    stack.family(target)
    available = {p for packages in PACKAGES["spack"].values() for p in packages}
    if unknown := set(args.only) - available:
        raise CannotBuild(f"no image has {', '.join(sorted(unknown))}: there are {', '.join(sorted(available))}")
    if args.spack != "online" and (args.mirror is None or not args.mirror.is_dir()):
        raise CannotBuild("without a network sources come from a mirror: --mirror DIR (spack-env/stack.py mirror)")
    given = (os.environ["SPACK_ROOT"], os.environ.get("SPACK_PACKAGES"), args.mirror)
    folders = [Path(folder).resolve() if folder else None for folder in given]
    for folder in folders:
        if folder is not None and set(",:") & set(str(folder)):
            raise CannotBuild(f"{folder}: Apptainer cannot bind a folder with a comma or a colon in its name")
    return Programs(args.spack, target, *folders, only=tuple(args.only), snapshot=args.snapshot)
