# SPDX-License-Identifier: Apache-2.0
"""`make study-programs`: Bowtie from the distribution's source, and small releases whose program is a script."""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tomllib

import pytest

from factories import caches
from factories.processes import load_script
from firsttouch import paths
from firsttouch.errors import BadInput, Missing
from firsttouch.records.file_lock import lock_file
from repeat_study import ALIGNERS

LOCKS = paths.ROOT / "studies/locks"
RECIPES = paths.ROOT / "spack-env/repo/spack_repo/firsttouch/packages"
locks = load_script("lock_variants", LOCKS)
#: A makefile with Bowtie's variables. Its program says with which options it was built.
MAKEFILE = """\
ifeq (1,$(WITH_QUEUELOCK))
  FLAGS = -DNO_SPINLOCK -DWITH_QUEUELOCK
endif
ifeq (1,$(NO_SPINLOCK))
  FLAGS = -DNO_SPINLOCK
endif
bowtie-align-s:
\t@echo '#!/bin/sh' >$@
\techo 'echo "Options: -O3 $(FLAGS) $(CXXFLAGS)"' >>$@
\tchmod +x $@
"""


def archive(file, makefile=MAKEFILE):
    """Write the archive of a release that has only a makefile."""
    with tarfile.open(file, "w:gz") as packed:
        member = tarfile.TarInfo("bowtie-1.3.1/Makefile")
        member.size = len(makefile)
        packed.addfile(member, io.BytesIO(makefile.encode()))
    return file


@pytest.fixture
def release(tmp_path, monkeypatch):
    """Returns a function that builds programs of an archive which a lock file names; it returns what failed."""

    def run(file, *names, jobs=2):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        lock = tmp_path / "sources.lock"
        source = locks.sources.Source("bowtie", "1", digest, "https://example.org/b.tar.gz", f"{digest}.tar.gz")
        locks.sources.write(lock, [source])
        monkeypatch.setattr(locks.sources, "LOCK", lock)
        args = argparse.Namespace(source=[file], release="", jobs=jobs)
        folder = tmp_path / "an output"
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        return locks.install(locks.choose(locks.variants(), names), folder, args)

    run.folder = tmp_path / "an output"
    return run


BOWTIE = [f"bowtie-align-s-{lock}" for lock in ("spin", "standard", "queuing")]


@pytest.mark.timeout(600)
def test_the_distributions_source_is_built_once():
    """In the cache of the tests, because the compilation takes 20 seconds: once for each version of the script.

    The script builds the program again if the source, the options or the compiler changed.
    """
    script, name = LOCKS / "lock_variants.py", "bowtie-align-s-queuing"
    version = hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    folder = caches.folder("study-programs") / version
    argv = [sys.executable, script, name, "-o", folder]

    def run():
        env = {**os.environ, "CXXFLAGS": "-O0"}
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=500, check=False)

    with lock_file(folder.with_name(f"{version}.lock")):
        done = run()
        if done.returncode == 3:
            pytest.skip(f"NO SOURCE IS BUILT: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"export PATH={folder}/bin:$PATH\n"
        program = folder / "bin" / name
        assert locks.lock_macros(program) == {"NO_SPINLOCK", "WITH_QUEUELOCK"}
        assert {file.name for file in folder.iterdir()} == {"bin", "sources", f"{name}.json"}
        before = program.stat()
        again = run()
        assert "there already" in again.stderr
        assert "downloading" not in again.stderr
        assert (program.stat().st_ino, again.returncode) == (before.st_ino, 0)


def test_each_program_has_its_lock(release, tmp_path):
    file = archive(tmp_path / "release")
    assert release(file, *BOWTIE, jobs=3) == []
    assert {file.name for file in (release.folder / "bin").iterdir()} == set(BOWTIE)
    for name in BOWTIE:
        assert locks.lock_macros(release.folder / "bin" / name) == locks.variants()[name].macros
        recipe = json.loads((release.folder / f"{name}.json").read_text())
        assert recipe["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_another_source_or_option_builds_it_again_and_a_failure_keeps_the_program(release, tmp_path, monkeypatch):
    name = BOWTIE[0]
    program = release.folder / "bin" / name
    release(archive(tmp_path / "release"), name)
    assert "-O1" not in program.read_text()
    monkeypatch.setenv("CXXFLAGS", "-O1")
    assert release(tmp_path / "release", name) == []
    assert "-O1" in program.read_text()
    broken = archive(tmp_path / "broken", "bowtie-align-s:\n\t@echo 'x.cpp:1: error: no good' >&2; exit 1\n")
    # Both fail at the same time, in any order.
    failures = {str(failure) for failure in release(broken, name, BOWTIE[1])}
    log = release.folder / f"{name}.log"
    assert f"{name} cannot be built: x.cpp:1: error: no good ({log})" in failures
    assert "-O1" in program.read_text()
    # A makefile without the variables of the locks builds the same program for all.
    other = archive(tmp_path / "other", MAKEFILE.replace("WITH_QUEUELOCK)", "ANOTHER_NAME)"))
    (failure,) = release(other, BOWTIE[2])
    assert "builds a lock with neither macro, not with NO_SPINLOCK WITH_QUEUELOCK" in str(failure)
    assert not (release.folder / "bin" / BOWTIE[2]).exists()


def test_an_archive_must_be_in_the_lock_file(tmp_path):
    with pytest.raises(BadInput, match=rf"^{tmp_path}/none: "):
        locks.archives([tmp_path / "none"])
    unknown = archive(tmp_path / "bowtie.tar.gz")
    with pytest.raises(BadInput, match=r"bowtie.tar.gz: .*SHA-256 .*sources.lock"):
        locks.archives([unknown])
    with pytest.raises(BadInput, match="SHA-256"):
        locks.archives([tmp_path])


@pytest.mark.parametrize(
    ("names", "variables", "reason"),
    [
        (["bowtie-align-s-spim"], {}, "no program 'bowtie-align-s-spim': there are .*; did you mean"),
        ([], {"CXX": "no-such-compiler -m64"}, r"the C\+\+ compiler 'no-such-compiler -m64' is not on PATH"),
        ([], {"CXXFLAGS": "-nostdinc"}, r"g\+\+ does not find zlib.h: install zlib1g-dev"),
    ],
)
def test_what_is_wrong_or_missing_is_one_line(tmp_path, monkeypatch, names, variables, reason):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises((BadInput, Missing), match=reason):
        locks.install(locks.choose(locks.variants(), names), tmp_path, argparse.Namespace(source=[]))


def test_aligners_name_the_programs_and_the_target():
    assert "\nstudy-programs: ## " in (paths.ROOT / "Makefile").read_text()
    described = [tomllib.loads(file.read_text())["program"] for file in ALIGNERS.glob("*.toml")]
    programs = {program for program in described if "-align-s-" in program}
    assert programs == set(locks.variants())


def test_spacks_recipes_give_make_the_same_variables():
    for target, of_target in (("bowtie", "bowtie-align-s"), ("bowtie2", "bowtie2-align-s")):
        tree = ast.parse((RECIPES / f"{target}_lock/package.py").read_text())
        (table,) = [n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "LOCKS"]
        assert ast.literal_eval(table) == {
            v.lock: v.make for v in locks.variants().values() if v.target == of_target
        }
