# SPDX-License-Identifier: Apache-2.0
"""A second user: programs that run as nobody, and folders that both users can enter."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import firsttouch
from factories.processes import captured

#: The id of the other user and of the group.
OTHER = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@contextmanager
def shared_folder(mode: int = 0o755) -> Iterator[Path]:
    """Yield a folder of root with this *mode*, which others can enter: pytest's are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="firsttouch-users-", dir="/tmp"))
    try:
        folder.chmod(mode)
        yield folder
    finally:
        shutil.rmtree(folder)


def run_as_other(
    *argv: object, folder: Path, user: int = OTHER, **options: int
) -> subprocess.CompletedProcess[str]:
    """Run a program as another *user* in *folder*, in the group of :data:`OTHER`."""
    modules = [Path(firsttouch.__file__).parents[1], *(word for word in sys.path if "site-packages" in word)]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "FIRSTTOUCH_HOME": str(folder),
        "PYTHONPATH": ":".join(map(str, modules)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    options |= {"user": user, "group": OTHER, "extra_groups": (), "timeout": 120}
    return captured([str(word) for word in argv], cwd=folder, env=environment, **options)


@functools.cache
def _python() -> str:
    """Return a Python by which another user can run ``firsttouch``; skips the test without one."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        with contextlib.suppress(OSError), shared_folder(0o777) as folder:
            if run_as_other(python, "-m", "firsttouch", "--version", folder=folder).returncode == 0:
                return python
    pytest.skip("NOT TESTED: another user cannot read this checkout or run its Python")


def firsttouch_as_other(
    *words: object, folder: Path, user: int = OTHER, **options: int
) -> subprocess.CompletedProcess[str]:
    """Run ``firsttouch`` as another user."""
    return run_as_other(_python(), "-m", "firsttouch", *words, folder=folder, user=user, **options)
