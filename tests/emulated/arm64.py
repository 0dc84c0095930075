# SPDX-License-Identifier: Apache-2.0
"""An emulated arm64 machine with NUMA nodes: what runs in it, and one boot that runs commands of the probe.

The guests of guest.py have this host's programs. An arm64 guest cannot run them: it has an initramfs with a static
busybox and a static probe, runs the commands of one script, prints to its console, and ends.

The kernel, busybox and hwloc come from Debian's arm64 packages, unpacked below the cache of image.py. apt
downloads them from this host's own package sources; its lists of packages stay unchanged. On a host without
network, put the files there once: arm64/*.deb.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from factories import native_probe
from firsttouch.errors import Missing, RunFailed, TimedOut
from firsttouch.execution.child_process import child
from firsttouch.tools import run_tool

from . import cpio
from .image import cache, locked, require, unfinished
from .machine import MIB, Machine

#: program -> Debian package.
PROGRAMS = {
    "qemu-system-aarch64": "qemu-system-arm",
    "qemu-aarch64": "qemu-user",
    "aarch64-linux-gnu-gcc": "crossbuild-essential-arm64",
}
#: The cloud kernel has what the machine has, and is a third of the size.
KERNEL_PACKAGE = "linux-image-cloud-arm64"
PACKAGES = ("busybox-static", "libhwloc-dev")
#: The third NUMA node has memory only. Pointer authentication in QEMU's own way is the fast one.
MACHINE = Machine(
    name="arm64",
    description="2 NUMA nodes x 2 PUs, and one without PUs",
    cpu="max,pauth-impdef=on,sve512=on",
    pus=(2, 2, 0),
    memory=(256 * MIB, 128 * MIB, 128 * MIB),
    distances=((10, 20, 40), (20, 10, 30), (40, 30, 10)),
)
KERNEL_OPTIONS = (
    "console=ttyAMA0 loglevel=4 panic=-1 mitigations=off audit=0 random.trust_cpu=on nowatchdog cryptomgr.notests "
    "rcupdate.rcu_expedited=1 transparent_hugepage=never numa_balancing=disable norandmaps"
)
BEGIN, STATUS = "@@begin", "@@status"
#: Seconds for the boot and all commands: many times what a busy host needs.
LIMIT = 100.0


def packages() -> Path:
    """Return the folder of the unpacked packages; raises Missing with the reason if they cannot be had."""
    require(PROGRAMS)
    folder = cache() / "arm64"
    tree = folder / "tree"
    with locked():
        if tree.exists():
            return tree
        folder.mkdir(exist_ok=True)
        with unfinished() as partial:
            files = sorted(folder.glob("*.deb")) or _download(partial)
            for file in files:
                subprocess.run(["dpkg", "-x", file, partial / "tree"], check=True)
            (partial / "tree").rename(tree)
    return tree


def _download(folder: Path) -> list[Path]:
    state, downloaded = folder / "apt", folder / "packages"
    for path in (state / "state/lists/partial", state / "cache/archives/partial", downloaded):
        path.mkdir(parents=True)
    own = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Dir::State": f"{state}/state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": f"{state}/cache",
    }
    options = [word for name, value in own.items() for word in ("-o", f"{name}={value}")]

    def apt(program: str, *argv: str) -> str:
        try:
            done = run_tool([program, *options, *argv], cwd=downloaded, timeout=240)
        except TimedOut as error:
            raise Missing(f"Debian's packages for arm64: {error}") from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise Missing(f"Debian's packages for arm64: {program} {argv[0]}: {last}")
        return done.stdout

    print("downloading Debian's kernel, busybox and hwloc for arm64", file=sys.stderr)
    apt("apt-get", "-q", "update")
    dependency = re.search(r"Depends: (linux-image-\S+)", apt("apt-cache", "depends", KERNEL_PACKAGE))
    if dependency is None:
        raise Missing(f"Debian's packages for arm64: apt does not know {KERNEL_PACKAGE}")
    apt("apt-get", "-q", "download", dependency[1], *PACKAGES)
    return sorted(downloaded.glob("*.deb"))


def probe(tree: Path) -> Path:
    """Return the static probe for arm64, built from this checkout with the hwloc of *tree*."""
    usr = tree / "usr"
    environment = {
        **os.environ,
        "PKG_CONFIG_LIBDIR": f"{usr}/lib/aarch64-linux-gnu/pkgconfig",
        "PKG_CONFIG_SYSROOT_DIR": str(tree),
    }
    return native_probe.built_once(
        "-DSTATIC=ON",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_C_FLAGS=-I{usr}/include -I{usr}/include/aarch64-linux-gnu",
        compiler="aarch64-linux-gnu-gcc",
        env=environment,
        libraries=sorted((usr / "lib").rglob("libhwloc.a")),
    )


def run(tree: Path, folder: Path, commands: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Boot MACHINE, run the probe with each of *commands* (name -> its arguments), and return what it printed.

    Raises RunFailed with the end of the console if a command fails or the machine does not end.
    """
    lines = ["#!/bin/busybox sh", "/bin/busybox mount -t proc none /proc", "/bin/busybox mount -t sysfs none /sys"]
    for name, argv in commands.items():
        lines.append(f"echo; echo {BEGIN} {name}; /probe {' '.join(argv)}; echo; echo {STATUS} $?")
    text = "\n".join([*lines, "/bin/busybox poweroff -f", ""])
    contents = {"bin/busybox": (tree / "bin/busybox").read_bytes(), "probe": probe(tree).read_bytes()}
    initramfs, console = folder / "initramfs", folder / "console"
    initramfs.write_bytes(cpio.archive({**contents, "init": text.encode()}))
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    argv = [
        *("qemu-system-aarch64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "virt,gic-version=3", "-accel", "tcg,thread=single,tb-size=256"),
        *MACHINE.qemu_arguments(),
        *("-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"),
        *("-kernel", str(kernel), "-initrd", str(initramfs), "-append", KERNEL_OPTIONS),
    ]
    with (folder / "messages").open("wb") as messages, child(argv, stderr=messages) as qemu:
        try:
            qemu.wait(LIMIT)
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"the arm64 machine did not end within {LIMIT:.0f} s\n{_end(folder)}") from error
    return {name: _document(name, folder) for name in commands}


def _document(name: str, folder: Path) -> dict[str, Any]:
    console = (folder / "console").read_text(errors="replace").replace("\r\n", "\n")
    printed = re.search(rf"^{BEGIN} {re.escape(name)}\n(.*?)^{STATUS} (\d+)$", console, re.MULTILINE | re.DOTALL)
    if printed is None or printed[2] != "0":
        status = printed[2] if printed else "none"
        raise RunFailed(f"{name} on the arm64 machine: status {status}\n{_end(folder)}")
    return dict(json.loads(printed[1]))


def _end(folder: Path) -> str:
    console = (folder / "console").read_text(errors="replace") if (folder / "console").exists() else ""
    return "\n".join([*console.splitlines()[-40:], (folder / "messages").read_text(errors="replace")])
