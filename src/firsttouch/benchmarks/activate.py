# SPDX-License-Identifier: Apache-2.0
"""``python -m firsttouch.benchmarks.activate``: lets ReFrame find settings.py in this virtual environment.

ReFrame looks for no configuration in the current folder. A .pth line, which Python runs at every start, sets
RFM_CONFIG_FILES where nobody else did; where the checkout was moved it does nothing.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from firsttouch import paths
from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.records import atomic_files


def pth_line(settings: Path) -> str:
    """Return the .pth line for the file *settings*; raises BadInput where it cannot be named.

    A path with a colon is two for ReFrame. ascii() keeps any other path on one line, whatever the locale.
    """
    if ":" in str(settings):
        raise BadInput("ReFrame reads a colon as the end of a path: move the checkout", file=settings)
    path = ascii(str(settings))
    return f'import os; os.path.isfile({path}) and os.environ.setdefault("RFM_CONFIG_FILES", {path})\n'


def activate(settings: Path = paths.SETTINGS, site_packages: Path | None = None) -> Path:
    """Write firsttouch_reframe.pth into *site_packages* (default: this environment's) and return its path.

    Raises BadInput outside a virtual environment, or where there is no *settings* file.
    """
    if site_packages is None:
        if sys.prefix == sys.base_prefix:
            raise BadInput("this Python is not in a virtual environment: activate .venv first")
        site_packages = Path(sysconfig.get_path("purelib"))
    if not settings.is_file():
        raise BadInput("there is no such file: install firsttouch from its checkout", file=settings)
    line = pth_line(settings)
    target = site_packages / "firsttouch_reframe.pth"
    # Another Python may start at any moment: it must see the whole line or none.
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
