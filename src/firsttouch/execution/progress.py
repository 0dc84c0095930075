# SPDX-License-Identifier: Apache-2.0
"""Messages for people while something long is under way."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from firsttouch.errors import one_line

#: Names the file to which messages are copied: ReFrame keeps those of its jobs until they have ended.
FOLLOWER = "FIRSTTOUCH_PROGRESS"


def say(text: str) -> None:
    """Print a message on standard error, and to who follows a run that ReFrame started."""
    text = one_line(text)
    print(text, file=sys.stderr, flush=True)
    if follower := os.environ.get(FOLLOWER):
        with contextlib.suppress(OSError), Path(follower).open("a", encoding="utf-8") as out:
            out.write(text + "\n")
