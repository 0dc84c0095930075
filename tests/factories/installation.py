# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with wheels, whose dependencies are those of the environment of the tests."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

PIP = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")


def virtual_environment(folder: Path, *wheels: Path) -> Path:
    """Create an environment with *wheels* in *folder* and return it."""
    venv.create(folder, symlinks=True, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = folder / "bin" / "python"
    argv = [*PIP, "--python", python, "install", "--no-index", "--no-deps", "--force-reinstall", *wheels]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # A script that starts with another interpreter would import another copy.
    text = Path(sys.executable).with_name("reframe").read_text().split("\n", 1)[1]
    (folder / "bin" / "reframe").write_text(f"#!{python}\n{text}")
    (folder / "bin" / "reframe").chmod(0o755)
    return folder
