# SPDX-License-Identifier: Apache-2.0
"""The definition files and the scripts that build them, without building."""

from __future__ import annotations

import argparse
import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from conftest import CONTAINERS
from factories.processes import load_script
from firsttouch import paths
from firsttouch.genomics.aligners import aligner, aligners

PACKAGES = tomllib.loads((CONTAINERS / "packages.toml").read_text())
RUN = tuple(PACKAGES["images"])
DEFINITIONS = ("build", *RUN)


def definition_of(image):
    """Return the text of a definition file."""
    if image == "build":
        return (CONTAINERS / "build.def").read_text()
    return load_script("definitions", CONTAINERS).definition(image)


def sections(image):
    """Return the text of each section by its first word ('apprun bwa' by both)."""
    texts, name = {}, ""
    for line in definition_of(image).splitlines():
        if line.startswith("%"):
            name = line.removeprefix("%").strip()
        texts[name] = texts.get(name, "") + line + "\n"
    return texts


def test_every_image_has_a_definition():
    described = tomllib.loads((CONTAINERS / "images.toml").read_text())
    assert set(described["image"]) == set(RUN)
    assert set(described["test"]) == {kind for kinds in PACKAGES["images"].values() for kind in kinds}


@pytest.mark.parametrize("image", RUN)
def test_a_run_image_is_whole(image):
    texts = sections(image)
    assert definition_of(image).count("Stage:") == 2
    assert f"/opt/programs/{image} /opt/spack" in texts["files from build"]
    assert {"test", "help", "runscript", "labels", "environment"} <= set(texts)
    labels = re.findall(r"org\.firsttouch\.(\w+) \{\{ (\w+) \}\}", texts["labels"])
    assert {name for name, _ in labels} >= {"version", "revision", "machine", "target", "spack_lock"}
    assert all(name == argument for name, argument in labels)
    apps = {name.split()[1] for name in texts if name.startswith("apprun ")}
    assert apps
    assert apps == {name.split()[1] for name in texts if name.startswith("apphelp ")}


@pytest.mark.parametrize("image", DEFINITIONS)
def test_one_command_that_fails_is_a_test_that_fails(image):
    """Without set -e, Apptainer's shell continues after the command."""
    assert sections(image)["test"].splitlines()[1].strip() == "set -e"


def test_an_image_has_every_module(tmp_path):
    """Images also contain no datasets or reports of this checkout."""
    images = load_script("images", CONTAINERS)
    (tmp_path / "wheels").mkdir()
    images._copy(tmp_path / "checkout", tmp_path / "wheels")
    there = {f.relative_to(tmp_path / "checkout") for f in (tmp_path / "checkout").rglob("*")}
    for file in (paths.ROOT / "src").rglob("*.py"):
        assert file.relative_to(paths.ROOT) in there
    assert {
        Path("datasets/lambda.toml"),
        Path("reframe/systems/amd-opteron.yaml"),
        Path("containers/spack.sh"),
    } <= there
    assert not there & {Path("datasets/store"), Path("reports/out"), Path("reframe/systems/local.yaml")}


@pytest.mark.parametrize("image", DEFINITIONS)
def test_no_definition_names_a_host(image):
    """Package mirrors and image registries are arguments."""
    assert "://" not in definition_of(image)


def test_the_aligners_of_debian_are_in_the_image():
    listed = set(PACKAGES["packages"]["aligners"])
    named = {aligner(name).package for name in aligners() if aligner(name).package}
    assert named
    assert named <= listed


def test_spack_builds_what_the_images_name():
    described = yaml.safe_load((paths.ROOT / "spack-env" / "spack.yaml").read_text())["spack"]["specs"]
    specs = {spec.split("@")[0] for spec in described}
    named = {package for packages in PACKAGES["spack"].values() for package in packages}
    assert named <= specs
    # Every image has the others: tools of the base, and firsttouch, which install.sh installs.
    assert specs - named == {"hwloc", "numactl", "firsttouch"}
    assert set(PACKAGES["spack-programs"]) == named


def options(*argv):
    """Return the programs that a command line selects."""
    programs = load_script("programs", CONTAINERS)
    parser = argparse.ArgumentParser()
    programs.add_options(parser)
    return programs.chosen(parser.parse_args([str(a) for a in argv]))


@pytest.fixture
def clones(tmp_path, monkeypatch):
    """Stubs of the clones of Spack and its recipes, which are checked before a build, and a mirror."""
    for name in ("spack/bin", "recipes/repos", "mirror"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "spack" / "bin" / "spack").touch()
    monkeypatch.setenv("SPACK_ROOT", str(tmp_path / "spack"))
    monkeypatch.setenv("SPACK_PACKAGES", str(tmp_path / "recipes"))
    return tmp_path


def test_programs_of_spack(clones):
    programs = options("--spack", "airgap", "--mirror", clones / "mirror", "--only", "bwa,stream")
    assert programs.binds(clones / "store") == [
        f"--bind={clones}/spack:/mnt/spack:ro",
        f"--bind={clones}/recipes:/mnt/recipes:ro",
        f"--bind={clones}/mirror:/mnt/mirror:ro",
        f"--bind={clones}/store/spack-airgap-{programs.target}:/opt/spack",
    ]
    assert programs.all() == ["aligners=bwa", "membench=stream", "firsttouch=bwa:stream"]
    assert programs.expected("firsttouch") == ["bwa", "stream"]
    assert programs.target == {"x86_64": "x86_64_v3", "aarch64": "armv8.2a"}[os.uname().machine]
    assert not {"bwa", "gcc", "g++"} & set(programs.debian("aligners"))


def test_packages_without_a_build_for_the_target_are_in_no_image(clones):
    programs = options("--spack", "airgap", "--mirror", clones / "mirror", "--target", "neoverse_n1")
    assert programs.spack_packages("aligners") == ["bwa", "bowtie2", "snap-berkeley"]


def test_programs_of_debian(tmp_path):
    programs = options()
    assert programs.all() == ["aligners=", "membench=", "firsttouch="]
    assert (programs.profile, programs.binds(tmp_path), programs.target) == ("none", [], os.uname().machine)
    assert {"bwa", "samtools"} <= set(programs.debian("aligners"))
    assert programs.locked(tmp_path, "aligners") == "none"


def test_debian_comes_from_a_snapshot_of_one_date():
    address = "https://snapshot.example/archive/debian/20260301T000000Z"
    programs = options("--snapshot", address)
    lines = load_script("debian", CONTAINERS).sources("bookworm", ["main", "non-free"], programs.snapshot)
    security = address.replace("debian", "debian-security")
    assert lines == [
        f"deb [check-valid-until=no] {address} bookworm main non-free",
        f"deb [check-valid-until=no] {security} bookworm-security main non-free",
    ]


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--only", "bwa"], "are of Spack: give --spack PROFILE"),
        (["--spack", "airgap"], "sources come from a mirror: --mirror DIR"),
        (["--spack", "airgap", "--mirror", "/no/such"], "sources come from a mirror: --mirror DIR"),
        (["--spack", "online", "--only", "bwa,bw2"], "no image has bw2: there are bowtie, "),
        (["--spack", "online", "--target", "pentium9"], "archspec does not know the target"),
        (["--target", "pentium9"], "archspec does not know the target"),
    ],
)
@pytest.mark.usefixtures("clones")
def test_what_cannot_be_built_is_said_before(argv, reason):
    with pytest.raises(load_script("debian", CONTAINERS).CannotBuild, match=reason):
        options(*argv)


def test_a_listing_becomes_spdx(tmp_path):
    sbom = load_script("sbom", CONTAINERS)
    listing = (
        "deb\tbwa\t0.7.17-7+b2\tamd64\tGPL-3+;MIT;\n"
        "pypi\tpolars\t1.20.0\t\tMIT\n"
        "spack\tsnap-berkeley-2.0.3-mgzq4ajabcdefghijklmnopqrstuvwxy\t\t\tApache-2.0\n"
        "nonsense\n"
    )
    packages = sbom.packages(listing)
    assert [(p.kind, p.name, p.version) for p in packages] == [
        ("deb", "bwa", "0.7.17-7+b2"),
        ("pypi", "polars", "1.20.0"),
        ("spack", "snap-berkeley", "2.0.3"),
    ]
    sbom.write(tmp_path / "x.json", sbom.document(tmp_path / "x.sif", "0" * 64, packages, "0.1.0", 0))
    document = json.loads((tmp_path / "x.json").read_text())
    purls = [r["referenceLocator"] for p in document["packages"] for r in p.get("externalRefs", [])]
    assert purls == [
        "pkg:deb/debian/bwa@0.7.17-7+b2?arch=amd64",
        "pkg:pypi/polars@1.20.0",
        "pkg:generic/snap-berkeley@2.0.3",
    ]
    _, bwa, polars, snap = document["packages"]
    assert bwa["licenseComments"] == "GPL-3+;MIT"
    assert (polars["licenseDeclared"], snap["licenseDeclared"]) == ("MIT", "Apache-2.0")
    assert document["creationInfo"]["created"] == "1970-01-01T00:00:00Z"
    assert len(document["relationships"]) == 4


def test_what_a_build_lacks_is_named_at_once(monkeypatch, tmp_path):
    images = load_script("images", CONTAINERS)
    monkeypatch.setattr(images.shutil, "which", lambda program: None if program != "newuidmap" else program)
    monkeypatch.setattr(images, "_lines", lambda _: [])
    with pytest.raises(images.CannotBuild) as raised:
        images.check_host("")
    message = str(raised.value)
    assert all(word in message for word in ("Debian 12 has none", "squashfs-tools", "mmdebstrap", "--add-subuids"))
    assert "uidmap," not in message
    with pytest.raises(images.CannotBuild, match="Apptainer") as raised:
        images.check_host("docker://debian:12")
    assert "mmdebstrap" not in str(raised.value)


def test_bases_are_given_to_apptainer():
    images = load_script("images", CONTAINERS)
    assert images._based("docker://debian:12") == {"bootstrap": "docker", "base": "debian:12"}
    assert images._based("/data/debian.sif") == {"bootstrap": "localimage", "base": "/data/debian.sif"}
