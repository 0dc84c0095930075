# SPDX-License-Identifier: Apache-2.0
"""Runs ReFrame on one system, with live progress, and says which checks did not give what they should."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution.process_runner import child, follow
from firsttouch.execution.progress import FOLLOWER

_STARTED = re.compile(r"\[ +RUN +\] (.+?) /[0-9a-f]{8}")
_SKIPPED = re.compile(r"^\[ +SKIP +\] \( *\d+/\d+\) (.+?) /[0-9a-f]{8} @\S+ \[(.*)\]$", re.MULTILINE)
_ENDED = re.compile(r"\[ +(OK|FAIL|SKIP|XFAIL|XPASS|ABORT) +\] \( *(\d+)/(\d+)\) (.+?) /[0-9a-f]{8}")


@dataclass(frozen=True)
class Trouble:
    """A check without a good result: its name, ``failed`` or ``skipped``, and why."""

    check: str
    result: Literal["failed", "skipped"]
    reason: str

    @property
    def word(self) -> str:
        """The check's name without its parameters, as records have it."""
        return self.check.split(" ", 1)[0]


def run(
    checks: Path, system: str, folder: Path, *, options: Sequence[str], say: Callable[[str], None]
) -> list[Trouble]:
    """Run all *checks* on *system*, one at a time, with all results below *folder*; return the troubles.

    Raises RunFailed where ReFrame itself failed (a check that fails is a trouble, not an error).
    """
    folder.mkdir(parents=True, exist_ok=True)
    report, progress = folder / "reframe.json", folder / "progress.log"
    progress.touch()
    # ReFrame cannot run a local job in a folder with a blank in its name.
    with tempfile.TemporaryDirectory(prefix="firsttouch-") if " " in str(folder) else nullcontext() as elsewhere:
        stage = Path(elsewhere or folder, "stage")
        argv = [
            str(Path(sys.executable).with_name("reframe")),
            *("-c", str(checks), "-r", "--system", system, "--exec-policy", "serial", "--nocolor"),
            *("--stage", str(stage), "--output", str(folder / "output")),
            *("--report-file", str(report), *options),
        ]
        env = {FOLLOWER: str(progress), "RFM_ENABLE_RESULTS_STORAGE": "0"}
        status = _follow(argv, env, folder / "reframe.log", progress, say)
        if elsewhere and stage.is_dir():
            shutil.copytree(stage, folder / "stage")
    try:
        return read(report)
    except BadInput as error:
        tail = (folder / "reframe.log").read_text(errors="replace").strip().splitlines()[-3:]
        raise RunFailed(f"ReFrame ended with status {status} and no report: {' | '.join(tail)}") from error


def read(report: Path) -> list[Trouble]:
    """Return the troubles that a run report of ReFrame tells of, with the reasons in the log beside it.

    Raises BadInput where it is none.
    """
    try:
        log = report.with_suffix(".log")
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return _troubles(json.loads(report.read_text(encoding="utf-8")), text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"not a run report of ReFrame: {type(error).__name__}: {error}", file=report) from error


def is_report(file: Path) -> bool:
    """Tell whether a JSON file is a run report of ReFrame."""
    try:
        with file.open("rb") as start:
            if b'"session_info"' not in start.read(4096):  # it is the first key
                return False
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and {"session_info", "runs"} <= set(data)


def reports(folder: Path) -> list[Path]:
    """Return the run reports below *folder*, whatever their names: of each folder, that of the newest session."""
    newest: dict[Path, tuple[float, Path]] = {}
    for file in sorted(folder.rglob("*.json")):
        if file.is_file() and is_report(file):
            session = json.loads(file.read_text(encoding="utf-8"))["session_info"]
            start = session.get("time_start_unix") if isinstance(session, dict) else None
            began = float(start) if isinstance(start, (int, float)) else file.stat().st_mtime
            newest[file.parent] = max(newest.get(file.parent, (began, file)), (began, file))
    return [file for _, file in newest.values()]


def folders(report: Path) -> list[Path]:
    """Return the folders with the results of a run report's checks, as far as they are there."""
    data = json.loads(report.read_text(encoding="utf-8"))
    cases = [case for session in _list(data["runs"]) for case in _list(session["testcases"])]
    named = [Path(str(case[key])) for case in cases for key in ("outputdir", "stagedir") if case.get(key)]
    return [folder for folder in dict.fromkeys(named) if folder.is_dir()]


def _follow(
    argv: Sequence[str], env: Mapping[str, str], log: Path, progress: Path, say: Callable[[str], None]
) -> int:
    """Run ReFrame to its end, telling what it and its checks say while they do; stop it where we are stopped."""
    clock = _Clock(say)
    with (
        log.open("wb") as out,
        log.open(encoding="utf-8", errors="replace") as written,
        progress.open(errors="replace") as steps,
        # ReFrame cancels its jobs on an interrupt.
        child(argv, stop=signal.SIGINT, patience=10, stdout=out, stderr=out, env=env) as process,
    ):
        status = follow(process, 0.1, lambda: clock.tell(written.read(), steps.read()))
        clock.tell(written.read() + "\n", steps.read() + "\n")
    return status


class _Clock:
    """Turns ReFrame's log into one line per check, with its seconds, and passes on what checks say."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.start = time.monotonic()
        #: What was read after the last whole line, of the log and of the checks.
        self.log = self.steps = ""

    def tell(self, log: str, steps: str) -> None:
        """Take what was written since the last call; a line is told once it is whole."""
        *lines, self.steps = (self.steps + steps).split("\n")
        for line in filter(None, lines):
            self.say(f"    {line.rstrip()}")
        *lines, self.log = (self.log + log).split("\n")
        for line in lines:
            if started := _STARTED.search(line):
                self.start = time.monotonic()
                self.say(f"  {started[1]} ...")
            elif ended := _ENDED.search(line):
                seconds = time.monotonic() - self.start
                self.say(f"  ({ended[2]}/{ended[3]}) {ended[1].lower()}: {ended[4]} [{seconds:.1f} s]")


def _troubles(report: Mapping[str, object], log: str) -> list[Trouble]:
    # Why a check was skipped is in the log alone.
    skips = {m[1]: m[2] for m in _SKIPPED.finditer(log)}
    troubles = []
    for session in _list(report["runs"]):
        for case in _list(session["testcases"]):
            result, name = str(case["result"]), str(case["display_name"])
            if result not in {"pass", "xfail"}:
                reason = str(case.get("fail_reason") or skips.get(name) or "no reason given")
                # A check whose fixture failed did not run: the fixture's own failure is the one to act on.
                word: Literal["failed", "skipped"] = "skipped" if result in {"skip", "fail_deps"} else "failed"
                troubles.append(Trouble(name, word, reason.removeprefix("sanity error: ")))
    return troubles


def _list(value: object) -> list[dict[str, object]]:
    if not isinstance(value, list):
        raise KeyError("no list")  # another version's report: the caller says so
    return value
