# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, drawn with matplotlib: import this package only when a report is built."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def _writable(folder: Path) -> bool:
    """Return whether *folder*, or the nearest of its parents that exists, takes new files."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return folder.is_dir() and os.access(folder, os.W_OK)
    except PermissionError:  # a folder that may not even be looked into
        return False


def prepare_configuration() -> None:
    """Give matplotlib a temporary folder for its cache where the home folder cannot hold one.

    matplotlib would do so itself, but only with a warning among the messages of the command.
    """
    home = Path(os.environ.get("HOME") or "/nonexistent")
    folders = [
        Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config"),
        Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache"),
    ]
    if "MPLCONFIGDIR" in os.environ or all(_writable(f / "matplotlib") for f in folders):
        return
    temporary = tempfile.mkdtemp(prefix="firsttouch-matplotlib-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    os.environ["MPLCONFIGDIR"] = temporary


prepare_configuration()
