# SPDX-License-Identifier: Apache-2.0
"""Scripts in place of programs, waiting, runs of ReFrame, and commands run in this process."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from firsttouch import cli, paths

REFRAME = Path(sys.executable).with_name("reframe")


def write_program(file: Path, script: str) -> Path:
    """Write an executable shell script and return its file."""
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def wait_until(condition: Callable[[], object], what: str = "the condition", *, seconds: float = 120) -> None:
    """Wait until *condition* holds; raises AssertionError after *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.01)


def captured(argv: Sequence[Any], *, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return its status and its texts."""
    return subprocess.run(argv, capture_output=True, text=True, check=check, **options)


def open_descriptors() -> set[tuple[str, Path]]:
    """Return the numbers of this process's descriptors, each with what it is open for.

    Compare by ``<=``: what an earlier test has left may be closed meanwhile.
    """
    descriptors = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            descriptors.add((descriptor.name, descriptor.readlink()))
    return descriptors


@contextlib.contextmanager
def started(argv: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program, which is killed if it runs at the end of the block: its lock of the host would stay."""
    with subprocess.Popen([str(word) for word in argv], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def load_script(name: str, folder: Path) -> ModuleType:
    """Import a module from a folder that is not a package (containers/, spack-env/)."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Completed(NamedTuple):
    """The exit status of a command, its output, and its messages."""

    status: int
    out: str
    err: str


def status_of(words: Sequence[str]) -> int:
    """Run a command line in this process and return its exit status."""
    try:
        return cli.main(words)
    except SystemExit as end:
        return int(end.code or 0)


def run_captured(*argv: object, **environment: str) -> Completed:
    """Run a command line in this process where no fixture captures its output."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in environment.items():
            patch.setenv(name, value)
        status = status_of([str(word) for word in argv])
    return Completed(status, out.getvalue(), err.getvalue())


def run_parsed(*argv: object) -> int:
    """Parse a command line and run its command in this process. Errors are raised, not printed."""
    words = [str(word) for word in argv]
    args = cli.parser(words[:1]).parse_args(words)
    status: int = args.run(args)
    return status


@dataclass(frozen=True)
class ReFrameRun:
    """The exit status and output of ReFrame, and its cases by their display names."""

    status: int
    output: str
    cases: Mapping[str, Mapping[str, Any]]

    @property
    def results(self) -> dict[str, str]:
        """The result of each case: pass, fail, fail_deps or skip."""
        return {name: case["result"] for name, case in self.cases.items()}

    @property
    def reasons(self) -> dict[str, str]:
        """The reason of each case that failed; empty for the others."""
        return {name: case["fail_reason"] or "" for name, case in self.cases.items()}

    @property
    def failures(self) -> list[str]:
        """The reasons of the cases that failed themselves, without those whose dependencies failed."""
        return [reason for name, reason in self.reasons.items() if self.results[name] == "fail"]


def reported_cases(report: Path) -> dict[str, Mapping[str, Any]]:
    """Return the cases of a report file of ReFrame by their display names."""
    runs = json.loads(report.read_text())["runs"]
    return {case["display_name"]: case for run in runs for case in run["testcases"]}


def run_reframe(
    folder: Path,
    checks: Sequence[str | Path],
    pattern: str,
    *options: object,
    system: str = "local",
    timeout: float = 300,
    environment: Mapping[str, str],
) -> ReFrameRun:
    """Run the *checks* of reframe/ whose names match *pattern*, once each, in *folder*."""
    report = folder / "report.json"
    files = [word for check in checks for word in ("-c", paths.ROOT / "reframe" / f"{check}.py")]
    argv = [REFRAME, "--nocolor", *files, "-r", "--system", system, "-n", pattern, "-S", "repetitions=1"]
    argv += ["--report-file", report, "--exec-policy", "serial", *options]
    site = {"RFM_CONFIG_FILES": str(paths.SETTINGS), "FIRSTTOUCH_OUT": str(folder / "out")}
    done = captured(argv, cwd=folder, env={**os.environ, **site, **environment}, timeout=timeout)
    cases = reported_cases(report)
    assert cases, done.stdout
    return ReFrameRun(done.returncode, done.stdout, cases)
