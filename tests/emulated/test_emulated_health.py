# SPDX-License-Identifier: Apache-2.0
"""The counters of errors of a real kernel whose memory fails: QEMU injects machine checks."""

import socket
import subprocess
from pathlib import Path
from typing import TextIO

from firsttouch.benchmarks import recording
from firsttouch.benchmarks.recording import Counter

from . import cpio, image
from .qemu import KERNEL_OPTIONS

#: The guest prints its counters, waits for a key, and prints them again.
INIT = """\
#!/bin/busybox sh
/bin/busybox mkdir -p /proc
/bin/busybox mount -t proc proc /proc
/bin/busybox cat /proc/interrupts
echo "== inject"
read -r _
/bin/busybox cat /proc/interrupts
echo "== end"
/bin/busybox poweroff -f
"""
#: An uncorrected error that no program has used yet (Intel manual, volume 3, section 15.9.3, memory scrubbing):
#: the kernel gives up the page at this address and goes on.
ERROR = "mce 0 9 0xbd000000000000c0 0x5 0x10000000 0x8c\n"


def counters(folder: Path, interrupts: str) -> dict[Counter, int]:
    (folder / "proc").mkdir(parents=True)
    (folder / "proc" / "interrupts").write_text(interrupts)
    return recording.read_counters(folder)


def until_line(console: TextIO, end: str) -> str:
    """Read until that line; a guest that ends before it fails the test with what it printed."""
    lines = [""]
    while lines[-1] != end:
        lines.append(console.readline())
        assert lines[-1], "".join(lines)
    return "".join(lines[:-1])


def until_prompt(monitor: socket.socket, answer: bytes) -> bytes:
    """Read until the monitor is ready again."""
    begin = len(answer)
    while not answer[begin:].endswith(b"\n(qemu) "):
        received = monitor.recv(1 << 12)
        assert received, answer
        answer += received
    return answer


def test_a_machine_check_is_counted(tmp_path):
    files = {"bin/busybox": Path(image.program("busybox")).read_bytes(), "init": INIT.encode()}
    (tmp_path / "initramfs").write_bytes(cpio.archive(files))
    arguments = [
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35", "-accel", "tcg"),
        *("-cpu", "Haswell-noTSX", "-m", "512", "-serial", "stdio"),
        *("-monitor", f"unix:{tmp_path}/monitor,server=on,wait=off"),
        *("-kernel", str(image.image().kernel), "-initrd", str(tmp_path / "initramfs")),
        *("-append", KERNEL_OPTIONS),
    ]
    with subprocess.Popen(
        [image.program("qemu-system-x86_64"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    ) as qemu:
        try:
            before = until_line(qemu.stdout, "== inject\n")
            with socket.socket(socket.AF_UNIX) as monitor:
                monitor.connect(f"{tmp_path}/monitor")
                answer = until_prompt(monitor, b"")
                monitor.sendall(ERROR.encode())
                until_prompt(monitor, answer)
            qemu.stdin.write("\n")
            qemu.stdin.flush()
            after = until_line(qemu.stdout, "== end\n")
        finally:
            qemu.kill()
    happened = recording.counted_between(counters(tmp_path / "1", before), counters(tmp_path / "2", after))
    assert happened[Counter("machine_checks", "exceptions")] == 1
    assert happened[Counter("machine_checks", "deferred errors")] == 0
    assert happened[Counter("corrected_errors", "threshold interrupts")] == 0
