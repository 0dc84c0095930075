# SPDX-License-Identifier: Apache-2.0
"""Where the checkout keeps systems, tables and results, and what the environment changes about it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from firsttouch.errors import BadInput

#: The checkout that this package is installed from (``pip install -e``).
ROOT = Path(__file__).resolve().parents[2]
#: The system files that come with firsttouch, and those drafted for this host.
SYSTEMS = ROOT / "reframe" / "systems"
#: ReFrame's configuration file.
SETTINGS = ROOT / "reframe" / "settings.py"
#: The published tables.
TABLES = ROOT / "reports" / "published"

#: The name under which any host can be used.
LOCAL = "local"
#: What ReFrame takes as the name of a system or a partition.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


def systems() -> tuple[Path, ...]:
    """Return the folders of system files, first match first: those in FIRSTTOUCH_SYSTEMS, then ours.

    FIRSTTOUCH_SYSTEMS holds folders with colons between them; one that does not exist raises BadInput.
    """
    extra = [Path(f) for f in os.environ.get("FIRSTTOUCH_SYSTEMS", "").split(":") if f]
    for folder in extra:
        if not folder.is_dir():
            raise BadInput("FIRSTTOUCH_SYSTEMS names it, but there is no such folder", file=folder)
    return (*extra, SYSTEMS)


def results() -> Path:
    """Return the folder below which ReFrame writes: reports/out/ of the checkout, or FIRSTTOUCH_OUT."""
    return Path(os.environ.get("FIRSTTOUCH_OUT") or ROOT / "reports" / "out").absolute()
