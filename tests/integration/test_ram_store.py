# SPDX-License-Identifier: Apache-2.0
"""RAM stores: real mounts in the namespace of a holder, copies, and the kernel's word on where their pages lie."""

import contextlib
import mmap
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from factories import huge_pages
from factories.processes import wait_until
from firsttouch.errors import BadInput, CannotHere, RunFailed
from firsttouch.execution import file_copies, ram_store, staging
from firsttouch.scenarios import evidence

SIZE = 5 << 20


@pytest.fixture
def source(tmp_path):
    """A file of more than two huge pages that ends within a page."""
    file = tmp_path / "an index.bwt"
    file.write_bytes(os.urandom(SIZE) + b"end")
    os.utime(file, (1e9, 1e9))
    return file


def has_ended(pid):
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("even", [False, True])
@huge_pages.needed()
def test_copies_lie_where_they_were_asked_for(tmp_path, source, even):
    (tmp_path / "genome").mkdir()
    (tmp_path / "genome/empty").touch()
    (tmp_path / "genome/hash").symlink_to(source)
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as out:
        out.truncate(1 << 20)
    files = [source, tmp_path / "genome", sparse]
    size, steps = ram_store.needed_bytes(file_copies.sources_of(files)), []
    with ram_store.hold([0], size, even=even) as store:
        store.copy(file_copies.sources_of(files), on_progress=steps.append)
        with pytest.raises(BadInput, match=r"an index.bwt: the RAM store has a file of this name already"):
            store.copy(file_copies.sources_of([source]))
        copies = [store.folder / file.name for file in files]
        assert copies[0].read_bytes() == (copies[1] / "hash").read_bytes() == source.read_bytes()
        assert (copies[1] / "empty").read_bytes() == b""
        assert copies[2].read_bytes() == sparse.read_bytes()
        assert copies[0].stat().st_mtime == 1e9
        assert steps[-1] == 2 * (SIZE + 3) + (1 << 20)
        residence = store.verify()
        assert residence.pages == {0: 2 * (SIZE // 4096 + 1) + 256}
        assert residence.reason == ""
        assert residence.huge_bytes == (8 << 20 if ram_store.has_huge_pages() else 0)
        assert store.verify([copies[0]]).pages == {0: SIZE // 4096 + 1}
        assert store.alive()
    assert has_ended(store.pid)
    assert not store.folder.exists()


def test_several_stores_have_one_holder_and_a_limit_each(source):
    spaces = [ram_store.Space((0,), SIZE + (1 << 20)), ram_store.Space((0,), 1 << 20, even=True)]
    with ram_store.hold_all(spaces) as (large, small):
        assert large.pid == small.pid
        assert large.copy(file_copies.sources_of([source]))[0].size == SIZE + 3
        with pytest.raises(CannotHere, match="5 MiB do not fit into the RAM store, which is limited to 1 MiB"):
            small.copy(file_copies.sources_of([source]))
        assert list(small.folder.iterdir()) == []


def test_a_program_enters_the_namespace_and_keeps_its_folder(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ram_store.hold([0], 16 << 20, private_shm=True) as store:
        store.copy(file_copies.sources_of([source]))
        script = 'pwd; wc -c <"$0"; echo word >/dev/shm/firsttouch-test'
        argv = [*store.entering(), "sh", "-c", script, str(store.inside / source.name)]
        ended = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert ended.stdout.split() == [str(tmp_path), str(SIZE + 3)]
        assert (store.folder.parent / "firsttouch-test").read_text() == "word\n"
        assert not Path("/dev/shm/firsttouch-test").exists()  # noqa: S108 - the host has none


def test_a_source_that_changes_is_not_served(source, tmp_path, monkeypatch):
    faults = {
        "grows": lambda: source.open("ab").write(b"more"),
        "shrinks": lambda: os.truncate(source, 100),
        "is written": lambda: source.open("r+b").write(b"x"),
        "is replaced": lambda: (tmp_path / "other").replace(source),
        "is removed": source.unlink,
    }
    copy_chunk = file_copies._copy_chunk
    with ram_store.hold([0], 64 << 20) as store:
        for change in faults.values():
            source.write_bytes(bytes(SIZE))
            (tmp_path / "other").write_bytes(bytes(SIZE))
            monkeypatch.setattr(
                file_copies, "_copy_chunk", lambda *a, change=change: (change(), copy_chunk(*a))[1]
            )
            with pytest.raises(BadInput, match=r"an index.bwt: it changed while it was copied"):
                store.copy(file_copies.sources_of([source]))
            assert list(store.folder.iterdir()) == []


def test_a_write_by_a_mapping_after_the_copy_changes_the_identity(tmp_path):
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, check=True).stdout == b"tmpfs\n":
        pytest.skip("a tmpfs does not date writes by mappings")
    file = tmp_path / "mapped"
    file.write_bytes(bytes(8192))
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 8192) as mapping:
        mapping[0] = 1
        with ram_store.hold([0], 1 << 20) as store:
            (identity,) = store.copy(file_copies.sources_of([file]))
        mapping[1] = 1
        assert file_copies.identity_of(file.stat()) != identity


def test_what_cannot_be_copied(source, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    other = tmp_path / "other" / source.name
    other.parent.mkdir()
    other.touch()
    for files, reason in (
        ([tmp_path / "none"], "none: cannot be copied: No such file or directory"),
        ([pipe], "pipe: not a regular file"),
        ([source, other], "has the same name"),
        ([Path("/proc/cpuinfo")], "cpuinfo: its size is not known before it is read"),
    ):
        with pytest.raises(BadInput, match=re.escape(reason)):
            file_copies.sources_of(files)


def test_what_does_not_fit_is_refused_with_the_arithmetic():
    with (
        pytest.raises(CannotHere, match=r"1 PiB|1024 TiB are needed, and NUMA node 0 has .* left"),
        ram_store.hold([0], 1 << 50),
    ):
        pass
    with (
        pytest.raises(CannotHere, match=r"in equal parts on NUMA node 0"),
        ram_store.hold([0], 1 << 50, even=True),
    ):
        pass
    with (
        pytest.raises(CannotHere, match="NUMA node 900 does not exist, has no memory"),
        ram_store.hold([900], 1),
    ):
        pass


def test_a_killed_holder_is_one_line_whatever_comes_next(source, tmp_path):
    sources = file_copies.sources_of([source])
    steps = (
        lambda store: store.copy(file_copies.sources_of([source])),
        lambda store: store.link(sources),
        lambda store: store.verify(),
        lambda store: store.verify([store.folder / source.name]),
        lambda store: staging.Copies(store, [], [], sources, ram_store.Residence(), 0.0).keep(60),
    )
    for step in steps:
        with contextlib.ExitStack() as stack:
            stack.enter_context(pytest.raises(RunFailed, match="the process that holds the RAM store was killed"))
            store = stack.enter_context(ram_store.hold([0], 16 << 20))
            os.kill(store.pid, signal.SIGKILL)
            wait_until(lambda store=store: not store.folder.exists(), "the end of the holder")
            step(store)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_killed_launcher(number, source):
    script = (
        "import sys; from pathlib import Path; from firsttouch.execution import file_copies, ram_store\n"
        "with ram_store.hold([0], 16 << 20) as store:\n"
        "    store.copy(file_copies.sources_of([Path(sys.argv[1])]))\n"
        "    print(store.pid, flush=True); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", script, source]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        holder = int(launcher.stdout.readline())
        launcher.send_signal(number)
        launcher.wait()
        wait_until(lambda: has_ended(holder), "the end of the holder")


@pytest.mark.parametrize(
    ("pages", "huge_page", "reason"),
    [
        ({0: 100_000, 1: 100_000}, 2 << 20, ""),
        ({0: 101_900, 1: 98_100}, 2 << 20, ""),
        ({0: 103_000, 1: 97_000}, 2 << 20, ""),
        ({0: 103_100, 1: 96_900}, 2 << 20, ": uneven by more than 2%"),
        ({0: 103_100, 1: 96_900}, 512 << 20, ""),
        ({0: 100_000, 1: 99_999, 2: 1}, 2 << 20, ": 1 of 200000 outside 0-1"),
        ({0: 100_000}, 2 << 20, "100000 of 200000 pages are not in memory"),
    ],
)
def test_where_pages_may_lie(monkeypatch, pages, huge_page, reason):
    monkeypatch.setattr(evidence, "huge_page", lambda: huge_page // 4096)
    space = ram_store.Space((0, 1), 1 << 30, even=True)
    message = ram_store._misplaced(space, pages, 200_000)
    assert reason in message
    assert bool(message) == bool(reason)
