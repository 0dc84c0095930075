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
from firsttouch.records import atomic_files
from firsttouch.tools import require

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
        self, parts: Sequence[Path], header: sam.ByteRange, pieces: Sequence[sam.ByteRange], scratch: Path
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


def _whole(header: sam.ByteRange, pieces: Sequence[sam.ByteRange], whole: Path) -> Path:
    """Return a file with the header and all pieces."""
    first = pieces[0]
    if first.file == header.file and first.start == header.end and first.end == first.file.stat().st_size:
        # All of the first file, as it is: the others are put behind it.
        first.file.rename(whole)
        header, pieces = sam.ByteRange(header.file, 0, 0), pieces[1:]
    with whole.open("ab") as made:
        end = made.tell()
    # sendfile refuses a file that is open for appending.
    with whole.open("r+b") as out:
        out.seek(end)
        sam.concatenate([header, *pieces], out.fileno())
    return whole


def _sorted(header: sam.ByteRange, pieces: Sequence[sam.ByteRange], made: Path, threads: int) -> Path:
    """Pipe all pieces into `samtools sort` and return the BAM file that it wrote."""
    temporary = made.with_name("sort")
    # Its own line in the header would name the scratch folder.
    argv = ["samtools", "sort", "--no-PG", "-@", str(max(0, threads - 1))]
    argv += ["-T", str(temporary), "-o", str(made), "-"]
    log = made.with_name("sort.log")
    with log.open("wb") as err, child(argv, stdin=subprocess.PIPE, stdout=err, stderr=err) as process:
        assert process.stdin is not None  # noqa: S101 - for mypy
        with process.stdin as sink, contextlib.suppress(BrokenPipeError):  # the status and the log say why
            sam.concatenate([header, *pieces], sink.fileno())
        process.wait()
    if process.returncode:
        raise RunFailed(f"samtools sort ended with status {process.returncode}: {last_lines(log)}")
    return made
