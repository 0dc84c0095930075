# SPDX-License-Identifier: Apache-2.0
"""Inputs of reads as pipelines have them: files, pipes and standard input, decompressed by their content."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution.child_process import wait
from firsttouch.execution.threads import WorkerThread
from firsttouch.genomics.fastq import Block, Read, file_reads
from firsttouch.genomics.pipe_writer import (
    CANNOT_SPLICE,
    PipeWriter,
    Stopped,
    StopRequest,
    enlarge_pipe,
    splice,
)
from firsttouch.genomics.reads import PEEK, ReadFile, begin_of_gzip, form_of
from firsttouch.genomics.sources import Damaged, Decompressor, Rapidgzip, is_complete_gzip, is_parallel
from firsttouch.tools import require, require_package, run_tool

#: Forms that are refused, and how a pipe is decompressed.
_REFUSED = {"bzip2": "bzip2 -dc", "xz": "xz -dc", "zip": "unzip -p"}
_IGZIP = (sys.executable, "-I", "-m", "isal.igzip", "-d", "-c")
_SPLICE = 1 << 20
#: Seconds in which samtools ends after it has read damaged data.
_PATIENCE = 2.0
#: How samtools reports the cause of an error, and data without an end, with which it has status 0.
_CAUSES, _NO_END = ("[E::", "samtools "), "EOF marker is absent"
#: CRAM from version 2.1 on ends with a block of this size, which has these letters. samtools does not look for it.
_CRAM_END, _CRAM_END_BYTES = b"EOF", 38
_SORTED = re.compile(r"@HD\t[^\n]*\bSO:coordinate\b")
#: How zstd names its input.
_ZSTD_STDIN = "/*stdin*\\ : "
STDIN = "-"


class Input:
    """One input of reads: a file, a FIFO, an inherited descriptor, or standard input ("-").

    It is opened at once, and read after :meth:`start`. *label* names it in messages. *size* (bytes) is None if it
    is not a regular file. *identity* is equal for two names of the same file.
    """

    def __init__(self, path: str, stop: StopRequest, *, mate: int = 0) -> None:
        """Open *path*; *mate* (1 or 2) is part of a pipe's label, whose name tells nothing."""
        self.form = ""
        self._stop, self._path = stop, Path(path)
        self._stack, self._running = contextlib.ExitStack(), contextlib.ExitStack()
        self._decompressor: Decompressor | None = None
        self._pump: _Pump | None = None
        self._singles = -1
        self._read = 0
        self._head = b""
        self.label = Path("standard input") if path == STDIN else self._path
        try:
            self._fd = os.dup(0) if path == STDIN else _open(self._path)
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", file=self.label) from error
        self._stack.callback(os.close, self._fd)
        with contextlib.ExitStack() as undo:
            undo.callback(self._stack.close)
            self._state = os.fstat(self._fd)
            self.identity = self._state.st_dev, self._state.st_ino
            self.size = self._state.st_size if self._is_file() else None
            if self.size is None and mate:
                self.label = Path(f"{self.label} (mate {mate})")
            if stat.S_ISDIR(self._state.st_mode):
                raise BadInput("cannot be read: Is a directory", file=self.label)
            if os.isatty(self._fd):
                raise BadInput("is a terminal: name a file, or pipe the reads into it", file=self.label)
            if self.size is not None:
                self._head = self._first_bytes(next(file_reads(self._fd)))
                self._identify()
            undo.pop_all()

    def _is_file(self) -> bool:
        # Standard input may be a file of which another program has read the beginning.
        return stat.S_ISREG(self._state.st_mode) and os.lseek(self._fd, 0, os.SEEK_CUR) == 0

    def _first_bytes(self, read: Read) -> bytes:
        """Return the bytes that tell the form."""
        room, size = memoryview(bytearray(PEEK)), 0
        try:
            while size < PEEK and (count := read(room[size:])):
                size += count
            return bytes(room[:size])
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", file=self.label) from error

    def _identify(self) -> None:
        """Set the form; raises BadInput for one that is refused, and Missing if its program is not installed."""
        self.form = form_of(self._head)
        if program := _REFUSED.get(self.form):
            how = f"give <({program} {self._path})" if self.size is not None else f"pipe it through {program}"
            raise BadInput(f"is compressed with {self.form}, which is not supported: {how}", file=self.label)
        if self.form in {"BAM", "CRAM"}:
            require("samtools")
        elif self.form == "zstd":
            require("zstd")

    # ------------------------------------------------------------------
    # Reading

    def start(self, *, grouped: bool, reference: Path | None) -> None:
        """Begin to decompress. *grouped*: BAM and CRAM have pairs; *reference* is the FASTA file of CRAM.

        Waits for the first bytes of a pipe. Raises BadInput for a form that is refused and for pairs that are
        sorted by coordinate, and Stopped.
        """
        poller = _Poller(self._fd, self._stop)
        if self.size is None:
            self._head = self._first_bytes(poller.read)
            self._identify()
        if self.form == "plain":
            self._poller = _Poller(self._fd, self._stop, self._head)
            return
        if grouped and _SORTED.search(self._header()):
            raise BadInput(f"is sorted by coordinate: {_collate(self._path)}", file=self.label)
        self._start_decompressor(grouped=grouped, reference=reference)

    def _header(self) -> str:
        """Return the beginning of a BAM file's header, or a CRAM file's header; empty if it cannot be read."""
        if self.form == "BAM":
            return begin_of_gzip(self._head).decode(errors="replace")
        if self.form == "CRAM" and self.size is not None:
            with contextlib.suppress(RunFailed):
                return run_tool(["samtools", "view", "-H", str(self._path)]).stdout
        return ""

    def _start_decompressor(self, *, grouped: bool, reference: Path | None) -> None:
        if self.form == "gzip" and self.size is not None and is_parallel() and str(self._path) != STDIN:
            state = self._state
            file = ReadFile(self._path, True, state.st_size, state.st_mtime_ns)
            self._decompressor = Rapidgzip.whole(file)
        else:
            with contextlib.ExitStack() as stack:
                stdin = self._fd if self.size is not None else self._start_pump(stack)
                if self.form == "gzip":
                    require_package("isal")
                    self._decompressor = Decompressor(_IGZIP, stdin=stdin)
                elif self.form == "zstd":
                    # --long: its window may have any size.
                    self._decompressor = Decompressor(["zstd", "-d", "-c", "-q", "--long=31"], stdin=stdin)
                else:
                    self._start_samtools(stack, stdin, grouped=grouped, reference=reference)
        assert self._decompressor is not None  # noqa: S101 (for mypy)
        self._running.callback(self._decompressor.close)
        self._poller = _Poller(self._decompressor.stream, self._stop, alarm=self._singles)

    def _start_pump(self, stack: contextlib.ExitStack) -> int:
        """Start to move a pipe's bytes to the decompressor; return its standard input, which *stack* closes."""
        stdin, into = os.pipe2(os.O_CLOEXEC)
        stack.callback(os.close, stdin)
        self._pump = _Pump(self._fd, self._head, into, self._stop, keep=self.form == "CRAM")
        return stdin

    def _start_samtools(
        self, stack: contextlib.ExitStack, stdin: int, *, grouped: bool, reference: Path | None
    ) -> None:
        # Without threads: with them, samtools 1.16.1 waits forever on a BAM file whose first block is truncated.
        argv = ["samtools", "fastq", "-n"]
        if reference is not None:
            argv += ["--reference", str(reference)]
        fds: tuple[int, ...] = ()
        if grouped:
            # samtools writes mate 1 before mate 2 then, and reads whose mate does not follow into another file.
            self._singles, into = os.pipe2(os.O_CLOEXEC)
            self._running.callback(os.close, self._singles)
            stack.callback(os.close, into)
            argv += ["-s", f"/dev/fd/{into}", "-0", f"/dev/fd/{into}"]
            fds = (into,)
        self._decompressor = Decompressor([*argv, "-"], stdin=stdin, fds=fds)

    @property
    def threads(self) -> int:
        """Number of threads that can read at the same time: 0 means any number."""
        return 0 if self.form == "plain" and self.size is not None else 1

    def reads(self) -> Iterator[Read]:
        """Return what reads the blocks of the text; they raise Stopped, and BadInput for pairs not grouped."""
        if not self.threads:
            return map(self._stoppable, file_reads(self._fd))
        return itertools.repeat(self._read_text)

    def _stoppable(self, read: Read) -> Read:
        if self._stop.is_set:
            raise Stopped
        return read

    def _read_text(self, room: memoryview) -> int:
        try:
            count = self._poller.read(room)
        except _Alarm:
            assert self._decompressor is not None  # noqa: S101 (for mypy)
            # Data that are truncated between mates leave a single read, too: samtools ends then.
            if wait(self._decompressor.process, _PATIENCE) is not None:
                self._check_decompressor(self._decompressor)
            self._require_no_singles()
            return 0
        self._read += count
        return count

    def checked(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Yield *blocks*, and raise Damaged or BadInput at their end if they are not all of the input."""
        try:
            yield from blocks
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", file=self.label) from error
        if self._decompressor is not None:
            self._check_decompressor(self._decompressor)
        state = os.fstat(self._fd)
        if self.size is not None and (state.st_size, state.st_mtime_ns) != (self.size, self._state.st_mtime_ns):
            raise BadInput("was changed while it was read", file=self.label)
        self._running.close()

    def _check_decompressor(self, decompressor: Decompressor) -> None:
        """Raise Damaged or BadInput if *decompressor*, which ends, did not read all of the input."""
        failure = decompressor.failure()
        if self._pump is not None and self._pump.error is not None:
            raise BadInput(f"cannot be read: {self._pump.error.strerror}", file=self.label)
        if self.form in {"BAM", "CRAM"}:
            failure = self._samtools_failure(decompressor.log().splitlines(), failure)
        elif isinstance(decompressor, Rapidgzip) and not failure and not self._is_complete():
            failure = "its end is missing"
        if failure:
            raise Damaged(f"the {self.form} data are truncated or damaged ({failure.removeprefix(_ZSTD_STDIN)})")
        if self._singles >= 0:
            self._require_no_singles()

    def _samtools_failure(self, log: list[str], failure: str) -> str:
        """Return why samtools read no complete input, or an empty string."""
        if failure:
            failure = next((line for line in log if line.startswith(_CAUSES)), failure)
            if "reference" in failure:
                failure += "; --reference names the FASTA file that it was written with"
        elif self.form == "CRAM" and self._head[4:6] > b"\x02\x00" and _CRAM_END not in self._tail():
            failure = "its end is missing"
        return failure or next((line for line in log if _NO_END in line), "")

    def _tail(self) -> bytes:
        """Return the last bytes of a CRAM input."""
        if self._pump is not None:
            self._pump.join()
            return self._pump.tail
        return os.pread(self._fd, _CRAM_END_BYTES, max(0, self._state.st_size - _CRAM_END_BYTES))

    def _is_complete(self) -> bool:
        file = ReadFile(self._path, True, self._state.st_size, self._state.st_mtime_ns)
        return is_complete_gzip(file, self._read)

    def _require_no_singles(self) -> None:
        """Raise BadInput if samtools wrote a read without its mate."""
        name = os.read(self._singles, PEEK).split(b"\n")[0].removeprefix(b"@")
        if name:
            read = name.decode("ascii", "backslashreplace")
            raise BadInput(f"the mate of read {read} does not follow it: {_collate(self._path)}", file=self.label)

    def position(self, end: int) -> int | None:
        """Return the bytes of the input that were read; *end* are those of the text."""
        if self.size is None:
            return None
        if self._decompressor is None:
            return end
        if not isinstance(self._decompressor, Rapidgzip):
            # The process reads through the same open file.
            return os.lseek(self._fd, 0, os.SEEK_CUR)
        try:
            counters = Path(f"/proc/{self._decompressor.process.pid}/io").read_text()
        except OSError:
            return None
        return min(int(counters.split()[1]), self.size)

    def close(self) -> None:
        """Stop the decompression; the stop request must be set unless the input was read to its end."""
        self._running.close()
        if self._pump is not None:
            self._pump.join()
        self._stack.close()


def _open(path: Path) -> int:
    # O_NONBLOCK: a FIFO opens before its writer does. Reads wait for the writer with poll(2).
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _collate(path: Path) -> str:
    file = "FILE" if str(path) == STDIN else path
    return f"group the reads by name first, <(samtools collate -Ou {file})"


class _Alarm(Exception):
    """There are bytes in the alarm's pipe."""


class _Poller:
    """Reads *head* and then the descriptor *fd*; a wait ends with Stopped, or _Alarm if *alarm* can be read."""

    def __init__(self, fd: int, stop: StopRequest, head: bytes = b"", *, alarm: int = -1) -> None:
        self._fd, self._stop, self._head, self._alarm = fd, stop, head, alarm
        self._poll = select.poll()
        for descriptor in (fd, stop.fd, *([alarm] if alarm >= 0 else [])):
            self._poll.register(descriptor, select.POLLIN)

    def read(self, room: memoryview) -> int:
        if self._head:
            count = min(len(room), len(self._head))
            room[:count], self._head = self._head[:count], self._head[count:]
            return count
        while True:
            events = dict(self._poll.poll())
            if self._stop.is_set:
                raise Stopped
            if events.get(self._alarm, 0) & select.POLLIN:
                raise _Alarm
            if self._alarm in events:
                self._poll.unregister(self._alarm)
            if self._fd in events:
                with contextlib.suppress(BlockingIOError):
                    return os.readv(self._fd, [room])


class _Pump:
    """A thread that moves *head* and the bytes of the descriptor *source* into a pipe, which it closes.

    If *keep*, *tail* are the last _CRAM_END_BYTES bytes.
    """

    def __init__(self, source: int, head: bytes, into: int, stop: StopRequest, *, keep: bool) -> None:
        self.error: OSError | None = None
        self.tail = b""
        self._source, self._head, self._into, self._stop, self._keep = source, head, into, stop, keep
        self._thread = WorkerThread("reads", self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            with PipeWriter(self._into, self._stop) as writer:
                enlarge_pipe(self._into)
                if self._keep:
                    self._copy(writer)
                    return
                writer.write(self._head)
                self._head = b""
                try:
                    while splice(self._source, self._into, None, _SPLICE, self._stop):
                        pass
                except OSError as error:
                    if error.errno not in CANNOT_SPLICE:
                        raise
                    self._copy(writer)
        except (BrokenPipeError, Stopped):
            pass  # the process has ended, and its status says why
        except OSError as error:
            self.error = error

    def _copy(self, writer: PipeWriter) -> None:
        poller, room = _Poller(self._source, self._stop, self._head), memoryview(bytearray(_SPLICE))
        while count := poller.read(room):
            writer.write(room[:count])
            self.tail = (self.tail + bytes(room[max(0, count - _CRAM_END_BYTES) : count]))[-_CRAM_END_BYTES:]
