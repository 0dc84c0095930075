# SPDX-License-Identifier: Apache-2.0
"""Runs genome aligners under placement scenarios, without changing their output.

In: an aligner (a TOML file in aligners/), an index, FASTQ files and a scenario. Out: SAM or BAM files and
records.

The path of a read: ``read_stream.ReadStream`` reads each input once. ``inputs`` opens and decompresses files,
pipes and standard input, ``fastq`` checks the records, and the pieces end where batches of the aligner end.
``stream.Run`` starts the instances, ``dealing`` gives them the pieces through pipes or as files, and
``collecting`` reads their alignments while they are written (``sam_stream`` checks them) and delivers them in
input order, under one header, to a sink of ``sinks``.

``launch.run`` measures such a run, and ``launch.records`` makes its records. ``division`` divides reads whose
batches ``fastq.inspect`` has counted (``reads.Reads``) into exact shares, or repeats them. ``sam`` computes
checksums. ``fastq``, ``read_stream`` and ``sam_stream`` import NumPy, and are imported where they are needed.

``recognition`` separates users' commands of aligners from other commands; ``command_line.parse`` understands
one and makes the commands of its instances.

Public: ``aligners.aligner``, ``aligners.aligners`` and ``aligners.get_index``; ``fastq.inspect``;
``read_stream.ReadStream``; ``reads.Reads`` and ``reads.BatchRule``; ``launch.prepare``, ``launch.run``,
``launch.records``, ``launch.Work`` and ``launch.ScenarioRun``; ``command_line.parse`` and
``command_line.UserCommand``; ``stream.Run`` and ``stream.unsplit``; ``sinks.AlignOutput`` and
``sinks.open_sink``; ``division.parts_between`` and ``sources.mate_lines``;
``sam_stream.SamTail`` and ``sam_stream.OrderedTail``; ``sam.unambiguous_fields``.
"""

from typing import Literal

#: The formats of alignments.
Form = Literal["sam", "bam", "cram"]
