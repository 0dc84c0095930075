# SPDX-License-Identifier: Apache-2.0
"""Where the measured programs come from: this host (native), an Apptainer image, or a view that Spack made.

Whatever the backend, firsttouch itself runs beside the programs (it is in the image and in the view), so that
placements are verified where they are made, and nothing around the container is in what it times.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firsttouch import paths
from firsttouch.errors import BadInput, CannotHere, Missing
from firsttouch.execution import build_info
from firsttouch.execution.build_info import Origin

NATIVE = "native"
NAMES = (NATIVE, "apptainer", "spack")
#: Tells records which backend they were measured with.
VARIABLE = "FIRSTTOUCH_BACKEND"


@dataclass(frozen=True)
class Start:
    """How a command is started: the whole argv and the environment of the process."""

    argv: Sequence[str]
    env: Mapping[str, str]


def checked(name: str) -> str:
    """Return *name*; raises BadInput where it names no backend."""
    if name not in NAMES:
        raise BadInput(f"there is no backend '{name}': there are {', '.join(NAMES)}")
    return name


def command(name: str, image: str = "") -> list[str]:
    """Return the argv before firsttouch's arguments: itself, and where it is to run."""
    firsttouch = [str(Path(sys.executable).with_name("firsttouch"))]
    if checked(name) == NATIVE:
        return firsttouch
    return [*firsttouch, "inside", *(["--image", image] if image else []), name, "--"]


def prepared(name: str, image: str, argv: Sequence[str]) -> Start:
    """Return how ``firsttouch ARGV`` is started with a backend, *image* being its file or folder (or empty).

    All that can be wrong with this site is looked at first: raises BadInput, Missing or CannotHere with it.
    """
    if checked(name) == NATIVE:
        return Start([*command(NATIVE), *argv], dict(os.environ))
    start: Start = importlib.import_module(f"firsttouch.execution.{name}").prepared(image, argv)
    return start


def variables() -> dict[str, str]:
    """Return what a command inside is told of this checkout: its datasets, systems and results."""
    kept = {k: v for k, v in os.environ.items() if k.startswith("FIRSTTOUCH_")}
    # Programs of this host are not the image's.
    kept.pop("FIRSTTOUCH_PROBE", None)
    kept.setdefault("FIRSTTOUCH_DATASETS", str(paths.ROOT / "datasets"))
    kept["FIRSTTOUCH_SYSTEMS"] = ":".join(map(str, paths.systems()))
    kept["FIRSTTOUCH_OUT"] = str(paths.results())
    return kept


def check_origin(found: Origin, what: str) -> None:
    """Raise CannotHere or Missing where the copy *what* (of origin *found*) must not be measured with here.

    It is for another architecture, or with instructions that this host's processor does not have: its programs
    would die of an illegal instruction, and late (CannotHere). Or it is made of another state of firsttouch than
    this checkout: one of this state is missing.
    """
    machine = os.uname().machine
    if found.machine != machine:
        raise CannotHere(f"{what} is for {found.machine}, and this host is {machine}")
    from archspec import cpu  # type: ignore[import-untyped]  # noqa: PLC0415 - its import reads all targets

    here = cpu.host()
    if found.target not in cpu.TARGETS:
        raise CannotHere(f"{what} is for '{found.target}', which is no target that archspec knows")
    wanted = cpu.TARGETS[found.target]
    if not here >= wanted:
        lacking = ", ".join(sorted(wanted.features - here.features)[:4]) or "its instructions"
        raise CannotHere(f"{what} is for {found.target}, and this host ({here.name}) lacks {lacking}")
    if found.source != build_info.digest(paths.ROOT):
        made = f"revision {found.revision}" if found.revision else f"version {found.version}"
        raise Missing(f"{what} is stale: it is of {made}, and the checkout has changed since; build it again")
