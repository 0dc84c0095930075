# SPDX-License-Identifier: Apache-2.0
"""The Spack environment: its files, and a real Spack if SPACK_ROOT and SPACK_PACKAGES name one."""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml
from archspec import cpu

from factories import http_server
from factories.processes import load_script
from firsttouch import paths
from firsttouch.systems.definition import available

SPACK = paths.ROOT / "spack-env"
PROFILES = ("online", "airgap", "debian")
RECIPES = sorted((SPACK / "repo").rglob("package.py"))
sources = load_script("sources", SPACK)
stack = load_script("stack", SPACK)
DESCRIBED = yaml.safe_load((SPACK / "spack.yaml").read_text())["spack"]
OPTIONAL = yaml.safe_load((SPACK / "optional.yaml").read_text())["specs"]
SPECS = {spec.split("@")[0]: spec.split("@")[1].split()[0] for spec in DESCRIBED["specs"]}
ALL = SPECS | {spec.split("@")[0]: spec.split("@")[1].split()[0] for spec in OPTIONAL}

needs_spack = pytest.mark.skipif(
    not (os.environ.get("SPACK_ROOT") and os.environ.get("SPACK_PACKAGES")),
    reason="SPACK IS NOT TESTED: SPACK_ROOT and SPACK_PACKAGES do not name its clones",
)


def arguments(folder, **given):
    chosen = {
        "profile": "airgap",
        "target": None,
        "system": None,
        "prefix": folder,
        "mirror": None,
        "locks": SPACK,
        "only": [],
        "site": None,
        "words": [],
    }
    return argparse.Namespace(**{**chosen, **given})


def test_versions_are_pinned_in_one_place():
    assert all("@" in spec for spec in (*DESCRIBED["specs"], *OPTIONAL))
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
    assert SPECS["firsttouch"] == project["project"]["version"]
    pins = (paths.ROOT / "setup" / "requirements.lock").read_text()
    probe = re.findall(r"probe VERSION (\S+)", (paths.ROOT / "probe" / "CMakeLists.txt").read_text())
    for recipe in RECIPES:
        name = recipe.parent.name.replace("_", "-")
        python = re.findall(rf"^{name.removeprefix('py-')}==(\S+)", pins, re.MULTILINE)
        (version,) = [ALL[name]] if name in ALL else probe if name == "firsttouch-probe" else python
        assert f'version("{version}"' in recipe.read_text()
    assert {"firsttouch": SPECS["firsttouch"], "firsttouch-probe": probe[0]} == stack.OURS


def test_the_recipe_needs_what_the_project_needs():
    recipe = (SPACK / "repo/spack_repo/firsttouch/packages/firsttouch/package.py").read_text()
    stated = dict(re.findall(r'depends_on\("([a-z0-9-]+)@([0-9.]+):"', recipe))
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
    needed = dict(line.split(">=") for line in project["dependencies"])
    assert stated.pop("python") == project["requires-python"].removeprefix(">=")
    assert {name.removeprefix("py-"): least for name, least in stated.items()} == {
        name.lower(): least for name, least in needed.items()
    }


def test_profiles_differ_in_packages_mirrors_and_repositories_only():
    for name in PROFILES:
        files = {f.name for f in (SPACK / "profiles" / name).iterdir() if f.suffix == ".yaml"}
        assert files == {"packages.yaml", "mirrors.yaml", "repos.yaml"}
        for file in files:
            data = yaml.safe_load((SPACK / "profiles" / name / file).read_text())
            assert {key.rstrip(":") for key in data} == {file.removesuffix(".yaml")}


def test_every_recipe_of_ours_has_a_checksum():
    for recipe in RECIPES:
        calls = [n for n in ast.walk(ast.parse(recipe.read_text())) if isinstance(n, ast.Call)]
        versions = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "version"]
        assert versions
        for call in versions:
            pinned = {k.arg for k in call.keywords} & {"sha256", "commit"}
            assert pinned or recipe.parent.name.replace("_", "-") in stack.OURS, recipe


def test_targets_are_archspecs_and_name_every_system():
    targets = yaml.safe_load((SPACK / "targets.yaml").read_text())
    assert set(targets["systems"]) == set(available()) - {"local"}
    for name in (*targets["systems"].values(), *targets["default"].values()):
        assert name in cpu.TARGETS
    for family, without in targets["leave_out"].items():
        assert family in cpu.TARGETS
        assert set(without) <= set(ALL)


def test_an_environment_is_made_for_a_system(tmp_path):
    folder = stack.environment(arguments(tmp_path, system="amd-opteron"))
    content = yaml.safe_load((folder / "spack.yaml").read_text())["spack"]
    assert folder.name == "airgap-piledriver"
    assert content["packages"]["all"]["require"] == ["target=piledriver"]
    assert content["specs"] == [f"{spec} target=piledriver" for spec in DESCRIBED["specs"]]
    assert content["concretizer"]["targets"] == {"host_compatible": False}
    assert content["include"] == [str(SPACK / "profiles" / "airgap")]
    arm = stack.environment(arguments(tmp_path, target="neoverse_n1"))
    content = yaml.safe_load((arm / "spack.yaml").read_text())["spack"]
    assert not any(spec.startswith("gem3-mapper") for spec in content["specs"])
    assert any(spec.startswith("bwa@") for spec in content["specs"])


def test_a_part_of_the_stack_is_built_from_the_lock_of_all(tmp_path, monkeypatch):
    """They have the dependencies of the whole stack."""
    started = []
    monkeypatch.setattr(stack, "_spack", lambda args, folder, words: started.append(words) or 0)
    monkeypatch.setattr(stack, "host_system", lambda: "debian12")
    part = arguments(tmp_path, target="x86_64_v3", only=["bwa", "snap-berkeley"])
    assert stack.install(part) == 0
    assert started == [
        ["install", "--fail-fast", "--show-log-on-error", "--only-concrete", "bwa", "snap-berkeley"]
    ]
    content = yaml.safe_load((tmp_path / "airgap-x86_64_v3" / "spack.yaml").read_text())["spack"]
    assert len(content["specs"]) == len(SPECS)
    with pytest.raises(sources.Wrong, match=r"spack.yaml .*: bw2 \(.* bowtie, "):
        stack.environment(arguments(tmp_path, only=["bwa", "bw2"]))


def test_what_spack_writes_into_an_environment_costs_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "host_system", lambda: "rocky9")
    folder = stack.environment(arguments(tmp_path, target="x86_64_v3"))
    assert not (folder / "spack.lock").exists()  # the kept locks are of Debian's compiler
    (folder / "spack.lock").write_text("{}")
    with (folder / "spack.yaml").open("a") as file:
        file.write("  mirrors: {}\n")
    assert stack.environment(arguments(tmp_path, target="x86_64_v3")) == folder
    assert (folder / "spack.lock").read_text() == "{}"


def test_a_package_of_the_distribution_that_is_missing_is_named_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(
        stack.subprocess, "run", lambda *_, **__: argparse.Namespace(stdout="installed cmake gcc\n")
    )
    with pytest.raises(sources.Wrong, match=r"apt-get install autoconf .* libtool ") as raised:
        stack.install(arguments(tmp_path, profile="debian"))
    assert raised.value.status == 3


def test_locks_are_complete_for_every_target(tmp_path):
    assert stack.check_locks(SPACK) == []
    shutil.copytree(SPACK / "locks", tmp_path / "locks")
    shutil.copy(sources.LOCK, tmp_path)
    locked = tmp_path / "locks" / "debian-zen3.lock"
    content = json.loads(locked.read_text())
    key = next(k for k, n in content["concrete_specs"].items() if n["name"] == "bwa")
    del content["concrete_specs"][key]
    locked.write_text(json.dumps(content))
    (tmp_path / "locks" / "source-zen3.lock").unlink()
    (tmp_path / "locks" / "debian-pentium.lock").write_text('{"concrete_specs": {}}')
    lines = (tmp_path / "sources.lock").read_text().splitlines()
    (tmp_path / "sources.lock").write_text("\n".join(line for line in lines if '"name": "numactl"' not in line))
    problems = " | ".join(stack.check_locks(tmp_path))
    assert f"debian-zen3.lock: not complete: {key}" in problems
    assert "source-zen3.lock: missing: run stack.py concretize --target zen3" in problems
    assert "debian-pentium.lock: not the lock of a target" in problems
    assert "sources.lock: no source of numactl 2.0.19" in problems
    assert problems.count("|") == 3


def test_optional_packages_are_built_if_named_and_their_sources_are_locked(tmp_path, capsys):
    folder = stack.environment(arguments(tmp_path, target="x86_64_v3", only=["bowtie-lock", "bwa"]))
    content = yaml.safe_load((folder / "spack.yaml").read_text())["spack"]
    assert {spec.split("@")[0] for spec in content["specs"]} == {"bowtie-lock", "bwa"}
    locked = {(source.version, source.sha256) for source in sources.read(sources.LOCK)}
    for spec in OPTIONAL:
        name, version = spec.split("@")
        recipe = SPACK / f"repo/spack_repo/firsttouch/packages/{name.replace('-', '_')}/package.py"
        (digest,) = re.findall(rf'version\("{version}", sha256="(\w+)"\)', recipe.read_text())
        assert (version, digest) in locked
    # Programs that were not requested are not reported as left out.
    capsys.readouterr()
    stack.environment(arguments(tmp_path, target="neoverse_n1"))
    assert "bowtie-lock" not in capsys.readouterr().err


def test_what_a_site_has_already_is_not_built(tmp_path):
    site = tmp_path / "packages.yaml"
    site.write_text("packages:\n  hwloc: {externals: [{spec: hwloc@2.9.0, prefix: /usr}], buildable: false}\n")
    folder = stack.environment(arguments(tmp_path, profile="debian", target="x86_64_v3", site=site))
    content = yaml.safe_load((folder / "spack.yaml").read_text())["spack"]
    assert content["include"] == [str(site), str(SPACK / "profiles" / "debian")]
    assert not (folder / "spack.lock").exists()
    for text in ("hwloc: {}\n", "packages: [\n", "- packages\n"):
        site.write_text(text)
        with pytest.raises(sources.Wrong, match=f"{site}: "):
            stack.environment(arguments(tmp_path, site=site))
    with pytest.raises(sources.Wrong, match="No such file"):
        stack.environment(arguments(tmp_path, site=tmp_path / "none.yaml"))


def test_an_environment_takes_the_lock_of_its_profile(tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "host_system", lambda: "debian12")
    kept = SPACK / "locks" / "debian-x86_64_v3.lock"
    folder = stack.environment(arguments(tmp_path, profile="debian", target="x86_64_v3"))
    locked = json.loads((folder / "spack.lock").read_text())
    assert {root["spec"].split("@")[0] for root in locked["roots"]} == set(SPECS)
    assert str(paths.ROOT) not in kept.read_text()
    dev = [s for s in locked["concrete_specs"].values() if s["name"] == "firsttouch"]
    assert dev[0]["parameters"]["dev_path"] == str(paths.ROOT)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"target": "pentium9"}, "archspec does not know the target"),
        ({"system": "no-such"}, "has no target for system 'no-such'"),
    ],
)
def test_what_there_is_no_target_for(tmp_path, given, reason):
    with pytest.raises(sources.Wrong, match=reason):
        stack.environment(arguments(tmp_path, **given))


def test_spack_that_is_not_there_is_said(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith("SPACK_")}
    argv = [sys.executable, SPACK / "stack.py", "concretize", "--prefix", tmp_path]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "SPACK_ROOT is not a clone of Spack" in done.stderr


# ---------------------------------------------------------------- sources
@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("sha256", "abc", "is not a SHA-256"),
        ("url", "file:///etc/passwd", "is not a URL"),
        ("path", "../../outside", "is not a path in a mirror"),
        ("path", "/etc/passwd", "is not a path in a mirror"),
    ],
)
def test_a_lock_that_is_wrong(tmp_path, field, value, reason):
    good = json.loads((sources.LOCK.read_text().splitlines())[-1])
    file = tmp_path / "sources.lock"
    file.write_text(f"# comment\n{json.dumps({**good, field: value})}\n")
    with pytest.raises(sources.Wrong, match=rf"sources.lock:2: .*{reason}"):
        sources.read(file)
    file.write_text("{}\n")
    with pytest.raises(sources.Wrong, match=r"sources.lock:1: "):
        sources.read(file)


@pytest.fixture
def lock(tmp_path):
    """A lock of two sources, and the texts of their files."""
    texts = {name: f"the source of {name}\n".encode() for name in ("one", "two")}
    entries = []
    for name, text in texts.items():
        digest = hashlib.sha256(text).hexdigest()
        path = f"_source-cache/archive/{digest[:2]}/{digest}.tar.gz"
        entries.append(sources.Source(name, "1", digest, f"https://example.org/{name}", path))
    file = tmp_path / "sources.lock"
    sources.write(file, entries)
    return file, texts


def test_a_mirror_is_filled_from_files_of_any_name_and_verified(tmp_path, lock):
    file, texts = lock
    given, mirror, messages = tmp_path / "given", tmp_path / "mirror", []
    (given / "deep").mkdir(parents=True)
    (given / "deep" / "what.ever").write_bytes(texts["one"])
    (given / "two-1.tar.gz").write_bytes(b"another text")
    assert sources.fill(file, mirror, given, [], say=messages.append) == 1
    assert "MISSING: no file with this checksum" in " ".join(messages)
    (given / "two-1.tar.gz").write_bytes(texts["two"])
    assert sources.fill(file, mirror, given, [], say=messages.append) == 0
    assert sorted(f.read_bytes() for f in mirror.rglob("*.tar.gz")) == sorted(texts.values())
    # A file that was damaged since is detected and replaced.
    spoilt = next(mirror.rglob("*.tar.gz"))
    spoilt.write_bytes(b"spoilt")
    assert sources.fill(file, mirror, given, [], say=messages.append) == 0
    assert spoilt.read_bytes() in texts.values()
    with pytest.raises(sources.Wrong, match="no source of three"):
        sources.fill(file, mirror, given, ["three"], say=messages.append)
    with pytest.raises(sources.Wrong, match="is not a directory"):
        sources.fill(file, mirror, tmp_path / "no", [], say=messages.append)


def test_a_mirror_is_filled_by_download_and_a_wrong_file_never_stays(tmp_path, lock):
    file, texts = lock
    served = tmp_path / "served"
    served.mkdir()
    (served / "one").write_bytes(texts["one"])
    (served / "two").write_bytes(b"somebody else's")
    mirror, messages = tmp_path / "mirror", []
    with http_server.folder(served) as address:
        file.write_text(file.read_text().replace("https://example.org", address))
        assert sources.fill(file, mirror, None, [], say=messages.append) == 1
    assert [f.read_bytes() for f in mirror.rglob("*") if f.is_file()] == [texts["one"]]
    assert any("two 1: MISSING: its SHA-256 is" in line for line in messages)


# ---------------------------------------------------------------- a real Spack
@needs_spack
@pytest.mark.timeout(900)
def test_a_real_spack_concretizes_all_and_finds_no_fault_in_our_recipes(tmp_path):
    locks = tmp_path / "locks"
    shutil.copytree(SPACK / "locks", locks / "locks")
    for words in ("audit", "concretize", "lock"):
        argv = [sys.executable, SPACK / "stack.py", words, "--profile", "debian", "--system", "amd-opteron"]
        argv += ["--prefix", tmp_path, "--locks", locks]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=800, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert {s.name for s in sources.read(locks / "sources.lock")} >= set(SPECS) - {"firsttouch"}
    kept = json.loads((SPACK / "locks" / "debian-piledriver.lock").read_text())
    again = json.loads((locks / "locks" / "debian-piledriver.lock").read_text())
    assert again["concrete_specs"].keys() == kept["concrete_specs"].keys()
