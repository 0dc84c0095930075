# SPDX-License-Identifier: Apache-2.0
"""Boots an emulated machine and runs commands in it.

    with Guest(machine.load("small"), shared=directory) as guest:
        guest.run(["numactl", "--hardware"], check=True).text

The guest's root is the host's at the time of the boot, read-only under a temporary overlay. `shared` has the same
path inside and outside, and both sides can write to it.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from firsttouch.errors import RunFailed

from . import channel
from .channel import ChannelClosedError, ChannelTimeoutError
from .image import HERE, Image, image
from .kvm import Trials
from .machine import Machine
from .qemu import Qemu

Argument = str | os.PathLike[str]

#: The folders of the checkout whose Python code runs in guests.
CODE = (HERE.parent.parent / "src", HERE.parent.parent / "reframe", HERE)
#: Seconds for a boot: several times what a 64-PU machine takes on a busy two-PU host.
BOOT_LIMIT = 280.0
#: The same with KVM, where a boot takes seconds or hangs.
TRIAL_LIMIT = 40.0
#: Seconds after a command's own time limit within which the guest must report that it was reached.
ANSWER_LIMIT = 60.0
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class GuestError(RunFailed):
    """The guest did not boot, died or does not answer. The text ends with the last lines of its console."""


class CommandError(subprocess.CalledProcessError):
    """A command that the caller wanted to succeed failed in the guest."""

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.stdout.decode(errors='replace')}{self.stderr.decode(errors='replace')}"


class Completed(subprocess.CompletedProcess[bytes]):
    """A command that ran in the guest: status (-9 for one killed by signal 9) and exact output."""

    @property
    def text(self) -> str:
        """Its standard output, as text."""
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self) -> str:
        """Its standard error, as text."""
        return self.stderr.decode(errors="replace")


class Guest:
    """One emulated machine, up from start() to close()."""

    def __init__(self, machine: Machine, shared: Path) -> None:
        self.machine = machine
        self.shared = shared.resolve(strict=True)
        #: Seconds from the start of QEMU until the first command can run.
        self.boot_seconds = 0.0
        self.accelerator = ""
        self._qemu: Qemu | None = None
        self._epitaph = "it has not been started"

    def start(self) -> Self:
        """Boot; raises GuestError with the reason if the guest does not."""
        booted = image()
        compiled()
        trials = Trials(booted.release)
        candidates = trials.accelerators(self.machine.name)
        for accelerator in candidates[:-1]:
            try:
                self._boot(booted, accelerator, TRIAL_LIMIT)
                trials.worked(self.machine.name)
                return self
            except GuestError as error:
                trials.failed(str(error))
        self._boot(booted, candidates[-1], BOOT_LIMIT)
        return self

    def _boot(self, booted: Image, accelerator: str, limit: float) -> None:
        begin = time.monotonic()
        self._qemu = Qemu(self.machine, booted, self.shared, accelerator)
        self.accelerator = accelerator
        try:
            self.frame(begin + limit)
            self._qemu.channel.send_json(channel.SETUP, self._setup(booted))
            self.frame(begin + limit)
            # Programs of the host's root must work with their libraries, not only the agent.
            self.run(["numactl", "--hardware"], check=True)
        except BaseException as error:
            self.close(f"it did not boot: {error}")
            raise
        self.boot_seconds = time.monotonic() - begin

    def _setup(self, booted: Image) -> dict[str, Any]:
        nodes = self.machine.allowed_nodes
        return {
            "hostname": self.machine.name,
            "seconds": time.time(),
            "shared": str(self.shared),
            "modules": str(booted.modules),
            "environment": ENVIRONMENT | {"HOME": str(Path.home())},
            "offline_pus": self.machine.offline_pus,
            "allowed_nodes": nodes,
            "allowed_pus": [pu for node in nodes for pu in self.machine.pus_of(node)],
        }

    def run(
        self,
        argv: Sequence[Argument],
        *,
        timeout: float | None = 60,
        cwd: Argument = "/",
        env: Mapping[str, str] | None = None,
        check: bool = False,
    ) -> Completed:
        """Run a command as subprocess.run does, with its exceptions; *env* is added to ENVIRONMENT.

        When *timeout* seconds are over, the command's whole process group is killed.
        """
        output = {channel.STDOUT: bytearray(), channel.STDERR: bytearray()}

        def collect(kind: bytes, data: bytes) -> None:
            output[kind] += data

        def outputs() -> tuple[bytes, bytes]:
            return bytes(output[channel.STDOUT]), bytes(output[channel.STDERR])

        try:
            status = self.stream(argv, collect, timeout=timeout, cwd=cwd, env=env)
        except subprocess.TimeoutExpired as error:
            error.stdout, error.stderr = outputs()
            raise
        if check and status:
            raise CommandError(status, list(argv), *outputs())
        return Completed(list(argv), status, *outputs())

    def stream(
        self,
        argv: Sequence[Argument],
        output: Callable[[bytes, bytes], None],
        *,
        timeout: float | None = 60,
        cwd: Argument = "/",
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Run a command and return its status; its output is handed, as it comes, to *output*.

        That is called with channel.STDOUT or channel.STDERR and some bytes.
        """
        if isinstance(argv, str):
            raise TypeError("argv is a list; for a shell command it is ['sh', '-c', command]")
        words = [os.fspath(argument) for argument in argv]
        command = {"argv": words, "timeout": timeout, "cwd": os.fspath(cwd), "env": dict(env or {})}
        try:
            self.running.channel.send_json(channel.COMMAND, command)
            deadline = None if timeout is None else time.monotonic() + timeout + ANSWER_LIMIT
            while True:
                kind, payload = self.frame(deadline)
                if kind == channel.EXIT:
                    break
                output(kind, payload)
        except BaseException as error:
            # After an interrupted command the guest cannot be used: the rest of its output would be taken for the
            # next one's.
            self.close(f"a command was interrupted by {type(error).__name__}")
            raise
        end = channel.document(payload)
        if "errno" in end:
            raise OSError(end["errno"], end["reason"], end["file"])
        if end["timed_out"]:
            assert timeout is not None
            raise subprocess.TimeoutExpired(list(argv), timeout)
        status: int = end["status"]
        return status

    def frame(self, deadline: float | None) -> tuple[bytes, bytes]:
        """Return the next frame from the guest; raises GuestError if it is dead or silent."""
        qemu = self.running
        try:
            return qemu.channel.receive(deadline)
        except ChannelClosedError:
            reason = "died"
        except ChannelTimeoutError:
            reason = "does not answer"
        self.close(f"it {reason}")
        raise GuestError(f"the guest {self.machine.name} {reason}\n{qemu.last_words()}")

    @property
    def running(self) -> Qemu:
        """The guest's QEMU; raises GuestError if it does not run."""
        if self._qemu is None:
            raise GuestError(f"the guest {self.machine.name} is not up: {self._epitaph}")
        return self._qemu

    def close(self, epitaph: str = "it has been closed") -> None:
        """End the guest, if it is up."""
        if self._qemu is not None:
            self._qemu.close()
            self._qemu = None
            self._epitaph = epitaph

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def compiled() -> None:
    """Compile the checkout's bytecode: in the guest this would take seconds."""
    for folder in CODE:
        compileall.compile_dir(folder, quiet=2)
