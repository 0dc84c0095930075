#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds Bowtie and Bowtie 2 once for each type of lock (`make study-programs`): spin, std::mutex, and MCS queue.

The sources are those of Debian's or Ubuntu's source packages, which apt verifies, or archives that you give, which
must be those of spack-env/sources.lock. The programs are named like bowtie2-align-s-spin and lie in bin/ of the
output folder, so that they can be on PATH beside the distribution's. A program that is already there from the same
source, options and compiler is not built again. CXXFLAGS is added to the options of the release's makefile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from firsttouch import paths
from firsttouch.errors import BadInput, FirstTouchError, Missing, RunFailed, none_such
from firsttouch.execution import child_process
from firsttouch.records import atomic_files, file_lock
from firsttouch.tools import require, run_tool

HERE = Path(__file__).resolve().parent
SPACK = HERE.parents[1] / "spack-env"
sys.path.insert(0, str(SPACK))

import sources  # noqa: E402  (a folder that is not a package)

#: The keys that sign a distribution's packages. apt searches its own keys if the file does not exist.
KEYS = {"Debian": "debian-archive-keyring.gpg", "Ubuntu": "ubuntu-archive-keyring.gpg"}
#: What the compiler must be able to include, with Debian's package.
HEADER, HEADER_PACKAGE = "zlib.h", "zlib1g-dev"
EXAMPLES = """
examples:
  make study-programs                                       # all programs, from the distribution's sources
  make study-programs RELEASE=trixie                        # sources of another release of the distribution
  make study-programs SOURCE=/media/usb OUT=/opt/firsttouch # without a network: archives of spack-env/sources.lock
  studies/locks/lock_variants.py bowtie2-align-s-spin bowtie2-align-s-queuing"""


@dataclass(frozen=True)
class Variant:
    """A program with one type of lock: the makefile's target and variables, and the macros it must have."""

    target: str
    source: str
    lock: str
    make: tuple[str, ...]
    macros: frozenset[str]

    @property
    def name(self) -> str:
        """The name of the installed program."""
        return f"{self.target}-{self.lock}"


def main() -> int:
    """Build the programs that the command line names; return the exit status of errors."""
    args = _parser().parse_args()
    # A terminated build stops its compilers like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Options of an outer make are not meant for the makefiles of the releases.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES"):
        os.environ.pop(name, None)
    try:
        chosen = choose(variants(), args.programs)
        folder = args.output.absolute()
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        with file_lock.lock_file(folder, on_wait=lambda: say(f"another build into {folder} is running: waiting")):
            failures = install(chosen, folder, args)
    except (FirstTouchError, sources.Wrong) as error:
        print(f"study-programs: error: {error}", file=sys.stderr)
        return error.exit_status if isinstance(error, FirstTouchError) else error.status
    except OSError as error:
        print(
            f"study-programs: error: {error.filename or args.output}: {error.strerror or error}", file=sys.stderr
        )
        return 3
    except KeyboardInterrupt:
        print("study-programs: interrupted; the programs that were built before are kept", file=sys.stderr)
        return 130
    for failure in failures:
        print(f"study-programs: error: {failure}", file=sys.stderr)
    if any((folder / "bin").iterdir()):
        print(f"export PATH={shlex.quote(str(folder / 'bin'))}:$PATH")
    return max((failure.exit_status for failure in failures), default=0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM", help="such as bowtie2-align-s-spin (default: all)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=paths.cache() / "study-programs", help="folder (default: %(default)s)"
    )
    parser.add_argument(
        "--source", type=Path, action="append", default=[], metavar="FILE", help="archive, or a folder of archives"
    )
    parser.add_argument("--release", default="", help="release of the distribution (default: this host's)")
    parser.add_argument("--jobs", type=int, default=2, help="programs built at the same time (default: 2)")
    return parser


def variants() -> dict[str, Variant]:
    """Return the variants by the names of their programs."""
    described = tomllib.loads((HERE / "lock-variants.toml").read_text(encoding="utf-8"))
    every_variant = [
        Variant(target, entry["source"], lock, tuple(how["make"]), frozenset(how["macros"]))
        for target, entry in described.items()
        for lock, how in entry["locks"].items()
    ]
    return {variant.name: variant for variant in every_variant}


def choose(available: dict[str, Variant], names: Sequence[str]) -> list[Variant]:
    """Return the variants called *names*, or all that this machine can run; raises BadInput."""
    for name in names:
        if name not in available:
            raise BadInput(none_such("program", name, available))
    targets = yaml.safe_load((SPACK / "targets.yaml").read_text(encoding="utf-8"))
    unfit = targets["leave_out"].get(platform.machine(), {})
    for source in sorted({available[name].source for name in names} & set(unfit)):
        raise BadInput(f"{source} cannot be built for {platform.machine()}: {unfit[source]}")
    return [
        variant for name, variant in available.items() if (name in names if names else variant.source not in unfit)
    ]


def install(chosen: Sequence[Variant], folder: Path, args: argparse.Namespace) -> list[FirstTouchError]:
    """Build the programs that *folder* lacks; return what failed."""
    require("make")
    how = compiler()
    given = archives(args.source)
    failures: list[FirstTouchError] = []
    tasks = []
    for source in dict.fromkeys(variant.source for variant in chosen):
        of_source = [variant for variant in chosen if variant.source == source]
        try:
            archive = given.get(source) or from_distribution(source, folder / "sources", args.release)
        except FirstTouchError as error:
            # The programs of the other sources are built, which takes long: the user may prefer to stop now.
            say(f"{error}; the programs of other sources are built without it")
            failures.append(error)
            continue
        for variant in of_source:
            recipe = {
                "source": archive.name,
                "sha256": atomic_files.digest(archive),
                "make": [variant.target, *variant.make],
                "compiler": how,
            }
            if _recipe(folder, variant) == recipe:
                say(f"{variant.name}: there already")
            else:
                tasks.append(Task(variant, archive, recipe))
    with atomic_files.workspace(folder) as work:
        failures += build(tasks, work, folder, max(1, args.jobs))
    return failures


def compiler() -> dict[str, str]:
    """Return the C++ compiler of the environment with its version; raises Missing without it or zlib's header."""
    program, flags = os.environ.get("CXX") or "g++", os.environ.get("CXXFLAGS", "")
    if shutil.which(program.split()[0]) is None:
        raise Missing(f"the C++ compiler '{program}' is not on PATH: install g++, or set CXX")
    argv = [*program.split(), *flags.split(), "-E", "-x", "c++", "-include", HEADER, os.devnull]
    if run_tool(argv).returncode:
        raise Missing(f"{program} does not find {HEADER}: install {HEADER_PACKAGE} (zlib-devel on Rocky and SLES)")
    version = run_tool([*program.split(), "--version"]).stdout.partition("\n")[0]
    return {"CXX": program, "CXXFLAGS": flags, "version": version}


@dataclass(frozen=True)
class Task:
    """A program to build from an archive, and the recipe that is kept beside it."""

    variant: Variant
    archive: Path
    recipe: dict[str, Any]


def _recipe(folder: Path, variant: Variant) -> object:
    """Return the recipe of the installed program, or None."""
    if not os.access(folder / "bin" / variant.name, os.X_OK):
        return None
    try:
        return json.loads((folder / f"{variant.name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


# ---------------------------------------------------------------- sources
def archives(given: Sequence[Path]) -> dict[str, Path]:
    """Return the archives of sources.lock by source among the files and folders *given*, by their checksums.

    Raises BadInput for a file that is not one of them, and for a folder that has none.
    """
    of_digest = {source.sha256: source for source in sources.read(sources.LOCK)}
    names = {variant.source for variant in variants().values()}
    by_name: dict[str, Path] = {}
    for place in given:
        if not place.exists():
            raise BadInput("there is no such file", file=place)
        files = sorted(f for f in place.rglob("*") if f.is_file()) if place.is_dir() else [place]
        own = {of_digest[d].name: f for f in files if (d := atomic_files.digest(f)) in of_digest}
        own = {name: file for name, file in own.items() if name in names}
        if not own:
            what = "no archive in it has" if place.is_dir() else "it does not have"
            wanted = ", ".join(f"{s.name} {s.version}: {s.sha256}" for s in of_digest.values() if s.name in names)
            raise BadInput(f"{what} a SHA-256 of spack-env/sources.lock ({wanted})", file=place)
        by_name |= own
    return by_name


def from_distribution(source: str, folder: Path, release: str) -> Path:
    """Return the upstream archive of a source package; it is downloaded into *folder* once, and apt verifies it.

    Raises Missing if the host has no apt, or if apt cannot download it.
    """
    instead = f"give an archive of {source} (SOURCE=FILE)"
    if shutil.which("apt-get") is None:
        raise Missing(f"apt-get is not on PATH: {instead}")
    release, line = apt_source(release, instead)
    kept = folder / release
    kept.mkdir(parents=True, exist_ok=True)
    if cached := sorted(kept.glob(f"{source}_*.orig.tar.*")):
        return cached[-1]
    say(f"{source}: downloading the source of {release}")
    with atomic_files.workspace(folder) as private:
        for name in ("lists/partial", "cache/archives/partial", "parts"):
            (private / name).mkdir(parents=True)
        (private / "sources.list").write_text(f"{line}\n", encoding="utf-8")
        options = {
            "Dir::Etc::SourceList": private / "sources.list",
            "Dir::Etc::SourceParts": private / "parts",
            "Dir::State::Lists": private / "lists",
            "Dir::Cache": private / "cache",
            # Otherwise apt asks for the version of the installed program.
            "Dir::State::status": os.devnull,
            "APT::Sandbox::User": "root",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        for command in (["update"], ["source", "--only-source", "--tar-only", source]):
            done = run_tool(["apt-get", "-qq", *words, *command], timeout=600, cwd=private)
            # A mirror that does not answer is only a warning of `update`.
            problems = [text[3:] for text in done.stderr.splitlines() if text.startswith(("E: ", "W: "))]
            if done.returncode or problems:
                reason = problems[0] if problems else f"status {done.returncode}"
                raise Missing(
                    f"{source} of {release}: {reason}: name another release (RELEASE=NAME), or {instead}"
                )
        (archive,) = private.glob(f"{source}_*.orig.tar.*")
        return archive.replace(kept / archive.name)


def apt_source(release: str, instead: str) -> tuple[str, str]:
    """Return a release and apt's line for its source packages on the mirror of this host; raises Missing."""
    rows = "$(ORIGIN) $(LABEL) $(REPO_URI) $(CODENAME) $(COMPONENT)"
    listed = run_tool(["apt-get", "indextargets", "--format", rows, "Identifier: Packages"]).stdout
    targets = [row for row in map(str.split, listed.splitlines()) if len(row) == 5]
    # Updates and security fixes have releases of their own, such as bookworm-security.
    main = [row for row in targets if row[0] == row[1] and row[0] in KEYS and "-" not in row[3]]
    if not main:
        raise Missing(f"this host's apt sources name no mirror of Debian or Ubuntu: {instead}")
    origin, _, uri, codename, _ = main[0]
    components = dict.fromkeys(row[4] for row in main if row[2:4] == [uri, codename])
    key = Path("/usr/share/keyrings", KEYS[origin])
    signed = f"[signed-by={key}] " if key.exists() else ""
    return release or codename, f"deb-src {signed}{uri} {release or codename} {' '.join(components)}"


# ---------------------------------------------------------------- building
def build(tasks: Sequence[Task], work: Path, folder: Path, jobs: int) -> list[RunFailed]:
    """Build and install *tasks*, *jobs* at a time; return what failed.

    A failure does not stop the others. An exception, such as Ctrl-C, stops all.
    """
    waiting, failures = list(tasks), list[RunFailed]()
    running: dict[subprocess.Popen[bytes], tuple[Task, Path, ExitStack, float]] = {}
    with ExitStack() as all_of_them:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.pop(0)
                tree = unpack(task.archive, work / task.variant.name)
                log = (tree / "make.log").open("wb")
                argv = [
                    "make",
                    "-C",
                    str(tree),
                    task.variant.target,
                    *task.variant.make,
                    f"CXX={task.recipe['compiler']['CXX']}",
                ]
                stack = all_of_them.enter_context(ExitStack())
                stack.enter_context(log)
                process = stack.enter_context(child_process.child(argv, stdout=log, stderr=log))
                running[process] = (task, tree, stack, time.monotonic())
                say(f"{task.variant.name}: building {task.archive.name}")
            time.sleep(0.05)
            for process in [p for p in running if child_process.wait(p, 0) is not None]:
                task, tree, stack, start = running.pop(process)
                stack.close()
                try:
                    finish(task, tree, process.returncode, folder)
                    say(f"{task.variant.name}: built in {time.monotonic() - start:.0f} s")
                except RunFailed as error:
                    failures.append(error)
                shutil.rmtree(tree)
    return failures


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack *archive* into *folder* and return the folder with the makefile; raises RunFailed."""
    folder.mkdir()
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
    elif (
        done := run_tool(["tar", "-xf", str(archive), "--no-same-owner", "-C", str(folder)], timeout=600)
    ).returncode:
        raise RunFailed(f"{archive} cannot be unpacked: {' '.join(done.stderr.split())}")
    makefile = next(iter(sorted(folder.glob("*/Makefile"))), None)
    if makefile is None:
        raise RunFailed(f"{archive}: it has no folder with a Makefile")
    return makefile.parent


def finish(task: Task, tree: Path, status: int, folder: Path) -> None:
    """Verify the lock of a built program and install it; raises RunFailed and keeps the log of a failure."""
    variant = task.variant
    program, log = tree / variant.target, tree / "make.log"
    if status or not program.exists():
        kept = log.replace(folder / f"{variant.name}.log")
        lines = kept.read_text(encoding="utf-8", errors="replace").splitlines()
        reason = next((line for line in lines if "error: " in line), lines[-1] if lines else "no output")
        raise RunFailed(f"{variant.name} cannot be built: {reason.strip()} ({kept})")
    if (actual := lock_macros(program)) != variant.macros:
        names = [" ".join(sorted(macros)) or "neither macro" for macros in (actual, variant.macros)]
        raise RunFailed(f"{variant.name}: {task.archive.name} builds a lock with {names[0]}, not with {names[1]}")
    # The recipe is removed first and written last: it vouches for the program.
    recipe = folder / f"{variant.name}.json"
    recipe.unlink(missing_ok=True)
    with atomic_files.replace(folder / "bin" / variant.name) as partial:
        shutil.copy2(program, partial)
    atomic_files.write(recipe, json.dumps(task.recipe, indent=2) + "\n")
    (folder / f"{variant.name}.log").unlink(missing_ok=True)


def lock_macros(program: Path) -> set[str]:
    """Return the macros of the lock that *program* says it was built with; raises RunFailed if it does not run."""
    done = run_tool([str(program), "--version"])
    options = re.search(r"^Options: (.*)$", done.stdout, re.MULTILINE)
    if done.returncode or options is None:
        raise RunFailed(f"{program.name}: --version does not show the compiler's options: {done.stderr.strip()}")
    return set(re.findall(r"-D(NO_SPINLOCK|WITH_QUEUELOCK)\b", options[1]))


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"study-programs: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
