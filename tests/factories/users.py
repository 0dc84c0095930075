# SPDX-License-Identifier: Apache-2.0
"""A second user: programs that run as nobody, and folders that both users can enter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
    words = [str(word) for word in argv]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "FIRSTTOUCH_HOME": str(folder)}
    return subprocess.run(
        words,
        cwd=folder,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        user=user,
        group=OTHER,
        extra_groups=(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def firsttouch_as_other(
    *words: object, folder: Path, user: int = OTHER, **options: int
) -> subprocess.CompletedProcess[str]:
    """Run ``firsttouch`` as another user; skips the test if that user cannot read this checkout."""
    command = [sys.executable, "-m", "firsttouch"]
    if run_as_other(*command, "--version", folder=folder, user=user).returncode:
        pytest.skip("NOT TESTED: another user cannot read this checkout")
    return run_as_other(*command, *words, folder=folder, user=user, **options)
