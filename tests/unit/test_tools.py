# SPDX-License-Identifier: Apache-2.0
"""Short calls of other programs: their output, and the error for each way to fail."""

import importlib.util
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from firsttouch import tools
from firsttouch.errors import Missing, RunFailed, TimedOut
from firsttouch.tools import run_tool


def test_a_tool_that_is_asked_something(tmp_path):
    done = run_tool(["sh", "-c", "echo out; printf '\\377' >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "\N{REPLACEMENT CHARACTER}")
    with pytest.raises(Missing, match="'no-such-tool'"):
        run_tool(["no-such-tool"])
    with pytest.raises(TimedOut, match=r"sleep 60 .* 0.1 s"):
        run_tool(["sleep", "60"], timeout=0.1)
    (tmp_path / "broken").write_bytes(b"\x7fELF")
    (tmp_path / "broken").chmod(0o755)
    with pytest.raises(RunFailed, match=r"broken .*: Exec format error"):
        run_tool([str(tmp_path / "broken")])


#: Name -> the script of a tool, and whether the interrupt comes while it is being started.
INTERRUPTED = {
    "while it starts": ("exec sleep 1000", True),
    "while it runs": ("kill -INT $PPID; exec sleep 1000", False),
}


@pytest.mark.parametrize(("script", "starting"), INTERRUPTED.values(), ids=INTERRUPTED)
def test_an_interrupt_leaves_no_tool_behind(monkeypatch, script, starting):
    pids, start = [], subprocess.Popen._execute_child

    def started(process, *args):
        start(process, *args)
        pids.append(process.pid)
        if starting:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", started)
    with pytest.raises(KeyboardInterrupt):
        run_tool(["sh", "-c", script])
    assert len(pids) == 1
    assert not Path(f"/proc/{pids[0]}").exists()


def test_a_missing_program_is_said_to_be_installed_only_if_it_would_be(monkeypatch):
    packages = (Path(__file__).parents[2] / "setup" / "debian-packages.txt").read_text(encoding="utf-8").split()
    assert tools._FROM_SETUP - {"stream"} <= set(packages)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Missing, match="'samtools' is not on PATH: `make setup` installs it"):
        tools.require("samtools")
    with pytest.raises(Missing, match=r"^'mine' is not on PATH$"):
        tools.require("mine")


def test_a_python_package_that_is_not_there_is_named_with_what_installs_it(monkeypatch):
    with pytest.raises(Missing, match=r"no_such_package .*make setup"):
        tools.require_package("re", "no_such_package")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Missing, match=r"'report' .*: uv pip install -p .*jinja2"):
        tools.require_report()


def test_threads_that_load_numpy_together_restore_the_environment(monkeypatch):
    monkeypatch.setattr(tools, "sys", SimpleNamespace(modules={}))
    before = dict(os.environ)

    def enter(_):
        with tools.lean_numpy():
            return os.environ["OPENBLAS_NUM_THREADS"]

    with ThreadPoolExecutor(8) as pool:
        assert {*pool.map(enter, range(2000))} == {"1"}
    assert dict(os.environ) == before
