# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, one module per kind; import them only where a report is built (matplotlib).

``figures(view)`` of a module takes the records of a host (:class:`firsttouch.report.model.HostView`) and returns
its figures, or the reason why there are none. ``drawing`` has what they share: style, bars, lines, heat maps.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def _writable(folder: Path) -> bool:
    """Return whether *folder*, or its nearest existing parent, is writable."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return folder.is_dir() and os.access(folder, os.W_OK)
    except PermissionError:  # a parent that may not be searched
        return False


def prepare_configuration() -> None:
    """Give matplotlib a temporary folder for its cache if the home folder is not writable.

    matplotlib does so itself, but prints a warning.
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
