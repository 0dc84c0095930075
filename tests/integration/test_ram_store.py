# SPDX-License-Identifier: Apache-2.0
"""RAM stores: real mounts in the namespace of a holder, copies, and the kernel's word on where their pages lie."""

import mmap
import os
import re
import subprocess
from pathlib import Path

import pytest

from factories import huge_pages
from firsttouch.errors import BadInput, CannotHere
from firsttouch.execution import ram_store
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
    empty, sparse = tmp_path / "empty", tmp_path / "sparse"
    empty.touch()
    with sparse.open("wb") as out:
        out.truncate(1 << 20)
    sources, steps = ram_store.sources_of([source, empty, sparse]), []
    with ram_store.hold([0], ram_store.needed_bytes(sources), even=even) as store:
        store.copy(sources, on_progress=steps.append)
        for file in (source, empty, sparse):
            assert (store.folder / file.name).read_bytes() == file.read_bytes()
        assert (store.folder / source.name).stat().st_mtime == 1e9
        assert steps[-1] == SIZE + 3 + (1 << 20)
        residence = store.verify()
        assert residence.pages == {0: SIZE // 4096 + 1 + 256}
        assert residence.reason == ""
        assert residence.huge_bytes == (4 << 20 if ram_store.has_huge_pages() else 0)
        assert store.verify([store.folder / source.name]).pages == {0: SIZE // 4096 + 1}
        assert store.alive()
    assert has_ended(store.pid)
    assert not store.folder.exists()


def test_a_copy_that_exceeds_the_limit_of_a_store_is_refused(source):
    with (
        ram_store.hold([0], 1 << 20, even=True) as store,
        pytest.raises(CannotHere, match=r"5 MiB .* 1 MiB"),
    ):
        store.copy(ram_store.sources_of([source]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_user_cannot_read_a_file_in_a_store(source):
    source.chmod(0o644)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with ram_store.hold([0], 16 << 20) as store:
        store.copy(ram_store.sources_of([source]))
        # By the path of other programs, and in the namespace of the holder.
        for words, enter in (
            (["cat", store.folder / source.name], []),
            (["ls", store.folder], []),
            (["cat", store.inside / source.name], store.prefix_argv()),
            (["ls", store.inside], store.prefix_argv()),
        ):
            assert subprocess.run([*enter, *words], capture_output=True, check=False).returncode == 0
            refused = subprocess.run([*enter, *as_nobody, *words], capture_output=True, text=True, check=False)
            assert (refused.returncode != 0, refused.stdout) == (True, "")
            assert "Permission denied" in refused.stderr


def test_a_program_enters_the_namespace_and_keeps_its_folder(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ram_store.hold([0], 16 << 20, private_shm=True) as store:
        store.copy(ram_store.sources_of([source]))
        script = 'pwd; wc -c <"$0"; echo word >/dev/shm/firsttouch-test'
        argv = [*store.prefix_argv(), "sh", "-c", script, str(store.inside / source.name)]
        ended = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert ended.stdout.split() == [str(tmp_path), str(SIZE + 3)]
        assert (store.folder.parent / "firsttouch-test").read_text() == "word\n"
        assert not Path("/dev/shm/firsttouch-test").exists()  # noqa: S108 - the host has none


def test_a_source_that_changes_is_not_served(source, tmp_path, monkeypatch):
    faults = {
        "grows": lambda: source.open("ab").write(b"more"),
        "shrinks": lambda: os.truncate(source, 100),
        "is written, with its old time": lambda: (source.open("r+b").write(b"x"), os.utime(source, (1e9, 1e9))),
        "is replaced": lambda: (tmp_path / "other").replace(source),
        "is removed": source.unlink,
    }
    copy_chunk = ram_store._copy_chunk
    with ram_store.hold([0], 64 << 20) as store:
        for change in faults.values():
            source.write_bytes(bytes(SIZE))
            os.utime(source, (1e9, 1e9))
            (tmp_path / "other").write_bytes(bytes(SIZE))
            monkeypatch.setattr(ram_store, "_copy_chunk", lambda *a, change=change: (change(), copy_chunk(*a))[1])
            with pytest.raises(BadInput, match=r"an index.bwt: .*changed"):
                store.copy(ram_store.sources_of([source]))
            (store.folder / source.name).unlink()


def test_a_write_by_a_mapping_after_the_copy_changes_the_identity(tmp_path):
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, check=True).stdout == b"tmpfs\n":
        pytest.skip("a tmpfs does not date writes by mappings")
    file = tmp_path / "mapped"
    file.write_bytes(bytes(8192))
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 8192) as mapping:
        mapping[0] = 1
        with ram_store.hold([0], 1 << 20) as store:
            store.copy(ram_store.sources_of([file]))
            identity = ram_store.identity_of(file.stat())
        mapping[1] = 1
        assert ram_store.identity_of(file.stat()) != identity


def test_what_cannot_be_copied(source, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in {
        "none": "cannot be copied: No such file or directory",
        "loop": "cannot be copied: Too many levels of symbolic links",
        "pipe": "not a regular file",
        ".": "not a regular file",
    }.items():
        with pytest.raises(BadInput, match=re.escape(f"{tmp_path / name}: {reason}")):
            ram_store.sources_of([source, tmp_path / name])


def test_what_does_not_fit_is_refused_with_the_arithmetic():
    with (
        pytest.raises(CannotHere, match=r"1 PiB|1024 TiB are needed, and NUMA node 0 has .* left"),
        ram_store.hold([0], 1 << 50),
    ):
        pass
    with pytest.raises(CannotHere, match=r"on NUMA node 0"), ram_store.hold([0], 1 << 50, even=True):
        pass
    with pytest.raises(CannotHere, match="NUMA node 900 "), ram_store.hold([900], 1):
        pass


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
