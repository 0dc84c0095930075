# SPDX-License-Identifier: Apache-2.0
"""Tarballs of other hosts' sys/ and proc/: nothing of them leaves the folder they are unpacked into."""

import io
import tarfile

import pytest

from firsttouch.host import topology


def member(name: str, link: str | None = None, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    if link is None:
        entry.size = 1
        return entry, b"x"
    entry.type, entry.linkname = kind, link
    return entry, b""


INSIDE = [member("sys/node0/cpulist"), member("sys/a/link", "../node0/cpulist"), member("sys/far", "node0")]


@pytest.mark.parametrize(
    "escape",
    [
        [member("../outside")],
        [member("sys/../../outside")],
        [member("sys/up", "../.."), member("sys/up/outside")],
        [member("up", ".."), member("up/outside")],
        [member("sys/here", ".."), member("sys/climb", "here/.."), member("sys/climb/outside")],
        [member("sys/here", ".."), member("sys/here/climb", "../.."), member("climb/outside")],
        [member("sys/climb", "later/.."), member("sys/later", "."), member("sys/climb/../outside")],
        [member("sys/hard", "../outside", tarfile.LNKTYPE)],
        [member("sys/pipe", "", tarfile.FIFOTYPE)],
    ],
    ids=lambda members: " ".join(m.name for m, _ in members),
)
def test_nothing_leaves_the_folder(tmp_path, monkeypatch, escape):
    (tmp_path / "around").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "around"))
    file = tmp_path / "root.tar"
    with tarfile.open(file, "w") as tarball:
        for entry, content in [*INSIDE, *escape]:
            tarball.addfile(entry, io.BytesIO(content))
    with topology.unpacked(file) as root:
        assert (root / "sys/a/link").read_text() == "x"
        assert (root / "sys/far/cpulist").read_text() == "x"
        assert [p.name for p in root.parent.iterdir()] == [root.name]
        assert all(p.resolve().is_relative_to(root) for p in root.rglob("*"))
        assert not any(p.is_fifo() for p in root.rglob("*"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["around", "root.tar"]
    assert list((tmp_path / "around").iterdir()) == []
