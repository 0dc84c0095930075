# SPDX-License-Identifier: Apache-2.0
"""The recipes of contrib/packaging/ and CITATION.cff agree with pyproject.toml."""

import contextlib
import importlib.metadata
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from factories.processes import captured
from firsttouch.paths import ROOT
from firsttouch.tools import REPORT

PACKAGING = ROOT / "contrib" / "packaging"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: The files of a complete installation, which all recipes install.
EXTRA = PROJECT["project"]["optional-dependencies"]["report"]
NEEDED = [*PROJECT["project"]["dependencies"], *EXTRA]
RELEASE = PROJECT["project"]["version"]
LMOD = Path("/usr/share/lmod/lmod/libexec/lmod")
MODULES = shutil.which("modulecmd.tcl", path="/usr/share/modules/libexec:/usr/lib/x86_64-linux-gnu")


def test_recipes_name_the_release():
    (easyconfig,) = PACKAGING.glob("easybuild/firsttouch-*.eb")
    assert easyconfig.name.startswith(f"firsttouch-{RELEASE}-")
    assert f"\nversion = '{RELEASE}'\n" in easyconfig.read_text()
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == RELEASE
    recipe = yaml.safe_load((PACKAGING / "conda/recipe.yaml").read_text())
    assert f'default="{RELEASE}"' in recipe["context"]["version"]
    environments = [yaml.safe_load(file.read_text()) for file in (ROOT / "contrib").rglob("environment.y*ml")]
    pinned = [re.sub(" *=", "=", package) for file in environments for package in file["dependencies"]]
    assert [package for package in pinned if package.startswith("firsttouch")] == 2 * [f"firsttouch={RELEASE}"]


def test_the_modules_of_the_extra_are_those_of_its_packages():
    packages = {canonicalize_name(Requirement(line).name) for line in EXTRA}
    modules = importlib.metadata.packages_distributions()
    assert {canonicalize_name(package) for module in REPORT for package in modules[module]} == packages


def test_recipes_name_the_probe():
    (version,) = re.findall(
        r"project\(firsttouch-probe VERSION (\S+)", (ROOT / "probe/CMakeLists.txt").read_text()
    )
    (easyconfig,) = PACKAGING.glob("easybuild/firsttouch-*.eb")
    assert f"('firsttouch_probe', '{version}'" in easyconfig.read_text()
    recipe = yaml.safe_load((PACKAGING / "conda/recipe.yaml").read_text())
    assert recipe["outputs"][0]["package"] == {"name": "firsttouch-probe", "version": version}


#: A command of pip, uv or pipx that installs firsttouch or its probe by name, which anybody may publish.
BY_NAME = re.compile(
    r"\b(?:pip3?|pipx|uvx?)\b[^\n#&|;]*\b(?:install|download|wheel|run)\b[^\n#&|;]*"
    r"[ '\"]firsttouch(?:-probe)?(?![\w./-])"
)


@pytest.mark.parametrize(
    ("text", "is_by_name"),
    [
        ("pip install firsttouch", True),
        ("venv/bin/pip install -q 'firsttouch==0.1'", True),
        ("python -m pip install firsttouch-probe", True),
        ("pipx run firsttouch plan", True),
        ("pip install dist/*.whl", False),
        ("pip install ./firsttouch-0.1.0-py3-none-any.whl", False),
        ("pip install . && firsttouch plan", False),
    ],
)
def test_an_installation_by_name_is_found(text, is_by_name):
    assert bool(BY_NAME.search(text)) == is_by_name


def test_whatever_installs_the_wheel_names_the_file_of_the_probe():
    """Otherwise the installer takes firsttouch-probe, a requirement, from any index."""
    wheel = re.compile(r"\b(?:pip3?|pipx|uvx?)\b .*dist/firsttouch-")
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    lines = [line for page in pages for line in page.read_text().splitlines() if wheel.search(line)]
    assert len(lines) >= 3
    assert [line for line in lines if "dist/firsttouch_probe-" not in line] == []


def test_nothing_installs_the_project_by_its_name():
    folders = ["containers", "contrib", "docs", "reframe", "setup", "slurm", "spack-env"]
    files = [file for name in folders for file in (ROOT / name).rglob("*") if file.is_file()]
    files += [*ROOT.glob("*.md"), ROOT / "Makefile"]
    named = {}
    for file in files:
        with contextlib.suppress(UnicodeDecodeError):
            if match := BY_NAME.search(file.read_text(encoding="utf-8")):
                named[str(file)] = match[0]
    assert not named
    (easyconfig,) = PACKAGING.glob("easybuild/firsttouch-*.eb")
    values: dict = {}
    exec(compile(easyconfig.read_text(), easyconfig, "exec"), values)  # noqa: S102 - an easyconfig is Python
    assert len(values["exts_list"]) == 2
    for _, _, options in values["exts_list"]:
        assert (options["source_urls"], options["installopts"]) == ([], "--no-deps")
    (command, *_) = values["exts_list"][1][2]["preinstallopts"].split(" >")
    listed = captured(["sh", "-c", command.replace("python", sys.executable, 1)], cwd=ROOT, check=True).stdout
    assert sorted(listed.split("\n")) == sorted(["", *(d for d in NEEDED if not d.startswith("firsttouch"))])


def test_conda_packages_are_those_of_the_wheel():
    recipe = yaml.safe_load((PACKAGING / "conda/recipe.yaml").read_text())
    listed = {line.replace(" ", "") for line in recipe["outputs"][1]["requirements"]["run"]}
    needed = {line.lower() for line in NEEDED}
    # conda-forge's name; its isal is the C library.
    names = {"isal": "python-isal"}
    renamed = {names.get(line.split(">")[0], line.split(">")[0]) + line[line.find(">") :] for line in needed}
    assert listed == renamed | {f"python{PROJECT['project']['requires-python']}", "__linux"}


@pytest.mark.parametrize("command", [[LMOD], ["tclsh", MODULES]], ids=["lmod", "environment-modules"])
def test_module_puts_the_programs_on_path(command, tmp_path):
    if not command[-1] or not Path(command[-1]).exists():
        pytest.skip("this implementation of modules is not installed")
    folder = tmp_path / "modules" / "firsttouch"
    folder.mkdir(parents=True)
    shutil.copy2(PACKAGING / "modulefiles/firsttouch", folder / RELEASE)
    environment = {"PATH": os.defpath, "MODULEPATH": str(folder.parent), "FIRSTTOUCH_PREFIX": "/prefix"}
    argv = [*command, "bash", "load", f"firsttouch/{RELEASE}"]
    done = captured(argv, env=environment, timeout=60)
    assert re.search(rf"^(export )?PATH=/prefix/{re.escape(RELEASE)}/bin:", done.stdout, re.MULTILINE), done.stderr
