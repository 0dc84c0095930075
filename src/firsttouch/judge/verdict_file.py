# SPDX-License-Identifier: Apache-2.0
"""The last verdict of a host in a file for shells: one line, ``WORD TIME HOST SYSTEM TEXT``.

TIME is in seconds since 1970. TEXT has no quotes or other characters that a shell interprets.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from firsttouch import paths
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records import atomic_files

#: The most characters of TEXT.
_LONGEST = 400


def folder() -> Path:
    """Return the folder of the last verdicts, one file per host: FIRSTTOUCH_VERDICTS, or one below the results."""
    return Path(os.environ.get("FIRSTTOUCH_VERDICTS") or paths.results() / "verdicts").absolute()


def shell_safe(text: str) -> str:
    """Return *text* with an underscore in place of each character that a shell may interpret."""
    return re.sub(r"[^A-Za-z0-9 .,:;%/()=+_-]", "_", text)


def line(verdict: HostVerdict, measured: float | None = None) -> str:
    """Return the file's line without its newline; *measured* is the time of the measurement (default: now)."""
    stated = int(time.time() if measured is None else measured)
    text = shell_safe(verdict.outcome())[:_LONGEST]
    host, system = (shell_safe(name).replace(" ", "_") for name in (verdict.host, verdict.system))
    return f"{verdict.verdict} {stated} {host} {system} {text}"


def write(verdict: HostVerdict, measured: float, *files: Path) -> None:
    """Write the verdict of a measurement at the time *measured* to each of *files* without a later one."""
    for file in files:
        if _stated(file) <= int(measured):
            file.parent.mkdir(parents=True, exist_ok=True)
            # Whatever stands there is replaced: to write into a FIFO would block.
            with atomic_files.replacing(file) as partial:
                partial.write_text(line(verdict, measured) + "\n", encoding="utf-8")


def _stated(file: Path) -> int:
    """Return the time of the verdict in a file; 0 if there is none, or if it is damaged or in the future."""
    if not file.is_file():
        return 0
    try:
        stated = int(file.read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return stated if stated <= time.time() else 0
