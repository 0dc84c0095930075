# SPDX-License-Identifier: Apache-2.0
"""How commands end: the errors, each with its exit status, and the signals that stop a command."""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

#: Control characters and Unicode's line separators, which a terminal would obey.
_CONTROLS = r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"
#: Commands in the log of a CI job: :: at the beginning of a line (also of a wrapped one), and ##[ anywhere.
_CI_COMMANDS = r"(?<!\S):(?=:)|#(?=#(?:vso)?\[)"
#: The beginning of the message of a CannotHere; checks search for it.
CANNOT_HERE = "firsttouch: cannot be done here: "
#: Python's message if a thread cannot be started, and the user's remedy.
NO_THREAD, MORE_THREADS = (
    "can't start new thread",
    "raise the limit of memory (ulimit -v) or of processes (ulimit -u)",
)
#: The kernel's errors for a limit of this user, and the user's remedy.
_LIMITS = {errno.EMFILE: "raise the limit of open files (ulimit -n)", errno.EAGAIN: MORE_THREADS}
#: The signals that stop a command and all programs that it started. Batch systems send the last three.
STOPPING = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU),
)
#: The exit status for a suspect host, or a placement that could not be verified.
SUSPECT = 4
#: The most names that a question suggests.
_SUGGESTED = 4


def one_line(text: str) -> str:
    r"""Return *text* as one line, with control characters and CI commands escaped (a newline is \\n)."""
    if not text.isprintable():
        text = re.sub(_CONTROLS, lambda control: control[0].encode("unicode_escape").decode(), text)
    return without_commands(text)


def os_reason(error: OSError) -> str:
    """Return the kernel's text for an error, with the limit that this user can raise."""
    words = error.strerror or str(error)
    return f"{words}: {_LIMITS[error.errno]}" if error.errno in _LIMITS else words


def first_of(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Join *texts*; those beyond the first *most* are only counted: ``a, b and 3 more``."""
    ending = f" and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + ending


def without_commands(text: str) -> str:
    """Return *text* with the commands escaped that a CI service would execute from the output of a job."""
    if "::" not in text and "##" not in text:
        return text
    return re.sub(_CI_COMMANDS, lambda sign: f"\\x{ord(sign[0]):02x}", text)


def none_such(what: str, name: str, names: Iterable[str]) -> str:
    """Return the message for an unknown *name* of a *what* (such as "aligner"), with the known *names*."""
    names = list(names)
    return f"no {what} '{name}': there are {', '.join(names) or 'none'}{did_you_mean(name, names)}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return "did you mean" and the *names* that begin with *name*, or else the most similar one, or ""."""
    import difflib  # noqa: PLC0415 - only after an error

    by_case = {other.lower(): other for other in names}
    near = [other for other in by_case if name and other.startswith(name.lower())]
    if not 0 < len(near) <= _SUGGESTED:
        near = difflib.get_close_matches(name.lower(), by_case, 1)
    *others, last = [f"'{by_case[other]}'" for other in near] or [""]
    return f"; did you mean {' or '.join([*filter(None, [', '.join(others)]), last])}?" if near else ""


class FirstTouchError(Exception):
    """An error that a person can act on: its text is one line that names the error and the fix."""

    exit_status = 2


class BadInput(FirstTouchError):
    """Bad input or usage (exit 2)."""

    def __init__(self, reason: str, *, file: str | Path | None = None, line: int | None = None) -> None:
        """Create the error; *file* and *line* (1-based) locate the wrong input."""
        where = "" if file is None else f"{file}:{line}: " if line is not None else f"{file}: "
        super().__init__(where + reason)
        self.reason = reason
        self.file = file
        self.line = line


class Missing(FirstTouchError):
    """A program or file that is needed does not exist on this host (exit 3)."""

    exit_status = 3


class CannotHere(FirstTouchError):
    """The host lacks a capability, but nothing is broken; a check that needs it is skipped (exit 3)."""

    exit_status = 3


class RunFailed(FirstTouchError):
    """A program failed, was killed or printed something unexpected (exit 1)."""

    exit_status = 1


class ProgramFailed(RunFailed):
    """A program ended with an error; *status* is its exit status (negative: the signal)."""

    def __init__(self, reason: str, status: int) -> None:
        """Create the error; the status is as in subprocess."""
        super().__init__(reason)
        self.status = status


class TimedOut(RunFailed):
    """A program did not end within its time limit (exit 1)."""
