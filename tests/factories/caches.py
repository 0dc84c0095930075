# SPDX-License-Identifier: Apache-2.0
"""Caches of downloads, builds and installations of the tests: made once per run, or once for all checkouts.

The cache of all checkouts has a folder for each week, because Debian's packages in it become old. You can remove
it whenever no tests run: ``rm -r ~/.cache/firsttouch-tests``.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from firsttouch import paths
from firsttouch.records import atomic_files
from firsttouch.records.file_lock import lock_file, try_lock

#: Weeks after which the folder of a week is removed.
_KEPT = 2


def choose() -> None:
    """Set FIRSTTOUCH_CACHE to the folder of this week, unless it names one, as an absolute path."""
    os.environ["FIRSTTOUCH_CACHE"] = str(Path(os.environ.get("FIRSTTOUCH_CACHE") or _this_week()).absolute())


def _this_week() -> Path:
    """Return the folder of this week, created if need be, and remove old ones.

    It is below XDG_CACHE_HOME, or in the checkout if nothing can be written there.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = (named if named.is_absolute() else Path.home() / ".cache") / "firsttouch-tests"
    with contextlib.suppress(OSError):
        base.mkdir(parents=True, exist_ok=True)
    if not os.access(base, os.W_OK):
        base = paths.ROOT / ".cache" / "firsttouch-tests"
    today = datetime.datetime.now(datetime.UTC)
    weeks = [f"{today - datetime.timedelta(weeks=age):%G-W%V}" for age in range(_KEPT)]
    folder = base / weeks[0]
    folder.mkdir(parents=True, exist_ok=True)
    _lock_week(folder, shared=True)
    for old in base.glob("[0-9][0-9][0-9][0-9]-W[0-9][0-9]"):
        if old.name < weeks[-1] and _lock_week(old):
            shutil.rmtree(old, ignore_errors=True)
    return folder


def _lock_week(folder: Path, *, shared: bool = False) -> bool:
    """Lock the folder of a week until this process ends; return False if another process holds its lock.

    The clock of another checkout's run may differ by weeks.
    """
    access = os.O_RDONLY if shared else os.O_RDWR  # NFS grants an exclusive lock only on a file open for writing
    with contextlib.suppress(OSError):  # it is another user's, or its file system has no locks
        return try_lock(os.open(folder / "in-use", access | os.O_CREAT | os.O_CLOEXEC, 0o666), shared=shared)
    return False


def folder(kind: str) -> Path:
    """Return the folder for one *kind* of things in FIRSTTOUCH_CACHE (see choose), created."""
    path = Path(os.environ["FIRSTTOUCH_CACHE"]) / kind
    path.mkdir(parents=True, exist_ok=True)
    return path


def of_run(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a path that all workers of a run share."""
    base = factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name


def made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object], *, in_place: bool = False
) -> Path:
    """Return a path that the first worker of a run creates by calling *make* with it, for all workers.

    *in_place*: what is made contains its own path, so it cannot be made elsewhere and renamed.
    """
    path = of_run(factory, name)
    complete = path.with_name(f"{name}.complete")
    with lock_file(path.with_name(f"{name}.lock")):
        if not complete.exists():
            atomic_files.remove(path)
            if in_place:
                make(path)
            else:
                with atomic_files.replace(path) as partial:
                    make(partial)
            complete.touch()
    return path
