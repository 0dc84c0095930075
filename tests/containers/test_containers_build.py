# SPDX-License-Identifier: Apache-2.0
"""An interrupted build leaves no process and no partial image."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import CONTAINERS
from factories import caches
from firsttouch.execution.placement_check import family

STORE = caches.folder("images")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_stopped_build_leaves_nothing(image: Path, tmp_path: Path, number: signal.Signals) -> None:
    """The fixture has built the build image; the test interrupts the build of the base of the run image."""
    before = set(STORE.iterdir())
    argv = [sys.executable, CONTAINERS / "images.py", "aligners", "-o", tmp_path]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, process_group=0) as build:
        deadline = time.monotonic() + 60
        while not (started := [p for p in family(build.pid) if "starter" in name(p) or "Apptainer" in name(p)]):
            assert build.poll() is None, build.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(build.pid, number)
        messages = build.communicate(timeout=60)[1]
    assert build.returncode == 130
    assert messages.splitlines()[-1].startswith("images: interrupted")
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)
    assert not list(tmp_path.iterdir())
    assert set(STORE.iterdir()) <= before | {STORE / "aligners.log"}
    assert image.is_file()


def name(pid: int) -> str:
    """Return the first argument and the command name of a process, or an empty string."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0] + Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""
