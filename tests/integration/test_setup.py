# SPDX-License-Identifier: Apache-2.0
"""setup/setup.sh makes and repairs the virtual environment: a real venv, with a stand-in for pip."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys

import pytest

from factories.processes import captured, write_program
from firsttouch import paths

#: A stub of the host's interpreter: its environments have a pip that installs scripts without a network.
PYTHON = """\
#!/bin/sh
here=$(dirname "$0")
case "$*" in
    *_base_executable*) echo "$0" ;;
    --version | -VV) cat "$here/version" ;;
    "-m venv --prompt .venv "*)
        {real} -m venv --without-pip --prompt .venv "$5" || exit
        cp -r "$here/packages/." "$5"/lib/python*/site-packages/ ;;
    *) exec {real} "$@" ;;
esac
"""
PIP = """\
import os, sys
from pathlib import Path
if os.environ.get("NO_NETWORK"):
    sys.exit(1)
if sys.argv[-2:] == ["config", "list"]:
    sys.exit(print(":env:.index-url='file:///nearest'\\nglobal.index-url='file:///mirror'\\nglobal.cert='ca.pem'"))
if sys.argv[-1].endswith("/uv.lock"):
    assert Path(sys.argv[-1]).read_text().startswith("uv==")
    uv = Path(__file__).with_name("uv")
    sys.exit(uv.exists() and not uv.rename(Path(sys.executable).with_name("uv")))
with open(os.environ.get("INSTALLED_BY_PIP", os.devnull), "a") as installed:
    installed.write(sys.argv[-1] + "\\n")
for name in ("firsttouch-probe",) if sys.argv[-1] == "./probe" else ("firsttouch", "reframe"):
    script = Path(sys.executable).with_name(name)
    script.write_text(f"#!/bin/sh\\nexec '{sys.executable}' -c 'import sys; print(sys.prefix)'\\n")
    script.chmod(0o755)
"""


#: The programs that setup.sh calls, but apt-get.
NEEDED = (
    "awk bash cat cmp cp cut dirname find flock grep install mkdir mktemp mv readlink rm sh sha256sum sort stat"
    " tail tr touch uname xargs"
)


def on_release(checkout, text):
    """Let only the programs be there that setup.sh calls, on a host of this release; return its environment."""
    programs, release = checkout.parent / "bin", checkout.parent / "release"
    for name in NEEDED.split():
        (programs / name).symlink_to(shutil.which(name))
    shutil.copy2(paths.ROOT / "setup/other-distributions.txt", checkout / "setup")
    if text:
        release.write_text(text)
    return {"PATH": str(programs), "OS_RELEASE": str(release)}


def new_checkout(parent):
    """Return the files of a checkout that setup.sh needs, in a folder of *parent* with a blank in its name."""
    programs = parent / "bin"
    (programs / "packages/firsttouch").mkdir(parents=True)
    (programs / "packages/firsttouch/__init__.py").touch()
    (programs / "packages/pip.py").write_text(PIP)
    (programs / "version").write_text("Python 3.11.2\n")
    (programs / "python3").write_text(PYTHON.replace("{real}", os.path.realpath(sys.executable)))
    (programs / "python3").chmod(0o755)
    folder = parent / "a checkout"
    (folder / "probe").mkdir(parents=True)
    (folder / "setup").mkdir()
    (folder / "setup/debian-packages.txt").write_text("venv dash sh\nrun none no-such-program\n")
    own = ("setup.sh", "requirements.lock", "dev-requirements.lock", "hatch_build.py", "firsttouch_reframe.pth")
    for name in ("pyproject.toml", *(f"setup/{name}" for name in own)):
        shutil.copy2(paths.ROOT / name, folder / name)
    return folder


@pytest.fixture
def checkout(tmp_path):
    """A checkout in which nothing has been set up."""
    return new_checkout(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The checkout of `complete`."""
    return new_checkout(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def complete(shared):
    """A checkout whose environment is complete, whatever the test before did."""
    assert setup(shared).returncode == 0
    return shared


def setup(checkout, group="venv", **environment):
    path = f"{checkout.parent / 'bin'}:{os.environ['PATH']}"
    return captured(
        [checkout / "setup/setup.sh", group], env={**os.environ, "PATH": path, **environment}, timeout=60
    )


def made_anew(done):
    assert done.returncode == 0, done.stderr
    return "making the virtual environment" in done.stderr


def prefix(checkout):
    return captured([checkout / ".venv/bin/firsttouch"], check=True).stdout


def test_a_second_run_does_nothing(checkout):
    assert made_anew(setup(checkout))
    assert prefix(checkout) == f"{checkout / '.venv'}\n"
    assert (checkout / ".venv/bin/firsttouch-probe").exists()
    done = setup(checkout)
    assert not made_anew(done)
    assert "building the native probe" not in done.stderr
    assert {file.name for file in checkout.glob(".venv*")} == {".venv"}


def test_a_checkout_that_was_moved_is_repaired(checkout):
    setup(checkout)
    moved = checkout.rename(checkout.with_name("moved"))
    assert made_anew(setup(moved))
    assert prefix(moved) == f"{moved / '.venv'}\n"


def test_another_python_makes_it_anew(complete):
    (complete.parent / "bin" / "version").write_text("Python 3.12.1\n")
    assert made_anew(setup(complete))


def test_an_interpreter_that_is_gone_is_noticed(complete):
    python = complete / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert made_anew(setup(complete))
    assert prefix(complete) == f"{complete / '.venv'}\n"


#: A uv that notes its settings, in an environment whose pip has installed it.
UV = """\
#!/bin/sh
echo "$UV_DEFAULT_INDEX $SSL_CERT_FILE ${UV_FIND_LINKS-none} $*" >"$(dirname "$0")/uv-ran"
exit ${UV_STATUS:-0}
"""


@pytest.mark.parametrize("status", ["0", "1"])
def test_uv_installs_with_the_settings_of_pip_which_does_it_otherwise(checkout, tmp_path, status):
    (checkout.parent / "bin/packages/uv").write_text(UV)
    (checkout.parent / "bin/packages/uv").chmod(0o755)
    by_pip = tmp_path / "by-pip"
    done = setup(checkout, UV_STATUS=status, INSTALLED_BY_PIP=str(by_pip), SSL_CERT_FILE="site.pem")
    assert done.returncode == 0, done.stderr
    settings, _, argv = (checkout / ".venv/bin/uv-ran").read_text().partition(" pip install ")
    assert settings == "file:///nearest site.pem none"
    assert argv.endswith(" --require-hashes --no-deps -r setup/requirements.lock\n")
    assert ("setup/requirements.lock" in by_pip.read_text().splitlines()) == (status != "0")


def test_the_old_one_works_until_the_new_one_is_complete(complete):
    with (complete / "pyproject.toml").open("a") as project:
        project.write("# changed\n")
    done = setup(complete, NO_NETWORK="1")
    assert done.returncode == 3
    assert "setup: error: Python packages could not be installed" in done.stderr
    assert prefix(complete) == f"{complete / '.venv'}\n"
    assert made_anew(setup(complete))
    assert (complete / ".venv/bin/firsttouch-probe").exists()
    assert {file.name for file in complete.glob(".venv*")} == {".venv"}


@pytest.mark.parametrize(
    ("release", "command"),
    [
        (
            "ID=rocky\nID_LIKE='rhel centos fedora'\n",
            "As root: dnf install epel-release && crb enable && dnf install bwa hwloc hwloc-devel; without them: ",
        ),
        (
            "ID=sles\nID_LIKE=suse\n",
            "As root: zypper install hwloc hwloc-devel; without them: setup/setup.sh venv",
        ),
        ("ID=void\n", "(Debian package names)"),
        (None, "(Debian package names)"),
    ],
)
def test_other_distributions_get_the_command_to_type(checkout, release, command):
    """Nothing is installed, so root is not needed. The host has the programs of the script, but not apt-get."""
    environment = on_release(checkout, release)
    (checkout / "setup/debian-packages.txt").write_text(
        "# group package proof\nrun bwa bwa\nrun hisat2 hisat2-align-s\nrun hwloc lstopo\nrun libhwloc-dev /no.h\n"
        "study g++ no-such-compiler\n"
    )
    done = captured([checkout / "setup/setup.sh", "run"], env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")
    names = {"dnf": "bwa hwloc libhwloc-dev", "zyp": "hwloc libhwloc-dev"}.get(
        command[9:12], "bwa hisat2 hwloc libhwloc-dev"
    )
    assert f"setup: error: missing here: {names}" in done.stderr
    assert command in done.stderr
    absent = {"dnf": "hisat2", "zyp": "bwa hisat2"}.get(command[9:12])
    assert (f"setup: left out, not packaged here: {absent}. A Spack view" in done.stderr) == bool(absent)


def test_without_root_missing_packages_are_named(checkout):
    installed = checkout.parent / "installed"
    for name, script in {"id": "echo 1000", "sudo": "exit 1", "apt-get": f"touch '{installed}'"}.items():
        write_program(checkout.parent / "bin" / name, script)
    (checkout / "setup/debian-packages.txt").write_text("run bwa no-such-aligner\n")
    done = setup(checkout, "run")
    assert (done.returncode, installed.exists()) == (3, False)
    assert "setup: error: missing here: bwa. As root: setup/setup.sh run" in done.stderr


#: An apt-get and apt-cache that know the packages of a file, and note what they install.
APT = """\
#!/bin/sh
here=$(dirname "$0")
case "$*" in
    policy*) if grep -qxF "$2" "$here/known"; then echo "  Candidate: 1.0"; else echo "  Candidate: (none)"; fi ;;
    install*) for last; do :; done; echo "$@" >>"$here/installed"; touch "$here/../$last" ;;
    update*) echo update >>"$here/installed" ;;
    *) exit 1 ;;
esac
"""


def test_packages_that_a_release_does_not_have_are_left_out_once(checkout):
    """One package without a candidate must not keep the others from being installed; the next run asks no more."""
    programs = checkout.parent / "bin"
    environment = on_release(checkout, "ID=debian\nVERSION_ID=13\n")
    for name, text in (("apt-get", APT), ("apt-cache", APT), ("id", "#!/bin/sh\necho 0\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs / "known").write_text("libmimalloc3\n")
    (checkout / "setup/debian-packages.txt").write_text(
        "venv dash sh\nrun snap-aligner no-such-program\n"
        f"run libmimalloc2.0|libmimalloc3 {checkout.parent}/libmi*3\n"
    )
    (checkout / "setup/stream.txt").write_text("# none\nfile:///nowhere 0\n")
    done = setup(checkout, "run", **environment)
    assert done.returncode == 0, done.stderr
    assert "left out, not packaged here: snap-aligner." in done.stderr
    update, installed = (programs / "installed").read_text().splitlines()
    assert (update, installed.split()[-1]) == ("update", "libmimalloc3")
    done = setup(checkout, "run", **environment)
    assert (done.returncode, "left out" in done.stderr) == (0, False)
    assert len((programs / "installed").read_text().splitlines()) == 2


def test_a_python_that_is_too_old_lacks_its_package(checkout):
    """Rocky's python3 is 3.9 and has ensurepip: python3.11 is named with the other packages."""
    environment = on_release(checkout, "ID=rocky\nID_LIKE='rhel centos fedora'\n")
    (checkout.parent / "bin/python3").write_text("#!/bin/sh\ncase $* in *version_info*) exit 1 ;; esac\n")
    (checkout / "setup/debian-packages.txt").write_text("venv python3-venv python:ensurepip\nvenv gcc no-gcc\n")
    done = setup(checkout, **environment)
    assert done.returncode == 3
    assert "dnf install python3.11 gcc\n" in done.stderr


#: Root without the right to write and enter where the mode forbids it.
ORDINARY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []


@pytest.mark.parametrize(
    ("state", "status", "message"),
    [
        ("complete", 0, "and complete. To write into folders of yours: export FIRSTTOUCH_OUT=FOLDER"),
        ("empty", 3, "cannot be written, and its .venv is not complete: its owner, "),
        ("closed", 3, "runs PATH=/usr/bin:$PATH setup/setup.sh"),
    ],
)
def test_a_checkout_of_another_user_is_one_line(request, state, status, message):
    checkout = request.getfixturevalue("checkout" if state == "empty" else "complete")
    home = checkout.parent / "home"
    if state == "closed":
        home.mkdir()
        python = checkout / ".venv/bin/python"
        shutil.copy2(python.resolve(), home / "python3")
        python.unlink()
        python.symlink_to(home / "python3")
        home.chmod(0)
    checkout.chmod(0o555)
    try:
        path = f"{checkout.parent / 'bin'}:{os.environ['PATH']}"
        argv = [*ORDINARY, checkout / "setup/setup.sh", "venv"]
        environment = {**os.environ, "PATH": path}
        done = captured(argv, env=environment, timeout=60)
    finally:
        checkout.chmod(0o755)
        if home.exists():
            home.chmod(0o755)
    assert (done.returncode, message in done.stderr, done.stderr.count("\n")) == (status, True, 1), done.stderr


@pytest.mark.parametrize(("modes", "noted"), [("*/bin", True), ("*checkout", False), ("none", False)])
def test_a_python_that_other_users_cannot_start_is_noted(checkout, modes, noted):
    """Of a checkout that other users cannot enter either, nothing needs to be said."""
    program = checkout.parent / "bin/stat"
    write_program(program, f"for last; do :; done\ncase $last in {modes}) echo 700 ;; *) echo 755 ;; esac")
    done = setup(checkout)
    assert done.returncode == 0
    assert ("note: other users cannot start" in done.stderr) == noted, done.stderr


def test_names_of_other_distributions_are_complete():
    rows = [line.split() for line in (paths.ROOT / "setup/other-distributions.txt").read_text().splitlines()]
    table = [row for row in rows if row[0] != "#"]
    packages = (paths.ROOT / "setup/debian-packages.txt").read_text().splitlines()
    assert all(len(row) == 4 for row in table)
    assert {row[0] for row in table} <= {line.split()[1] for line in packages}


@pytest.mark.parametrize(("checksum", "built"), [(None, True), ("0" * 64, False)], ids=["right", "wrong"])
def test_stream_is_built_from_the_file_with_the_right_checksum(complete, checksum, built):
    (complete / ".venv/bin/stream").unlink(missing_ok=True)
    program = complete / ".venv/bin/firsttouch-probe"
    program.write_text("""#!/bin/sh\necho '{"host": {"all_caches_bytes": 1200000000}}'\n""")
    program.chmod(0o755)
    (complete / "setup/debian-packages.txt").write_text("# nothing is needed\n")
    source = complete.parent / "stream.c"
    source.write_text('#include <stdio.h>\nint main(void) { return printf("%d\\n", STREAM_ARRAY_SIZE) < 0; }\n')
    checksum = checksum or hashlib.sha256(source.read_bytes()).hexdigest()
    (complete / "setup/stream.txt").write_text(f"# STREAM\n{source.as_uri()} {checksum}\n")
    done = setup(complete, group="run")
    assert done.returncode == 0, done.stderr
    if built:
        done = captured([complete / ".venv/bin/stream"], check=True)
        assert done.stdout == "600000000\n"
    else:
        assert f"STREAM is left out: the checksum of {source.as_uri()} is not that of setup" in done.stderr
        assert not (complete / ".venv/bin/stream").exists()
    assert "STREAM" not in setup(complete, group="run").stderr


def test_make_clean_removes_what_can_be_made_again(tmp_path):
    kept = (
        *(".cache/advice/a.json", ".cache/mirror/x.tar.gz", ".cache/spack/store/bin"),
        *(".cache/study-programs/bowtie", ".cache/images/root", ".cache/emulated/shared/file"),
        *("datasets/store/x", "reports/out/index.html"),
    )
    removed = (".venv/bin/python", ".cache/docs/x", ".cache/imports", ".cache/probe/x", ".pytest_cache/x")
    for name in (*kept, *removed):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    clean = ["make", "-C", tmp_path, "-f", paths.ROOT / "Makefile", "clean"]
    subprocess.run(clean, check=True, capture_output=True)
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert files == set(kept)
    shutil.rmtree(tmp_path / ".cache")
    subprocess.run(clean, check=True, capture_output=True)  # again, without anything to remove
