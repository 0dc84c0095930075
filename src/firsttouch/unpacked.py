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
import time
from pathlib import Path

from firsttouch import beside

#: Seconds after its last start in which the folder of an image is kept, whether or not the image is still there.
_KEPT = 7 * 24 * 3600


def folder(image: Path, program: str) -> Path | None:
    """Return a folder with what the SIF file *image* holds, which Apptainer (*program*) starts like the file.

    It lies in the host's temporary folder and is this user's alone; another state of the file gets another folder.
    This process, and the program that it becomes, hold a shared lock on it. Folders that nobody has started for a
    week are removed. None where it cannot be made (no room, another user's folder of that name): then each start
    unpacks the image.
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
            _prune(store, kept=made)
            if not made.is_dir():
                beside.clear(store)
                _unpack(program, image, made)
            os.utime(made)
            handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(handle, fcntl.LOCK_SH)
            os.set_inheritable(handle, True)  # for the program that this process becomes
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


def _prune(store: Path, *, kept: Path) -> None:
    """Remove the folders in *store* that nobody holds and that were not started lately; *kept* stays."""
    for folder in store.iterdir():
        if folder == kept or not folder.is_dir() or time.time() - folder.stat().st_mtime < _KEPT:
            continue
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


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
