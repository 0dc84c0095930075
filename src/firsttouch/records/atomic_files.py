# SPDX-License-Identifier: Apache-2.0
"""Files and folders that appear whole or not at all: they are written next to their place, then renamed.

Temporary names begin with :data:`PREFIX`, which readers of results ignore, and differ between processes and
between the hosts of a shared file system. New files have the mode that the umask allows. A file that replaces one
of the same owner keeps its mode.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from firsttouch import paths
from firsttouch.errors import BadInput
from firsttouch.records.file_lock import lock_folder

#: The beginning of the names of unfinished files, by which left-overs of killed processes are found.
PREFIX = ".partial-"
#: The beginning of the names of workspaces.
_WORKSPACE = ".firsttouch-"
#: The numbers of errors that a disk causes.
_OF_DISKS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
#: A file system with less room (bytes) than this is full for a program.
_NO_ROOM = 64 << 10
#: The open files of this process, by number, and the number of the standard output.
_DESCRIPTORS, _STDOUT = Path("/proc/self/fd"), Path("/dev/stdout")


@contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """Yield a free path next to *place*; a file or folder that is there at the end is removed."""
    # The random ending also hides the suffix by which readers recognize files.
    partial = place.with_name(f"{_host_prefix()}{place.name}-{os.urandom(4).hex()}")
    try:
        yield partial
    finally:
        remove(partial)


@contextmanager
def replace(place: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a path next to *place* for a file, link or folder, which is renamed to *place* at the end.

    If the block raises an error, *place* stays as it was. A folder can only replace an empty one.
    With *force*, the file and its name are synced to disk. Raises OSError, which names *place*, if it cannot be
    written or replaced.
    """
    with scratch(place) as partial, name_in_errors(place, partial):
        yield partial
        if force:
            sync(partial)
        rename(partial, place)
    if force:
        try:
            sync(place.parent)
        except OSError as error:
            reason = f"is written, but a crash of the host may lose it: {error.strerror}"
            raise OSError(error.errno, reason, str(place)) from error


def rename(partial: Path, place: Path) -> None:
    """Rename *partial* to *place*; a file keeps the permissions of the file of the same owner that it replaces.

    Somebody else who may write to the folder decides no mode: neither by a file of that name, nor by a link or
    another file in place of *partial*.
    """
    with suppress(FileNotFoundError):
        before = place.lstat()
        if stat.S_ISREG(before.st_mode):
            set_mode(partial, before.st_mode & 0o777, owner=before.st_uid)
    partial.replace(place)


def set_mode(path: Path, mode: int, *, owner: int | None = None) -> None:
    """Set the permissions of a new file or folder, if it is this user's or *owner*'s.

    A link, or a file with another name, which somebody has put there meanwhile, keeps its own.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return
        raise
    try:
        status = os.fstat(handle)
        is_new = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
        if is_new and status.st_uid == (os.geteuid() if owner is None else owner):
            os.fchmod(handle, mode)
    finally:
        os.close(handle)


@contextmanager
def name_in_errors(place: Path, partial: Path | None = None) -> Iterator[None]:
    """Name *place* in an OSError of the block that names no file and is a disk's, or names *partial*."""
    try:
        yield
    except OSError as error:
        named = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
        is_ours = partial is not None and any(name.startswith(str(partial)) for name in named)
        if not is_ours and (named or error.errno not in _OF_DISKS):
            raise
        raise OSError(error.errno, error.strerror, str(place)) from error


def full_disk(files: Iterable[Path]) -> str:
    """Return that the file system of one of *files* is full, with its folder, or an empty string."""
    for folder in dict.fromkeys(file.parent for file in files):
        try:
            space = os.statvfs(folder)
        except OSError:
            continue
        blocks = space.f_bfree if os.geteuid() == 0 else space.f_bavail
        if (space.f_blocks and blocks * space.f_frsize < _NO_ROOM) or (space.f_files and not space.f_ffree):
            while folder.name.startswith(_WORKSPACE):
                folder = folder.parent  # noqa: PLW2901 - the workspace is removed
            if folder.is_relative_to("/proc"):  # a mount in memory that only one process sees
                return "the scratch in memory is full: give --scratch ram:SIZE more, or leave it out"
            return f"{folder}: {os.strerror(errno.ENOSPC)}"
    return ""


@contextmanager
def output(place: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a path for an output file that the user named; it replaces *place* as :func:`replace` does.

    Of a symbolic link, the target is replaced. Into a device, a pipe or an open file (/dev/stdout), the content is
    copied.
    """
    if is_stream(place):
        import tempfile  # noqa: PLC0415 - it loads random number generators

        with tempfile.TemporaryDirectory(prefix="firsttouch-") as folder:
            partial = Path(folder, "output")
            yield partial
            with name_in_errors(place), os.fdopen(open_stream(place), "wb") as out, partial.open("rb") as source:
                shutil.copyfileobj(source, out, 1 << 20)
        return
    with replace(Path(os.path.realpath(place)), force=force) as partial:
        yield partial


def write(place: Path, text: str, *, creates: bool = False) -> None:
    """Write *text* as UTF-8 to *place*, whose folder it *creates*; a reader sees the old file or the new one."""
    if creates:
        place.parent.mkdir(parents=True, exist_ok=True)
    with output(place) as partial:
        partial.write_text(text, encoding="utf-8")


def check_place(place: Path, *, creates: bool = False) -> None:
    """Raise BadInput if a file could not be written to *place*; its writer *creates* its folder, or does not."""
    if is_stream(place):
        if not place.exists():
            raise BadInput("cannot be written: it is not open", file=place)
        return
    if place.is_dir():
        raise BadInput("cannot be written: it is a folder", file=place)
    nearest = paths.resolve(place).parent
    # No writer creates the folder to which a link points.
    while creates and not place.is_symlink() and not nearest.exists():
        nearest = nearest.parent
    if nearest == Path("/dev"):
        raise BadInput("there is no such device, and outputs cannot be files in /dev", file=place)
    import tempfile  # noqa: PLC0415

    try:
        # Permissions do not tell whether this works: root may write in /proc, but cannot create a file there.
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        why = " (it does not exist)" if not nearest.exists() else ""
        raise BadInput(f"cannot be written: {nearest} is not a writable folder{why}", file=place) from error


def digest(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    import hashlib  # noqa: PLC0415 - it loads OpenSSL

    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_stream(place: Path) -> bool:
    """Return whether *place* is a device, a pipe or an open file, which is written into and not replaced."""
    if _open_file(place) is not None:
        return True
    try:
        mode = place.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def open_stream(stream: Path, *, wait: bool = True) -> int:
    """Open a *stream*, which may be an open file of this process, for writing at its end; return a descriptor.

    Waits for the reader of a FIFO; unless *wait*, raises OSError (ENXIO) if it has none.
    """
    opened = _open_file(stream)
    if opened is not None and opened.parent.samefile(_DESCRIPTORS):
        sys.stdout.flush()
        return os.dup(int(opened.name))
    # The stream exists and may be a log: it must not be truncated.
    fd = os.open(stream, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | (0 if wait else os.O_NONBLOCK))
    os.set_blocking(fd, True)
    return fd


def _open_file(place: Path) -> Path | None:
    """Return the entry of /proc/PID/fd that *place* links to, or None."""
    for _ in range(40):  # the number of links that the kernel follows
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
    """Create a folder in *folder* for the parts of an output, and remove it at the end.

    The folder is locked while it is used. Unlocked ones, left by killed processes of this host, are removed first.
    """
    names = f"{_WORKSPACE}{os.uname().nodename}+"
    for left in folder.glob(f"{glob.escape(names)}*"):
        if (handle := lock_folder(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(handle)
    import tempfile  # noqa: PLC0415

    while True:
        created = Path(tempfile.mkdtemp(dir=folder, prefix=names))
        handle = lock_folder(created)
        # Another process may have removed the folder before it was locked. Without locks no process removes it.
        if created.is_dir():
            break
        if handle is not None:
            os.close(handle)
    try:
        yield created
    finally:
        shutil.rmtree(created, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def refuse_overwriting(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise BadInput if an output is also an input or is named twice, also through links and descriptors.

    An input folder stands for the record files below it, an output folder for everything below it. Files that are
    open for reading in inherited descriptors are inputs too. The standard output, where commands print what
    they did, is an output. Devices and pipes may be both.
    """
    outputs = list(outputs)
    taken: dict[tuple[int, int] | str | None, Path] = {}
    for out in outputs:
        if (key := _identity(out)) in taken and not is_stream(out):
            raise BadInput("this output is named twice: give each a different file", file=out)
        if key is not None:
            taken[key] = out
    if (key := _identity(_STDOUT)) is not None:
        taken.setdefault(key, _STDOUT)
    existing = [out for key, out in taken.items() if not isinstance(key, str)]
    names = {os.path.basename(key) for key in taken if isinstance(key, str)}  # noqa: PTH119 - of a resolved path
    for path in [*inputs, *_inherited_inputs(outputs)]:
        # Most names of possible inputs, such as indexes, are of no file, and not the place of an output.
        if path.name not in names and not os.path.lexists(path):
            continue
        for out in existing:
            if out.is_dir() and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(out)):
                raise BadInput(f"this output holds an input ({path}): name another folder", file=out)
        for file in _records_in(path) if existing and path.is_dir() else [path]:
            if (key := _identity(file)) in taken:
                raise BadInput(f"this output would overwrite the input {file}: name another file", file=taken[key])


def _inherited_inputs(outputs: Iterable[Path]) -> Iterator[Path]:
    """Yield the regular files that this process inherited open for reading, but for those that *outputs* name.

    Descriptors besides standard input that are open for writing as well may be copies of an output's.
    """
    named = [
        opened.name for out in outputs if (opened := _open_file(out)) and opened.parent.samefile(_DESCRIPTORS)
    ]
    for entry in _DESCRIPTORS.iterdir():
        try:
            access = fcntl.fcntl(int(entry.name), fcntl.F_GETFL) & os.O_ACCMODE
            is_inherited = os.get_inheritable(int(entry.name))
            is_file = entry.is_file()
        except OSError:  # of the folder
            continue
        is_read = access == os.O_RDONLY or (entry.name == "0" and access == os.O_RDWR)
        if is_read and is_file and is_inherited and entry.name not in {"1", "2", *named}:
            yield entry


def _records_in(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names if name.endswith((".jsonl", ".parquet")))


def _identity(path: Path) -> tuple[int, int] | str | None:
    """Return a key that is equal for all paths and descriptors of one file; None for a device or a pipe."""
    stream = is_stream(path)
    try:
        status = path.stat()
    except OSError:
        return None if stream else os.path.realpath(path)
    return None if stream and not stat.S_ISREG(status.st_mode) else (status.st_dev, status.st_ino)


def clear(folder: Path, *, all_hosts: bool = False) -> None:
    """Remove the unfinished files in *folder* of killed processes of this host, or of *all_hosts*.

    Call it only while none of these hosts writes to *folder*.
    """
    for left in folder.glob(f"{glob.escape(PREFIX if all_hosts else _host_prefix())}*"):
        remove(left)


def _host_prefix() -> str:
    # Host names do not contain a plus sign, so n1 is not mistaken for n1-2.
    return f"{PREFIX}{os.uname().nodename}+"


def remove(path: Path) -> None:
    """Remove a file, or a folder with all in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        with suppress(OSError):  # an error of closing a folder, which shutil does not ignore
            shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):  # a read-only file system refuses to delete absent files, too
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot sync folders
            raise
    finally:
        os.close(handle)
