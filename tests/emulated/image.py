# SPDX-License-Identifier: Apache-2.0
"""The boot files of a guest, both cached: Debian's kernel, unpacked from its package, and an initramfs.

The cache is .cache/emulated of the checkout, or emulated in $FIRSTTOUCH_CACHE. On a host without network, put the
package's file (linux-image-VERSION-amd64_*.deb) there once.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from firsttouch.errors import Missing, RunFailed

from . import cpio

HERE = Path(__file__).resolve().parent
#: program -> Debian package.
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "depmod": "kmod",
    "numactl": "numactl",
}
#: The meta-package that depends on the current kernel. (Debian's cloud kernel has no 9p.)
KERNEL_PACKAGE = "linux-image-amd64"
#: Modules for the root file system and the agent's port, loaded in this order with their dependencies. Tests can
#: modprobe others, such as msr, in the guest.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console")
#: The part of this package that runs in the guest.
AGENT = ("__init__.py", "channel.py", "agent.py")


XZ_MAGIC = b"\xfd7zXZ\0"


@dataclasses.dataclass(frozen=True)
class Image:
    """Paths of the files that QEMU boots, and of the kernel's modules on the host."""

    release: str
    kernel: Path
    initramfs: Path
    modules: Path


def cache() -> Path:
    """Return the cache's directory, created if necessary."""
    checkout = HERE.parent.parent
    directory = Path(os.environ.get("FIRSTTOUCH_CACHE") or checkout / ".cache").resolve() / "emulated"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def program(name: str) -> str:
    """Return the path of one of PROGRAMS; raises Missing with the packages to install."""
    # Debian installs kmod into directories that are not on a user's PATH.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    require(PROGRAMS, path)
    return shutil.which(name, path=path) or name


def require(packages: Mapping[str, str], path: str | None = None) -> None:
    """Raise Missing with the packages to install if a program is absent; *packages* are those of the programs."""
    absent = [needed for needed in packages if shutil.which(needed, path=path) is None]
    if absent:
        names = " ".join(sorted({packages[needed] for needed in absent}))
        raise Missing(f"{', '.join(absent)} not found: apt-get install -y --no-install-recommends {names}")


def image() -> Image:
    """Return the cached image; build the missing parts first."""
    for name in PROGRAMS:
        program(name)
    with locked():
        tree = _kernel_tree()
        (packed,) = (tree / "boot").glob("vmlinuz-*")
        release = packed.name.removeprefix("vmlinuz-")
        plain = packed.with_name(f"vmlinux-{release}")
        kernel = plain if plain.exists() else packed
        return Image(release, kernel, _initramfs(tree, release), tree / "lib" / "modules" / release)


@contextmanager
def locked() -> Iterator[None]:
    """Let one process at a time build. The lock ends with the process that holds it."""
    with (cache() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _kernel_tree() -> Path:
    """Return the unpacked kernel package, with boot/ and lib/modules/; the newest of the cached ones."""
    trees = sorted(cache().glob("linux-image-*/boot"), key=lambda boot: boot.stat().st_mtime)
    if trees:
        return trees[-1].parent
    packages = sorted(cache().glob("linux-image-*.deb"))
    package = packages[-1] if packages else _download()
    tree = cache() / package.stem
    with unfinished() as scratch:
        subprocess.run(["dpkg", "-x", package, scratch], check=True)
        (modules,) = (scratch / "lib" / "modules").iterdir()
        subprocess.run([program("depmod"), "-b", scratch, modules.name], check=True)
        if plain := _unpacked_kernel((scratch / "boot" / f"vmlinuz-{modules.name}").read_bytes()):
            (scratch / "boot" / f"vmlinux-{modules.name}").write_bytes(plain)
        scratch.rename(tree)
    package.unlink()
    return tree


def _unpacked_kernel(packed: bytes) -> bytes:
    """Return the uncompressed kernel, or no bytes if it is not compressed as in Debian 12.

    QEMU boots both, but a kernel that decompresses itself takes six seconds on an emulated processor. The header's
    fields follow Linux's x86 boot protocol.
    """
    setup_sectors = packed[0x1F1]
    offset, length = struct.unpack_from("<II", packed, 0x248)
    begin = (setup_sectors + 1) * 512 + offset
    payload = packed[begin : begin + length]
    # Four bytes with its size follow the xz stream; lzma.decompress would refuse them.
    return lzma.LZMADecompressor().decompress(payload) if payload.startswith(XZ_MAGIC) else b""


def _download() -> Path:
    depends = subprocess.run(["apt-cache", "depends", KERNEL_PACKAGE], check=False, capture_output=True, text=True)
    dependency = re.search(r"Depends: (linux-image-\S+)", depends.stdout)
    if dependency is None:
        raise Missing(f"apt does not know the package {KERNEL_PACKAGE}: apt-get update")
    print(f"downloading {dependency[1]} for the emulated machines", file=sys.stderr)
    with unfinished() as scratch:
        fetched = subprocess.run(
            ["apt-get", "download", "-q", dependency[1]], cwd=scratch, check=False, capture_output=True, text=True
        )
        packages = list(scratch.glob("*.deb"))
        if fetched.returncode or not packages:
            raise RunFailed(f"apt-get download {dependency[1]} (after apt-get update?): {fetched.stderr.strip()}")
        return packages[0].rename(cache() / packages[0].name)


@contextmanager
def unfinished() -> Iterator[Path]:
    """Make a directory in the cache that is removed afterwards unless it has been renamed."""
    directory = Path(tempfile.mkdtemp(prefix="unfinished-", dir=cache()))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _initramfs(tree: Path, release: str) -> Path:
    """Return the initramfs, cached under the hash of its content."""
    modules = _modules(tree, release)
    files = {
        "bin/busybox": Path(program("busybox")).read_bytes(),
        "init": (HERE / "init.sh").read_bytes(),
        # The interpreter that runs this module has the same path in the guest.
        "python": os.fsencode(Path(sys.executable).resolve()),
        "modules/order": "\n".join(_plain_name(module) for module in modules).encode(),
        **{f"emulated/{name}": (HERE / name).read_bytes() for name in AGENT},
    }
    digest = hashlib.sha256(release.encode())
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    path = cache() / f"initramfs-{release}-{digest.hexdigest()[:16]}"
    if not path.exists():
        files |= {f"modules/{_plain_name(module)}": _unpacked(module) for module in modules}
        with unfinished() as scratch:
            (scratch / "new").write_bytes(cpio.archive(files))
            (scratch / "new").rename(path)
    return path


def _modules(tree: Path, release: str) -> list[Path]:
    modules: dict[Path, None] = {}
    for name in MODULES:
        argv = [program("modprobe"), "-d", tree, "-S", release, "--show-depends", name]
        shown = subprocess.run(argv, check=True, capture_output=True, text=True)
        modules |= {Path(line.split()[1]): None for line in shown.stdout.splitlines() if "insmod" in line}
    return list(modules)


def _plain_name(module: Path) -> str:
    return module.name.removesuffix(".xz")


def _unpacked(module: Path) -> bytes:
    """Return the module's bytes: plain in Debian 12, compressed in Debian 13."""
    data = module.read_bytes()
    return lzma.decompress(data) if module.suffix == ".xz" else data
