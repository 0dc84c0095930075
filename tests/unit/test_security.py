# SPDX-License-Identifier: Apache-2.0
"""SECURITY.md: its promises have tests, and those about the program's own code hold."""

import ast
import re
import stat

import pytest

from firsttouch.paths import ROOT

DOCUMENT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
#: Path, class or "", and name of each test.
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(?:(\w+)::)?(\w+)`", DOCUMENT)
#: Folders with programs of the project.
FOLDERS = ("src", "reframe", "setup", "slurm", "containers", "spack-env", "probe", "contrib")
#: Modules that listen on the network, and calls that start a shell.
LISTENING = {"socketserver", "http.server", "asyncio", "xmlrpc.server", "wsgiref"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
LAST = {name.rpartition(".")[2] for name in SHELLS}


@pytest.mark.parametrize(("file", "group", "name"), TESTS)
def test_each_promise_names_a_test_that_exists(file, group, name):
    module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    (place,) = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == group] or [module]
    assert (place is module) == (group == "")
    assert name in {node.name for node in place.body if isinstance(node, ast.FunctionDef)}


def test_every_row_of_promises_names_tests():
    rows = DOCUMENT.split("## The tests of these promises")[1].splitlines()
    promises = [row for row in rows if row.startswith("| ")][1:]
    assert len(promises) > 10
    assert all(re.search(r"`tests/[\w/]+\.py::[\w:]+`", row) for row in promises)


def test_nothing_is_set_user_id_listens_or_uses_a_shell():
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.is_file()]
    assert not [file for file in files if file.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    for file in files:
        if file.suffix == ".py":
            assert not list(wrong_calls(ast.parse(file.read_text(encoding="utf-8")))), file


def test_python_packages_have_checksums():
    locked = []
    for name in ("requirements.lock", "dev-requirements.lock"):
        lines = (ROOT / "setup" / name).read_text(encoding="utf-8").replace("\\\n", "").splitlines()
        packages = [line for line in lines if "==" in line and not line.startswith("#")]
        assert len(packages) > 20
        assert all("--hash=sha256:" in line for line in packages)
        locked.append({package.split()[0] for package in packages})
    assert locked[0] < locked[1]  # both install the same versions
    script = (ROOT / "setup/setup.sh").read_text(encoding="utf-8")
    installing = re.findall(r"install .*-r \"\$lock\"", script)
    assert installing
    assert all("--require-hashes" in command for command in installing)


def wrong_calls(module):
    """Yield the calls of a shell, and what listens on the network, in a module."""
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                yield from LISTENING & {alias.name for alias in names}
            case ast.ImportFrom(module=name):
                yield from LISTENING & {name}
            case ast.Call(func=function, keywords=keywords):
                name = getattr(function, "attr", getattr(function, "id", ""))
                # To write out each call would take longer than all other work.
                if name in {"listen", "create_server"} or (name in LAST and ast.unparse(function) in SHELLS):
                    yield name
                if any(k.arg == "shell" and getattr(k.value, "value", None) is not False for k in keywords):
                    yield f"{name} with a shell"


@pytest.mark.parametrize(
    "text", ["import socketserver", "from http.server import x", "subprocess.run(a, shell=True)", "os.system('a')"]
)
def test_what_listens_or_uses_a_shell_is_found(text):
    assert list(wrong_calls(ast.parse(text)))
