# SPDX-License-Identifier: Apache-2.0
"""Where alignments go: one SAM file, one per instance, or a sorted BAM file."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution.process_runner import child, last_lines, put_off
from firsttouch.genomics import sam
from firsttouch.genomics.fastq import Reads
from firsttouch.genomics.feed import Dynamic, Repeated, Static
from firsttouch.records import atomic_files
from firsttouch.tools import require

# ----------------------------------------------------------------------
# The pipes from a feeder of reads to the instances of a scenario.

Feeder = Static | Dynamic | Repeated


class Pipes:
    """The pipes of one step, from the feeder to each instance; without a feeder the read files themselves.

    An instance has a pipe for each of *mates*, or (*on_stdin*) one in all, with the records of both in turn.
    """

    def __init__(
        self, reads: Reads, instances: int, mates: Sequence[int], feeder: Feeder | None, *, on_stdin: bool = False
    ) -> None:
        self._reads, self._feeder, self._mates = reads, feeder, mates
        self._on_stdin, self._in_turn = on_stdin, on_stdin and len(mates) > 1
        self._into: list[list[int | None]] = [[None] * reads.mates for _ in range(instances)]
        self._out: list[list[int | None]] = [[None] * reads.mates for _ in range(instances)]
        self._started = False

    def __enter__(self) -> Pipes:
        if self._feeder is not None:
            try:
                for into, out in zip(self._into, self._out, strict=True):
                    for mate in self._mates[:1] if self._on_stdin else self._mates:
                        out[mate], into[mate] = os.pipe()
            except OSError:
                self._close(*self._into, *self._out)
                raise
        return self

    def of(self, number: int) -> tuple[list[str | None], tuple[int, ...], int | None]:
        """Return the files that an instance reads, by mate, descriptors to stay open in it, and its stdin."""
        if self._feeder is None:
            return [str(f) if m in self._mates else None for m, f in enumerate(self._reads.files)], (), None
        ends = self._out[number]
        if self._on_stdin:
            return [None] * len(ends), (), ends[self._mates[0]]
        names = [None if fd is None else f"/dev/fd/{fd}" for fd in ends]
        return names, tuple(fd for fd in ends if fd is not None), None

    def start(self) -> None:
        """Begin to feed."""
        if self._feeder is not None:
            self._started = True
            self._feeder.start(self._into, in_turn=self._in_turn)

    def __exit__(self, kind: object, *_: object) -> None:
        if self._feeder is None:
            return
        if not self._started:
            self._close(*self._into)
        # With the reading ends gone a feeder that is still at work meets a broken pipe and ends.
        self._close(*self._out)
        if kind is None:
            self._feeder.join()
        else:
            self._feeder.stop()

    def _close(self, *ends: list[int | None]) -> None:
        for fd in (fd for mates in ends for fd in mates if fd is not None):
            os.close(fd)


# ----------------------------------------------------------------------
# What becomes of the instances' SAM files: one SAM file, one per instance (striped), or one sorted BAM file.
#
# Whatever happens, nothing half-written takes an output's name: it is written beside and renamed. Only into
# what is not a regular file (a device, a pipe, /dev/stdout) it is written.

Form = Literal["sam", "striped", "sorted"]
FORMS: tuple[Form, ...] = get_args(Form)


@dataclass(frozen=True)
class Output:
    """Where the alignments go, and in which form.

    ``sam``: one file in input order. ``striped``: one complete SAM file per instance, as the output striping of
    Langmead et al. 2018 has one per thread. ``sorted``: one BAM file, by `samtools sort` with *threads*.
    *command* is what the user ran, for the header.
    """

    path: Path
    form: Form = "sam"
    threads: int = 1
    command: str = ""

    def check(self, instances: int = 1, *, records: Path | None = None, inputs: Sequence[Path] = ()) -> None:
        """Raise BadInput or Missing where the output could not be written, before any long work.

        It must be none of the *inputs*, nor the file of *records*, which is written as well.
        """
        if self.form == "striped" and atomic_files.is_stream(self.path):
            raise BadInput("not a file: a striped output is a file for each instance", file=self.path)
        for file in self.files(instances):
            _check(file)
        atomic_files.refuse_overwriting([*self.files(instances), *([records] if records else [])], inputs)
        if self.form == "sorted":
            require("samtools")

    def scratch(self) -> Path | None:
        """Return where the parts are made: beside the output, so that a rename suffices; None: anywhere."""
        if self.form != "striped" and atomic_files.is_stream(self.path):
            return None
        place = self.stripe(0) if self.form == "striped" else self.path
        return Path(os.path.realpath(place)).parent

    def stripe(self, number: int) -> Path:
        """Return the file of one instance in the striped form: out.sam gives out.0.sam, out.1.sam and so on."""
        return self.path.with_name(f"{self.path.stem}.{number}{self.path.suffix}")

    def files(self, instances: int) -> list[Path]:
        """Return the files that there are in the end."""
        return [self.stripe(n) for n in range(instances)] if self.form == "striped" else [self.path]

    def deliver(
        self, parts: Sequence[Path], header: sam.Piece, pieces: Sequence[sam.Piece], scratch: Path
    ) -> None:
        """Make the output of the instances' files *parts*, of which *pieces* are all alignments in input order.

        The parts lie in *scratch*, on the output's file system, and may be used up.
        """
        if self.form == "striped":
            made = list(parts)
        elif self.form == "sorted":
            made = [_sorted(header, pieces, scratch / "sorted.bam", self.threads)]
        else:
            made = [_whole(header, pieces, scratch / "whole.sam")]
        for file in made:
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        whole = [
            (file, name)
            for file, name in zip(made, self.files(len(parts)), strict=True)
            if not _streamed(file, name)
        ]
        # All of them or none, as far as a signal is concerned.
        with put_off():
            for file, name in whole:
                _replace(file, name)


def _check(file: Path) -> None:
    """Raise BadInput where *file* cannot be made or replaced."""
    if atomic_files.is_stream(file):
        if not file.exists():
            raise BadInput("the output is not open", file=file)
        return
    folder = Path(os.path.realpath(file)).parent
    if not folder.is_dir():
        raise BadInput("the folder of the output does not exist", file=file)
    if file.is_dir():
        raise BadInput("the output is a folder", file=file)
    if folder == Path("/dev"):
        raise BadInput("there is no such device, and /dev is no place for files", file=file)
    if not os.access(folder, os.W_OK):
        raise BadInput("the folder of the output is not writable", file=file)


def _streamed(made: Path, name: Path) -> bool:
    """Write a file that was made into *name* where that is a device or a pipe; tell whether it is."""
    if not atomic_files.is_stream(name):
        return False
    atomic_files.write_into(name, made)
    return True


def _replace(made: Path, name: Path) -> None:
    """Let a file that was made take the place *name*; of a link, that of its target."""
    try:
        made.replace(os.path.realpath(name))
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with atomic_files.output(name, force=True) as partial:  # a stripe that is a link to another file system
            shutil.copyfile(made, partial)


def _whole(header: sam.Piece, pieces: Sequence[sam.Piece], whole: Path) -> Path:
    """Return a file with the header and all pieces."""
    first = pieces[0]
    if first.file == header.file and first.start == header.end and first.end == first.file.stat().st_size:
        # All of the first file, as it is: the others are put behind it.
        first.file.rename(whole)
        header, pieces = sam.Piece(header.file, 0, 0), pieces[1:]
    with whole.open("ab") as made:
        end = made.tell()
    # sendfile refuses a file that is open for appending.
    with whole.open("r+b") as out:
        out.seek(end)
        sam.write(header, pieces, out.fileno())
    return whole


def _sorted(header: sam.Piece, pieces: Sequence[sam.Piece], made: Path, threads: int) -> Path:
    """Pipe all pieces into `samtools sort` and return the BAM file that it wrote."""
    temporary = made.with_name("sort")
    # Its own line in the header would name the scratch folder.
    argv = ["samtools", "sort", "--no-PG", "-@", str(max(0, threads - 1))]
    argv += ["-T", str(temporary), "-o", str(made), "-"]
    log = made.with_name("sort.log")
    with log.open("wb") as err, child(argv, stdin=subprocess.PIPE, stdout=err, stderr=err) as process:
        assert process.stdin is not None  # noqa: S101 - for mypy
        with process.stdin as sink, contextlib.suppress(BrokenPipeError):  # the status and the log say why
            sam.write(header, pieces, sink.fileno())
        process.wait()
    if process.returncode:
        raise RunFailed(f"samtools sort ended with status {process.returncode}: {last_lines(log)}")
    return made
