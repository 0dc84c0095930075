# SPDX-License-Identifier: Apache-2.0
"""Files that several hosts want to write at once, and exactly one does: by link(2), which holds on NFS too."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from firsttouch import beside
from firsttouch.errors import Missing


def once(file: Path, content: Mapping[str, Any]) -> bool:
    """Write JSON to *file* where nobody did yet, whole or not at all; return whether it was us."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with beside.scratch(file) as partial:
        with partial.open("w", encoding="utf-8") as out:
            json.dump(content, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(partial)
            return True
    return False


def is_full(error: BaseException) -> bool:
    """Tell whether *error* says that there is no room left."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


@contextlib.contextmanager
def room(folder: Path) -> Iterator[None]:
    """Raise Missing, naming *folder*, where what is done meanwhile finds its file system full."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise Missing(f"{folder}: its file system is full; what was finished before is kept") from error
