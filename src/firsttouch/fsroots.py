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
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="firsttouch-")))
            _unpack(fsroot, folder)
            places = [folder, *sorted(f for f in folder.iterdir() if f.is_dir())]
        root = next((p for p in places if (p / "sys").is_dir()), None)
        if root is None:
            raise BadInput("no file-system root: it has no sys/ folder", file=fsroot)
        yield {"HWLOC_FSROOT": str(root), "HWLOC_COMPONENTS": "linux,stop", "HWLOC_THISSYSTEM": "0"}


def _unpack(tarball: Path, folder: Path) -> None:
    """Unpack the files and links of *tarball* that stay inside *folder*."""

    def inside(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        try:
            return tarfile.data_filter(member, path)
        except tarfile.FilterError:
            return None  # a device, or a link to something of the host that it was gathered on

    try:
        with tarfile.open(tarball) as stored:
            stored.extractall(folder, filter=inside)  # noqa: S202  (the filter is the check that it asks for)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).split(":\n", maxsplit=1)[0]
        raise BadInput(f"neither a folder nor a whole tarball: {reason}", file=tarball) from error
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror or error}", file=tarball) from error
