# SPDX-License-Identifier: Apache-2.0
"""Faults of a site are reported in one line before any work. No test needs an image, and few need Apptainer."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from archspec import cpu
from msgspec.structs import asdict, replace

from firsttouch import paths
from firsttouch.errors import BadInput, CannotHere, Missing
from firsttouch.execution import apptainer, backends, build_info
from firsttouch.execution.build_info import Origin
from firsttouch.systems import draft
from firsttouch.systems.definition import load


@pytest.fixture
def here() -> Origin:
    """The origin of a correct copy."""
    return build_info.copied_origin(paths.ROOT, os.uname().machine)


def test_a_copy_of_this_checkout_fits(here):
    backends.check_origin(here, "image")
    backends.check_origin(replace(here, target=cpu.host().name), "image")


def test_newer_instructions_than_the_host_has_are_refused(here):
    newer = {"x86_64": "sapphirerapids", "aarch64": "neoverse_v2"}[os.uname().machine]
    if cpu.host() >= cpu.TARGETS[newer]:
        pytest.skip(f"this host has all features of {newer}")
    with pytest.raises(CannotHere, match=f"x.sif .*{newer}"):
        backends.check_origin(replace(here, target=newer), "x.sif")


def test_another_architecture_is_refused(here):
    with pytest.raises(CannotHere, match=r"x.sif .*riscv64"):
        backends.check_origin(replace(here, machine="riscv64"), "x.sif")


def test_a_copy_of_another_measuring_interface_is_refused(here):
    with pytest.raises(Missing, match=r"x.sif .*interface 0.* revision abc"):
        backends.check_origin(replace(here, interface=0, revision="abc"), "x.sif")


def test_a_copy_of_another_commit_fits(here):
    backends.check_origin(replace(here, revision="abc", version="0.9"), "x.sif")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": "1"}', "no JSON"])
def test_what_tells_no_origin_is_said(tmp_path, text):
    file = tmp_path / "origin.json"
    file.write_text(text)
    with pytest.raises(BadInput, match="origin"):
        build_info.read(file)


def test_no_image(firsttouch, stand_in, tmp_path):
    stand_in("apptainer", "exit 9")
    done = firsttouch("inside", "--image", tmp_path / "no.sif", "apptainer", "--", "topology")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "no.sif: image not found: `make images` builds it" in done.stderr


def test_no_apptainer(firsttouch, tmp_path):
    done = firsttouch("inside", "apptainer", "--", "topology", PATH=str(tmp_path))
    assert done.returncode == 3
    assert "neither 'apptainer' nor 'singularity' is on PATH" in done.stderr


def test_an_image_that_does_not_start_says_why(firsttouch, stand_in, tmp_path):
    stand_in("apptainer", "echo 'FATAL:   while extracting: no loop devices' >&2; exit 255")
    (tmp_path / "image").mkdir()
    done = firsttouch("inside", "--image", tmp_path / "image", "apptainer", "--", "topology")
    assert done.returncode == 3
    assert "image does not start: while extracting: no loop devices" in done.stderr


def test_an_image_of_a_later_version_may_state_more_of_its_origin(here, stand_in, tmp_path):
    stand_in("apptainer", f"echo '{json.dumps({**asdict(here), 'builder': 'x'})}'")
    backends.start_with("apptainer", str(tmp_path), ["--version"])


def test_no_command(firsttouch):
    done = firsttouch("inside", "apptainer", "--image", "x")
    assert "'--image' goes before the backend's name" in done.stderr
    done = firsttouch("inside", "apptainer")
    assert done.returncode == 2
    assert "no command" in done.stderr


def test_what_a_command_names_is_bound(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "index").mkdir()
    seen = apptainer.paths_seen(
        ["run", "--index", f"{tmp_path}/index/prefix", f"--output={tmp_path}/new/out.sam", "--records", "r.jsonl"],
        {},
    )
    assert str(tmp_path) in seen  # what is below it is bound with it
    assert not any(other != str(tmp_path) and other.startswith(str(tmp_path)) for other in seen)
    assert any(paths.ROOT.is_relative_to(folder) for folder in seen)


def test_what_the_image_has_of_its_own_is_not_hidden(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = [
        *("/usr/bin/bwa", "/opt/firsttouch/bin/x", "/usr", "/", "/etc", "/proc/self/fd/3", "/dev/null"),
        "/lib/x",
    ]
    assert apptainer.paths_seen(named, {}) == apptainer.paths_seen([], {})


def test_an_address_is_not_a_path(tmp_path, monkeypatch):
    """PMIx says //127.0.0.1 after a colon: the folder // would be bound over all of the image."""
    monkeypatch.chdir(tmp_path)
    address = {"PMIX_SERVER_URI4": "pmix-server.753;tcp4://127.0.0.1:55903"}
    assert apptainer.paths_seen(["run", "--", "program"], address) == apptainer.paths_seen([], {})


def test_what_the_user_binds_is_not_hidden(tmp_path, monkeypatch):
    """The host's /srv would be bound over the folder that the user has in its place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("APPTAINER_BIND", f"{tmp_path}:/srv:ro,/lib/modules")
    assert apptainer.paths_seen(["run", "--index", "/srv/index"], {}) == apptainer.paths_seen([], {})


@pytest.mark.parametrize("name", ["a,b", "a:b"])
def test_a_path_that_cannot_be_bound(tmp_path, monkeypatch, name):
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(BadInput, match="comma or a colon"):
        apptainer.paths_seen([], {})


def test_a_view_of_spack(tmp_path, here, firsttouch):
    """A view with this firsttouch: it is started, with the view's programs first on PATH."""
    with pytest.raises(Missing, match="view of Spack does not exist"):
        backends.start_with("spack", str(tmp_path / "view"), ["--version"])
    view = tmp_path / "view"
    (view / "bin").mkdir(parents=True)
    with pytest.raises(Missing, match="has no firsttouch"):
        backends.start_with("spack", str(view), ["--version"])
    real = Path(sys.executable).with_name("firsttouch")
    (view / "bin" / "numactl").symlink_to(shutil.which("numactl") or "/bin/true")
    (view / "bin" / "firsttouch").symlink_to(real)
    (view / "share/firsttouch").mkdir(parents=True)
    file = view / "share/firsttouch/origin.json"
    file.write_text(json.dumps({**asdict(here), "interface": 0}))
    with pytest.raises(Missing, match="measuring interface 0"):
        backends.start_with("spack", str(view), ["--version"])
    file.write_text(json.dumps(asdict(here)))
    start = backends.start_with("spack", str(view), ["--version"])
    assert start.argv == [str(view / "bin" / "firsttouch"), "--version"]
    assert start.env["PATH"].startswith(f"{view / 'bin'}:")
    assert start.env[backends.VARIABLE].startswith("spack: ")
    done = firsttouch("inside", "--image", view, "spack", "--", "topology")
    assert done.returncode == 0, done.stderr
    assert "NUMA node" in done.stdout


def test_a_partition_names_its_backend_and_image(tmp_path):
    text = draft.draft_host("local")
    file = tmp_path / "local.yaml"
    file.write_text(text.replace("backend: native", "backend: apptainer\n    image: /images/a.sif"))
    (partition,) = load(file).partitions
    assert (partition.backend, partition.image) == ("apptainer", "/images/a.sif")
    file.write_text(text.replace("backend: native", "backend: docker"))
    with pytest.raises(BadInput, match=r"'docker' .*apptainer, native, spack"):
        load(file)


def test_no_such_backend():
    with pytest.raises(BadInput, match=r"'docker': .*native, apptainer, spack"):
        backends.command("docker")


def test_characterize_says_first_what_does_not_fit(firsttouch, tmp_path):
    argv = ("characterize", "--backend", "apptainer", "--image", tmp_path / "no.sif", "-o", tmp_path / "out")
    done = firsttouch(*argv, timeout=60)
    assert done.returncode == 3
    assert "firsttouch: error: " in done.stderr
    assert list((tmp_path / "out").iterdir()) == []
