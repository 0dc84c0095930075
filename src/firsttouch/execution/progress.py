# SPDX-License-Identifier: Apache-2.0
"""Progress messages."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from firsttouch.errors import one_line

#: The environment variable that names a file for a copy of the messages: ReFrame shows a job's output at its end.
FOLLOWER = "FIRSTTOUCH_PROGRESS"


def say(text: str) -> None:
    """Print a message on standard error, and append it to the file that FOLLOWER names."""
    text = one_line(text)
    print(text, file=sys.stderr, flush=True)
    if follower := os.environ.get(FOLLOWER):
        with contextlib.suppress(OSError), Path(follower).open("a", encoding="utf-8") as out:
            out.write(text + "\n")
