# SPDX-License-Identifier: Apache-2.0
"""Installs Apptainer on a test host with Debian 12, which lacks it, from the package of a later Debian.

    python tests/factories/apptainer_package.py

apt fetches the package from this host's mirror with a separate configuration, so the host's sources stay
unchanged. The package needs a newer C library only for the names that C23 gave to strtol and similar functions;
these are changed back to the names that every version has. This is for test hosts only: a site installs Apptainer
as its documentation describes.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from factories.installation import CannotInstall, call

#: The suite of Debian that has Apptainer.
SUITE = "sid"
#: C23's prefix of the names of strtol and similar functions.
PREFIX = b"__isoc23_"
#: The C library's symbol version of the old names on this architecture.
OLD, NEW = b"GLIBC_2.2.5", b"GLIBC_2.38"
_SYMBOLS, _NEEDS = 11, 0x6FFFFFFE  # ELF: SHT_DYNSYM, SHT_GNU_verneed


def ensure() -> str:
    """Return the path of ``apptainer``; install it first if it is missing. Raises CannotInstall."""
    if os.geteuid() == 0:
        map_root()
    if program := shutil.which("apptainer"):
        return program
    if os.geteuid() != 0:
        raise CannotInstall("apptainer is not on PATH, and only root can install it")
    if shutil.which("apt-get") is None or os.uname().machine != "x86_64":
        raise CannotInstall("apptainer is not on PATH, and this is not a Debian host with x86_64")
    with tempfile.TemporaryDirectory(prefix="apptainer-") as folder:
        install(Path(folder))
    program = shutil.which("apptainer")
    if program is None:
        raise CannotInstall("apptainer's package is installed, but apptainer is not on PATH")
    return program


def map_root() -> None:
    """Give root a range of user ids for namespaces, in which images are built."""
    for file, option in (("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")):
        text = Path(file).read_text(encoding="utf-8") if Path(file).exists() else ""
        if not any(line.startswith(("root:", "0:")) for line in text.splitlines()):
            call("usermod", option, "1000000-1065535", "root")


def install(folder: Path) -> None:
    """Fetch, adapt and install the package, with all intermediate files in *folder*."""
    package, root = download(folder), folder / "root"
    call("dpkg-deb", "-R", package, root)
    for file in (root / "usr").rglob("*"):
        if file.is_file() and not file.is_symlink() and file.read_bytes()[:4] == b"\x7fELF":
            file.write_bytes(relinked(file.read_bytes()))
    control = root / "DEBIAN/control"
    control.write_text(control.read_text().replace("libc6 (>= 2.38)", "libc6 (>= 2.34)"))
    # The checksums of the package no longer match.
    (root / "DEBIAN/md5sums").unlink(missing_ok=True)
    call("dpkg-deb", "-Znone", "-b", root, folder / "apptainer.deb")
    call("apt-get", "install", "-y", "-qq", "--no-install-recommends", folder / "apptainer.deb")


def download(folder: Path) -> Path:
    """Fetch the package's file from this host's mirror and return its path."""
    listed = call(
        *("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)"),
        *("Identifier: Packages", "Origin: Debian", "Label: Debian"),
    )
    mirrors = [row[0] for row in map(str.split, listed.splitlines()) if row[2] == "main" and "-" not in row[1]]
    if not mirrors:
        raise CannotInstall("no Debian mirror in this host's apt sources")
    key = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    signed = f"[signed-by={key}] " if key.exists() else ""
    (folder / "sources.list").write_text(f"deb {signed}{mirrors[0]} {SUITE} main\n")
    for needed in ("lists/partial", "cache/archives/partial"):
        (folder / needed).mkdir(parents=True)
    options = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        # The release file of a snapshot mirror has expired.
        "Acquire::Check-Valid-Until": "false",
    }
    apt = ["apt-get", "-qq", *(o for key, value in options.items() for o in ("-o", f"{key}={value}"))]
    call(*apt, "update")
    call(*apt, "download", "apptainer", cwd=folder)
    return next(folder.glob("apptainer_*.deb"))


def relinked(program: bytes) -> bytes:
    """Return the ELF *program* (64 bits, little-endian) with the old names of strtol and similar functions."""
    if program[:6] != b"\x7fELF\x02\x01":
        raise CannotInstall("Debian's apptainer is not a program of 64 bits")
    linked = bytearray(program)
    sections = list(_sections(linked))
    symbols = next((s for s in sections if s[1] == _SYMBOLS), None)
    needs = next((s for s in sections if s[1] == _NEEDS), None)
    if symbols is None or needs is None:
        return program
    names = sections[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        (name,) = struct.unpack_from("<I", linked, at)
        if linked.startswith(PREFIX, names + name):
            struct.pack_into("<I", linked, at, name + len(PREFIX))
    versions = {_name(linked, names + name): (at, hashed, name) for at, hashed, name in _versions(linked, needs)}
    if NEW in versions:
        if OLD not in versions:
            raise CannotInstall(f"Debian's apptainer names {NEW.decode()} alone: it cannot be adapted")
        at, (_, hashed, name) = versions[NEW][0], versions[OLD]
        struct.pack_into("<I", linked, at, hashed)
        struct.pack_into("<I", linked, at + 8, name)
    return bytes(linked)


def _sections(elf: bytearray) -> Iterator[tuple[int, ...]]:
    """Yield the section headers: name, type, flags, address, offset, size, link, ..."""
    (start,) = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    for number in range(count):
        yield struct.unpack_from("<IIQQQQIIQQ", elf, start + number * size)


def _versions(elf: bytearray, section: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield (offset, hash, name) of each symbol version that the program needs."""
    at = section[4]
    for _ in range(section[7]):
        _, count, _, first, following = struct.unpack_from("<HHIII", elf, at)
        entry = at + first
        for _ in range(count):
            hashed, _, _, name, further = struct.unpack_from("<IHHII", elf, entry)
            yield entry, hashed, name
            entry += further
        at += following


def _name(elf: bytearray, at: int) -> bytes:
    return bytes(elf[at : elf.index(0, at)])


if __name__ == "__main__":
    try:
        print(ensure())
    except CannotInstall as error:
        print(error, file=sys.stderr)
        sys.exit(3)
