# SPDX-License-Identifier: Apache-2.0
"""The host lock, which allows one measurement at a time, and the clean-up of processes that are left behind.

The lock is flock(2) on a file that all users of the host share, regardless of their TMPDIR. It ends with its
holder.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from firsttouch.errors import BadInput
from firsttouch.execution.placement_check import family
from firsttouch.records.file_lock import try_lock

#: The environment variable that names the lock's folder; the default is the first world-writable one of PLACES.
VARIABLE = "FIRSTTOUCH_LOCK"
#: Slurm's job_container/tmpfs gives each job a private /tmp and /dev/shm, but not a private /run/lock.
PLACES = (Path("/run/lock"), Path("/dev/shm"))  # noqa: S108 - the file stays empty
_PR_SET_CHILD_SUBREAPER = 36
_PAUSE = 0.2


@contextlib.contextmanager
def hold_host(say: Callable[[str], None], *, shared: bool = False, hint: str = "") -> Iterator[None]:
    """Hold the host lock during a measurement; before waiting, report the holder with a *hint* through *say*.

    *shared* is for runs that are not timed: several may hold the lock, but no measurement. Processes that a holder
    started are holders, too.
    """
    handle = _take(_file(), lambda message: say(message + hint), shared=shared)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def hold_unless_shared(
    say: Callable[[str], None], *, share_host: bool, shared: bool = False
) -> contextlib.AbstractContextManager[None]:
    """Hold this host as :func:`hold_host` does, unless it is to be shared with other measurements."""
    if share_host:
        return contextlib.nullcontext()
    return hold_host(say, shared=shared, hint=" (--share-host starts at once, and both runs may be slower)")


def _file() -> Path:
    # The file's name contains the host's name, because hosts may share a folder or a machine.
    return folder() / f"firsttouch-{os.uname().nodename}.lock"


def folder() -> Path:
    """Return the folder of the host lock, which all users of the host share; raises BadInput for anything else."""
    if named := os.environ.get(VARIABLE):
        try:
            Path(named).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{VARIABLE}: not a folder: {error.strerror}", file=named) from error
        return Path(named)
    for folder in PLACES:
        if folder.is_dir() and folder.stat().st_mode & stat.S_IWOTH and os.access(folder, os.W_OK):
            return folder
    import tempfile  # noqa: PLC0415 - for hosts without these places

    return Path(tempfile.gettempdir())


def _take(file: Path, say: Callable[[str], None], *, shared: bool) -> int | None:
    """Return a descriptor that holds the lock, or None if an ancestor of this process holds it."""
    announced = False
    while True:
        handle = open_lock_file(file)
        try:
            while not try_lock(handle, shared=shared):
                holders = _holders(handle)
                if holders.intersection(ancestors()):
                    os.close(handle)
                    return None
                if not announced:
                    say(f"waiting for another run on this host to end: {_described(holders)}")
                announced = True
                time.sleep(_PAUSE)
            # If the file was removed in the meantime, other processes would lock a new one.
            if os.path.samestat(os.fstat(handle), file.lstat()):
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def open_lock_file(file: Path) -> int:
    """Open or create the lock file; raises OSError for a link, BadInput for anything but a regular file.

    It is opened for reading, because in a sticky folder no user may write to another user's file.
    """
    # In a world-writable folder the name could be another user's link.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    deadline = time.monotonic() + 1
    while True:
        try:
            handle = os.open(file, flags)
            break
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                handle = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o644)
                os.fchmod(handle, 0o644)  # other users must be able to open it, regardless of the umask
                break
        except PermissionError:  # its creator has not made it readable yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadInput("the lock of this host must be a regular file: remove it", file=file)
    return handle


def _holders(handle: int) -> set[int]:
    """Return the processes that hold a flock on this file, if /proc/locks shows them."""
    file = os.fstat(handle)
    device = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}"
    exact, alike = set[int](), set[int]()
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(file.st_ino):
            # btrfs and overlayfs show programs another device number than /proc/locks does.
            (exact if fields[5].startswith(f"{device}:") else alike).add(int(fields[4]))
    return exact or alike


def ancestors() -> list[int]:
    """Return the ancestors of this process, its parent first."""
    pids, pid = list[int](), os.getppid()
    while pid and pid not in pids:
        pids.append(pid)
        try:
            pid = int(_stat(pid)[1])
        except OSError:
            break
    return pids


def _stat(pid: int) -> list[str]:
    """Return the fields of a process from its state on (proc_pid_stat(5)); raises OSError if it has ended."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _described(holders: set[int]) -> str:
    """Return the holders and their users as text."""
    texts = []
    for pid in sorted(holders - {0}):
        try:
            user = Path(f"/proc/{pid}").stat().st_uid
        except OSError:
            continue
        texts.append(describe_process(pid, user))
    return ", ".join(texts) or "a process that cannot be seen from here"


def describe_process(pid: int, user: int) -> str:
    """Return a process and its user in words."""
    return f"process {pid} of {user_name(user)}"


def user_name(user: int) -> str:
    """Return the name of a user, or else the number."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


@contextlib.contextmanager
def new_descendants() -> Iterator[Callable[[], set[int]]]:
    """Become a child subreaper; yield a function that returns the descendants that were started in the block."""
    import ctypes  # noqa: PLC0415 - measurements load this module for the lock alone

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    begun = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    before = set(family(os.getpid()))

    def started() -> set[int]:
        # A sample can miss a process while another one ends, so the age shows which processes are new. Those that
        # older processes started do not belong to the block.
        others = before.union(*(family(pid) for pid in before if pid != os.getpid()))
        return {pid for pid in family(os.getpid()) if pid not in others and start_ticks(pid) >= begun}

    try:
        yield started
    finally:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def start_ticks(pid: int) -> int:
    """Return when a process was started, in clock ticks since boot; -1 if it has ended."""
    try:
        return int(_stat(pid)[19])
    except OSError:
        return -1


@contextlib.contextmanager
def no_process_left(
    signals: Sequence[int] = (signal.SIGTERM, signal.SIGKILL), patience: float = 3.0
) -> Iterator[Callable[[], set[int]]]:
    """Do as :func:`new_descendants`, and terminate the descendants at the end.

    They get each of *signals*, and *patience* seconds to end after each.
    """
    with new_descendants() as started:
        try:
            yield started
        finally:
            for number in signals:
                _end(started, number, patience)


def _end(started: Callable[[], set[int]], number: int, patience: float) -> None:
    """Send a signal to all processes that were *started*; wait up to *patience* seconds for their end.

    A process that is reparented while its parent ends may be missed at first, so each sample signals new ones.
    """
    signalled: set[int] = set()
    deadline = time.monotonic() + patience
    while descendants := started():
        for pid in descendants - signalled:
            # A process of another user cannot be signalled.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        signalled |= descendants
        for pid in descendants:
            with contextlib.suppress(ChildProcessError):  # a descendant that is not (yet) a child
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() >= deadline:
            return
        time.sleep(0.02)
