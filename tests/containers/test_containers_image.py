# SPDX-License-Identifier: Apache-2.0
"""A real image of Debian's packages: its content, and the same results inside as outside."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from factories import topologies
from factories.processes import captured, run_reframe
from firsttouch import paths
from firsttouch.execution import backends, build_info
from firsttouch.genomics.aligners import aligner
from firsttouch.records import schema
from firsttouch.systems import draft

PUS = len(os.sched_getaffinity(0))


def test_its_labels_tell_what_it_was_made_of(image, in_image):
    labels = json.loads(in_image("cat /.singularity.d/labels.json"))
    origin = build_info.copied_origin(paths.ROOT, os.uname().machine)
    wanted = {
        "version": origin.version,
        "interface": str(origin.interface),
        "machine": origin.machine,
        "target": origin.target,
    }
    assert {key: labels[f"org.firsttouch.{key}"] for key in wanted} == wanted
    assert labels["org.firsttouch.revision"]
    inside = json.loads(in_image("cat /opt/firsttouch/share/firsttouch/origin.json"))
    assert inside["target"] == origin.target
    assert origin.version in in_image("firsttouch --version")


def test_no_toolchain_is_in_it(in_image):
    assert in_image("for p in gcc cc cmake make ld as pip; do command -v $p; done; true") == ""


def test_help_and_an_app_for_each_tool(apptainer, image):
    def inspect(*options):
        argv = [apptainer, "inspect", *options, image]
        return captured(argv, timeout=60, check=True).stdout

    assert "firsttouch characterize --backend apptainer" in inspect("--helpfile")
    apps = set(inspect("--list-apps").split())
    assert {"bwa", "bowtie", "bowtie2", "hisat2", "minimap2", "snap"} <= apps
    options = ["--no-privs"] if os.geteuid() == 0 else []
    argv = [apptainer, "run", *options, "--app", "bwa", image]
    done = captured(argv, timeout=60)
    assert "Version: 0.7" in done.stderr


def test_checksum_and_packages_lie_beside_it(image, in_image):
    checksum = image.with_name(f"{image.name}.sha256").read_text().split()
    assert checksum == [hashlib.sha256(image.read_bytes()).hexdigest(), image.name]
    document = json.loads(image.with_name(f"{image.name}.spdx.json").read_text())
    assert document["spdxVersion"] == "SPDX-2.3"
    names = {(p["name"], p["versionInfo"]) for p in document["packages"]}
    assert ("bwa", in_image("dpkg-query -W -f '${Version}' bwa")) in names
    numpy = next(p for p in document["packages"] if p["name"] == "numpy")
    assert "BSD-3-Clause" in numpy["licenseDeclared"]
    assert any(name.lower() == "reframe-hpc" for name, _ in names)
    ids = {p["SPDXID"] for p in document["packages"]} | {document["SPDXID"]}
    assert len(ids) == len(document["packages"]) + 1
    for relation in document["relationships"]:
        assert {relation["spdxElementId"], relation["relatedSpdxElement"]} <= ids


def test_it_sees_the_topology_that_the_host_sees(inside, firsttouch):
    done = inside("topology", "--json")
    assert done.returncode == 0, done.stderr
    outside = json.loads(firsttouch("topology", "--json").stdout)
    assert json.loads(done.stdout) == outside


def test_placements_are_verified_inside_and_alignments_are_the_same(inside, firsttouch, tmp_path, lambda_part):
    argv = ("--aligner", "bwa-mem", "--dataset", "lambda", "--checksum", "--repetitions", "1")
    first, second = tmp_path / "outside.jsonl", tmp_path / "inside.jsonl"
    done = firsttouch("run", "1x-default", *argv, "--records", first, **lambda_part)
    assert done.returncode == 0, done.stderr
    done = inside("run", "1x-local", *argv, "--records", second)
    assert done.returncode == 0, done.stderr
    (outside,), (record,) = schema.read(first), schema.read(second)
    assert record.status == "valid"
    assert record.software["backend"].startswith("apptainer: aligners.sif")
    assert "backend" not in outside.software
    assert record.parameters["common_sha256"] == outside.parameters["common_sha256"]
    assert record.placement_found[0]["pus"] == outside.placement_found[0]["pus"]
    assert record.placement_found[0]["pages"]
    assert record.software["bwa-mem"] == aligner("bwa-mem").version()  # Debian's, inside and outside


def test_the_probe_verifies_its_pages_inside(inside):
    done = inside("measure", "bandwidth", "--json", "--pu-nodes=0", "--banks=0")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    assert records
    for record in records:
        assert record["status"] == "valid"
        assert record["placement_found"][0]["verified"]


def test_a_failing_command_fails_as_it_does_outside(inside):
    done = inside("run", "1x-default", "--aligner", "no-such", "--dataset", "lambda")
    assert done.returncode == 2
    assert "no-such" in done.stderr


@pytest.fixture
def reframe(tmp_path, lambda_part, image):
    """Returns a function that runs the checks on a system of this host, and returns its run and records."""
    systems = tmp_path / "systems"
    systems.mkdir()

    def run(text, *options, files=("aspects",), pattern="^topology$"):
        (systems / "local.yaml").write_text(text)
        environment = {"FIRSTTOUCH_SYSTEMS": str(systems), "FIRSTTOUCH_EFFORT": "smoke", **lambda_part}
        done = run_reframe(tmp_path, files, pattern, *options, environment=environment)
        return done, schema.collect([tmp_path / "out"])

    return run


def test_every_check_runs_inside_where_reframe_is_told_so(reframe, image):
    chosen = {"files": ("aspects", "scaling"), "pattern": f"^topology$|^scaling%scenario=1x{PUS}-default%"}
    options = ("-S", "backend=apptainer", "-S", f"image={image}")
    done, measured = reframe(draft.draft_host("local"), *options, **chosen)
    assert set(done.results.values()) == {"pass"}, done.output
    assert {m.check for m in measured} >= {"topology", "scaling"}
    for record in measured:
        assert record.software["backend"].startswith("apptainer: aligners.sif"), record.check


def test_a_partition_says_that_its_checks_run_inside(reframe, image):
    text, count = re.subn("backend: native", f"backend: apptainer\n    image: {image}", draft.draft_host("local"))
    assert count == 1
    done, measured = reframe(text)
    assert set(done.results.values()) == {"pass"}, done.output
    assert {record.software["backend"].split(",")[0] for record in measured} == {"apptainer: aligners.sif"}
    # A single run can still be native on request.
    done, measured = reframe(text, "-S", "backend=native")
    assert done.results["topology"] == "pass", done.output
    assert not any("backend" in record.software for record in measured if record.check == "topology")


def test_a_campaign_whose_image_is_not_there_begins_nothing(firsttouch, tmp_path):
    (tmp_path / "local.yaml").write_text(draft.draft_host("local"))
    argv = ("--campaign", f"{tmp_path}/campaign", "--backend", "apptainer", "--image", "/no/such.sif")
    done = firsttouch("campaign", "run", "characterize", *argv, FIRSTTOUCH_SYSTEMS=str(tmp_path))
    assert done.returncode == 3
    assert "image not found" in done.stderr or "is on PATH" in done.stderr
    assert not (tmp_path / "campaign" / "hosts").exists()


def test_data_in_a_folder_of_the_system_is_seen_inside(inside):
    """/opt is the image's, but a data folder in the host's /opt must still be visible."""
    folder = Path(tempfile.mkdtemp(dir="/opt"))
    try:
        (folder / "host.xml").write_text(topologies.made_up("partial-cpuset"), encoding="utf-8")
        done = inside("topology", "--xml", folder / "host.xml", "--json")
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)["numa_nodes"]) == 8
    finally:
        shutil.rmtree(folder)


def test_the_temporary_folder_and_what_launchers_say_are_handed_on(image, tmp_path, monkeypatch):
    """Tasks of srun would otherwise all take the whole host, and ranks of MPI would not find each other."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    launchers = {"SLURMD_NODENAME": "nid001", "SLURM_LOCALID": "1", "PMI_FD": "9", "PMIX_RANK": "3"}
    for name, value in launchers.items():
        monkeypatch.setenv(name, value)
    start = backends.start_with("apptainer", str(image), ["--version"])
    assert start.env["APPTAINERENV_TMPDIR"] == str(tmp_path)
    assert {name: start.env[f"APPTAINERENV_{name}"] for name in launchers} == launchers
    assert any(tmp_path.is_relative_to(word) for word in start.argv if word.startswith("/") and word != "/")


def test_a_step_in_the_image_measures_for_slurms_name_of_the_host(image, tmp_path):
    env = {**os.environ, "SLURMD_NODENAME": "nid001", "FIRSTTOUCH_OUT": str(tmp_path)}
    argv = ["campaign", "run", "validate", "--step", "topology", "--campaign", "named"]
    done = captured(
        [Path(sys.executable).with_name("firsttouch"), *argv, "--backend", "apptainer", "--image", image],
        env=env,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "campaigns" / "named" / "hosts").iterdir()
    assert folder.name == "nid001"
    measured = schema.read(folder / "records.jsonl")
    assert {record.host for record in measured} == {"nid001"}
    (of_step,) = (record for record in measured if record.metric == "numa_nodes")
    assert of_step.software["backend"].startswith("apptainer: aligners.sif")
    # The job reads one verdict of its steps.
    assert "verdict nid001 " in done.stdout + done.stderr
