# SPDX-License-Identifier: Apache-2.0
"""Files and folders that appear whole or not at all: made beside their place, then renamed.

Names beside a place begin with :data:`PREFIX`, so that no reader takes them for results, and differ between
processes and between the hosts of a shared file system. What is made has the mode that the umask says.
"""

from __future__ import annotations

import errno
import glob
import os
import platform
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: How the name of what is not finished begins: what a killed process left may be found by it.
PREFIX = ".partial-"


@contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """Yield a free path beside *place*; what is still there in the end, a file or a folder, is removed."""
    # What is not finished has not the suffix either by which readers know their files.
    partial = place.with_name(f"{_mine()}{place.name}-{secrets.token_hex(4)}")
    try:
        yield partial
    finally:
        _remove(partial)


@contextmanager
def replacing(place: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a path beside *place* for a file, a link or a folder, which takes that place in the end.

    Nothing is replaced and nothing stays where the block raises an error. A folder takes the place of an empty
    one only. With *force* a file is on the disk, and so is its name, when the block has ended. Raises OSError
    where the place cannot be taken.
    """
    with scratch(place) as partial:
        yield partial
        if force:
            _force(partial)
        partial.replace(place)
    if force:
        _force(place.parent)


def write(place: Path, text: str) -> None:
    """Write *text* as UTF-8 to *place*, at once: a reader sees the old file or the new one."""
    with replacing(place) as partial:
        partial.write_text(text, encoding="utf-8")


def clear(folder: Path, *, all_hosts: bool = False) -> None:
    """Remove what killed processes of this host left in *folder* (with *all_hosts*: of any).

    Call it only where nobody of these writes there meanwhile.
    """
    for left in folder.glob(f"{glob.escape(PREFIX if all_hosts else _mine())}*"):
        _remove(left)


def _mine() -> str:
    # A plus sign is in no host's name: n1 is not taken for n1-2.
    return f"{PREFIX}{platform.node()}+"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _force(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing for folders
            raise
    finally:
        os.close(handle)
