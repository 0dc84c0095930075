# SPDX-License-Identifier: Apache-2.0
"""Progress on standard error: messages and, on a terminal, a live line below them; and the colours of verdicts."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from firsttouch.errors import one_line

#: The environment variable with a file for a copy of the messages, because ReFrame shows a job's output only at
#: its end.
FOLLOWER = "FIRSTTOUCH_PROGRESS"
_ERASE = "\r\x1b[K"
_COLOURS = {"pass": 32, "undecided": 90, "suspect": 33, "invalid": 35, "fail": 31}
_VERDICT = rf"(?m)^((?:- )?verdict \S+ )({'|'.join(_COLOURS)})\b"
#: The width of a table in a file, and the least width of a column that is narrowed.
_IN_FILES, _NARROWEST = 130, 8
_fill = partial(textwrap.fill, break_long_words=False, break_on_hyphens=False, placeholder=" ...")
#: The text of the live line ("" without one), and whether output is switched off.
_live, _quiet = "", False


def is_terminal(stream: TextIO) -> bool:
    """Return whether *stream* is a terminal with control sequences."""
    return stream.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


def write(text: str) -> None:
    """Print *text* on standard error; a log that cannot be written, as on a full disk, does not stop a run."""
    try:
        print(text, end="", file=sys.stderr, flush=True)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise


def say(text: str) -> None:
    """Print a message on standard error, and append it to the file that FOLLOWER names."""
    text = one_line(text)
    if not _quiet:
        write(f"{_ERASE if _live else ''}{text}\n{_live}")
    if follower := os.environ.get(FOLLOWER):
        with contextlib.suppress(OSError), Path(follower).open("a", encoding="utf-8") as out:
            out.write(text + "\n")


def live(text: str) -> None:
    """Replace the live line if standard error is a terminal; "" removes it."""
    global _live  # noqa: PLW0603 - a process has one standard error
    if _quiet or not is_terminal(sys.stderr):
        return
    _live = one_line(text)[: (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1]
    print(f"{_ERASE}{_live}", end="", file=sys.stderr, flush=True)


def quiet() -> None:
    """Switch off messages and the live line."""
    global _quiet  # noqa: PLW0603 - a process has one standard error
    _quiet = True


def columns() -> int | None:
    """Return the width of the terminal on standard output, None without a terminal."""
    return (os.get_terminal_size(sys.stdout.fileno()).columns or 80) if is_terminal(sys.stdout) else None


def wrap_text(text: str, indent: int, lines: int | None = None) -> str:
    """Return *text* wrapped at the terminal's width, in at most *lines*; further lines have an *indent*."""
    width = columns()
    return _fill(text, width, subsequent_indent=" " * indent, max_lines=lines) if width else text


def tabular(rows: Sequence[Sequence[object]], header: Sequence[str], form: str = "simple") -> str:
    """Return a table whose widest columns wrap so that it fits the terminal, or the default width of files."""
    from tabulate import tabulate  # noqa: PLC0415 - most commands have no table

    texts = [
        ["-" if c is None else f"{c:g}" if isinstance(c, float) else one_line(str(c)) for c in row] for row in rows
    ]
    align = ["right" if all(isinstance(c, (int, float)) for c in of) else "left" for of in zip(*rows, strict=True)]
    # tabulate makes a column at least two characters wider than its header.
    sizes = [max(map(len, (f"{head}  ", *column))) for head, *column in zip(header, *texts, strict=True)]
    room = (columns() or _IN_FILES) - 2 * (len(sizes) - 1)
    while sum(sizes) > room and max(sizes) > _NARROWEST:
        sizes[sizes.index(max(sizes))] -= 1
    heads = [size - 2 for size in sizes]
    for row in texts:  # indented, so that no part of a name looks like a verdict
        row[0] = textwrap.fill(row[0], sizes[0], subsequent_indent="  ")
    return tabulate(
        *(texts, header, form),
        disable_numparse=True,
        maxcolwidths=[None, *sizes[1:]],
        maxheadercolwidths=heads,
        colalign=align or None,
    )


def time_left(seconds: float) -> str:
    """Return an estimate in words, such as "about 12 min left"."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.0f} {unit} left"
    return f"about {seconds:.0f} s left"


class Steps:
    """Counts the steps of a long command and estimates the time left; at the end it removes the live line."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._left = 0
        self._began = time.monotonic()

    def begin(self, name: str, left: int) -> None:
        """Show that step *name* begins; *left* is the number of steps to do, including this one."""
        self._left, self._began = max(left, 1), time.monotonic()
        live(f"{len(self._seconds) + 1}/{len(self._seconds) + self._left}{self._time_left()}: {name}")

    def end(self) -> str:
        """End the step; return the count and the time left, as "3/37, about 12 min left"."""
        self._seconds.append(time.monotonic() - self._began)
        self._left -= 1
        live("")
        return f"{len(self._seconds)}/{len(self._seconds) + self._left}{self._time_left()}"

    def _time_left(self) -> str:
        if not (self._seconds and self._left):
            return ""
        return f", {time_left(sorted(self._seconds)[len(self._seconds) // 2] * self._left)}"  # by the median

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *_: object) -> None:
        live("")


def colour_verdicts(text: str) -> str:
    """Return *text* with coloured verdicts if standard output is a terminal and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR") or not is_terminal(sys.stdout):
        return text
    return re.sub(_VERDICT, lambda m: f"{m[1]}\x1b[{_COLOURS[m[2]]}m{m[2]}\x1b[0m", text)
