# SPDX-License-Identifier: Apache-2.0
"""An image file on a host that cannot mount it is unpacked once, by the user who starts it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from factories.processes import write_program
from firsttouch.execution import apptainer
from firsttouch.execution import apptainer as unpacked

NOBODY = 65534
#: A slow stub that counts its calls in a file and "unpacks".
SCRIPT = """#!/bin/sh
echo called >> "$0.calls"
sleep 0.2
mkdir "$4" && cat "$5" > "$4/content" && mkdir "$4/locked" && chmod 0555 "$4/locked"
"""


@pytest.fixture
def program(tmp_path, monkeypatch) -> Path:
    """A stub of Apptainer, with a temporary folder for the test."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    script = tmp_path / "apptainer"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    return script


@pytest.fixture
def image_file(tmp_path) -> Path:
    """A stub of an image file."""
    file = tmp_path / "x.sif"
    file.write_text("one")
    return file


def calls(program: Path) -> int:
    return Path(f"{program}.calls").read_text().count("called")


def test_it_is_unpacked_once_whoever_asks_at_the_same_time(program, image_file):
    folders = []
    asking = [
        threading.Thread(target=lambda: folders.append(unpacked.sandbox_folder(image_file, str(program))))
        for _ in range(3)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len({*folders, unpacked.sandbox_folder(image_file, str(program))}) == 1
    assert calls(program) == 1
    assert (folders[0] / "content").read_text() == "one"
    assert folders[0].parent.stat().st_mode & 0o077 == 0


ASK = """\
import os, sys, tempfile
from pathlib import Path
from firsttouch.execution import apptainer as unpacked
tempfile.tempdir = sys.argv[1]
print(unpacked.sandbox_folder(Path(sys.argv[2]), sys.argv[3]), flush=True)
os.execvp("sleep", ["sleep", sys.argv[4]])
"""


@pytest.fixture
def ask(program, image_file):
    """Starts a process that takes the image's folder and then executes another program; returns both."""
    asking = []

    def start(seconds):
        argv = [sys.executable, "-c", ASK, tempfile.gettempdir(), str(image_file), str(program), str(seconds)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        asking.append(process)
        return Path(process.stdout.readline().strip()), process

    yield start
    for process in asking:
        process.kill()
        process.communicate()


def test_the_folder_of_an_older_image_goes_when_nobody_has_started_it_for_long(program, image_file, ask):
    def folder_of(text):
        image_file.write_text(text)
        return ask(0)

    first, process = folder_of("one")
    process.wait()
    second, process = folder_of("another")
    process.wait()
    assert (second / "content").read_text() == "another"
    assert first.is_dir()
    os.utime(first, (0, 0))
    folder_of("a third")
    assert not first.exists()
    assert second.is_dir()


def test_a_folder_that_a_program_runs_from_stays(image_file, ask):
    first, process = ask(60)
    os.utime(first, (0, 0))
    image_file.write_text("another")
    ask(0)
    assert first.is_dir()
    process.kill()
    process.wait()
    ask(0)
    assert not first.exists()


def test_what_others_may_write_to_is_never_started(program, image_file, tmp_path):
    store = tmp_path / "temporary" / f"firsttouch-{os.geteuid()}"
    store.mkdir()
    store.chmod(0o777)
    assert unpacked.sandbox_folder(image_file, str(program)) is None
    store.rmdir()
    (tmp_path / "elsewhere").mkdir()
    store.symlink_to(tmp_path / "elsewhere")
    assert unpacked.sandbox_folder(image_file, str(program)) is None
    assert not Path(f"{program}.calls").exists()


def test_what_cannot_be_unpacked_is_unpacked_at_each_start(program, image_file, tmp_path, monkeypatch):
    program.write_text('#!/bin/sh\nmkdir "$4"; echo no room >&2; exit 1\n')
    monkeypatch.setattr(apptainer, "fuse_trouble", lambda: "no /dev/fuse on this host")
    monkeypatch.setattr(apptainer, "setuid", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    (tmp_path / "temporary" / "firsttouch-1").mkdir(mode=0o700)
    os.chown(tmp_path / "temporary" / "firsttouch-1", 1, -1)
    assert apptainer._mountable(image_file, str(program)) == (image_file, ["--unsquash"])
    assert [f.suffix for f in (tmp_path / "temporary" / "firsttouch-1").iterdir()] == [".lock"]


@pytest.fixture
def somebody(monkeypatch):
    """A folder of a user without privileges, and the argv prefix that runs a command as this user."""
    if os.geteuid() != 0:
        folder, become = Path(tempfile.mkdtemp()), []
    else:
        # Not below pytest's folder, which only root may enter.
        folder, become = (
            Path(tempfile.mkdtemp()),
            ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"],
        )
        os.chown(folder, NOBODY, NOBODY)
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    if subprocess.run([*become, "unshare", "--user", "true"], capture_output=True, check=False).returncode:
        pytest.skip("UNPRIVILEGED CONTAINERS ARE NOT TESTED: no user namespaces for other users")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder, become
    shutil.rmtree(folder)


def test_a_real_image(apptainer, image, somebody):
    folder, become = somebody
    store = folder / f"firsttouch-{os.geteuid()}"
    store.mkdir(mode=0o700)
    os.chown(store, os.geteuid(), -1)
    program = folder / "apptainer"
    write_program(program, f'exec {" ".join(become)} env HOME={folder} {apptainer} "$@"')
    file = folder / image.name  # not in a home, which other users may not enter
    try:
        file.hardlink_to(image)
    except OSError:
        shutil.copy(image, file)
    sandbox = unpacked.sandbox_folder(file, str(program))
    assert sandbox is not None
    argv = [program, "--silent", "exec", "--cleanenv", sandbox, "firsttouch", "--version"]
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout[:10]) == (0, "firsttouch"), done.stderr
