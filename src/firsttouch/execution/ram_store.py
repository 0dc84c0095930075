# SPDX-License-Identifier: Apache-2.0
"""RAM stores: folders in memory on chosen NUMA nodes, whose files other programs open by path.

A store is a tmpfs in the mount namespace of a *holder*, a child process that only holds it. Its memory policy
and its limit are options of the mount. Other programs reach it by /proc/HOLDER/root; the host's own mounts do not
change. The kernel frees the memory when the holder has ended and no program maps a file any more. The holder ends
when this process does, however that ends, because the pipe to its standard input closes.

Sources: the kernel's documents filesystems/tmpfs (mpol=, huge=) and filesystems/proc (numa_maps, smaps).
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from firsttouch.errors import BadInput, CannotHere, RunFailed
from firsttouch.execution.child_process import wait
from firsttouch.host import kernel_files, pages
from firsttouch.host.available_memory import available_bytes, available_on
from firsttouch.host.cpusets import format_list, parse_list, status_list
from firsttouch.host.pages import FilePages
from firsttouch.scenarios import evidence
from firsttouch.tools import defer_signals, require
from firsttouch.units import format_bytes

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

#: Mounts a tmpfs on the folder $1 with the options $2, creates the folder $3, and waits until its input ends.
_HOLDER = """\
mount -t tmpfs -o "$2" firsttouch "$1" && mkdir -- "$3" && echo ready || exit 1
exec >/dev/null 2>&1
read -r _"""
#: A store is mounted on the first existing one of these folders, in the holder's namespace only.
_BASES = (Path("/dev/shm"), Path("/mnt"), Path("/media"), Path("/srv"))  # noqa: S108 - not the host's own
#: The message after the death of a holder.
_GONE = "the process that holds the RAM store was killed, and its files are gone"
#: This part of a NUMA node's memory, and of a cgroup's free memory, stays free, because under a binding policy the
#: kernel kills programs when a NUMA node is full.
_MARGIN = 0.03
PAGE = pages.UNIT


class Space(NamedTuple):
    """A requested tmpfs: at most *size_bytes* on *numa_nodes*, in equal parts if *even*.

    *huge*: on huge pages if the kernel offers them for tmpfs, except files smaller than a huge page.
    """

    numa_nodes: tuple[int, ...]
    size_bytes: int
    even: bool = False
    huge: bool = True


class Residence(Struct, frozen=True):
    """Where the pages of files lie: 4 KiB pages per NUMA node, and bytes that huge pages map.

    *reason* says why this differs from the request; it is empty if every page lies where it should.
    """

    pages: dict[int, int] = field(default_factory=dict)
    huge_bytes: int = 0
    reason: str = ""


class RamStore:
    """The tmpfs of a holder: :attr:`folder` is its path for processes outside of the namespace, such as this one.

    Programs that resolve paths do not find the files there; :meth:`prefix_argv` is for them.
    """

    def __init__(self, holder: subprocess.Popen[bytes], space: Space, inside: Path) -> None:
        """Create the store of *space*, which is the folder *inside* in the holder's namespace."""
        self.space = space
        self.inside = inside
        self.pid = holder.pid
        self.folder = Path(f"/proc/{holder.pid}/root{inside}")
        self._holder = holder

    def alive(self) -> bool:
        """Return whether the holder still runs. A killed holder loses its files before it has ended."""
        return wait(self._holder, 0) is None and self.folder.exists()

    def prefix_argv(self) -> list[str]:
        """Return the words that precede a program's argv to run it in the holder's namespace.

        There /dev/shm is this store, and the store's folder is :attr:`inside`. The program keeps its current
        folder. For an ordinary user it runs as root of a user namespace, with that user's rights.
        """
        require("nsenter")
        outer = Path(f"/proc/{self.pid}/ns/user").readlink() == Path("/proc/self/ns/user").readlink()
        user = [] if outer else ["--user", "--preserve-credentials"]
        moved = ["/bin/sh", "-c", 'cd -- "$0" && exec "$@"', str(Path.cwd())]
        return ["nsenter", f"--target={self.pid}", *user, "--mount", "--", *moved]

    def policy(self) -> str:
        """Return the memory policy of the store's mount, such as bind:0; "" without NUMA."""
        mounts = Path(f"/proc/{self.pid}/mounts").read_text(encoding="utf-8", errors="surrogateescape")
        # Programs see the last mount on a folder.
        options = {line.split(" ")[1]: line.split(" ")[3] for line in mounts.splitlines()}
        return options.get(str(self.inside.parent), "").partition("mpol=")[2]

    def copy(self, sources: Sequence[Source], *, on_progress: Callable[[int], None] = lambda _: None) -> None:
        """Copy *sources* into the store; times are kept. *on_progress* gets the number of bytes copied.

        Raises BadInput if a source changes while it is copied, CannotHere if the sources do not fit, and RunFailed
        if the holder is killed.
        """
        try:
            copy_all(sources, self.folder, on_progress=on_progress)
        except OSError as error:
            raise self._explained(error, sources) from error
        if not self.alive():
            raise RunFailed(_GONE)

    def _explained(self, error: OSError, sources: Sequence[Source]) -> Exception:
        if not self.alive():
            return RunFailed(_GONE)
        if error.errno == errno.ENOSPC:
            total = sum(source.bytes for source in sources)
            limit = format_bytes(self.space.size_bytes)
            return CannotHere(f"{format_bytes(total)} do not fit into the RAM store, which is limited to {limit}")
        return error

    def verify(self, files: Iterable[Path] | None = None) -> Residence:
        """Return where each page of *files* (default: all) in the store lies, as the kernel shows it.

        The files are mapped, and numa_maps and smaps of the mapping are read.
        """
        total, expected = FilePages(), 0
        for file in self.folder.iterdir() if files is None else files:
            total += pages.resident(file)
            expected += -(-file.stat().st_size // PAGE)
        if not self.alive():
            raise RunFailed(_GONE)
        ordered = dict(sorted(total.nodes.items()))
        return Residence(ordered, total.huge_bytes, _misplaced(self.space, ordered, expected))


# ----------------------------------------------------------------------
# The holder


@contextlib.contextmanager
def hold(
    numa_nodes: Iterable[int],
    size_bytes: int,
    *,
    even: bool = False,
    huge: bool = True,
    private_shm: bool = False,
) -> Iterator[RamStore]:
    """Hold a store of at most *size_bytes* on *numa_nodes* during the block.

    With several NUMA nodes its pages are interleaved if *even*, else they lie on the one nearest to the program
    that writes them. *private_shm*: it is the /dev/shm of programs that enter the namespace. Raises CannotHere if
    there is too little memory, or if this user may not create a mount namespace.
    """
    space = Space(tuple(sorted(set(numa_nodes))), size_bytes, even, huge)
    if reason := shortage([space]):
        raise CannotHere(reason)
    base = _base(private_shm=private_shm)
    inside = base / f"firsttouch-{os.urandom(6).hex()}"
    holder = store = None
    try:
        with defer_signals():
            holder = _start([str(base), _options(space), str(inside)])
        store = RamStore(holder, space, inside)
        yield store
    except OSError as error:
        if store and not store.alive() and str(error.filename).startswith(f"/proc/{store.pid}/"):
            raise RunFailed(_GONE) from error
        raise
    finally:
        if holder is not None:
            _end(holder)


def _base(*, private_shm: bool) -> Path:
    if base := next((base.resolve() for base in _BASES[: 1 if private_shm else None] if base.is_dir()), None):
        return base
    if private_shm:
        raise CannotHere("there is no /dev/shm: mount a tmpfs on it, as every distribution does")
    raise CannotHere(f"a RAM store needs one of the folders {', '.join(map(str, _BASES))}, and none exists")


def _options(space: Space) -> str:
    """Return the mount options of a space. mpol comes last: its list has commas."""
    words = [f"size={-(-space.size_bytes // PAGE) * PAGE}", "nr_inodes=0", "mode=700"]
    if space.huge and has_huge_pages():
        # Files are enlarged before they are filled, so all but the end of each is on huge pages.
        words.append("huge=within_size")
    if pages.has_numa_maps():
        words.append(f"mpol={'interleave' if space.even else 'bind'}:{format_list(space.numa_nodes)}")
    return ",".join(words)


def has_huge_pages() -> bool:
    """Return whether a tmpfs of this host may have huge pages."""
    mode = kernel_files.bracketed_word(Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled"))
    return mode not in {"", "deny"}


def _start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a holder, as root or in a user namespace; raises CannotHere if neither may mount."""
    require("unshare", "mount")
    ways = [["--mount"]] if os.geteuid() == 0 else []
    ways.append(["--user", "--map-root-user", "--mount"])
    messages = []
    for way in ways:
        holder = subprocess.Popen(
            ["unshare", *way, "--propagation=private", "--", "/bin/sh", "-c", _HOLDER, "firsttouch-ram", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            start_new_session=True,  # protected from a terminal's signals
        )
        try:
            assert holder.stdout is not None  # noqa: S101 - for mypy
            if holder.stdout.readline() == b"ready\n":
                holder.stdout.close()
                return holder
            assert holder.stderr is not None  # noqa: S101
            messages += holder.stderr.read().decode(errors="replace").splitlines()[:1]
        except BaseException:
            _end(holder)
            raise
        _end(holder)
    raise CannotHere(_lacking(messages))


def _end(holder: subprocess.Popen[bytes]) -> None:
    """Kill a holder, wait until its memory is free, and close its pipes."""
    holder.kill()
    holder.wait()
    for stream in (holder.stdin, holder.stdout, holder.stderr):
        if stream is not None:
            stream.close()


#: A file, the value with which it forbids user namespaces, and the admin's remedy.
_SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ("/proc/sys/user/max_mnt_namespaces", "0", "sysctl user.max_mnt_namespaces=10000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with userns for unshare",
    ),
)


def _lacking(messages: Sequence[str]) -> str:
    """Return why a RAM store is impossible, and the remedy."""
    message = "; ".join(dict.fromkeys(messages)) or "the holder was killed"
    begin = f"a RAM store needs a mount namespace, which this user may not create ({message})"
    for file, value, remedy in _SWITCHES:
        with contextlib.suppress(OSError):
            if Path(file).read_text(encoding="ascii").strip() == value:
                return f"{begin}: {file} is {value}; the administrator can change it: {remedy}"
    return f"{begin}: run outside of the container, or let the container mount (CAP_SYS_ADMIN)"


# ----------------------------------------------------------------------
# Sizes


def shortage(spaces: Iterable[Space]) -> str:
    """Return why the free memory is too small for *spaces*, with the arithmetic, or ""."""
    need = Counter[int]()
    spaces = list(spaces)
    for space in spaces:
        if reason := _forbidden(space.numa_nodes):
            return reason
    for space in spaces:
        left = {n: room(n) - need[n] for n in space.numa_nodes}
        size, nodes = space.size_bytes, format_list(space.numa_nodes)
        share = math.ceil(size / len(left))
        if space.even and share > (least := min(left.values())):
            smallest = min(left, key=left.__getitem__)
            return (
                f"{format_bytes(size)} in equal parts on NUMA node {nodes} need {format_bytes(share)} on each: "
                f"{smallest} has {format_bytes(max(0, least))} left"
            )
        if size > (total := max(0, sum(left.values()))):
            return f"{format_bytes(size)} are needed, and NUMA node {nodes} has {format_bytes(total)} left"
        for node in left:
            need[node] += share
    size = sum(space.size_bytes for space in spaces)
    have = available_bytes()
    if have is not None and size > (limit := int(have * (1 - _MARGIN))):
        return f"{format_bytes(size)} are needed, and the host or this cgroup has {format_bytes(limit)} left"
    return ""


def needed_bytes(sources: Iterable[Source]) -> int:
    """Return the size of a store for copies of *sources*: whole pages, and a margin."""
    return sum(-(-source.bytes // PAGE) * PAGE + PAGE for source in sources) + (64 << 10)


def room(node: int) -> int:
    """Return the bytes that a store may take on a NUMA node: its free memory minus a margin."""
    left, total = available_on(node)
    return max(0, int(left - _MARGIN * total))


def _usable_nodes() -> tuple[int, ...]:
    """Return the NUMA nodes with memory that this process may use."""
    if not pages.has_numa_maps():
        return (0,)
    memory = parse_list(Path("/sys/devices/system/node/has_memory").read_text(encoding="ascii"))
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    return tuple(sorted(memory & status_list(status, "Mems_allowed_list")))


def _forbidden(numa_nodes: Sequence[int]) -> str:
    """Return which of *numa_nodes* this process may not use, or ""."""
    usable = _usable_nodes()
    if not numa_nodes:
        return "no NUMA node was named"
    if outside := set(numa_nodes) - set(usable):
        return (
            f"NUMA node {format_list(outside)} does not exist, has no memory, or is outside of the cpuset: "
            f"use {format_list(usable)}"
        )
    return ""


# ----------------------------------------------------------------------
# Where the pages lie


def _misplaced(space: Space, counts: dict[int, int], expected: int) -> str:
    """Return why pages with *counts* per NUMA node do not lie as *space* requests, or ""."""
    if (missing := expected - sum(counts.values())) > 0:
        return f"{missing} of {expected} pages are not in memory"
    # The kernel puts all pages of a tmpfs on its nodes, and each file begins on another NUMA node.
    return evidence.why_misplaced(counts, space.numa_nodes, outside=0, even=space.even, huge_pages=2)


# ----------------------------------------------------------------------
# Copies of files by several threads; a changed file is detected

#: Files are copied in blocks of this size (bytes); each thread copies one chunk at a time.
_BLOCK, _CHUNK = 1 << 20, 64 << 20
_MOST_THREADS = 8
#: Two changes within this time (s), a timer tick of the kernel, may have the same time stamp.
_TICK = 0.02


def identity_of(status: os.stat_result) -> tuple[int, ...]:
    """Return a key of a file's content. It includes the change time, which no program can set back."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Source(NamedTuple):
    """A file that is copied, and its size."""

    file: Path
    bytes: int


def sources_of(files: Iterable[Path]) -> list[Source]:
    """Return *files* with their sizes; raises BadInput for one that is not a readable regular file."""
    sources = []
    for file in files:
        try:
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):
                raise BadInput("not a regular file: only files can be copied", file=file)
            file.open("rb").close()
        except OSError as error:
            raise _unreadable(file, error) from error
        sources.append(Source(file, status.st_size))
    return sources


class _PendingCopy(Struct):
    """A copy that is being made."""

    source: Source
    reading: int
    writing: int


def copy_all(sources: Sequence[Source], folder: Path, *, on_progress: Callable[[int], None]) -> None:
    """Copy *sources* into *folder*; *on_progress* gets the number of bytes copied.

    Copies keep the times of their sources, and are read-only. Raises BadInput if a source has changed, and
    OSError.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - it loads logging

    done = 0
    threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(threads, thread_name_prefix="copy") as pool:
        for source in sources:
            with _opened(source, folder) as copy, contextlib.closing(_copy_file(copy, pool)) as sizes:
                for size in sizes:
                    done += size
                    on_progress(done)


def _copy_file(copy: _PendingCopy, pool: ThreadPoolExecutor) -> Generator[int, None, None]:
    """Copy a file by the threads of *pool*, and yield the sizes of the chunks that are done."""
    from concurrent.futures import wait  # noqa: PLC0415

    end, stop = copy.source.bytes, threading.Event()
    # Pages that were not cached before are dropped afterwards, because a second copy would fill the NUMA nodes.
    cached = [_is_cached(copy.reading, min(begin + _CHUNK // 2, end - 1)) for begin in range(0, end, _CHUNK)]
    chunks = zip(range(0, end, _CHUNK), cached, strict=True)
    parts = [pool.submit(_copy_chunk, copy, begin, keep, stop) for begin, keep in chunks]
    try:
        for part in parts:
            yield part.result()
    finally:
        stop.set()
        # The descriptors stay open until no thread uses them.
        wait([part for part in parts if not part.cancel()])


@contextlib.contextmanager
def _opened(source: Source, folder: Path) -> Iterator[_PendingCopy]:
    """Open source and copy; at the end the source must be unchanged."""
    with contextlib.ExitStack() as stack:
        try:
            reading = os.open(source.file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _unreadable(source.file, error) from error
        stack.callback(os.close, reading)
        # A program that maps the file and writes to it changes its times only at the first write to a clean page.
        with contextlib.suppress(OSError):
            os.fdatasync(reading)
        before = _settled(reading)
        if before.st_size != source.bytes:
            raise _changed(source)
        writing = os.open(folder / source.file.name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        stack.callback(os.close, writing)
        os.ftruncate(writing, source.bytes)
        yield _PendingCopy(source, reading, writing)
        try:
            now = source.file.stat()
        except OSError as error:
            raise _changed(source) from error
        if {identity_of(os.fstat(reading)), identity_of(now)} != {identity_of(before)}:
            raise _changed(source)
        os.utime(writing, ns=(before.st_atime_ns, before.st_mtime_ns))


def _settled(handle: int) -> os.stat_result:
    """Return the status of an open file, when any later change would have another time stamp."""
    while True:
        status = os.fstat(handle)
        age = time.time() - max(status.st_mtime, status.st_ctime)
        if not 0 <= age < _TICK:
            return status
        time.sleep(_TICK - age)


def _changed(source: Source) -> BadInput:
    return BadInput("it changed while it was copied: repeat when no program writes to it", file=source.file)


def _unreadable(file: Path, error: OSError) -> BadInput:
    return BadInput(f"cannot be copied: {error.strerror}", file=file)


def _is_cached(handle: int, offset: int) -> bool:
    """Return whether the page at *offset* is in the page cache; False if the file system does not say."""
    try:
        return os.preadv(handle, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except OSError:
        return False


def _copy_chunk(copy: _PendingCopy, begin: int, keep: bool, stop: threading.Event) -> int:
    """Copy the chunk that begins at *begin* and return its size; it stays in the page cache if *keep*."""
    block = memoryview(bytearray(_BLOCK))
    offset, end = begin, min(begin + _CHUNK, copy.source.bytes)
    while offset < end and not stop.is_set():
        try:
            size = os.preadv(copy.reading, [block[: end - offset]], offset)
        except OSError as error:
            raise _unreadable(copy.source.file, error) from error
        if not size:
            raise _changed(copy.source)
        rest = block[:size]
        while rest:
            written = os.pwrite(copy.writing, rest, offset)
            rest, offset = rest[written:], offset + written
    if not keep:
        with contextlib.suppress(OSError):
            os.posix_fadvise(copy.reading, begin, end - begin, os.POSIX_FADV_DONTNEED)
    return offset - begin
