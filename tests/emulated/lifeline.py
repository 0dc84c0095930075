# SPDX-License-Identifier: Apache-2.0
"""Runs a program that must not outlive the starter of this process: `lifeline.py PROGRAM ARGS`.

The starter holds the other end of this process's standard input. The program is killed when this end closes,
because the starter closes it or has ended in any way. PR_SET_PDEATHSIG in the starter alone would kill the program
when the starter's *thread* ends.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: list[str]) -> int:
    """Run *argv* until it ends or standard input does; return its exit status."""
    # If this process itself is killed: it has one thread, so PR_SET_PDEATHSIG is correct here.
    program = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=_die_with_parent,  # noqa: PLW1509
    )
    # Open copies of the program's sockets would hide its end from the starter.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    ended = os.pidfd_open(program.pid)
    select.select([sys.stdin.fileno(), ended], [], [])
    if program.poll() is None:
        program.kill()
    return program.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
