# SPDX-License-Identifier: Apache-2.0
"""What several suites share: the stored outputs, and stand-ins that break a program."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from firsttouch.datasets import fetch
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import aligner

# Of its own: nobody waits for the measurements of another suite on this machine.
LOCK = Path(tempfile.mkdtemp(prefix="firsttouch-lock-"))
LOCK.chmod(0o1777)
atexit.register(shutil.rmtree, LOCK, ignore_errors=True)
os.environ["FIRSTTOUCH_LOCK"] = str(LOCK)

STORED = Path(__file__).with_name("golden")


class BySuite(LoadScopeScheduling):
    """Keeps each suite in one process: it has one Slurm, one image, one machine of each kind."""

    def _split_scope(self, nodeid):
        return nodeid.split("/")[1]


def pytest_xdist_make_scheduler(config, log):
    """Give whole suites to the processes where `--dist loadscope` asks for scopes."""
    return BySuite(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def golden():
    """Returns a function that gives the text of a stored output."""

    def read(name):
        return (STORED / name).read_text(encoding="utf-8")

    return read


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Returns a function that puts a shell script before the real program of that name on PATH."""
    folder = tmp_path / "stand-ins"

    def make(name, script):
        folder.mkdir(exist_ok=True)
        file = folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        if not os.environ["PATH"].startswith(f"{folder}:"):
            monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return file

    return make


@pytest.fixture(scope="session")
def lambda_work(tmp_path_factory):
    """Returns the index prefix, the two read files and the reference of the dataset ``lambda``, with real bwa."""
    if shutil.which("bwa") is None or shutil.which("numactl") is None:
        pytest.skip("bwa and numactl are not both on PATH")
    with pytest.MonkeyPatch.context() as patch:
        store = tmp_path_factory.mktemp("data")
        patch.setenv("FIRSTTOUCH_DATA", str(store))
        data = fetch.get("lambda")
        prefix = aligners.built(aligner("bwa-mem"), data.reference, store / "index", say=lambda _: None)
    return prefix, tuple(data.reads), data.reference


@pytest.fixture(scope="session")
def firsttouch():
    """Returns a function that runs the installed command."""
    program = Path(sys.executable).with_name("firsttouch")

    def run(*argv, timeout=120, **environment):
        return subprocess.run(
            [program, *map(str, argv)],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
