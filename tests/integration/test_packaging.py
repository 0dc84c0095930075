# SPDX-License-Identifier: Apache-2.0
"""The wheels that `make dist` builds, in an environment and on a host that have nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from factories.installation import dependencies, light_environment, virtual_environment
from factories.processes import Completed, captured
from firsttouch.cli import COMMANDS
from firsttouch.paths import ROOT
from firsttouch.tools import REPORT

pytestmark = pytest.mark.timeout(600)


def output(*argv, **options):
    """Run a program to its end and return its standard output."""
    done = captured(argv, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder of what `make dist` builds; the environment that it would set up is the one of these tests.

    The probe is not optimized, which takes half of the time: no test of the wheels depends on its speed.
    """
    folder = tmp_path_factory.mktemp("dist")
    argv = ["make", "-o", "setup", "dist", f"BIN={Path(sys.executable).parent}", f"OUT={folder}"]
    output(*argv, cwd=ROOT, env={**os.environ, "SKBUILD_CMAKE_BUILD_TYPE": "Debug"})
    return folder


@pytest.fixture(scope="module")
def environment(dist, tmp_path_factory):
    """A virtual environment with both wheels. Their dependencies are read from the environment of these tests."""
    return virtual_environment(tmp_path_factory.mktemp("environment"), *dist.glob("*.whl"))


def test_source_archives_have_all_that_a_build_needs(dist):
    # `make dist` builds each wheel of its archive.
    names = {path.name.partition("-")[0]: path for path in dist.glob("*.tar.gz")}
    assert set(names) == {"firsttouch", "firsttouch_probe"}
    for path in names.values():
        with tarfile.open(path) as archive:
            members = {member.name.partition("/")[2]: member for member in archive}
        assert {"LICENSE", "README.md", "pyproject.toml"} <= set(members)
        assert all(member.isfile() or member.isdir() for member in members.values())


@pytest.mark.parametrize("target", ["sdist", "wheel"])
def test_only_what_git_tracks_is_packed(tmp_path, target):
    """A checkout in use has system files of its site, records and reports."""
    own = ("pyproject.toml", "README.md", "LICENSE", "setup/hatch_build.py", "setup/firsttouch_reframe.pth")
    tracked = [*own, "src/firsttouch/__init__.py", "reframe/systems/known.yaml", "reframe/check.py"]
    others = ["reframe/systems/rome.yaml", "reframe/nearest.py", "results/[r] 1.jsonl", "src/firsttouch/x.py"]
    checkout = tmp_path / "checkout"
    for name in [*tracked, *others]:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_bytes((ROOT / name).read_bytes() if name in own else b"")
    output("git", "init", "-q", cwd=checkout)
    output("git", "add", *tracked, cwd=checkout)
    environment = {**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION": "1.0"}
    output(sys.executable, "-m", "hatchling", "build", "-t", target, cwd=checkout, env=environment)
    (packed,) = (checkout / "dist").iterdir()
    if target == "sdist":
        with tarfile.open(packed) as archive:
            names = archive.getnames()
    else:
        with zipfile.ZipFile(packed) as archive:
            names = archive.namelist()
    packed_names = {
        name for name in [*tracked, *others] if any(n.endswith(name.removeprefix("src/")) for n in names)
    }
    assert not packed_names & set(others)
    assert {"src/firsttouch/__init__.py", "reframe/systems/known.yaml", "reframe/check.py"} <= packed_names


def test_the_licence_of_the_probe_is_that_of_the_project():
    assert (ROOT / "probe/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_wheel_of_the_probe_has_one_static_program(dist):
    (wheel,) = dist.glob("firsttouch_probe-*.whl")
    assert "-py3-none-manylinux_2_17_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        (program,) = (name for name in archive.namelist() if "/scripts/" in name)
        assert Path(program).name == "firsttouch-probe"
        assert {"LICENSE", "libhwloc.txt", "libc6.txt"} <= {Path(name).name for name in archive.namelist()}
        file = dist / "probe"
        file.write_bytes(archive.read(program))
    # A program that needs shared libraries names an interpreter that loads them.
    assert "INTERP" not in output("readelf", "--wide", "--program-headers", file)


def test_probe_measures_where_nothing_else_is(environment, tmp_path):
    """A root file system with the program, /proc and /sys: no library, no hwloc, no shell."""
    for folder in ("proc", "sys"):
        (tmp_path / folder).mkdir()
    shutil.copy2(environment / "bin/firsttouch-probe", tmp_path)
    inside = (
        'mount --rbind /proc "$0/proc" && mount --rbind /sys "$0/sys" && exec chroot "$0" /firsttouch-probe "$@"'
    )
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, tmp_path]
    if subprocess.run([*argv[:-4], "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host allows no user namespace")
    document = json.loads(output(*argv, "bandwidth", "--sanity"))
    assert document["status"] == "complete"
    assert document["results"]


def test_probe_is_used_without_activating_the_environment(environment, tmp_path):
    program = "from firsttouch.host.topology import probe_program; print(probe_program())"
    clean = {"PATH": os.defpath, "HOME": str(tmp_path)}
    program_path = output(environment / "bin/python", "-I", "-c", program, cwd=tmp_path, env=clean)
    assert program_path.strip() == str(environment / "bin/firsttouch-probe")


@pytest.fixture(scope="module")
def light(dist, tmp_path_factory):
    """A virtual environment with both wheels and what they need without extras."""
    return light_environment(tmp_path_factory.mktemp("light"), *dist.glob("*.whl"))


#: Runs commands, each a list of words, in one process: prints their exit status, output and messages as JSON.
COMMANDS_IN_TURN = """\
import contextlib, io, json, sys
from firsttouch import cli

endings = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            status = cli.main(words)
        except SystemExit as end:
            status = end.code
    endings.append((status, out.getvalue(), err.getvalue()))
print(json.dumps(endings))
"""


@pytest.fixture
def in_light(light, lambda_part, small_caches, tmp_path):
    """Returns a function that runs a program of the light installation and returns its output and messages."""
    environment = {
        **os.environ,
        **lambda_part,
        "FIRSTTOUCH_HOME": str(tmp_path / "home"),
        "FIRSTTOUCH_OUT": str(tmp_path / "out"),
        "FIRSTTOUCH_EFFORT": "smoke",
    }

    def run(name, *words):
        argv = [light / "bin" / name, *words]
        done = captured(argv, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return run


@pytest.fixture
def run_light(in_light):
    """Returns a function that runs commands one after the other in the light installation, and how each ended."""

    def run(commands):
        printed, _ = in_light("python", "-c", COMMANDS_IN_TURN, json.dumps(commands))
        endings = [Completed(*ending) for ending in json.loads(printed.splitlines()[-1])]
        return zip(commands, endings, strict=True)

    return run


def test_the_light_installation_is_small(light):
    """With bytecode, which pip writes when it installs."""
    output(light / "bin/python", "-m", "compileall", "-qq", light / "lib")
    files = [Path(top, name) for top, _, names in os.walk(light / "lib", followlinks=True) for name in names]
    size = sum(file.stat().st_size for file in files)
    assert 50e6 < size < 150e6
    assert dependencies("firsttouch", "report") - dependencies("firsttouch") >= {"polars", "jinja2", "reframe-hpc"}
    assert output(light / "bin/python", "-c", "import numpy, firsttouch; print(firsttouch.__file__)").startswith(
        str(light)
    )


def test_every_command_has_its_help_in_the_light_installation(run_light):
    for (command, _), done in run_light([(command, "--help") for command in COMMANDS]):
        assert (done.status, done.err) == (0, "")
        assert done.out.startswith(f"usage: firsttouch {command}")


#: Commands that need no extra.
LIGHT = (
    ("topology", "--json"),
    ("plan", "--aligner", "bwa-mem", "--json"),
    ("measure", "bandwidth", "--records", "m.jsonl"),
    ("run", "1x-interleave", "--records", "m.jsonl", "--", "true"),
    ("run", "1x-interleave", "--aligner", "bwa-mem", "--dataset", "lambda", "--records", "m.jsonl"),
    ("advise", "--aligner", "bwa-mem", "--dataset", "lambda"),
    ("data", "index", "--aligner", "bwa-mem", "--dataset", "lambda"),
    ("data", "list"),
    ("system", "draft", "ours", "-o", "-"),
    ("system", "aligners"),
    ("advise", "--list"),
    ("fleet", "replaced", "n1", "--system", "local", "--records", "replaced.jsonl"),
    ("campaign", "list"),
    ("init", "jobs"),
    ("path",),
    ("doctor",),
)


def test_the_light_installation_measures_and_places(run_light):
    for words, done in run_light(LIGHT):
        assert done.status == 0, (words, done.err)


def test_the_light_installation_aligns(in_light, lambda_work, tmp_path):
    prefix, reads, _ = lambda_work
    _, messages = in_light("firsttouch", "run", "-o", tmp_path / "out.sam", "--", "bwa", "mem", prefix, *reads)
    assert "placement verified" in messages
    assert (tmp_path / "out.sam").stat().st_size > 1e6


#: Commands that need the extra 'report'.
HEAVY = (
    ("validate", "m.jsonl", "--system", "amd-opteron"),
    ("report", "m.jsonl", "-o", "report"),
    ("baseline", "m.jsonl", "--system", "amd-opteron"),
    ("store", "append", "store", "m.jsonl"),
    ("characterize",),
    ("fleet", "tend"),
    ("campaign", "run", "validate"),
    ("campaign", "collect", "validate-1"),
)


def test_what_needs_the_extra_names_it_and_the_command_that_installs_it(run_light, light, tmp_path):
    (tmp_path / "m.jsonl").write_text("")
    (tmp_path / "store").mkdir()
    missing = "|".join(REPORT)
    for words, done in run_light(HEAVY):
        assert done.status == 3, (words, done.err)
        (line,) = done.err.splitlines()
        assert re.fullmatch(
            rf"firsttouch: error: the Python package ({missing}) is not installed; the extra 'report' has it: "
            rf"(?:{light}/bin/python3? -m|uv) pip install .*'polars\S+' .*",
            line,
        )
    assert sorted(file.name for file in tmp_path.iterdir() if file.name != "home") == ["m.jsonl", "store"]


@pytest.mark.parametrize("words", [["tool", "run", "--from"], ["tool", "install"]], ids=["once", "to stay"])
def test_a_command_runs_without_an_environment(dist, words, tmp_path):
    (wheel,), (probe_wheel,) = dist.glob("firsttouch-*.whl"), dist.glob("firsttouch_probe-*.whl")
    uv, command = Path(sys.executable).with_name("uv"), ["topology", "--json"]
    env = {**os.environ, "UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    once = ["firsttouch", *command] if "run" in words else []
    done = captured([uv, *words, wheel, "--with", probe_wheel, *once], env=env, timeout=300)
    if done.returncode and re.search(r"(?i)failed to fetch|connection|resolve host|network", done.stderr):
        pytest.skip(f"uv reaches no package index: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    document = done.stdout if once else output(tmp_path / "bin/firsttouch", *command)
    assert json.loads(document)["numa_nodes"]
