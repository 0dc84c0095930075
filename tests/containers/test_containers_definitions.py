# SPDX-License-Identifier: Apache-2.0
"""The definition files and what builds them, without building."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from conftest import CONTAINERS, module
from firsttouch.aligners import aligner, aligners

DEFINITIONS = sorted(CONTAINERS.glob("*.def"))
PACKAGES = tomllib.loads((CONTAINERS / "packages.toml").read_text())
RUN = [d for d in DEFINITIONS if d.stem != "build"]


def sections(definition):
    """The text of each section by its first word ('apprun bwa' by both)."""
    found, name = {}, ""
    for line in definition.read_text().splitlines():
        if line.startswith("%"):
            name = line.removeprefix("%").strip()
        found[name] = found.get(name, "") + line + "\n"
    return found


def test_every_image_has_a_definition():
    assert {d.stem for d in RUN} == set(PACKAGES["images"])


@pytest.mark.parametrize("definition", RUN, ids=lambda d: d.stem)
def test_a_run_image_is_whole(definition):
    found = sections(definition)
    assert definition.read_text().count("Stage:") == 2
    assert "/opt/firsttouch" in found["files from build"]
    assert {"test", "help", "runscript", "labels", "environment"} <= set(found)
    labels = re.findall(r"org\.firsttouch\.(\w+) \{\{ (\w+) \}\}", found["labels"])
    assert {name for name, _ in labels} >= {"version", "revision", "source", "machine", "target"}
    assert all(name == argument for name, argument in labels)
    apps = {name.split()[1] for name in found if name.startswith("apprun ")}
    assert apps
    assert apps == {name.split()[1] for name in found if name.startswith("apphelp ")}


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: d.stem)
def test_no_definition_names_a_host(definition):
    """Neither a mirror of packages nor a registry of images: they are arguments."""
    assert "://" not in definition.read_text()


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: d.stem)
def test_what_builds_the_images_gives_every_argument(definition):
    text = definition.read_text()
    wanted = set(re.findall(r"\{\{ (\w+) \}\}", text))
    source = (CONTAINERS / "images.py").read_text()
    for name in wanted - {"bootstrap", "base"}:
        assert f'"{name}": ' in source, name


def test_the_aligners_of_debian_are_in_the_image():
    listed = set(PACKAGES["packages"]["aligners"])
    named = {aligner(name).package.split()[-1] for name in aligners() if aligner(name).package}
    assert named
    assert named <= listed


def test_a_listing_becomes_spdx(tmp_path):
    sbom = module("sbom", CONTAINERS)
    listing = (
        "deb\tbwa\tbwa\t0.7.17-7+b2\tamd64\n"
        "pypi\tpolars\tpolars\t1.20.0\t\n"
        "spack\tsnap-berkeley-2.0.3-mgzq4ajabcdefghijklmnopqrstuvwxy\n"
        "nonsense\n"
    )
    found = sbom.packages(listing)
    assert [(p.kind, p.name, p.version) for p in found] == [
        ("deb", "bwa", "0.7.17-7+b2"),
        ("pypi", "polars", "1.20.0"),
        ("spack", "snap-berkeley", "2.0.3"),
    ]
    sbom.write(tmp_path / "x.json", sbom.document(tmp_path / "x.sif", "0" * 64, found, "0.1.0"))
    document = json.loads((tmp_path / "x.json").read_text())
    purls = [r["referenceLocator"] for p in document["packages"] for r in p.get("externalRefs", [])]
    assert purls == ["pkg:deb/debian/bwa@0.7.17-7+b2?arch=amd64", "pkg:pypi/polars@1.20.0"]
    assert len(document["relationships"]) == 4


def test_bases_are_given_to_apptainer():
    images = module("images", CONTAINERS)
    assert images._based("docker://debian:12") == {"bootstrap": "docker", "base": "debian:12"}
    assert images._based("/data/debian.sif") == {"bootstrap": "localimage", "base": "/data/debian.sif"}
