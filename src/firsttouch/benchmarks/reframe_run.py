# SPDX-License-Identifier: Apache-2.0
"""Runs ReFrame on one system with live progress, and returns the checks that failed or were skipped."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Literal

from msgspec import Struct

from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution.child_process import child, follow
from firsttouch.execution.progress import FOLLOWER, Steps

#: The variable with the TMPDIR of checks if ReFrame is started with another one; "" for none.
TMPDIR = "FIRSTTOUCH_TMPDIR"
#: The beginning of a check's messages about its host.
_WARNING = "firsttouch: "
_STARTED = re.compile(r"\[ +RUN +\] (.+?) /[0-9a-f]{8}")
_SKIPPED = re.compile(r"^\[ +SKIP +\] \( *\d+/\d+\) (.+?) /[0-9a-f]{8} @\S+ \[(.*)\]$", re.MULTILINE)
_ENDED = re.compile(r"\[ +(OK|FAIL|SKIP|XFAIL|XPASS|ABORT) +\] \( *(\d+)/(\d+)\) (.+?) /[0-9a-f]{8}")


class Trouble(Struct, frozen=True):
    """A check that failed or was skipped, and why."""

    check: str
    result: Literal["failed", "skipped"]
    reason: str

    @property
    def word(self) -> str:
        """The check's name without its parameters, as in records."""
        return self.check.split(" ", 1)[0]


def run(
    checks: Path,
    system: str,
    folder: Path,
    *,
    options: Sequence[str],
    say: Callable[[str], None],
) -> tuple[list[Trouble], Mapping[str, Sequence[str]]]:
    """Run all *checks* on *system*, one at a time, with all results below *folder*.

    Return the troubles, and for each warning the kinds of checks that gave it. Checks that fail are printed; on a
    terminal, a live line shows the running check and the time left. Raises RunFailed if ReFrame itself fails;
    failed checks are troubles.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report, progress = folder / "reframe.json", folder / "progress.log"
    progress.touch()
    # ReFrame cannot run a local job in a path with a blank.
    with tempfile.TemporaryDirectory(prefix="firsttouch-") if " " in str(folder) else nullcontext() as elsewhere:
        stage = Path(elsewhere or folder, "stage")
        argv = [
            str(Path(sys.executable).with_name("reframe")),
            *("-c", str(checks), "-r", "--system", system, "--exec-policy", "serial", "--nocolor"),
            "--exec-order=random",
            *("--stage", str(stage), "--output", str(folder / "output")),
            *("--report-file", str(report), *options),
        ]
        env = {FOLLOWER: str(progress), "RFM_ENABLE_RESULTS_STORAGE": "0"}
        # Before ReFrame reads its configuration, it opens a log in TMPDIR and never removes it.
        starting = folder / "starting"
        starting.mkdir(exist_ok=True)
        env |= {"TMPDIR": str(starting), TMPDIR: os.environ.get("TMPDIR", "")}
        clock = _Clock(say)
        status = _follow(argv, env, folder / "reframe.log", progress, clock)
        shutil.rmtree(starting, ignore_errors=True)
        if elsewhere and stage.is_dir():
            shutil.copytree(stage, folder / "stage")
    try:
        return read(report), {text: [*checks] for text, checks in clock.warnings.items()}
    except BadInput as error:
        tail = (folder / "reframe.log").read_text(errors="replace").strip().splitlines()[-3:]
        raise RunFailed(f"ReFrame ended with status {status} and no report: {' | '.join(tail)}") from error


def read(report: Path) -> list[Trouble]:
    """Return the troubles of a run report of ReFrame, with the reasons from the log next to it.

    Raises BadInput if it is not a run report.
    """
    with _damage(report):
        log = report.with_suffix(".log")
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return _troubles(_cases(report), text)


@contextmanager
def _damage(report: Path) -> Iterator[None]:
    """Raise BadInput for errors in the block that a damaged run report causes."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"not a run report of ReFrame: {type(error).__name__}: {error}", file=report) from error


def _cases(report: Path) -> list[dict[str, object]]:
    """Return the checks of a run report; the errors of _damage if it is damaged."""
    sessions = _list(json.loads(report.read_text(encoding="utf-8"))["runs"])
    return [case for session in sessions for case in _list(session["testcases"])]


def is_report(file: Path) -> bool:
    """Return whether a JSON file is a run report of ReFrame."""
    try:
        with file.open("rb") as start:
            if b'"session_info"' not in start.read(4096):  # it is the first key
                return False
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and {"session_info", "runs"} <= set(data)


def reports(folder: Path) -> list[Path]:
    """Return the run report of the newest session of each folder below *folder*, under any name."""
    newest: dict[Path, tuple[float, Path]] = {}
    for file in sorted(folder.rglob("*.json")):
        if file.is_file() and is_report(file):
            written = file.stat().st_mtime
            newest[file.parent] = max(newest.get(file.parent, (written, file)), (written, file))
    return [file for _, file in newest.values()]


def folders(report: Path) -> list[Path]:
    """Return the existing folders with the results of a run report's checks.

    Raises BadInput if it is not a run report.
    """
    with _damage(report):
        named = [Path(str(c[key])) for c in _cases(report) for key in ("outputdir", "stagedir") if c.get(key)]
        return [folder for folder in dict.fromkeys(named) if folder.is_dir()]


def _follow(argv: Sequence[str], env: Mapping[str, str], log: Path, progress: Path, clock: _Clock) -> int:
    """Run ReFrame, print the progress of the run and of its checks, and return the exit status."""
    with (
        clock.steps,
        log.open("wb") as out,
        log.open(encoding="utf-8", errors="replace") as written,
        progress.open(errors="replace") as steps,
        # ReFrame cancels its jobs on an interrupt.
        child(argv, stop=signal.SIGINT, patience=10, stdout=out, stderr=out, env=env) as process,
    ):
        status = follow(process, 0.1, lambda: clock.update(written.read(), steps.read()))
        clock.update(written.read() + "\n", steps.read() + "\n")
    return status


class _Clock:
    """Prints the checks of ReFrame's log that fail, with their seconds, and keeps the warnings of the checks."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.start = time.monotonic()
        self.steps = Steps()
        self.warnings: dict[str, dict[str, None]] = {}
        #: The kind of the check that runs.
        self.kind = ""
        #: Checks that have not ended; ReFrame states their number when the first one ends.
        self.left = 1
        #: The incomplete last lines of the log and of the messages.
        self.log = self.messages = ""

    def update(self, log: str, messages: str) -> None:
        """Take the text written since the last call, up to its last complete line."""
        *lines, self.messages = (self.messages + messages).split("\n")
        for line in filter(None, lines):
            if line.startswith(_WARNING):
                self.warnings.setdefault(line.rstrip().rpartition(": ")[2], {})[self.kind] = None
        *lines, self.log = (self.log + log).split("\n")
        for line in lines:
            if started := _STARTED.search(line):
                self.start = time.monotonic()
                self.kind = started[1].split(" ", 1)[0]
                self.steps.begin(started[1], self.left)
            elif ended := _ENDED.search(line):
                seconds = time.monotonic() - self.start
                self.steps.end()
                self.left = int(ended[3]) - int(ended[2])
                # The end of the run states why checks were skipped.
                if ended[1] not in {"OK", "SKIP"}:
                    self.say(f"  ({ended[2]}/{ended[3]}) {ended[1].lower()}: {ended[4]} [{seconds:.1f} s]")


def _troubles(cases: Iterable[Mapping[str, object]], log: str) -> list[Trouble]:
    # Only the log has the reasons of skipped checks.
    skips = {m[1]: m[2] for m in _SKIPPED.finditer(log)}
    troubles = []
    for case in cases:
        result, name = str(case["result"]), str(case["display_name"])
        if result not in {"pass", "xfail"}:
            reason = str(case.get("fail_reason") or skips.get(name) or "no reason given")
            # A check whose fixture failed did not run: only the fixture's failure is reported.
            word: Literal["failed", "skipped"] = "skipped" if result in {"skip", "fail_deps"} else "failed"
            troubles.append(Trouble(name, word, reason.removeprefix("sanity error: ")))
    return troubles


def _list(value: object) -> list[dict[str, object]]:
    if not isinstance(value, list):
        raise KeyError("no list")  # a report of another version: the caller reports it
    return value
