# SPDX-License-Identifier: Apache-2.0
"""Atomic files: complete or absent, with the umask's mode, and without leftovers."""

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from firsttouch.cli import characterize
from firsttouch.records import atomic_files


def names(folder):
    """Return the names in a folder."""
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_mode_is_what_the_umask_says(tmp_path, umask):
    script = (
        "import os, sys; from pathlib import Path; from firsttouch.records import atomic_files;"
        "os.umask(int(sys.argv[2]));"
        "at = Path(sys.argv[1]); atomic_files.write(at / 'file', 'x')\n"
        "with atomic_files.replace(at / 'folder') as partial: partial.mkdir()"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path, str(umask)], check=True, timeout=60)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o4755])
def test_a_file_has_the_permissions_of_the_file_that_it_replaces(tmp_path, mode):
    place, link = tmp_path / "file", tmp_path / "link"
    place.touch()
    place.chmod(mode)
    link.symlink_to(place)
    atomic_files.write(link, "new")
    assert (place.read_text(), stat.S_IMODE(place.stat().st_mode)) == ("new", mode & 0o777)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("folder", [False, True])
def test_after_an_error_all_is_as_before(tmp_path, error, folder):
    place = tmp_path / "place"
    if not folder:
        place.write_text("old")

    def fail():
        with atomic_files.replace(place) as partial:
            if folder:
                (partial / "deep").mkdir(parents=True)
                (partial / "deep" / "file").write_text("half")
            else:
                partial.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert names(tmp_path) == ([] if folder else ["place"])
    assert folder or place.read_text() == "old"


def test_links_and_folders_take_their_place_at_once(tmp_path):
    link = tmp_path / "latest"
    for target in ("first", "second"):
        with atomic_files.replace(link) as partial:
            partial.symlink_to(target)
        assert str(link.readlink()) == target
    with atomic_files.replace(tmp_path / "made") as partial:
        partial.mkdir()
        (partial / "file").write_text("x")
    assert names(tmp_path) == ["latest", "made"]
    # An unused partial link is removed, its target stays.
    with atomic_files.scratch(tmp_path / "other") as partial:
        partial.symlink_to(tmp_path / "made")
    assert names(tmp_path) == ["latest", "made"]
    assert (tmp_path / "made" / "file").exists()


def test_a_reader_sees_the_old_text_or_the_new_one(tmp_path):
    place = tmp_path / "place"
    texts = {"a" * 200_000, "b" * 200_000}
    atomic_files.write(place, "a" * 200_000)
    stop = threading.Event()

    def write():
        while not stop.is_set():
            for text in texts:
                atomic_files.write(place, text)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    seen = {place.read_text() for _ in range(200)}
    stop.set()
    for writer in writers:
        writer.join()
    assert seen <= texts
    assert names(tmp_path) == ["place"]


def test_forced_content_is_on_disk_before_its_name_and_the_name_after_it(tmp_path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(handle):
        synced.append((Path(f"/proc/self/fd/{handle}").readlink(), (tmp_path / "file").exists()))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_files.replace(tmp_path / "file", force=True) as partial:
        partial.write_text("x")
    assert synced == [(partial, False), (tmp_path, True)]
    synced.clear()
    atomic_files.write(tmp_path / "file", "y")
    assert synced == []


def test_leftovers_of_a_killed_process_are_hidden_and_have_the_prefix(tmp_path):
    script = (
        "import os, signal, sys; from pathlib import Path; from firsttouch.records import atomic_files\n"
        "with atomic_files.replace(Path(sys.argv[1])) as partial:\n"
        "    partial.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "file.parquet"], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    (left,) = names(tmp_path)
    assert left.startswith(atomic_files.PREFIX)
    assert atomic_files.PREFIX.startswith(".")
    assert list(tmp_path.glob("*.parquet")) == []
    prefix = left.removesuffix("".join(left.rpartition("file.parquet")[1:]))
    (tmp_path / f"{prefix}folder" / "deep").mkdir(parents=True)
    (tmp_path / f"{prefix}link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("kept")
    atomic_files.clear(tmp_path)
    assert names(tmp_path) == ["file"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    target, link, dangling = tmp_path / "far" / "target", tmp_path / "link", tmp_path / "dangling"
    target.write_text("old")
    link.symlink_to("far/target")
    dangling.symlink_to("far/new")
    atomic_files.write(link, "new")
    atomic_files.write(dangling, "made")
    assert (link.is_symlink(), target.read_text(), (tmp_path / "far" / "new").read_text()) == (True, "new", "made")
    assert dangling.is_symlink()
    assert names(tmp_path / "far") == ["new", "target"]


def test_a_pipe_is_written_into(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    texts = []
    reader = threading.Thread(target=lambda: texts.append(pipe.read_text()))
    reader.start()
    atomic_files.write(pipe, "through")
    reader.join(120)
    assert texts == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == ["pipe"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
@pytest.mark.parametrize("appending", [False, True])
def test_what_is_open_is_written_into_where_it_is(tmp_path, name, appending):
    """A shell's `>> file` keeps the content of the file, and the output keeps its order."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    script = (
        "import sys; from pathlib import Path; from firsttouch.records import atomic_files;"
        "print('before');"
        "atomic_files.write(Path(sys.argv[1]), 'this\\n'); print('after')"
    )
    log = tmp_path / "log"
    log.write_text("old\n")
    with log.open("a" if appending else "w") as out:
        subprocess.run([sys.executable, "-c", script, name], cwd=tmp_path, stdout=out, check=True, timeout=60)
    assert log.read_text() == ("old\n" if appending else "") + "before\nthis\nafter\n"
    assert names(tmp_path) == ["link", "log"]


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from firsttouch.records import atomic_files\n"
        "with atomic_files.workspace(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'part').write_text('x'); print('made', flush=True); time.sleep(300)"
    )
    argv = [sys.executable, "-c", script, tmp_path]
    # Leftovers of another host that shares the file system, and a user's file.
    (tmp_path / ".firsttouch-other+abc").mkdir()
    (tmp_path / f".firsttouch-{os.uname().nodename}+file").write_text("")
    kept = names(tmp_path)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as alive:
        assert alive.stdout.readline() == "made\n"
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout.readline() == "made\n"
            killed.kill()
        assert len(names(tmp_path)) == len(kept) + 2
        with atomic_files.workspace(tmp_path) as folder:
            assert folder.is_dir()
            (left,) = set(names(tmp_path)) - {*kept, folder.name}
            assert (tmp_path / left / "part").exists()
        alive.terminate()
    assert names(tmp_path) == sorted([*kept, left])
    with atomic_files.workspace(tmp_path):
        pass
    assert names(tmp_path) == kept


def test_a_folder_in_the_place_of_the_link_to_the_newest_report_is_left_alone(tmp_path, capsys):
    (tmp_path / "latest").mkdir()
    characterize._point(tmp_path / "latest", "2026")
    assert (tmp_path / "latest").is_dir()
    assert not (tmp_path / "latest").is_symlink()
    assert "is left alone" in capsys.readouterr().err
    (tmp_path / "latest").rmdir()
    characterize._point(tmp_path / "latest", "2026")
    assert (tmp_path / "latest").readlink().name == "2026"
    assert capsys.readouterr().err == ""
