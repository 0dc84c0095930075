# SPDX-License-Identifier: Apache-2.0
"""doctor reports the same missing requirements as the commands that need them."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture
def doctor(firsttouch, tmp_path):
    """Returns a function that gives doctor's exit status, and what a PATH with these programs alone lacks."""

    def run(*programs):
        folder = tmp_path / "bin"
        folder.mkdir()
        for program in programs:
            (folder / program).symlink_to(shutil.which(program) or "/bin/true")
        done = firsttouch("doctor", "--json", PATH=str(folder))
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)["lacks"], folder

    return run


def test_without_numactl_nothing_is_placed(doctor, firsttouch):
    status, lacks, folder = doctor()
    reason = lacks["placement of programs (run, advise)"]
    done = firsttouch("run", "1x-interleave", "--", "/bin/true", PATH=str(folder))
    assert (status, done.returncode) == (3, 3)
    assert reason in done.stderr


def test_other_programs_are_needed_by_what_it_names_alone(doctor, firsttouch):
    status, lacks, folder = doctor("numactl")
    assert (status, "placement of programs (run, advise)" in lacks) == (0, False)
    done = firsttouch("measure", "bandwidth", "--program", "likwid-bench", PATH=str(folder))
    assert done.returncode == 3
    assert "'likwid-bench'" in done.stderr
    assert "'likwid-bench'" in lacks["cross-check of bandwidth by likwid"]
    assert "bwa-mem" in lacks["runs of some aligners"]
    assert "'sbatch'" in lacks["campaigns and fleets through Slurm"]


def test_an_image_that_does_not_start_is_not_usable(doctor, firsttouch, stand_in, tmp_path):
    stand_in("apptainer", "echo 'FATAL:   while extracting: no loop devices' >&2; exit 255")
    (tmp_path / "image").mkdir()
    done = firsttouch("doctor", "--image", tmp_path / "image")
    assert "no --backend apptainer: " in done.stdout
    assert "no loop devices" in " ".join(done.stdout.split())
