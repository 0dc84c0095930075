# SPDX-License-Identifier: Apache-2.0
"""Stored file-system roots of other hosts (sys/ and proc/), in a folder or in a tarball."""

from __future__ import annotations

import contextlib
import lzma
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from firsttouch.errors import BadInput


@contextlib.contextmanager
def environment(fsroot: Path | None) -> Iterator[dict[str, str]]:
    """Give the environment in which hwloc sees *fsroot* and nothing else: no cpuid, no PCI of this host.

    *fsroot* is a folder with sys/ in it or a tarball of one, as hwloc-gather-topology makes it, which is
    unpacked for as long as the context lasts. None is this host: hwloc needs nothing. Raises BadInput.
    """
    if fsroot is None:
        yield {}
        return
    with contextlib.ExitStack() as stack:
        places = [fsroot]
        if not fsroot.is_dir():
            require_regular(fsroot)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="firsttouch-")))
            _unpack(fsroot, folder)
            places = [folder, *sorted(f for f in folder.iterdir() if f.is_dir())]
        root = next((p for p in places if (p / "sys").is_dir()), None)
        if root is None:
            raise BadInput("no file-system root: it has no sys/ folder", file=fsroot)
        yield {"HWLOC_FSROOT": str(root), "HWLOC_COMPONENTS": "linux,stop", "HWLOC_THISSYSTEM": "0"}


def require_regular(file: Path) -> None:
    """Raise BadInput if *file* exists and is not a regular file: reading a FIFO or a device may never end."""
    try:
        if not file.is_file() and file.exists():
            raise BadInput("not a regular file", file=file)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=file) from error


def _unpack(tarball: Path, folder: Path) -> None:
    """Unpack the files, folders and links of *tarball* that stay inside *folder*."""
    try:
        with tarfile.open(tarball) as stored:
            for member in stored:
                if _stays_inside(member, folder.resolve()):
                    member.mode = 0o700 if member.isdir() else 0o600
                    stored.extract(member, folder)
    except KeyError as error:  # tarfile's word for a hard link to what is not in the tarball
        reason = f"{member.name} is a hard link to {member.linkname}, which is not in it"
        raise BadInput(f"not a whole tarball: {reason}", file=tarball) from error
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).split(":\n", maxsplit=1)[0]
        raise BadInput(f"neither a folder nor a whole tarball: {reason}", file=tarball) from error
    except RecursionError as error:
        raise BadInput("not a tarball of a host: a path in it has too many folders", file=tarball) from error
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror or error}", file=tarball) from error


def _stays_inside(member: tarfile.TarInfo, folder: Path) -> bool:
    """Tell whether *member* is a file, folder or link that, after those before it, leads nowhere outside *folder*.

    Others are devices, and links to something of the host that the root was gathered on. The module's own
    filters are newer than Debian 12's Python (3.11.2).
    """
    place = folder / member.name
    if ".." in place.parts:
        return False
    if member.issym():
        climbs = list(Path(member.linkname).parts)
        while climbs and climbs[0] == "..":
            del climbs[0]
        if ".." in climbs:  # would follow what may yet become a link itself
            return False
        target = place.parent.resolve() / member.linkname
    elif member.islnk():
        target = folder / member.linkname
    elif member.isfile() or member.isdir():
        target = place
    else:
        return False
    return all(p.resolve().is_relative_to(folder) for p in (place.parent, target))
