# SPDX-License-Identifier: Apache-2.0
"""Finds system files and loads them."""

from __future__ import annotations

from pathlib import Path

from firsttouch import folders
from firsttouch.errors import BadInput
from firsttouch.systems import document, draft, model
from firsttouch.systems.model import System


def available() -> dict[str, Path | None]:
    """Return the file of every system by name, ``local`` with None while no file describes this host.

    Raises BadInput where FIRSTTOUCH_SYSTEMS names no folder. The files are not read.
    """
    found: dict[str, Path | None] = {folders.LOCAL: None}
    for folder in reversed(folders.systems()):
        files = {f.stem: f for f in folder.glob("*.yaml") if folders.NAME.match(f.stem)}
        found.update(files)
    return dict(sorted(found.items()))


def load(name_or_path: str | Path) -> System:
    """Return a system by its name or from its file.

    ``local`` without a file of that name is drafted from this host (raises Missing without hwloc). Raises
    BadInput, with file and line, where the file is wrong, or where there is no such system.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith(".yaml"):
        return from_file(Path(name_or_path))
    found = available()
    if text not in found:
        raise BadInput(f"there is no system '{text}': there are {', '.join(found)}")
    file = found[text]
    return of_this_host() if file is None else from_file(file)


def from_file(file: Path) -> System:
    """Return the system that *file* describes; raises BadInput with the line where it is wrong."""
    return model.build(document.read(file), path=file)


def of_this_host() -> System:
    """Return ``local`` drafted from this host; raises Missing where hwloc is not installed."""
    text = draft.of_this_host(folders.LOCAL)
    return model.build(document.parse(text, Path("draft of this host")), path=None)
