# SPDX-License-Identifier: Apache-2.0
"""Files of installed Debian packages."""

from __future__ import annotations

import subprocess
from pathlib import Path

from firsttouch.errors import Missing


def packaged(package: str, path: Path) -> Path:
    """Return *path*, a file of *package*; raises Missing with the command that brings it."""
    if path.is_file():
        return path
    if _installed(package):
        # Container images often tell dpkg to leave out /usr/share/doc, where examples are.
        raise Missing(
            f"{package} is installed without {path}, which dpkg was told to exclude: apt-get install --reinstall "
            f"-o DPkg::Options::=--path-include={path.parent}/* {package}"
        )
    raise Missing(f"{path} is not on this host: apt-get install {package}")


def _installed(package: str) -> bool:
    try:
        query = ["dpkg-query", "--show", "--showformat", "${db:Status-Status}", package]
        answer = subprocess.run(query, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False  # not a Debian host
    return answer.stdout == "installed"
