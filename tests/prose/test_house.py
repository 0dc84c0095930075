# SPDX-License-Identifier: Apache-2.0
"""Rules that keep the code readable: names of variables, the packages' docstrings, and no machine in a file."""

import re
import subprocess

import pytest
from parsed_sources import source

from firsttouch.paths import ROOT

SOURCES = sorted((ROOT / "src").rglob("*.py"))
OTHERS = ("bench", "containers", "docs", "reframe", "setup", "spack-env", "studies", "tests", "contrib")
PACKAGES = [file for file in SOURCES if file.name == "__init__.py" and file.parent.parent.name == "firsttouch"]
#: Names that do not say what a value is.
EMPTY_NAMES = {"every", "found", "known", "made", "mine", "one", "said", "told"}
#: Absolute paths of a machine, and addresses of package mirrors.
PRIVATE = re.compile(
    r"/(?:root|home/\w+|work)/\w|https?://(?!localhost)[\w.-]*(?:mirror|proxy|registry|artifact)[\w-]*\.\w"
)


def test_variables_say_what_they_are():
    named = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in (*SOURCES, *(file for folder in OTHERS for file in sorted((ROOT / folder).rglob("*.py"))))
        for name, line in source(file).variables
        if name in EMPTY_NAMES
    ]
    assert named == []


@pytest.mark.parametrize("file", PACKAGES, ids=lambda file: file.parent.name)
def test_a_package_describes_itself(file):
    docstring = source(file).docstring
    assert len(docstring.splitlines()) >= 3
    assert len(docstring.split()) >= 25


def test_no_committed_file_names_a_machine():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a Git checkout")
    places = []
    for name in filter(None, listed.stdout.split("\0")):
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        if b"\0" not in content:
            lines = content.decode(errors="replace").splitlines()
            places += [f"{name}:{n}: {m[0]}" for n, line in enumerate(lines, 1) if (m := PRIVATE.search(line))]
    assert places == []
