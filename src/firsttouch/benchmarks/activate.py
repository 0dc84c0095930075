# SPDX-License-Identifier: Apache-2.0
"""``python -m firsttouch.benchmarks.activate``: lets ReFrame find settings.py in this virtual environment.

ReFrame does not search the current folder for its configuration. Python runs each .pth line when it starts: ours
sets RFM_CONFIG_FILES unless the environment does. It has no effect after the checkout has been moved.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from firsttouch import paths
from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.records import atomic_files


def pth_line(settings: Path) -> str:
    """Return the .pth line for the file *settings*; raises BadInput if its path has a colon.

    ReFrame splits RFM_CONFIG_FILES at colons. ascii() keeps the path on one line in every locale.
    """
    if ":" in str(settings):
        raise BadInput("ReFrame reads a colon as the end of a path: move the checkout", file=settings)
    path = ascii(str(settings))
    return f'import os; os.path.isfile({path}) and os.environ.setdefault("RFM_CONFIG_FILES", {path})\n'


def activate(settings: Path = paths.SETTINGS, site_packages: Path | None = None) -> Path:
    """Write firsttouch_reframe.pth into *site_packages* (default: this environment's) and return its path.

    Raises BadInput outside a virtual environment or if the *settings* file does not exist.
    """
    if site_packages is None:
        if sys.prefix == sys.base_prefix:
            raise BadInput("this Python is not in a virtual environment: activate .venv first")
        site_packages = Path(sysconfig.get_path("purelib"))
    if not settings.is_file():
        raise BadInput("there is no such file: install firsttouch from its checkout", file=settings)
    line = pth_line(settings)
    target = site_packages / "firsttouch_reframe.pth"
    # Another Python may start at any moment and must see the complete line or none.
    atomic_files.write(target, line)
    return target


def main() -> int:
    """Write the line and print the file's path; return the exit status."""
    try:
        print(activate())
    except FirstTouchError as error:
        print(f"firsttouch: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
