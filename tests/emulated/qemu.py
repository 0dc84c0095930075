# SPDX-License-Identifier: Apache-2.0
"""The QEMU process of one guest, from its command line to its end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from firsttouch.host.emulation import MANUFACTURER

from . import tsc
from .channel import Channel
from .image import HERE, Image, program
from .machine import Machine

#: QEMU's options of each accelerator. One thread emulates all PUs: with a thread for each, a 64-PU guest
#: boots two to four times slower on a host with few PUs, and sometimes not at all.
ACCELERATORS = {"kvm": "kvm", "tcg": "tcg,thread=single,tb-size=256"}

#: Number of PUs that the kernel starts itself; the agent starts the others. Until the kernel has chosen a clock,
#: each online PU has 250 timer interrupts a second, and with 64 PUs an emulator could not boot.
FIRST_PUS = 8
KERNEL_OPTIONS = (
    "console=ttyS0 loglevel=4 panic=-1 mitigations=off audit=0 random.trust_cpu=on "
    # The clock of a guest that waits for a host's PU looks broken to the kernel's watchdogs. Without
    # lpj, the kernel calibrates each PU.
    "tsc=reliable no_timer_check nowatchdog lpj=4000000 cryptomgr.notests rcupdate.rcu_expedited=1 "
    # Processes with their libraries at the same addresses share the emulator's translated code.
    "norandmaps "
    # Reserve no 64 MiB of one bank for devices that the guest does not have.
    "swiotlb=noforce "
    # Pages of 4 KiB stay where they were touched, so that tests can count them.
    "transparent_hugepage=never numa_balancing=disable "
    # Leave out hardening that is slow in an emulator: the check for writable code, samples for memory errors,
    # zeroed allocations, and security modules that look at every file.
    "rodata=off kfence.sample_interval=0 init_on_alloc=0 lsm=landlock "
    f"maxcpus={FIRST_PUS}"
)
CONSOLE_LINES = 40


class Qemu:
    """A running QEMU; it ends with close() or with this process."""

    def __init__(self, machine: Machine, image: Image, shared: Path, accelerator: str) -> None:
        self._socket, inside = socket.socketpair()
        self.channel = Channel(self._socket.fileno())
        # Files without a name need no cleaning up.
        self._console: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as this)
        self._messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as this)
        arguments = [
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", "q35,smbus=off,sata=off,usb=off", "-accel", ACCELERATORS[accelerator]),
            *machine.qemu_arguments(),
            # By this, records show that their machine is emulated.
            *("-smbios", f"type=1,manufacturer={MANUFACTURER},product=QEMU with {accelerator}"),
            *_file_system("hostroot", Path("/"), "readonly=on"),
            *_file_system("shared", shared, "readonly=off"),
            *("-chardev", f"file,id=console,path=/proc/self/fd/{self._console.fileno()}"),
            *("-serial", "chardev:console"),
            *("-chardev", f"socket,id=agent,fd={inside.fileno()}", "-device", "virtio-serial-pci"),
            *("-device", "virtserialport,chardev=agent,name=agent"),
            *(
                "-kernel",
                str(image.kernel),
                "-initrd",
                str(image.initramfs),
                "-append",
                _kernel_options(accelerator),
            ),
        ]
        with inside:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", HERE / "lifeline.py", program("qemu-system-x86_64"), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._messages,
                pass_fds=(inside.fileno(), self._console.fileno()),
                # Ctrl-C must reach the test runner only, which then closes this guest.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The number of the process that starts QEMU and ends with it."""
        return self._process.pid

    def close(self) -> None:
        """Kill the guest and wait for its end. Its root is temporary, so it needs no shutdown."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._socket.close()

    def last_words(self) -> str:
        """Return QEMU's messages and the last lines of the guest's console."""
        messages = _content(self._messages).strip()
        lines = _content(self._console).splitlines()
        # A kernel that panics prints the reason first, and then a stack trace of any length.
        panic = next((i for i, line in enumerate(lines) if "Kernel panic" in line), len(lines))
        console = "\n".join(lines[min(panic, max(0, len(lines) - CONSOLE_LINES)) :])
        return f"--- QEMU's messages\n{messages}\n--- the end of the guest's console\n{console}"


def _kernel_options(accelerator: str) -> str:
    frequency = tsc.kilohertz() if accelerator == "tcg" else 0
    return f"{KERNEL_OPTIONS} tsc_early_khz={frequency}" if frequency else KERNEL_OPTIONS


def _file_system(tag: str, path: Path, mode: str) -> list[str]:
    # In QEMU's options a comma is written twice.
    where = str(path).replace(",", ",,")
    return [
        "-fsdev",
        f"local,id={tag},path={where},security_model=none,multidevs=remap,{mode}",
        "-device",
        f"virtio-9p-pci,fsdev={tag},mount_tag={tag}",
    ]


def _content(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")
