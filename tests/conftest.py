# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several suites share, and the distribution of the suites to the workers of pytest-xdist."""

import atexit
import contextlib
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from factories import apptainer_package, caches, genomes, held_programs, topologies
from factories import native_probe as probe
from factories.installation import PIP, CannotInstall, virtual_environment
from factories.processes import Completed, captured, status_of, write_program
from factories.repetition import pytest_sessionfinish, pytest_unconfigure  # noqa: F401 - hooks
from firsttouch import paths
from firsttouch.benchmarks.cases import topology_of
from firsttouch.datasets import fetch
from firsttouch.execution import host_lock
from firsttouch.execution.process_runner import Watching
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import aligner
from firsttouch.host.topology import PROBE
from firsttouch.records import file_lock
from firsttouch.systems.definition import load
from paper import __main__ as paper

# nohup(1), and a shell that starts tests in the background, ignore these signals, and what they start would, too.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

# Tests must not depend on variables of a Slurm job, a terminal or a user's profile.
KEPT = {f"FIRSTTOUCH_{name}" for name in ("ACCELERATOR", "ALONE", "CACHE", "PROBE", "TEST_KILLS")}
for name in {*os.environ} - KEPT:
    if name.startswith(("FIRSTTOUCH_", "OMP_", "SBATCH_", "SLURM")):
        del os.environ[name]
os.environ["COLUMNS"] = "80"
os.umask(0o022)
# No proxy reaches the servers that tests start.
NO_PROXY = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
os.environ["no_proxy"] = os.environ["NO_PROXY"] = f"127.0.0.1,localhost,{NO_PROXY}"


def _empty_folder(variable):
    """Set an environment variable to a new folder, which is removed when this process ends, and return it."""
    folder = Path(tempfile.mkdtemp(prefix="firsttouch-tests-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[variable] = str(folder)
    return folder


# A lock per worker: suites that run at the same time do not wait for each other's measurements. Tests that need a
# quiet host use the fixture quiet_host.
_empty_folder("FIRSTTOUCH_LOCK").chmod(0o1777)

# Downloads and builds of the tests do not depend on the checkout.
caches.choose()

# No test applies advice that another one, or a user of this checkout, has saved, or reads data files of the site.
_empty_folder("FIRSTTOUCH_ADVICE")
_empty_folder("FIRSTTOUCH_SITE")

# Nor does it read the user's data files. Other programs find their settings: pip's may name a mirror.
settings_folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
config_home = _empty_folder("XDG_CONFIG_HOME")
for entry in settings_folder.glob("*"):
    if entry.name != "firsttouch":
        (config_home / entry.name).symlink_to(entry.absolute())

# A probe that is older than its sources is not what the tests are about: `make setup` has not been run since.
INSTALLED = Path(sys.executable).with_name(PROBE)
if not INSTALLED.exists() or INSTALLED.stat().st_mtime < max(f.stat().st_mtime for f in probe.SOURCE.rglob("*")):
    os.environ.setdefault("FIRSTTOUCH_PROBE", str(probe.build(paths.ROOT / ".cache" / "probe")))

# Each worker imports all tests, and the objects of these stay: the garbage collector need not look at them.
gc.disable()

# How long an example takes says more about the other load of a shared host than about the test.
settings.register_profile("shared", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

STORED = Path(__file__).with_name("golden")


#: The scopes that take longest. They start first, so that the workers end together; Slurm's mostly wait.
LONGEST = (
    "slurm",
    "tests/slurm/test_slurm_quarantine.py",
    "tests/slurm/test_slurm_drills.py",
    "emulated-small",
    "emulated-amd-opteron",
    "containers",
    "tests/workflows/test_workflows.py",
    "emulated",
    "tests/drills/test_drills.py",
    "tests/integration/test_documented_commands.py",
    "tests/integration/test_reframe_checks.py",
    "tests/integration/test_native_probe.py",
    "tests/integration/test_run_command.py",
    "tests/integration/test_launch_aligners.py",
    "tests/integration/test_measure.py",
)
#: Suites that wait for daemons, for a guest, or for samples of programs that end by themselves. On a busy host
#: these come later. So do the threads and programs that modules of other suites start.
TIMED_SUITES = {"slurm", "emulated", "integration", "containers", "workflows"}
MACHINES = "|".join(file.stem for file in Path(__file__).parent.glob("emulated/machines/*.toml"))


def scope(nodeid):
    """Return the unit of work of a test: its module, one emulated machine, or the suites slurm and containers.

    These share a machine, a Slurm and an image. The longest modules of Slurm have one each.
    """
    suite = nodeid.split("/")[1]
    if suite == "containers" or (suite == "slurm" and nodeid.split("::")[0] not in LONGEST):
        return suite
    if suite == "emulated":
        machine = re.search(rf"(?:-|\[)({MACHINES})\]$", nodeid)
        return f"emulated-{machine[1]}" if machine else suite
    return nodeid.split("::")[0]


class ByScope(LoadScopeScheduling):
    """Gives each scope to one worker, in the order of the collection."""

    def __init__(self, config, log=None):
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid):
        return scope(nodeid)


def pytest_configure(config):
    """Refuse a folder for temporary files whose name tests cannot write into a shell command or a pattern."""
    for folder in (tempfile.gettempdir(), config.getoption("basetemp") or ""):
        if not re.fullmatch(r"[\w./-]*", str(folder)):
            raise pytest.UsageError(
                f"set TMPDIR to a folder whose name has only letters, digits, '_', '.', '-': not {folder}"
            )


@pytest.hookimpl(optionalhook=True)  # with -p no:xdist nobody calls it
def pytest_xdist_make_scheduler(config, log):
    """Distribute scopes instead of modules with ``--dist loadscope``."""
    return ByScope(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    """Mark each test with its suite, which is its folder, and put the longest scopes first."""
    for item in items:
        suite = item.nodeid.split("/")[1]
        item.add_marker(suite)
        if suite in TIMED_SUITES or hasattr(item.module, "threading") or hasattr(item.module, "subprocess"):
            item.add_marker(pytest.mark.timing)
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(scope(item.nodeid), len(rank)))


def pytest_collection_finish():
    """Collect garbage among the objects of the tests only, from here on."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def golden():
    """Returns a function that gives the text of a stored output."""

    def read(name):
        return (STORED / name).read_text(encoding="utf-8")

    return read


@pytest.fixture
def run_cli(capsys):
    """Returns a function that runs a command line in this process."""

    def run(*argv):
        capsys.readouterr()
        return Completed(status_of([str(word) for word in argv]), *capsys.readouterr())

    return run


@pytest.fixture
def run_here(capfd):
    """Returns a function like ``firsttouch`` that runs a command in this process.

    Tests of signals, inherited descriptors, standard input and start-up need a process: ``firsttouch``. So does
    ``firsttouch check``, whose time begins with its process.
    """

    def run(*argv, **environment):
        words = [str(word) for word in argv]
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            # Outputs name the command.
            patch.setattr(sys, "argv", ["firsttouch", *words])
            for name, value in environment.items():
                patch.setenv(name, str(value))
            status = status_of(words)
        return subprocess.CompletedProcess(words, status, *capfd.readouterr())

    return run


@pytest.fixture
def held_go_on(tmp_path, monkeypatch):
    """Lets held programs in the test's folder go on when commands in this process have sampled them.

    Programs in the foreground (``firsttouch run``) need held_programs.run.
    """
    defaults = dict(Watching._field_defaults)
    defaults["look"] = held_programs.releasing(defaults["look"], tmp_path)
    monkeypatch.setattr(Watching.__new__, "__defaults__", tuple(defaults.values()))


#: Seconds for which a test waits for a measurement of another user of this host.
LONGEST_WAIT = 1800


@pytest.fixture
def quiet_host(small_caches):
    """Holds the lock of this host, which its other users respect. The test's commands have the worker's lock.

    It waits for another measurement, so the time limit of a test that uses it is for its call only.
    """
    end = time.monotonic() + LONGEST_WAIT

    def try_lock(handle, *, shared):
        is_locked = file_lock.try_lock(handle, shared=shared)
        if not is_locked and time.monotonic() > end:
            pytest.skip(f"NOT TESTED: another measurement has held this host for {LONGEST_WAIT / 60:.0f} minutes")
        return is_locked

    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(host_lock.VARIABLE)
            patch.setattr(host_lock, "try_lock", try_lock)
            stack.enter_context(host_lock.hold_host(print))
        yield


@pytest.fixture(scope="session")
def variables_of_small_caches(tmp_path_factory):
    """The variables by which hwloc reports small last caches, so that measuring takes seconds on any host."""
    return topologies.variables_of_small_caches(tmp_path_factory.mktemp("hwloc"))


@pytest.fixture
def small_caches(variables_of_small_caches, monkeypatch):
    """Sets these variables."""
    for name, value in variables_of_small_caches.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def native_probe(tmp_path_factory):
    """Returns the probe, built from this checkout's sources, in a copy of its folder for this run.

    The cache may be removed at any time.
    """

    def copy(folder):
        shutil.copytree(probe.built_once().parent, folder)

    return caches.made_once(tmp_path_factory, "probe", copy) / PROBE


@pytest.fixture(scope="session")
def apptainer(tmp_path_factory):
    """The path of a real Apptainer, installed if possible."""
    try:
        with file_lock.lock_file(caches.of_run(tmp_path_factory, "apptainer.lock")):
            return apptainer_package.ensure()
    except CannotInstall as error:
        pytest.skip(f"CONTAINERS ARE NOT TESTED: {error}")


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A virtual environment with the wheel of this checkout; it has the dependencies of this environment."""

    def build(folder):
        argv = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(paths.ROOT)]
        subprocess.run(argv, check=True, capture_output=True)

    (wheel,) = caches.made_once(tmp_path_factory, "wheel", build).glob("*.whl")
    return caches.made_once(
        tmp_path_factory, "installed", lambda folder: virtual_environment(folder, wheel), in_place=True
    )


@pytest.fixture(scope="session")
def papers(tmp_path_factory):
    """The folder that `make paper` writes."""
    return caches.made_once(tmp_path_factory, "papers", paper.write)


@pytest.fixture(scope="session")
def manual(tmp_path_factory):
    """The folder of the manual, built without a warning; the manual pages lie in man/ below it."""

    def build(folder):
        trees = folder.with_name(f"{folder.name}.doctrees")
        for builder, out in (("html", folder), ("man", folder / "man")):
            argv = [sys.executable, "-m", "sphinx", "-qW", "-d", trees, "-b", builder, paths.ROOT / "docs", out]
            done = captured(argv, timeout=240)
            assert (done.returncode, done.stderr) == (0, "")

    return caches.made_once(tmp_path_factory, "manual", build)


@pytest.fixture(scope="session")
def opteron():
    """Returns the topology of the published system amd-opteron: eight NUMA nodes of eight PUs."""
    return topology_of(load("amd-opteron").facts)


@pytest.fixture
def data_store(tmp_path, monkeypatch):
    """Sets FIRSTTOUCH_DATA to a folder of the test that need not exist, and returns it."""
    monkeypatch.delenv("FIRSTTOUCH_DATASETS", raising=False)
    monkeypatch.setenv("FIRSTTOUCH_DATA", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def own_folders(tmp_path, monkeypatch):
    """Sets the folders of the user, of the site and of results to folders of the test that need not exist."""
    for name in ("FIRSTTOUCH_HOME", "FIRSTTOUCH_VERDICTS"):
        monkeypatch.delenv(name, raising=False)
    for name, folder in (("XDG_CONFIG_HOME", "config"), ("FIRSTTOUCH_SITE", "site"), ("FIRSTTOUCH_OUT", "out")):
        monkeypatch.setenv(name, str(tmp_path / folder))


@pytest.fixture
def small_disk(tmp_path):
    """Returns a function that mounts a tmpfs of that size (as mount reads it) and returns its folder."""
    folder = tmp_path / "small"

    def mount(size):
        folder.mkdir()
        argv = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
        if os.geteuid() != 0 or subprocess.run(argv, check=False, capture_output=True).returncode != 0:
            folder.rmdir()
            pytest.skip("a tmpfs cannot be mounted here (needs root)")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Returns a function that puts a shell script before the real program of that name on PATH."""
    folder = tmp_path / "stand-ins"

    def make(name, script):
        folder.mkdir(exist_ok=True)
        file = write_program(folder / name, script)
        if not os.environ["PATH"].startswith(f"{folder}:"):
            monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return file

    return make


def _skip_without_bwa():
    if shutil.which("bwa") is None or shutil.which("numactl") is None:
        pytest.skip("bwa and numactl are not both on PATH")


@pytest.fixture(scope="session")
def lambda_work(tmp_path_factory):
    """Returns the index prefix, the two read files and the reference of the dataset ``lambda``, with real bwa."""
    _skip_without_bwa()

    def fill(store):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FIRSTTOUCH_DATA", str(store))
            reference = fetch.get("lambda").reference
            aligners.get_index(aligner("bwa-mem"), reference, store / "index", say=lambda _: None)

    store = caches.made_once(tmp_path_factory, "lambda", fill, in_place=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRSTTOUCH_DATA", str(store))
        data = fetch.get("lambda")
        prefix = aligners.get_index(aligner("bwa-mem"), data.reference, store / "index", say=lambda _: None)
    return prefix, tuple(data.reads), data.reference


@pytest.fixture(scope="session")
def lambda_part(tmp_path_factory):
    """Returns the environment in which the dataset ``lambda`` has its first 4,000 pairs, each a batch."""
    _skip_without_bwa()
    datasets = tmp_path_factory.mktemp("datasets")
    genomes.part_of_lambda(datasets, genomes.PART, batch_bases=40_000)
    return {"FIRSTTOUCH_DATASETS": str(datasets), "FIRSTTOUCH_DATA": str(tmp_path_factory.mktemp("data"))}


@pytest.fixture(scope="session")
def firsttouch():
    """Returns a function that runs the installed command."""
    program = Path(sys.executable).with_name("firsttouch")

    def run(*argv, timeout=120, **environment):
        return captured(
            [program, *map(str, argv)],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            timeout=timeout,
        )

    return run
