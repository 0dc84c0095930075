# SPDX-License-Identifier: Apache-2.0
"""A real Apptainer, a real image of this checkout, and a function that runs firsttouch in it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from factories import caches
from factories.processes import captured, load_script
from firsttouch import paths
from firsttouch.execution import build_info

CONTAINERS = paths.ROOT / "containers"
#: The image of the tests; firsttouch, its probe and aligners in it cover all features of a backend.
IMAGE = "aligners"
#: Images of tests are compressed by zstd at its lowest level: a quarter of the time of gzip, and the same size.
os.environ.setdefault("APPTAINER_MKSQUASHFS_ARGS", "-comp zstd -Xcompression-level 1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give this folder's tests a time limit that includes the build of the image."""
    for item in items:
        if item.nodeid.startswith("tests/containers/") and "image" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def image(apptainer: str) -> Path:
    """An image of this checkout with Debian's packages, built unless the cache has one of the same state."""
    origin = build_info.copied_origin(paths.ROOT, os.uname().machine)
    state = f"{origin.version} {load_script('images', CONTAINERS).digest()}"
    output = caches.folder("images") / f"tested-{hashlib.sha256(state.encode()).hexdigest()[:16]}"
    if (output / "complete").exists():
        return output / f"{IMAGE}.sif"
    done = captured(
        [sys.executable, CONTAINERS / "images.py", IMAGE, "-o", output], stdin=subprocess.DEVNULL, timeout=900
    )
    if done.returncode == 3 and "mmdebstrap" in done.stderr:
        pytest.skip(f"CONTAINERS ARE NOT TESTED: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (output / "complete").touch()
    return output / f"{IMAGE}.sif"


@pytest.fixture
def inside(image: Path, firsttouch, lambda_part):
    """Returns a function that runs a command of firsttouch in the image, with a part of the dataset ``lambda``."""

    def run(*argv, timeout=240, **environment):
        given = {**lambda_part, **environment}
        return firsttouch("inside", "--image", image, "apptainer", "--", *argv, timeout=timeout, **given)

    return run


@pytest.fixture(scope="session")
def in_image(apptainer: str, image: Path):
    """Returns a function that runs a shell command in the image, without firsttouch."""
    options = ["--no-privs"] if os.geteuid() == 0 else []

    def run(script: str) -> str:
        argv = [apptainer, "--silent", "exec", *options, "--cleanenv", image, "/bin/sh", "-c", script]
        done = captured(argv, stdin=subprocess.DEVNULL, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
