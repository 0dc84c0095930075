# SPDX-License-Identifier: Apache-2.0
"""The input of an aligner, as a user states it: a dataset, or an index and read files."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from firsttouch import paths
from firsttouch.datasets import fetch
from firsttouch.errors import BadInput
from firsttouch.execution.progress import say
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import Aligner
from firsttouch.genomics.command_line import check_own_outputs, named_files, programs, with_options

#: Aligners store the batch size in a C int.
_MOST = (1 << 31) - 1


class InputRequest(Struct, frozen=True):
    """An aligner and its input; the options of the same names describe the fields.

    *program* has the options for the aligner itself.
    """

    aligner: str
    program: Sequence[str] = ()
    dataset: str | None = None
    index: Path | None = None
    reads: Path | None = None
    reads2: Path | None = None
    unpaired: bool = False
    interleaved: bool = False
    batch_bases: int | None = None

    @property
    def with_options(self) -> Aligner:
        """The aligner with the user's own options; raises BadInput."""
        return with_options(aligners.aligner(self.aligner), self.program)

    def inputs(self) -> Inputs:
        """Return the input after checking that it exists; build a dataset's index if necessary.

        Raises BadInput or Missing.
        """
        aligner, size = self.with_options, self.batch_bases
        if size is not None and not 1 <= size <= _MOST:
            raise BadInput(f"--batch-bases {size} is not from 1 to {_MOST}")
        inputs = self._of_dataset(aligner) if self.dataset else self._of_files(aligner)
        inputs.check()
        return inputs

    def _of_files(self, aligner: Aligner) -> Inputs:
        if not (self.index and self.reads):
            raise BadInput("--index and --reads are needed (or --dataset)")
        if self.unpaired and self.reads2:
            raise BadInput("--unpaired and --reads2 exclude each other: leave one of them out")
        files = (self.reads, self.reads2) if self.reads2 else (self.reads,)
        return Inputs(aligner, aligner.index_named(self.index), files, self.batch_bases, self.interleaved)

    def _of_dataset(self, aligner: Aligner) -> Inputs:
        assert self.dataset is not None  # noqa: S101 - for mypy
        if self.index or self.reads or self.reads2:
            raise BadInput("--dataset includes index and reads: leave --index, --reads and --reads2 out")
        data = fetch.get(self.dataset)
        if not data.reads:
            raise BadInput(f"dataset '{data.name}' is a reference without reads")
        prefix = aligners.get_index(aligner, data.reference, paths.data() / "index", sha256=data.sha256, say=say)
        return Inputs(
            aligner,
            prefix,
            data.reads[: 1 if self.unpaired else 2],
            self.batch_bases or data.expect.batch_bases,
            self.interleaved,
            self.dataset,
            data.expect.mapped_fraction(aligner.name),
        )


class Inputs(Struct, frozen=True):
    """The aligner, the prefix of its index, the read files by mate, and how they are aligned.

    *batch_bases*: its batch size (None: the aligner's default). *interleaved*: a file has pairs. *least_mapped* is
    the least fraction of the reads (0 to 1) that must map.
    """

    aligner: Aligner
    index: Path
    files: tuple[Path, ...]
    batch_bases: int | None = None
    interleaved: bool = False
    dataset: str | None = None
    least_mapped: float = 0.0

    @property
    def mates(self) -> int:
        """The number of mates of each read."""
        return 2 if self.interleaved else len(self.files)

    def paths(self) -> list[Path]:
        """Return every file that a run reads or writes by the aligner's options: reads, index, programs."""
        return [*self._read(), *named_files(self.aligner.own)]

    def check(self) -> None:
        """Raise BadInput if a file of reads is a folder, or if the aligner's options write to an input."""
        for file in self.files:
            if file.is_dir():
                raise BadInput(f"cannot be read: {os.strerror(errno.EISDIR)}", file=file)
        check_own_outputs(self.aligner, self._read())

    def _read(self) -> list[Path]:
        prefix = [] if self.index.is_dir() else [self.index]
        steps = programs(step[0] for step in (*self.aligner.align.single, *self.aligner.align.paired))
        return [*self.files, *prefix, *self.aligner.index_paths(self.index), *steps]
