# SPDX-License-Identifier: Apache-2.0
"""Reads small files of the kernel below /proc and /sys. Unreadable files give an empty text or None."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

#: Placeholders of firmware that mean nothing.
UNSTATED = frozenset({"", "Not Specified", "To Be Filled By O.E.M.", "Default string", "None"})


def text(file: Path, errors: str = "strict") -> str:
    """Return the text of *file* without white space at its ends, "" if it cannot be read.

    *errors* is as in :meth:`bytes.decode`: with ``replace``, a text with bytes that are not UTF-8 can be read.
    """
    try:
        return file.read_text(encoding="utf-8", errors=errors).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def number(file: Path) -> float | None:
    """Return the whole number in *file*, None if it cannot be read or has none."""
    content = text(file)
    return float(content) if content.isdecimal() else None


def bracketed_word(file: Path) -> str:
    """Return the word in brackets of a file such as ``always [madvise] never``, "" if it has none."""
    match = re.search(r"\[([^\]]+)\]", text(file))
    return match[1] if match else ""


def processor_values(field: str, root: Path = Path("/")) -> Iterator[str]:
    """Yield the value of a *field* of /proc/cpuinfo, such as ``flags``, of each PU that states it."""
    for line in text(root / "proc/cpuinfo", errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == field:
            yield value.strip()


def by_number(folder: Path, prefix: str) -> list[Path]:
    """Return the entries of *folder* whose names are *prefix* and a number, by that number."""
    try:
        names = [entry for entry in folder.iterdir() if entry.name.startswith(prefix)]
    except OSError:
        return []
    entries = [entry for entry in names if entry.name[len(prefix) :].isdecimal()]
    return sorted(entries, key=lambda entry: int(entry.name[len(prefix) :]))
