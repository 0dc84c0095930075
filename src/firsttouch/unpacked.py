# SPDX-License-Identifier: Apache-2.0
"""Image files on a host that cannot mount them: unpacked once per user and host, not at every start."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from firsttouch import beside


def folder(image: Path, program: str) -> Path | None:
    """Return a folder with what the SIF file *image* holds, which Apptainer (*program*) starts like the file.

    It lies in the host's temporary folder, is this user's alone, and is made again where the file is another. None
    where it cannot be made (no room, another user's folder of that name): each start unpacks the image then.
    """
    try:
        store = _store()
        status = image.stat()
        name = hashlib.sha256(str(image.resolve()).encode()).hexdigest()[:12]
        made = store / f"{name}-{status.st_size}-{status.st_mtime_ns}"
        # The instances of a job start at once: one unpacks, the others wait. One lock for all images, as what a
        # killed process left of any of them is cleared.
        with (store / "images.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.is_dir():
                for old in store.glob(f"{name}-*"):
                    shutil.rmtree(old, ignore_errors=True)
                beside.clear(store)
                _unpack(program, image, made)
    except OSError:
        return None
    return made


def _store() -> Path:
    store = Path(tempfile.gettempdir(), f"firsttouch-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        store.mkdir(mode=0o700)
    # Others may write to the temporary folder: what they put there must not be started.
    status = store.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{store} is not this user's alone")
    return store


def _unpack(program: str, image: Path, made: Path) -> None:
    with beside.replacing(made) as partial:
        done = subprocess.run(
            [program, "--silent", "build", "--sandbox", str(partial), str(image)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise OSError(done.stderr.decode(errors="replace"))
