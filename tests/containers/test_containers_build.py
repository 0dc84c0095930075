# SPDX-License-Identifier: Apache-2.0
"""A build that is stopped: nothing of it runs on, nothing half-built is taken for an image."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import CONTAINERS
from firsttouch import paths
from firsttouch.execution.placement_check import family

STORE = paths.ROOT / ".cache" / "images"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_stopped_build_leaves_nothing(image: Path, tmp_path: Path, number: signal.Signals) -> None:
    """The build image is there (of the fixture): what is stopped is the run image's, of its base."""
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
    """What a process calls itself."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0] + Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""
