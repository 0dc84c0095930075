# SPDX-License-Identifier: Apache-2.0
"""The last verdict of a host in a file that a shell reads at once: ``WORD TIME HOST SYSTEM TEXT``, one line.

TIME is in seconds since 1970. TEXT holds neither quotes nor anything else that a shell would look at.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from firsttouch import paths
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records import atomic_files

#: A line for a health check, not a document.
_LONGEST = 400


def folder() -> Path:
    """Return where the last verdicts are: one file per host, below the results or in FIRSTTOUCH_VERDICTS."""
    return Path(os.environ.get("FIRSTTOUCH_VERDICTS") or paths.results() / "verdicts").absolute()


def line(found: HostVerdict, measured: float | None = None) -> str:
    """Return the file's line, without its end; *measured* is when (now)."""
    stated = int(time.time() if measured is None else measured)
    text = re.sub(r"[^A-Za-z0-9 .,:;%/()=+_-]", "_", found.line().split(": ", 1)[1])[:_LONGEST]
    return f"{found.verdict} {stated} {found.host} {found.system} {text}"


def write(found: HostVerdict, measured: float, *files: Path) -> None:
    """Write the verdict of what was *measured* then to each of *files* that has none of a later measurement."""
    for file in files:
        if _stated(file) <= int(measured):
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.write(file, line(found, measured) + "\n")


def _stated(file: Path) -> int:
    """Return the time of the verdict in a file; 0 for none, for damage and for a time to come."""
    try:
        stated = int(file.read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return stated if stated <= time.time() else 0
