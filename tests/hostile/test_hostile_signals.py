# SPDX-License-Identifier: Apache-2.0
"""Signals during the work, and signals that the starter of the program ignores."""

import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from test_hostile_outputs import ADVISE, RUN, aligning, needs_bwa

from factories.processes import wait_until, write_program
from hostile import Case

REAL = shutil.which("bwa")
WITH_STAND_IN = {"PATH": f"bin:{os.environ['PATH']}"}


def stand_in(script: str):
    """Return a maker of reads, an index and a bwa that runs *script* instead of aligning."""

    def make(folder: Path) -> None:
        aligning(folder)
        (folder / "bin").mkdir()
        program = folder / "bin" / "bwa"
        write_program(program, f"[ $# = 0 ] && exec {REAL}\n{script}")

    return make


HANGING = stand_in("printf partial; touch started; exec sleep 300")
DEAF = stand_in("trap '' TERM HUP QUIT INT; touch started; while :; do sleep 0.1; done")
SLOW = stand_in(f'touch started; sleep 1; exec {REAL} "$@"')
HELD = stand_in(f'touch started; until [ -e signalled ]; do sleep 0.1; done; exec {REAL} "$@"')


def pipe(folder: Path) -> None:
    stand_in(f'touch started; exec {REAL} "$@"')(folder)
    os.mkfifo(folder / "pipe")


WITH_CHILDREN = stand_in("sleep 300 & setsid sleep 301 & touch started; wait")


def when_started(*numbers: int):
    """Return a function that sends signals once the aligner has started."""

    def send(process, folder: Path) -> None:
        wait_until((folder / "started").exists)
        for number in numbers:
            process.send_signal(number)

    return send


def while_held(number: int):
    """Return a function that sends a signal once the aligner has started, which goes on then."""
    send = when_started(number)

    def send_and_release(process, folder: Path) -> None:
        send(process, folder)
        (folder / "signalled").touch()

    return send_and_release


def when_blocked(number: int):
    """Return a function that sends a signal once the command waits for a reader of its output."""

    def send(process, folder: Path) -> None:
        wait_until((folder / "started").exists)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: not children.read_text())  # the aligner has ended, and all is there but the reader
        process.send_signal(number)

    return send


def stopped(name: str, argv: list[str], make, number: int, *more: int) -> Case:
    name = f"{name}, {signal.Signals(number).name}{'+' * len(more)}"
    rest = (make, ["started"], (), WITH_STAND_IN, True, (), b"", when_started(number, *more))
    return Case(name, argv, 128 + number, "firsttouch: interrupted", *rest)


def ignoring(name: str) -> tuple[str, str]:
    return ("env", f"--ignore-signal={name}")


TO_OUTPUT = [*RUN, "-o", "o.sam"]
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
CASES = [
    # Every signal ends a run in the same way, so each other kind of run gets one or two of them.
    *(stopped("a run", TO_OUTPUT, HANGING, number) for number in STOPPING),
    stopped("a sorted run", [*RUN, "-o", "o.bam", "--sort"], HANGING, signal.SIGINT),
    stopped("a run over an old output", [*RUN, "-o", "out.sam"], HANGING, signal.SIGTERM),
    *(stopped("a run without signals' default", TO_OUTPUT, DEAF, number) for number in STOPPING[:2]),
    stopped("a run whose aligner has children", TO_OUTPUT, WITH_CHILDREN, signal.SIGTERM),
    stopped("advice", ADVISE, HANGING, signal.SIGHUP),
    stopped("a terminal that is closed", TO_OUTPUT, HANGING, signal.SIGHUP, signal.SIGHUP, signal.SIGTERM),
    stopped("a quit after a hang-up", TO_OUTPUT, DEAF, signal.SIGHUP, signal.SIGQUIT),
    Case(
        *("a pipe that nobody reads", [*RUN, "-o", "pipe"], 128 + signal.SIGTERM, "interrupted"),
        *(pipe, ["started"], (), WITH_STAND_IN, True),
        during=when_blocked(signal.SIGTERM),
    ),
    Case(
        *("ignored ends of children", TO_OUTPUT, 0, "o.sam", SLOW, ["started", "o.sam"], (), WITH_STAND_IN, True),
        prefix=ignoring("CHLD"),
    ),
    Case(
        *("an aligner that fails, with these", TO_OUTPUT, 1, "status 9"),
        *(stand_in("touch started; exit 9"), ["started"], (), WITH_STAND_IN, True),
        prefix=ignoring("CHLD"),
    ),
    Case(
        *("a timeout, with these", [*TO_OUTPUT, "--timeout=0.5"], 1, "did not end within 0.5 s"),
        *(HANGING, ["started"], (), WITH_STAND_IN, True),
        prefix=ignoring("CHLD"),
    ),
    Case(
        *("nohup", TO_OUTPUT, 0, "o.sam", HELD, ["started", "signalled", "o.sam"], (), WITH_STAND_IN, True),
        prefix=ignoring("HUP"),
        during=while_held(signal.SIGHUP),
    ),
    Case(
        *("an aligner that a real-time signal ends", TO_OUTPUT, 1, "signal 40"),
        *(stand_in("touch started; kill -40 $$"), ["started"], (), WITH_STAND_IN, True),
    ),
    Case(
        *("the shortest timeout", [*TO_OUTPUT, "--timeout=0.001"], 1, "did not end within 0.001 s"),
        *(HANGING, ["started"], (), WITH_STAND_IN, True),
    ),
]


@needs_bwa
@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_signals(case, hostile):
    hostile(case)


#: Name -> a module of Python, or of a site, in whose place one interrupts the process while it starts or ends.
INTERRUPTING = {
    "while the version is read": (
        "sitecustomize.py",
        "listed = os.listdir\nos.listdir = lambda folder: os.kill(os.getpid(), signal.SIGINT) or listed(folder)",
    ),
    "while the first module is loaded": ("argparse.py", "os.kill(os.getpid(), signal.SIGINT)"),
    "while a late module is loaded": ("hashlib.py", "os.kill(os.getpid(), signal.SIGINT)"),
    "at the end": ("sitecustomize.py", "atexit.register(os.kill, os.getpid(), signal.SIGINT)"),
}


@pytest.mark.parametrize(("module", "statement"), INTERRUPTING.values(), ids=INTERRUPTING)
def test_an_interrupt_at_the_start_or_the_end_is_no_traceback(hostile, module, statement):
    make = {f"modules/{module}": f"import atexit, os, signal\n{statement}\n"}
    environment = {"PYTHONPATH": "modules", "PYTHONDONTWRITEBYTECODE": "1"}
    outcome = hostile(
        Case("interrupt", ["advise", "--list"], 130, "", make, environment=environment, process=True)
    )
    assert outcome.err in {"", "firsttouch: interrupted\n"}


def test_the_program_begins_as_the_module_does():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"]["firsttouch"] == "firsttouch.__main__:main"


@pytest.mark.parametrize("caller", [[], ["-m", "cProfile"]], ids=["alone", "profiled"])
def test_modules_are_unloaded_at_the_end_only_if_something_else_called_the_program(tmp_path, caller):
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os, sys\n"
        "class Loaded:\n"
        "    def __del__(self, write=os.write):\n"
        "        write(2, b'unloaded')\n"
        "sys.loaded = Loaded()\n"
        "atexit.register(print, 'handled', end='')\n"
    )
    argv = [sys.executable, *caller, Path(sys.executable).with_name("firsttouch"), "run", "--", "false"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert ("unloaded" in done.stderr, "function calls" in done.stdout) == (bool(caller), bool(caller))
    assert "handled" in done.stdout
    assert caller or done.returncode == 1
