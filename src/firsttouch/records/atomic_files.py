# SPDX-License-Identifier: Apache-2.0
"""Files and folders that appear whole or not at all: made beside their place, then renamed.

Names beside a place begin with :data:`PREFIX`, so that no reader takes them for results, and differ between
processes and between the hosts of a shared file system. What is made has the mode that the umask says.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from firsttouch.errors import BadInput
from firsttouch.records.file_lock import lock_folder

#: How the name of what is not finished begins: what a killed process left may be found by it.
PREFIX = ".partial-"


@contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """Yield a free path beside *place*; what is still there in the end, a file or a folder, is removed."""
    # What is not finished has not the suffix either by which readers know their files.
    partial = place.with_name(f"{_mine()}{place.name}-{secrets.token_hex(4)}")
    try:
        yield partial
    finally:
        _remove(partial)


@contextmanager
def replacing(place: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a path beside *place* for a file, a link or a folder, which takes that place in the end.

    Nothing is replaced and nothing stays where the block raises an error. A folder takes the place of an empty
    one only. With *force* a file is on the disk, and so is its name, when the block has ended. Raises OSError
    where the place cannot be taken.
    """
    with scratch(place) as partial:
        yield partial
        if force:
            _force(partial)
        partial.replace(place)
    if force:
        _force(place.parent)


@contextmanager
def output(place: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a path for a file that the user named: it takes *place* in the end, as :func:`replacing` says.

    A symbolic link stays, and what it points at is replaced. A device, a pipe or an open file (/dev/stdout) is
    never replaced: what was made is written into it.
    """
    if is_stream(place):
        with tempfile.TemporaryDirectory(prefix="firsttouch-") as folder:
            partial = Path(folder, "output")
            yield partial
            write_into(place, partial)
        return
    with replacing(Path(os.path.realpath(place)), force=force) as partial:
        yield partial


def write(place: Path, text: str) -> None:
    """Write *text* as UTF-8 to *place*, at once: a reader sees the old file or the new one."""
    with output(place) as partial:
        partial.write_text(text, encoding="utf-8")


def append_lines(file: Path, text: str, *, is_whole: Callable[[bytes], bool] = lambda _: False) -> tuple[int, int]:
    """Append whole lines to *file*, which is created if need be, and force them to the disk: all or none.

    Returns where they begin and end (bytes). A last line without a newline, left by a killed writer, is removed
    first, unless *is_whole* accepts it: then it gets its newline. Raises OSError.
    """
    data = text.encode()
    with file.open("a+b", buffering=0) as out:
        begin, size = _end_of_lines(out), out.seek(0, os.SEEK_END)
        if begin < size:
            out.seek(begin)
            if is_whole(out.read()):
                begin, data = size, b"\n" + data
            else:
                out.truncate(begin)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[out.write(rest) :]
            os.fsync(out.fileno())
        except OSError:
            out.truncate(begin)
            raise
    return begin, begin + len(data)


def _end_of_lines(file: IO[bytes]) -> int:
    """Return where the last whole line of *file* ends, read from the end of the file."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - (1 << 16))
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def digest(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_stream(place: Path) -> bool:
    """Tell whether *place* is a device, a pipe or an open file: something that is written into, not replaced."""
    if _open_file(place) is not None:
        return True
    try:
        mode = place.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def write_into(stream: Path, file: Path) -> None:
    """Copy *file* into a *stream*: its end when that is an open file of this process."""
    opened = _open_file(stream)
    if opened is not None and opened.parent.samefile("/proc/self/fd"):
        sys.stdout.flush()
        handle = os.dup(int(opened.name))
    else:
        # Neither created nor cut: it is there, and it may be somebody's log.
        handle = os.open(stream, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
    with os.fdopen(handle, "wb") as out, file.open("rb") as source:
        shutil.copyfileobj(source, out, 1 << 20)


def _open_file(place: Path) -> Path | None:
    """Return the entry of /proc/PID/fd that *place* is a link to, or None."""
    for _ in range(40):  # as many links as the kernel follows
        folder = os.path.realpath(place.parent)
        if re.fullmatch(r"/proc/(self|\d+)(/task/\d+)?/fd", folder):
            return Path(folder, place.name)
        try:
            place = place.parent / place.readlink()
        except OSError:
            return None
    return None


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """Make a folder in *folder* for the parts of an output, and remove it afterwards.

    Its maker holds a lock on it: what a process of this host that was killed has left there is removed first.
    """
    names = f".firsttouch-{platform.node()}+"
    for left in folder.glob(f"{glob.escape(names)}*"):
        if (handle := lock_folder(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(handle)
    while True:
        made = Path(tempfile.mkdtemp(dir=folder, prefix=names))
        handle = lock_folder(made)
        # Somebody who clears up may have been faster; where the file system has no locks, nobody clears up.
        if made.is_dir():
            break
        if handle is not None:
            os.close(handle)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def refuse_overwriting(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise BadInput where an output is an input too, or is named twice, be it by links.

    The records below an input that is a folder are inputs, and so is all that is in an output that is a folder.
    Devices and pipes may be both.
    """
    taken: dict[tuple[int, int] | str | None, Path] = {}
    for out in outputs:
        if (key := _identity(out)) in taken:
            raise BadInput("this output is named twice: each needs a file of its own", file=out)
        if key is not None:
            taken[key] = out
    # Only what is there can be an input.
    there = {key: out for key, out in taken.items() if not isinstance(key, str)}
    for path in inputs if there else ():
        for out in there.values():
            if out.is_dir() and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(out)):
                raise BadInput(f"this output holds an input ({path}): name another folder", file=out)
        for file in _records_in(path) if path.is_dir() else [path]:
            if (key := _identity(file)) in there:
                raise BadInput(f"this output is an input too ({file}): name another file", file=there[key])


def _records_in(folder: Path) -> Iterator[Path]:
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return (file for file in files if file.suffix in {".jsonl", ".parquet"})


def _identity(path: Path) -> tuple[int, int] | str | None:
    """Return what two paths of one file have in common; None for a stream."""
    if is_stream(path):
        return None
    try:
        found = path.stat()
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def clear(folder: Path, *, all_hosts: bool = False) -> None:
    """Remove what killed processes of this host left in *folder* (with *all_hosts*: of any).

    Call it only where nobody of these writes there meanwhile.
    """
    for left in folder.glob(f"{glob.escape(PREFIX if all_hosts else _mine())}*"):
        _remove(left)


def _mine() -> str:
    # A plus sign is in no host's name: n1 is not taken for n1-2.
    return f"{PREFIX}{platform.node()}+"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _force(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing for folders
            raise
    finally:
        os.close(handle)
