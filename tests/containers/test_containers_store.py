# SPDX-License-Identifier: Apache-2.0
"""The cache of image builds, .cache/images: complete entries only, and one build at a time. Nothing is built."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from conftest import CONTAINERS
from factories.processes import captured, load_script
from firsttouch import paths
from firsttouch.execution import build_info
from firsttouch.records import atomic_files


@pytest.fixture
def images(tmp_path, monkeypatch):
    """The module that builds images, with a cache for the test."""
    loaded = load_script("images", CONTAINERS)
    monkeypatch.setattr(loaded, "STORE", tmp_path / "store")
    return loaded


def test_wheels_that_were_not_all_downloaded_are_not_kept(images, monkeypatch):
    def download(*words):
        Path(words[-1], "a.whl").touch()
        raise images.sources.Wrong("no network")

    with images.alone(0):
        monkeypatch.setattr(images.sources, "_pip", download)
        with pytest.raises(images.CannotBuild, match="no network"):
            images._wheels(0, None)
        assert not list(images.STORE.iterdir())
        monkeypatch.setattr(images.sources, "_pip", lambda *words: Path(words[-1], "a.whl").touch())
        assert [file.name for file in images._wheels(0, None).iterdir()] == ["a.whl"]


def test_the_wheels_of_a_mirror_are_used(images, tmp_path):
    (tmp_path / "wheels").mkdir()
    assert images._wheels(0, tmp_path) == tmp_path / "wheels"


def test_only_what_an_image_needs_is_downloaded(images):
    needed = images.sources.needed("firsttouch", images.sources.EXTRAS)
    assert {"numpy", "polars", "reframe-hpc", "clingo", "hatchling"} <= needed
    assert not {"sphinx", "pytest", "mypy"} & needed


def test_a_lock_is_read_for_the_python_of_the_image(images):
    hashes = " \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n"
    older, newer = "b==2 ; python_full_version < '3.11.5'", "b==4 ; python_full_version >= '3.11.5'"
    lock = "".join(entry + hashes for entry in ("a[x]==1", older, newer, "c==1 ; sys_platform == 'win32'", "d==1"))
    read, only = images.sources.locked_for, {"a", "b", "c"}
    assert read("3.11", lock, only) == f"a[x]==1{hashes}b==2{hashes}"
    assert read("3.12", lock, only) == f"a[x]==1{hashes}b==4{hashes}"


def test_the_same_files_give_the_same_image(apptainer, images, tmp_path, monkeypatch):
    """Whenever and wherever they were built."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("first", "second"):
        folder = tmp_path / name / "image" / ".singularity.d"
        folder.mkdir(parents=True)
        labels = {"org.label-schema.build-date": name, "org.firsttouch.interface": "1"}
        (folder / "labels.json").write_text(json.dumps(labels))
        images._assemble(tmp_path / name / "image", tmp_path / f"{name}.sif", 1700000000)
    first, second = (tmp_path / f"{name}.sif" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    listed = captured([apptainer, "sif", "list", first], timeout=60).stdout
    assert "FS (Squashfs/*System/" in listed
    shown = captured([apptainer, "inspect", first], timeout=60).stdout
    assert "org.firsttouch.interface: 1" in shown
    assert "build-date" not in shown


def test_builds_wait_for_each_other_and_clear_what_a_killed_one_left(images):
    images.STORE.mkdir()
    (images.STORE / "making-abc" / "image").mkdir(parents=True)
    with atomic_files.scratch(images.STORE / "root") as partial:
        partial.mkdir()
        with images.alone(0):
            assert not list(images.STORE.iterdir())
            other = os.open(images.STORE, os.O_RDONLY | os.O_DIRECTORY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


def test_a_build_image_of_another_target_stays(images, monkeypatch):
    monkeypatch.setattr(images, "_wheels", lambda *_: paths.ROOT)
    monkeypatch.setattr(images, "_root", lambda *_: paths.ROOT)
    monkeypatch.setattr(images, "_copy", lambda checkout, _: checkout.mkdir())
    monkeypatch.setattr(images, "_apptainer", lambda _definition, image, *_: image.mkdir())

    def build(target, revision):
        copy = build_info.Origin("1", revision, "x86_64", target)
        return images._build_image(copy, images.Programs("none", target), "", 0)

    with images.alone(0):
        older, other, newer = build("x86_64", "1"), build("x86_64_v3", "1"), build("x86_64", "2")
        assert set(images.STORE.iterdir()) == {other, newer}
        assert older not in {other, newer}
