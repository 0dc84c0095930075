# SPDX-License-Identifier: Apache-2.0
"""How a measuring command ended, in a file that the command writes for the campaign which started it.

An exit status cannot tell a defect that was measured from a failed measurement, and a command that is killed after
it has written records leaves no statement.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

#: The environment variable that names the file.
VARIABLE = "FIRSTTOUCH_OUTCOME"
#: ``found``: records prove a defect of the host, such as a slow core. ``invalid``: a record is not valid.
#: ``skipped``: this host cannot do the step.
Word = Literal["measured", "found", "invalid", "skipped", "failed"]
#: The exit status of a command with each outcome; a command that failed may have any.
_STATUS: Mapping[str, int] = {"measured": 0, "found": 1, "invalid": 1, "skipped": 3}


class StepOutcome(Struct, frozen=True):
    """The outcome of a step, with the reason if it is not ``measured``."""

    word: Word
    reason: str = ""


def state(word: Word, reason: str = "") -> None:
    """Write the outcome of this command, if a campaign has started it.

    Without a file, as on a full disk, the campaign takes the step as failed.
    """
    if file := os.environ.get(VARIABLE):
        with contextlib.suppress(OSError):
            Path(file).write_bytes(msgspec.json.encode(StepOutcome(word, reason)))


def read(file: Path, status: int, *, has_records: bool, last_words: str) -> StepOutcome:
    """Return the outcome in *file* of a command that ended with *status*.

    The step has failed if the command made no statement, ended in another way than stated, or has no records. The
    reason is then *last_words* if it stated none.
    """
    stated = StepOutcome("failed")
    with contextlib.suppress(OSError, ValueError):
        stated = msgspec.json.decode(file.read_bytes(), type=StepOutcome)
    is_kept = stated.word in _STATUS and status == _STATUS[stated.word]
    if is_kept and has_records != (stated.word == "skipped"):
        return stated
    return StepOutcome("failed", f"status {status}: {stated.reason or last_words or 'it printed nothing'}")
