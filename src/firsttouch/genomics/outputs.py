# SPDX-License-Identifier: Apache-2.0
"""Delivers the alignments of all instances: one SAM file, one SAM file per instance, or one sorted BAM file.

Files appear complete, by renaming. A device, a pipe or /dev/stdout is written into instead.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from firsttouch.errors import BadInput
from firsttouch.genomics import sam
from firsttouch.genomics.sinks import AlignOutput, check_place, open_sink, rename, with_indexes
from firsttouch.records import atomic_files
from firsttouch.tools import defer_signals, require

Form = Literal["sam", "striped", "sorted"]


@dataclass(frozen=True)
class Output:
    """Where the alignments go, and in which form.

    ``sam``: one file in input order. ``striped``: one complete SAM file per instance, as the output striping of
    Langmead et al. 2018 writes one per thread. ``sorted``: one BAM file, by `samtools sort` with *threads*.
    *command* is the user's command line, for the header.
    """

    path: Path
    form: Form = "sam"
    threads: int = 1
    command: str = ""

    def check(self, instances: int = 1, *, records: Path | None = None, inputs: Sequence[Path] = ()) -> None:
        """Raise BadInput or Missing if the output cannot be written, before any long work.

        It must differ from the *inputs*, their indexes, and the file of *records*, which is written as well.
        """
        if self.form == "striped" and atomic_files.is_stream(self.path):
            raise BadInput("not a file: a striped output is a file for each instance", file=self.path)
        files = self.files(instances)
        for file in files:
            check_place(file)
        atomic_files.refuse_overwriting([*files, *([records] if records else [])], with_indexes(inputs))
        if self.form == "sorted":
            require("samtools")

    def scratch(self) -> Path | None:
        """Return the folder of the output, where its parts are made for renaming; None: any folder."""
        place = self.files(1)[0]
        if self.form != "striped" and atomic_files.is_stream(place):
            return None
        return Path(os.path.realpath(place)).parent

    def files(self, instances: int) -> list[Path]:
        """Return the files of the output; a striped out.sam is out.0.sam, out.1.sam and so on."""
        if self.form != "striped":
            return [self.path]
        return [self.path.with_name(f"{self.path.stem}.{n}{self.path.suffix}") for n in range(instances)]

    def deliver(
        self,
        parts: Sequence[Path],
        header: sam.ByteRange,
        alignments: Sequence[sam.ByteRange],
        scratch: Path,
    ) -> None:
        """Make the output from *header* and *alignments*, in input order, of the instances' files *parts*.

        The parts lie in *scratch*, on the output's file system, and may be moved.
        """
        with atomic_files.naming(self.path):
            if self.form == "striped":
                results = list(parts)
            elif self.form == "sorted":
                results = [_sort(header, alignments, scratch / "sorted.bam", self.threads)]
            else:
                results = [_join(header, alignments, scratch / "whole.sam")]
            for file in results:
                with file.open("rb") as stream:
                    os.fsync(stream.fileno())
            renames = []
            for file, name in zip(results, self.files(len(parts)), strict=True):
                if atomic_files.is_stream(name):
                    atomic_files.write_into(name, file)
                else:
                    renames.append((file, name))
            # A signal interrupts before the first rename or after the last.
            with defer_signals():
                for file, name in renames:
                    rename(file, name)


def _join(header: sam.ByteRange, alignments: Sequence[sam.ByteRange], whole: Path) -> Path:
    """Write *header* and *alignments* to the file *whole* and return it."""
    ranges, first = [header, *alignments], alignments[0]
    if first.file == header.file and first.start == header.end and first.end == first.file.stat().st_size:
        # The first file is kept as it is, and the others are appended.
        first.file.rename(whole)
        ranges = ranges[2:]
    # sendfile(2) refuses a file that is open for appending.
    fd = os.open(whole, os.O_WRONLY | os.O_CREAT, 0o666)
    with os.fdopen(fd, "wb") as out:
        out.seek(0, os.SEEK_END)
        sam.concatenate(ranges, out.fileno())
    return whole


def _sort(header: sam.ByteRange, alignments: Sequence[sam.ByteRange], bam: Path, threads: int) -> Path:
    """Pipe *header* and *alignments* into `samtools sort`, and return the BAM file that it wrote."""
    with header.file.open("rb") as stream:
        text = stream.read(header.end)
    with open_sink(AlignOutput(bam, sort=True, index=False, threads=threads), scratch=bam.parent) as sink:
        sink.begin(text)
        sink.send(alignments)
        sink.finish()
    return bam
