# SPDX-License-Identifier: Apache-2.0
"""The folders of systems, tables and results, in the checkout or from the environment."""

from __future__ import annotations

import os
import re
from pathlib import Path

from firsttouch.errors import BadInput

#: The checkout that this package is installed from (``pip install -e``).
ROOT = Path(__file__).resolve().parents[2]
#: System files: those shipped with firsttouch, and drafts for this host.
SYSTEMS = ROOT / "reframe" / "systems"
#: ReFrame's configuration file.
SETTINGS = ROOT / "reframe" / "settings.py"
#: The published tables.
TABLES = ROOT / "reports" / "published"

#: The name under which any host can be used.
LOCAL = "local"
#: ReFrame's rule for names of systems and partitions.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


def systems() -> tuple[Path, ...]:
    """Return the folders of system files in search order: those in FIRSTTOUCH_SYSTEMS, then SYSTEMS.

    FIRSTTOUCH_SYSTEMS is a colon-separated list. Raises BadInput for a folder that does not exist.
    """
    extra = [Path(f) for f in os.environ.get("FIRSTTOUCH_SYSTEMS", "").split(":") if f]
    for folder in extra:
        if not folder.is_dir():
            raise BadInput("FIRSTTOUCH_SYSTEMS names it, but there is no such folder", file=folder)
    return (*extra, SYSTEMS)


def results() -> Path:
    """Return the folder that ReFrame writes to: FIRSTTOUCH_OUT, or reports/out/ of the checkout."""
    return Path(os.environ.get("FIRSTTOUCH_OUT") or ROOT / "reports" / "out").absolute()
