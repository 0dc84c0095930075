# SPDX-License-Identifier: Apache-2.0
"""Connects the caller's terminal to a command in the guest that has its own terminal there."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import channel
from .guest import Argument, Guest, exit_status, request


def attach(guest: Guest, argv: Sequence[Argument], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run *argv* on the caller's terminal and return its exit status. Every key goes to the guest, Ctrl-C too."""
    guest.begin(request(argv, timeout=None, cwd=cwd, env=env, terminal=_size()))
    messages = guest.running.channel
    keyboard = sys.stdin.fileno()
    sources = [messages.fileno(), keyboard]
    with _raw(keyboard), _resizes() as resized:
        sources.append(resized)
        while True:
            ready, _, _ = select.select(sources, [], [])
            if resized in ready:
                os.read(resized, 64)
                messages.send_json(channel.RESIZE, _size())
            if keyboard in ready:
                keys = os.read(keyboard, 4096)
                if keys:
                    messages.send(channel.INPUT, keys)
                else:
                    # Standard input is a file or a pipe that has ended; to a terminal, Ctrl-D means the same.
                    sources.remove(keyboard)
                    messages.send(channel.INPUT, b"\x04")
            if messages.fileno() in ready:
                messages.fill()
            while (frame := messages.buffered()) is not None:
                kind, payload = frame
                if kind == channel.EXIT:
                    return exit_status(payload, argv, None)
                sys.stdout.buffer.write(payload)
                sys.stdout.flush()


def _size() -> dict[str, int]:
    size = shutil.get_terminal_size()
    return {"rows": size.lines, "columns": size.columns}


@contextmanager
def _raw(keyboard: int) -> Iterator[None]:
    """Set the caller's terminal to raw mode, if standard input is one."""
    if not os.isatty(keyboard):
        yield
        return
    before = termios.tcgetattr(keyboard)
    # The default would discard keys that were typed during the boot.
    tty.setraw(keyboard, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


@contextmanager
def _resizes() -> Iterator[int]:
    """Yield a file descriptor that becomes readable when the window changes its size."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    old_handler = signal.signal(signal.SIGWINCH, lambda *_: None)
    old_descriptor = signal.set_wakeup_fd(write_end)
    try:
        yield read_end
    finally:
        signal.set_wakeup_fd(old_descriptor)
        signal.signal(signal.SIGWINCH, old_handler)
        os.close(read_end)
        os.close(write_end)
