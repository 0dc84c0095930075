# SPDX-License-Identifier: Apache-2.0
"""Gzip files, through rapidgzip: unpacked as a whole with its seek index made, or from any place with it.

rapidgzip runs as a program of its own: its memory is its own, and so are its threads; nothing of it stays.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO

from firsttouch.errors import Missing
from firsttouch.reads.outlet import enlarge
from firsttouch.reads.source import Source
from firsttouch.supervise import guarded

_PROGRAM = (sys.executable, "-I", "-c", "import sys, rapidgzip; sys.exit(rapidgzip.cli())", "--quiet")
#: Without an index its parallel decoder does twice the work (it has to guess what came before a block), and
#: more: two threads were five times slower than one on FASTQ. From here on more threads are worth it.
_MANY = 8
_MEMBER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]", re.DOTALL)
_WINDOW = 1 << 20
_CHANCE = 1 << 10
#: Bytes of a member of nothing: header, one block, checksum and size.
_LEAST = 20


class Unpacker:
    """A running rapidgzip: *stream* is a pipe's reading end, with all bytes or a range of the unpacked ones."""

    def __init__(self, source: Source, argv: list[str], keep: tuple[int, ...] = ()) -> None:
        if importlib.util.find_spec("rapidgzip") is None:
            raise Missing("the Python package rapidgzip is not installed: `make setup` installs it")
        fd = source.open()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with this)
        try:
            self.process = subprocess.Popen(
                guarded([*_PROGRAM, *argv, f"/dev/fd/{fd}"]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._said,
                pass_fds=(fd, *keep),
                process_group=0,  # Ctrl-C is ours to pass on
            )
        finally:
            os.close(fd)
        assert self.process.stdout is not None  # noqa: S101 (for mypy: it was asked for)
        self.stream = self.process.stdout.fileno()
        enlarge(self.stream)

    def failure(self) -> str:
        """Wait for its end and return what it said of a failure, or an empty string."""
        if self.process.wait() == 0:
            return ""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")

    def close(self) -> None:
        """Stop it, wherever it is."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        assert self.process.stdout is not None  # noqa: S101
        self.process.stdout.close()
        self.process.wait()
        self._said.close()


def whole(source: Source, index: IO[bytes]) -> Unpacker:
    """Start unpacking all of *source*; its seek index is written to the file *index*."""
    pus = len(os.sched_getaffinity(0))
    argv = ["-d", "-c", "-P", str(pus if pus >= _MANY else 1)]
    # This format packs its windows: a tenth of the size of the other.
    argv += ["--index-format", "gztool", "-f", "--export-index", f"/dev/fd/{index.fileno()}"]
    return Unpacker(source, argv, (index.fileno(),))


def part(source: Source, index: IO[bytes], begin: int, size: int) -> Unpacker:
    """Start unpacking *size* bytes of *source*, from byte *begin* of what it unpacks to."""
    argv = ["-d", "-c", "-P", "1", "--ranges", f"{size}@{begin}", "--import-index", f"/dev/fd/{index.fileno()}"]
    return Unpacker(source, argv, (index.fileno(),))


def intact(source: Source, unpacked: int) -> bool:
    """Tell whether the last member of a gzip file, which unpacks to *unpacked* bytes, is there to its end.

    rapidgzip 0.16.1 takes a file that was cut for one that ends there, without a word. A member ends with the
    size of what it holds (modulo 2^32): that decides for a file of one member. Of several, the last one is
    looked for from the end: it is the one that unpacks to the file's very end.
    """
    fd = source.open()
    try:
        size = int.from_bytes(os.pread(fd, 4, max(source.size - 4, 0)), "little")
        if source.size >= _LEAST and size == unpacked & 0xFFFFFFFF:
            return True
        verdicts = (_ends(fd, at, source.size) for at in _members(fd, source.size))
        return next((verdict for verdict in verdicts if verdict is not None), False)
    finally:
        os.close(fd)


def _members(fd: int, size: int) -> Iterator[int]:
    """Yield where a further gzip member may begin, the last place first."""
    end = size
    while end > 1:
        begin = max(end - _WINDOW, 1)
        found = [m.start() for m in _MEMBER.finditer(os.pread(fd, end - begin + 3, begin))]
        yield from (begin + at for at in reversed(found) if begin + at < end)
        end = begin


def _ends(fd: int, begin: int, size: int) -> bool | None:
    """Tell whether the gzip member at byte *begin* ends with the file, zeros aside; None: there is none."""
    unpack = zlib.decompressobj(wbits=31)
    at = begin
    try:
        while not unpack.eof:
            data = unpack.unconsumed_tail
            if not data:
                data = os.pread(fd, _WINDOW, at)
                at += len(data)
            if not data:
                # Bytes that look like a beginning, just before the end, may get this far by chance.
                return False if at - begin > _CHANCE else None
            unpack.decompress(data, _WINDOW)
    except zlib.error:
        return None
    return at == size and not unpack.unused_data.strip(b"\0")
