# SPDX-License-Identifier: Apache-2.0
"""An image file on a host that cannot mount it is unpacked by Apptainer at each start."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from factories.processes import write_program
from firsttouch.execution import apptainer as backend

NOBODY = 65534


def test_what_cannot_be_mounted_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "has_fuse", lambda: False)
    monkeypatch.setattr(backend, "setuid", lambda _program: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert backend._unpacking(tmp_path / "x.sif", "") == ["--unsquash"]
    assert backend._unpacking(tmp_path, "") == []


@pytest.fixture
def somebody(monkeypatch):
    """A folder of a user without privileges, and the argv prefix that runs a command as this user."""
    # Not below pytest's folder, which only root may enter.
    folder, become = Path(tempfile.mkdtemp()), []
    if os.geteuid() == 0:
        become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        os.chown(folder, NOBODY, NOBODY)
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    if subprocess.run([*become, "unshare", "--user", "true"], capture_output=True, check=False).returncode:
        pytest.skip("UNPRIVILEGED CONTAINERS ARE NOT TESTED: no user namespaces for other users")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder, become
    shutil.rmtree(folder)


def test_a_real_image(apptainer, image, somebody):
    folder, become = somebody
    program = folder / "apptainer"
    write_program(program, f'exec {" ".join(become)} env HOME={folder} TMPDIR={folder} {apptainer} "$@"')
    file = folder / image.name  # not in a home, which other users may not enter
    try:
        file.hardlink_to(image)
    except OSError:
        shutil.copy(image, file)
    argv = [program, "--silent", "exec", "--unsquash", "--cleanenv", file, "firsttouch", "--version"]
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout[:10]) == (0, "firsttouch"), done.stderr
