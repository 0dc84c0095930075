# SPDX-License-Identifier: Apache-2.0
"""Writes a cpio archive for an initramfs. The program cpio would need root to create /dev/console."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import PurePosixPath

#: Mount points of the guest's first steps.
DIRECTORIES = ("dev", "proc", "sys", "lower", "upper", "newroot")


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of *files* (path -> content, all executable), their directories and /dev/console."""
    directories = {str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."}
    members = [_member(name, stat.S_IFDIR | 0o755) for name in sorted(directories.union(DIRECTORIES))]
    members.append(_member("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)))
    members += [_member(name, stat.S_IFREG | 0o755, content) for name, content in files.items()]
    return b"".join([*members, _member("TRAILER!!!", 0)])


def _member(name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """Return one member in the "newc" format: thirteen hexadecimal fields, the name, the content, padded."""
    encoded = name.encode() + b"\0"
    inode = user = group = modified = checksum = 0
    fields = (inode, mode, user, group, 1, modified, len(content), 0, 0, *device, len(encoded), checksum)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + encoded) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
