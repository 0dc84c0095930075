# SPDX-License-Identifier: Apache-2.0
"""The agent inside the guest: sets the guest up for the test runner, then runs one command after another.

It is copied into the initramfs, so it uses the standard library only and starts without site-packages.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import channel
from .channel import Channel

CGROUPS = Path("/sys/fs/cgroup")
#: The cgroup whose cpuset every command gets on a machine with allowed_nodes.
CPUSET = CGROUPS / "allowed"
#: Seconds after a kill to wait for the end of output that a process outside of the group holds open.
GRACE_SECONDS = 2.0


def first_process() -> NoReturn:
    """Be process 1: start the agent, reap orphans, power off when the agent ends."""
    # The OOM killer must spare the agent if a test fills a bank.
    _set_oom_score(-1000)
    agent = os.fork()
    if agent == 0:
        main()
        os._exit(0)
    while os.wait()[0] != agent:
        pass
    # If the agent failed, its traceback is the last thing on the console.
    Path("/proc/sysrq-trigger").write_text("o")
    while True:
        signal.pause()


def main() -> None:
    """Serve commands until the test runner disconnects."""
    (port,) = Path("/dev").glob("vport*p1")
    host = Channel(os.open(port, os.O_RDWR))
    host.send(channel.HELLO, b"")
    _, setup = host.receive()
    set_up(**channel.document(setup))
    host.send(channel.READY, b"")
    with contextlib.suppress(channel.ChannelClosedError):
        while True:
            _, request = host.receive()
            host.send_json(channel.EXIT, serve(host, channel.document(request)))


def set_up(
    *,
    hostname: str,
    seconds: float,
    shared: str,
    modules: str,
    environment: dict[str, str],
    offline_pus: list[int],
    allowed_nodes: list[int],
    allowed_pus: list[int],
) -> None:
    """Set the guest up with the settings of the machine's file and of the test runner."""
    time.clock_settime(time.CLOCK_REALTIME, seconds)
    os.environ.clear()
    os.environ.update(environment)
    socket.sethostname(hostname)
    with Path("/etc/hosts").open("a") as hosts:
        hosts.write(f"\n127.0.0.1 {hostname}\n")
    # With the kernel's modules in their usual place, programs in the guest can modprobe.
    kernel = Path("/lib/modules", os.uname().release)
    kernel.parent.mkdir(exist_ok=True)
    if not kernel.exists():
        kernel.symlink_to(modules)
    Path(shared).mkdir(parents=True, exist_ok=True)
    # cache=mmap: each side sees the other's writes at once, and writable mappings work.
    options = "trans=virtio,version=9p2000.L,msize=512000,cache=mmap"
    subprocess.run(["mount", "-t", "9p", "-o", options, "shared", shared], check=True)
    for switch in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/online"):
        wanted = "0" if int(switch.parent.name.removeprefix("cpu")) in offline_pus else "1"
        if switch.read_text().strip() != wanted:
            switch.write_text(wanted)
    for controller in (CGROUPS / "cgroup.controllers").read_text().split():
        (CGROUPS / "cgroup.subtree_control").write_text(f"+{controller}")
    if allowed_nodes:
        CPUSET.mkdir()
        (CPUSET / "cpuset.mems").write_text(",".join(map(str, allowed_nodes)))
        (CPUSET / "cpuset.cpus").write_text(",".join(map(str, allowed_pus)))


def serve(host: Channel, request: dict[str, Any]) -> dict[str, Any]:
    """Run one command, forward its output to *host* at once, and report how it ended."""
    try:
        command = _Command(host, request)
    except OSError as error:
        return {"errno": error.errno, "reason": error.strerror, "file": error.filename}
    return command.wait()


class _Command:
    """A running command: its process and its output."""

    def __init__(self, host: Channel, request: dict[str, Any]) -> None:
        self._host = host
        self._selector = selectors.DefaultSelector()
        self._open_outputs = 0
        timeout = request["timeout"]
        self._process = subprocess.Popen(
            request["argv"],
            cwd=request["cwd"],
            env=os.environ | request["env"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # The agent has one thread, so this is safe.
            preexec_fn=_prepare,  # noqa: PLW1509
        )
        self._deadline = None if timeout is None else time.monotonic() + timeout
        for output, kind in ((self._process.stdout, channel.STDOUT), (self._process.stderr, channel.STDERR)):
            assert output is not None
            self._open_outputs += 1
            self._selector.register(output, selectors.EVENT_READ, self._forwarder(kind))
        self._running = True
        self._selector.register(os.pidfd_open(self._process.pid), selectors.EVENT_READ, self._ended)
        # The end of the test runner ends the agent.
        self._selector.register(host, selectors.EVENT_READ, lambda _: host.fill())

    def wait(self) -> dict[str, Any]:
        """Forward output until it ends and the process has ended, or until the time limit."""
        timed_out = not self._forward(self._deadline)
        if timed_out:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._forward(time.monotonic() + GRACE_SECONDS)
        for key in list(self._selector.get_map().values()):
            if key.fileobj is not self._host:
                os.close(key.fd)
        self._selector.close()
        return {"status": self._process.wait(), "timed_out": timed_out}

    def _forward(self, deadline: float | None) -> bool:
        """Return whether the command ended before *deadline*."""
        while self._running or self._open_outputs:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            for key, _ in self._selector.select(left):
                key.data(key.fd)
        return True

    def _forwarder(self, kind: bytes) -> Callable[[int], None]:
        def forward(descriptor: int) -> None:
            if data := os.read(descriptor, 1 << 16):
                self._host.send(kind, data)
            else:
                self._selector.unregister(descriptor)
                self._open_outputs -= 1

        return forward

    def _ended(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        self._running = False


def _set_oom_score(score: int) -> None:
    Path("/proc/self/oom_score_adj").write_text(str(score))


def _prepare() -> None:
    """Run in a command's process before the command."""
    _set_oom_score(0)
    if CPUSET.is_dir():
        (CPUSET / "cgroup.procs").write_text("0")
