# SPDX-License-Identifier: Apache-2.0
"""Backends, the sources of the measured programs: this host (native), an Apptainer image, or a Spack view.

The image and the view contain firsttouch, which runs next to the programs: placements are verified inside, and
container start-up is excluded from all timings.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from firsttouch import paths
from firsttouch.errors import BadInput, CannotHere, Missing, none_such
from firsttouch.execution import build_info
from firsttouch.execution.build_info import Origin

NATIVE = "native"
NAMES = (NATIVE, "apptainer", "spack")
#: The environment variable that names the backend of records.
VARIABLE = "FIRSTTOUCH_BACKEND"


class Start(Struct, frozen=True):
    """The argv and the environment that start a command."""

    argv: Sequence[str]
    env: Mapping[str, str]


def check_backend(name: str) -> str:
    """Return *name*; raises BadInput if it is not a backend."""
    if name not in NAMES:
        raise BadInput(none_such("backend", name, NAMES))
    return name


def command(name: str, image: str = "") -> list[str]:
    """Return the argv that runs firsttouch in a backend, without firsttouch's arguments."""
    firsttouch = [str(Path(sys.executable).with_name("firsttouch"))]
    if check_backend(name) == NATIVE:
        return firsttouch
    return [*firsttouch, "inside", *(["--image", image] if image else []), name, "--"]


def start_with(name: str, image: str, argv: Sequence[str]) -> Start:
    """Return how ``firsttouch ARGV`` is started with a backend.

    *image* is the backend's file or folder, empty for the default. Raises BadInput, Missing or CannotHere if the
    site does not meet the requirements.
    """
    if check_backend(name) == NATIVE:
        return Start([*command(NATIVE), *argv], dict(os.environ))
    if name == "spack":
        return _start_from_view(image, argv)
    from firsttouch.execution import apptainer  # noqa: PLC0415 - it imports this module

    return apptainer.start_command(image, argv)


def variables() -> dict[str, str]:
    """Return the FIRSTTOUCH_* variables for a command inside: the folders of datasets, systems and results."""
    kept = {k: v for k, v in os.environ.items() if k.startswith("FIRSTTOUCH_")}
    # The image and the view have their own probe.
    kept.pop("FIRSTTOUCH_PROBE", None)
    for kind in ("datasets", "systems"):
        kept[f"FIRSTTOUCH_{kind.upper()}"] = ":".join(map(str, paths.folders(kind)))
    kept["FIRSTTOUCH_OUT"] = str(paths.results())
    return kept


def check_origin(origin: Origin, what: str) -> None:
    """Raise CannotHere or Missing if the image or view *what* must not be used for measurements here.

    CannotHere: it was built for another architecture, or for instructions that this processor lacks (programs
    would fail late, with an illegal instruction). Missing: it has another measuring interface.
    """
    machine = os.uname().machine
    if origin.machine != machine:
        raise CannotHere(f"{what} is for {origin.machine}, and this host is {machine}")
    from archspec import cpu  # type: ignore[import-untyped]  # noqa: PLC0415 - its import reads all targets

    here = cpu.host()
    if origin.target not in cpu.TARGETS:
        raise CannotHere(f"{what} is for '{origin.target}', which archspec does not know")
    wanted = cpu.TARGETS[origin.target]
    if not here >= wanted:
        lacking = ", ".join(sorted(wanted.features - here.features)[:4]) or "its instructions"
        raise CannotHere(f"{what} is for {origin.target}, and this host ({here.name}) lacks {lacking}")
    if origin.interface != build_info.INTERFACE:
        built_from = f"revision {origin.revision}" if origin.revision else f"version {origin.version}"
        raise Missing(
            f"{what} has measuring interface {origin.interface}, and this firsttouch has {build_info.INTERFACE}: "
            f"it was built from {built_from}; build or pull another"
        )


# ----------------------------------------------------------------------
# The backend spack: commands run from the view of an environment that spack-env/stack.py installs


def _start_from_view(view: str, argv: Sequence[str]) -> Start:
    """Return how ``firsttouch ARGV`` is started from *view* (empty: FIRSTTOUCH_VIEW or .cache/spack's).

    Raises Missing if the view or one of its programs does not exist, BadInput if there are several views.
    """
    folder = _view(view or os.environ.get("FIRSTTOUCH_VIEW", ""))
    path = f"{folder / 'bin'}:{os.environ.get('PATH', '')}"
    # numactl may also be an external package of Spack, on this host.
    for program, place in (("firsttouch", str(folder / "bin")), ("numactl", path)):
        if shutil.which(program, path=place) is None:
            raise Missing(f"{folder} has no {program}: `spack-env/stack.py install` builds the whole environment")
    origin = build_info.read(folder / "share" / "firsttouch" / "origin.json")
    check_origin(origin, str(folder))
    env = {**os.environ, **variables()}
    env["PATH"] = path
    env[VARIABLE] = f"spack: {origin.target}, {origin.revision or origin.version}"
    # These variables are meant for this Python, not for the view's.
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "RFM_CONFIG_FILES"):
        env.pop(name, None)
    return Start([str(folder / "bin" / "firsttouch"), *argv], env)


def _view(named: str) -> Path:
    if named:
        folder = Path(named).absolute()
        if not folder.is_dir():
            raise Missing(f"{folder}: this view of Spack does not exist")
        return folder
    views = sorted((paths.cache() / "spack").glob("*/view"))
    if not views:
        raise Missing("no view of Spack in .cache/spack: `spack-env/stack.py install` makes one (FIRSTTOUCH_VIEW)")
    if len(views) > 1:
        raise BadInput(
            f"several views of Spack: {', '.join(map(str, views))}; choose one by --image or FIRSTTOUCH_VIEW"
        )
    return views[0]
