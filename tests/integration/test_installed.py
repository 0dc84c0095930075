# SPDX-License-Identifier: Apache-2.0
"""An installed copy: the wheel in an empty virtual environment, used from an empty folder."""

import json
import os
from pathlib import Path

import pytest

from factories.processes import captured
from firsttouch import paths


def files_below(*folders):
    """Return all files and links below *folders* with their change times; Python's caches do not count."""
    return {
        str(path): path.lstat().st_mtime_ns
        for folder in folders
        for path in folder.rglob("*")
        if not path.is_dir() and "__pycache__" not in path.parts
    }


@pytest.fixture
def here(tmp_path):
    """An empty folder, and a home next to it."""
    for name in ("here", "home", "tmp"):
        (tmp_path / name).mkdir()
    return tmp_path / "here"


@pytest.fixture
def run(installed, here, native_probe):
    """Returns a function that runs a program of the environment in the empty folder."""
    kept = ("LANG", "LC_ALL", "USER")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {
        "PATH": f"{installed / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(here.parent / "home"),
        "TMPDIR": str(here.parent / "tmp"),
        "FIRSTTOUCH_PROBE": str(native_probe),
        "FIRSTTOUCH_EFFORT": "smoke",
    }

    def start(*argv, status=0, **more):
        done = captured(argv, cwd=here, env=env | more, timeout=280)
        assert done.returncode == status, (argv, done.stdout[-2000:], done.stderr[-2000:])
        return done

    return start


def test_the_main_job_runs_and_writes_only_where_it_should(run, here, installed, lambda_part):
    home = here.parent / "home"
    before = files_below(installed)
    chosen = f"^topology$|^scaling%scenario=1x{len(os.sched_getaffinity(0))}-default%"
    run("firsttouch", "characterize", "--", "-n", chosen, FIRSTTOUCH_DATASETS=lambda_part["FIRSTTOUCH_DATASETS"])
    assert (here / "reports" / "latest" / "index.html").is_file()
    summary = json.loads((here / "reports" / "latest" / "summary.json").read_text())
    assert summary["records"]["valid"] > 5
    assert files_below(installed) == before
    assert {path.name for path in here.iterdir()} == {"reports"}
    stated = (".config/firsttouch/", ".cache/firsttouch/", ".local/share/firsttouch/")
    assert (home / ".local/share/firsttouch/").is_dir()
    written = [str(Path(path).relative_to(home)) for path in files_below(home)]
    assert [path for path in written if not path.startswith(stated)] == []
    # ReFrame keeps its log of the time before it has read its configuration.
    assert [path for path in files_below(here.parent / "tmp") if "/rfm-" not in path] == []
    assert (home / ".config/firsttouch/systems/local.yaml").is_file()


def test_one_folder_takes_everything(run, here):
    run("firsttouch", "data", "get", "lambda", FIRSTTOUCH_HOME=str(here / "all"))
    assert (here / "all" / "data" / "lambda").is_dir()
    assert files_below(here.parent / "home") == {}


def test_reframe_finds_the_systems(run):
    checks = run("firsttouch", "path", "checks").stdout.strip()
    assert not Path(checks).is_relative_to(paths.ROOT)
    listed = run("reframe", "-c", checks, "-l", "--system", "amd-opteron").stdout
    assert "selected system:   'amd-opteron'" in listed
    assert "firsttouch/share/reframe" in listed
    assert "latency" in listed


def test_nothing_of_the_papers_is_in_the_wheel(installed):
    wheel = [Path(file) for file in files_below(installed / "lib") if "/firsttouch" in file]
    assert len(wheel) > 300
    assert [file for file in wheel if "paper" in file.parts or "claims" in file.parts] == []


def test_a_folder_for_jobs(run, here):
    """The job script finds program, results and the site's files in any environment."""
    assert run("firsttouch", "init", "jobs").stdout == f"cd {here / 'jobs'} && sbatch slurm/characterize.sbatch\n"
    assert "already exists" in run("firsttouch", "init", "jobs", status=2).stderr
    system = run("firsttouch", "system", "draft", "ours", "-o", "-").stdout
    (here / "jobs" / "site" / "systems" / "ours.yaml").write_text(system)
    script = (
        (here / "jobs" / "slurm" / "characterize.sbatch")
        .read_text()
        .replace("campaign run characterize", "system list")
    )
    job = {"SLURM_SUBMIT_DIR": str(here / "jobs"), "PATH": "/usr/bin:/bin"}
    assert "ours" in run("bash", "-c", script, **job).stdout
    assert (here / "jobs" / "reports").is_dir()
    run("firsttouch", "init", "--force", "jobs")
    assert (here / "jobs" / "site" / "systems" / "ours.yaml").is_file()
