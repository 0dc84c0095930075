# SPDX-License-Identifier: Apache-2.0
"""How commands end: the errors, each with its exit status, and the signals that stop a command."""

from __future__ import annotations

import re
import signal
from pathlib import Path

#: Control characters, and what Unicode takes for the end of a line: a terminal would obey them.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
#: How a message begins that tells of a CannotHere: checks look for it.
CANNOT_HERE = "firsttouch: cannot be done here: "
#: The signals that stop a command and all programs that it started.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: What the reason says after the name of an aligner that a host lacks.
NOT_INSTALLED = " is not installed: "


def one_line(text: str) -> str:
    r"""Return *text*, which may quote input, as one line: control characters are escaped (a newline is \\n)."""
    return _CONTROLS.sub(lambda control: control[0].encode("unicode_escape").decode(), text)


class FirstTouchError(Exception):
    """An error that a person can act on: its text is one line that names what is wrong and the fix."""

    exit_status = 2


class BadInput(FirstTouchError):
    """Bad input or usage (exit 2)."""

    def __init__(self, reason: str, *, file: str | Path | None = None, line: int | None = None) -> None:
        """Make the error; *file* and *line* (1-based) say where the input is wrong."""
        where = "" if file is None else f"{file}:{line}: " if line is not None else f"{file}: "
        super().__init__(where + reason)
        self.reason = reason
        self.file = file
        self.line = line


class Missing(FirstTouchError):
    """Something that is needed is not on this host (exit 3)."""

    exit_status = 3


class CannotHere(FirstTouchError):
    """What this host cannot do, though nothing is broken: a check that asked for it is skipped (exit 3)."""

    exit_status = 3


class RunFailed(FirstTouchError):
    """A program that was started failed, was killed or printed nonsense (exit 1)."""

    exit_status = 1


class TimedOut(RunFailed):
    """A program did not end within its time limit (exit 1)."""
