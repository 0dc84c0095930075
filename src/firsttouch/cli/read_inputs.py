# SPDX-License-Identifier: Apache-2.0
"""The options for the input of an aligner: a dataset, or an index and read files."""

from __future__ import annotations

import argparse
import errno
import itertools
import os
import shlex
import sys
from pathlib import Path

from msgspec import Struct

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.datasets import fetch
from firsttouch.errors import BadInput
from firsttouch.execution import index_cache
from firsttouch.execution.progress import say
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import Aligner
from firsttouch.genomics.command_line import check_own_outputs, extended, named_files, programs

#: Aligners keep the batch's size in a C int.
_MOST = (1 << 31) - 1


class Inputs(Struct, frozen=True):
    """The index's prefix, the read files of each lane, and the batch size (None: the aligner's own).

    *least_mapped* is the least fraction of the reads (0 to 1) that must map.
    """

    index: Path
    lanes: tuple[tuple[Path, ...], ...]
    batch_bases: int | None
    least_mapped: float = 0.0

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the only lane; raises BadInput if there are several."""
        if len(self.lanes) > 1:
            raise BadInput(
                f"{len(self.lanes)} files of --reads: several lanes are read once, in a run without --repetitions "
                "and --reads-per-thread; join them in one file"
            )
        return self.lanes[0]

    def paths(self, aligner: Aligner) -> list[Path]:
        """Return every file that a run of *aligner* reads or writes by its options: reads, index, programs."""
        return [*self._read(aligner), *named_files(aligner.own)]

    def check(self, aligner: Aligner) -> None:
        """Raise BadInput if a file of reads is a folder, or if own options of *aligner* write to an input."""
        for file in itertools.chain.from_iterable(self.lanes):
            if file.is_dir():
                raise BadInput(f"cannot be read: {os.strerror(errno.EISDIR)}", file=file)
        check_own_outputs(aligner, self._read(aligner))

    def _read(self, aligner: Aligner) -> list[Path]:
        prefix = [] if self.index.is_dir() else [self.index]
        steps = programs(step[0] for step in (*aligner.single, *aligner.paired))
        return [*itertools.chain.from_iterable(self.lanes), *prefix, *aligner.index_paths(self.index), *steps]


_CACHE_STATES = ", ".join(f"{state} ({meaning})" for state, meaning in index_cache.STATES.items())
_OPTIONS = f"""\
--dataset            take index and reads from this dataset
--index PREFIX       prefix of the aligner's index
--reads FILE...      FASTQ file, plain or gzip; a single run takes several lanes, pipes and - (standard input), too
--reads2 FILE...     the second file of a pair, or lane
--unpaired           leave the second file of the dataset out
--interleaved        --reads has pairs, mate 2 behind mate 1
--batch-bases BASES  the aligner's batch size in bases, such as 10M, the same in all scenarios
--block-bytes SIZE   bytes of a block, if not those of the aligner
--reads-per-block N  reads (pairs) of a block, if not those of the aligner
--index-cache        the index in the page cache before each timed run: {_CACHE_STATES};
                     default: {index_cache.AS_IS}
--threads"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    states = {"choices": tuple(index_cache.STATES), "default": index_cache.AS_IS}
    options.add_table(parser, _OPTIONS, index={"type": Path}, index_cache=states)


def command_line() -> str:
    """Return the user's command line, for the headers of outputs."""
    return shlex.join(["firsttouch", *sys.argv[1:]])


def program(args: argparse.Namespace) -> Aligner:
    """Return the aligner that *args* name, with the user's own options; raises BadInput."""
    aligner = extended(aligners.aligner(args.aligner), args.program)
    return aligner.with_blocks(args.block_bytes, args.reads_per_block)


def chosen(args: argparse.Namespace, aligner: Aligner) -> Inputs:
    """Return the input that *args* name; builds a dataset's index if necessary. Raises BadInput or Missing."""
    size = args.batch_bases
    if size is not None and not 1 <= size <= _MOST:
        raise BadInput(f"--batch-bases {size}: 1 to {_MOST}")
    if not args.dataset:
        if not (args.index and args.reads):
            raise BadInput("--index and --reads are needed (or --dataset)")
        if args.unpaired and args.reads2:
            raise BadInput("--unpaired and --reads2 exclude each other: leave one of them out")
        mates = [args.reads, *([args.reads2] if args.reads2 else [])]
        if len(mates[0]) != len(mates[-1]):
            raise BadInput(
                f"{len(mates[0])} files of --reads, but {len(mates[1])} of --reads2: each lane has both"
            )
        return Inputs(args.index, tuple(zip(*mates, strict=True)), size)
    if args.index or args.reads or args.reads2:
        raise BadInput("--dataset brings index and reads: leave --index, --reads and --reads2 out")
    data = fetch.get(args.dataset)
    if not data.reads:
        raise BadInput(f"dataset '{data.name}' is a reference without reads")
    # They may not fit into blocks, and an index takes long.
    files = fetch.reads_of(data, aligner, 1 if args.unpaired else 2, say=say)
    prefix = aligners.built(aligner, data.reference, paths.data() / "index", sha256=data.sha256, say=say)
    least = data.expect.mapped_fraction(aligner.name)
    return Inputs(prefix, (files,), size or data.expect.batch_bases, least)
