# SPDX-License-Identifier: Apache-2.0
"""Runs a command of ``firsttouch`` again and again, each time with the next call on its files failing.

The command runs in one process, in which failing_calls.c is preloaded. This module is also that process's program.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Failure:
    """The result of a command whose *call* failed, such as ``write /path``; *folder* is its working folder."""

    call: str
    folder: Path
    status: int
    out: str
    err: str


def failures(template: Path, argv: list[object], *, error: int, work: Path) -> list[Failure]:
    """Run ``firsttouch`` in a copy of a folder for each call on files below the copy; the last one has no failure.

    ``{}`` in a word of *argv* stands for the copy. Failing calls fail with *error*.
    """
    shim = work / "failing_calls.so"
    if not shim.exists():
        source = Path(__file__).with_name("failing_calls.c")
        flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(["cc", *flags, source, "-o", shim, "-ldl"], check=True)
    words = [sys.executable, __file__, *map(str, (shim, template, work, error, *argv))]
    environment = {**os.environ, "LD_PRELOAD": str(shim), "COLUMNS": "200"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return [
        Failure(**{**line, "folder": Path(line["folder"])}) for line in map(json.loads, done.stdout.splitlines())
    ]


def _lines(shim: str, template: str, work: str, error: int, argv: list[str]) -> Iterator[dict[str, object]]:
    from firsttouch import cli  # noqa: PLC0415 - the tests import this module without it

    library = ctypes.CDLL(shim)
    library.failing_calls_disarm.restype = ctypes.c_char_p
    for number in itertools.count(1):
        folder = Path(work, f"{Path(template).name}-{number}")
        shutil.copytree(template, folder)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            library.failing_calls_arm(ctypes.c_long(number), error, os.fsencode(folder))
            try:
                status = cli.main([word.replace("{}", str(folder)) for word in argv])
            finally:
                call = library.failing_calls_disarm().decode()
        yield {"call": call, "folder": str(folder), "status": status, "out": out.getvalue(), "err": err.getvalue()}
        if not call:
            return


if __name__ == "__main__":
    for each in _lines(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5:]):
        print(json.dumps(each), flush=True)
