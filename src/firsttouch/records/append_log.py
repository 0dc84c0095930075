# SPDX-License-Identifier: Apache-2.0
"""Files that grow by whole lines: records, journals and logs. Each line is a JSON object.

A file has one writer at a time. One that is killed leaves a part of its last line, and a part of a JSON object is
never a JSON object. So there is one rule for a last line without its newline: it counts if it is a JSON object,
otherwise readers leave it out and the next writer removes it.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from firsttouch.errors import BadInput
from firsttouch.records.atomic_files import name_in_errors

T = TypeVar("T")


class AppendLog(Generic[T]):
    """The lines of *file* as values.

    *parse* returns the value of a line's JSON and raises ValueError or TypeError for anything else. *problem*
    returns the defect, and its consequence, by that error.
    """

    def __init__(self, file: Path, parse: Callable[[Any], T], problem: Callable[[Exception], str]) -> None:
        self.file = file
        self._parse, self._problem = parse, problem
        self._lines: list[T | BadInput] = []
        self._offset = 0

    def lines(self) -> list[T | BadInput]:
        """Return all lines, and a BadInput with file and line for each that is wrong; empty without a file.

        Only the lines since the last call are read, unless the file is shorter than it was.
        """
        try:
            with self.file.open("rb") as stream:
                if stream.seek(0, os.SEEK_END) < self._offset:
                    self._lines, self._offset = [], 0
                stream.seek(self._offset)
                text = stream.read()
        except FileNotFoundError:
            self._lines, self._offset = [], 0
            return []
        end = text.rfind(b"\n") + 1
        self._offset += end
        for line in text[:end].split(b"\n")[:-1]:
            self._lines.append(self._value(line, len(self._lines) + 1))
        # Its newline may follow.
        last = [self._value(text[end:], len(self._lines) + 1)] if _is_whole(text[end:]) else []
        return [*self._lines, *last]

    def values(self) -> list[T]:
        """Return the values of all lines; raises BadInput with the first line that is wrong."""
        values = []
        for line in self.lines():
            if isinstance(line, BadInput):
                raise line
            values.append(line)
        return values

    def append(self, *values: Mapping[str, Any]) -> None:
        """Append a line for each of *values*; see :func:`append`."""
        append(self.file, "".join(json.dumps(value) + "\n" for value in values))

    def _value(self, line: bytes, number: int) -> T | BadInput:
        try:
            return self._parse(json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            return BadInput(self._problem(error), file=self.file, line=number)


def append(file: Path, text: str) -> tuple[int, int]:
    """Append the lines of *text* to *file*, which is created if need be, and force them to the disk: all or none.

    Returns where they begin and end (bytes). Raises OSError, also for a link that neither this user nor root made,
    whoever owns the folder: its target would be changed.
    """
    data = text.encode()
    is_followed = file.is_symlink() and file.lstat().st_uid in {os.geteuid(), 0}
    if file.is_symlink() and not is_followed:
        raise OSError(errno.ELOOP, "a link of another user", str(file))

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags if is_followed else flags | os.O_NOFOLLOW, 0o666)

    with name_in_errors(file), open(file, "a+b", buffering=0, opener=opener) as out:
        begin, size, newline = _end_of_lines(out), out.seek(0, os.SEEK_END), b""
        if begin < size:
            out.seek(begin)
            if _is_whole(out.read()):
                begin, newline = size, b"\n"
            else:
                out.truncate(begin)
        unwritten = memoryview(newline + data)
        try:
            while unwritten:
                unwritten = unwritten[out.write(unwritten) :]
            os.fsync(out.fileno())
        except OSError:
            out.truncate(begin)
            raise
    return begin + len(newline), begin + len(newline) + len(data)


def whole_lines(text: bytes) -> list[bytes]:
    """Return the lines of *text*, the content or the end of a file; a part of a last line is left out."""
    *lines, last = text.split(b"\n")
    return [*lines, last] if _is_whole(last) else lines


def end_of(file: Path, most: int) -> list[bytes]:
    """Return the whole lines at the end of *file*, of *most* bytes together; empty without a file."""
    try:
        with file.open("rb", buffering=0) as stream:
            begin = max(0, os.fstat(stream.fileno()).st_size - most)
            stream.seek(begin)
            text = stream.read(2 * most)
    except FileNotFoundError:
        return []
    return whole_lines(text.partition(b"\n")[2] if begin else text)


def _is_whole(line: bytes) -> bool:
    """Return whether a last line without its newline is complete."""
    try:
        return line.rstrip().endswith(b"}") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _end_of_lines(file: IO[bytes]) -> int:
    """Return where the last line of *file* with a newline ends, read from the end of the file."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - (1 << 16))
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
