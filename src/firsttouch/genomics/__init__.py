# SPDX-License-Identifier: Apache-2.0
"""Runs genome aligners under placement scenarios, without changing their output.

In: an aligner (a TOML file in aligners/), an index, FASTQ files and a scenario. Out: SAM or BAM files and records.

The path of a read: ``fastq.inspect`` checks the files once and indexes where batches begin (``reads.Reads``).
``feed`` divides the batches among the instances (StaticFeeder, DynamicFeeder, WeakScalingFeeder). One thread for
each pipe gets the bytes of its parts from ``sources`` (plain or gzip files) and moves them with ``pipe_writer``
(splice) into the pipe that the aligner reads. ``launch.run`` starts the instances; ``sam_stream`` checks their SAM
files; ``sam`` puts the alignments in input order under one header and computes checksums; ``outputs.Output``
delivers the result. ``fastq``, ``mates`` and ``sam_stream`` import NumPy, and are imported where they are needed.

``read_stream.ReadStream`` reads each input once instead: ``inputs`` opens and decompresses files, pipes and
standard input, ``fastq`` and ``fasta`` check the records, and the pieces end where batches end. ``stream.Run``
starts the instances, ``dealing`` gives them the pieces, and ``collecting`` takes their alignments as they come and
delivers them to a sink of ``sinks`` or to ``checkpoints``, which keeps finished parts for a run that is resumed.

``command_line.parse`` understands a user's own command of an aligner and makes the commands of its instances.

Public: ``aligners.aligner``, ``aligners.aligners`` and ``aligners.built``; ``fastq.inspect``;
``read_stream.ReadStream``; ``reads.Reads`` and ``reads.BatchRule``; ``launch.prepare``, ``launch.run``,
``launch.records``, ``launch.Work`` and ``launch.Result``; ``command_line.parse`` and ``command_line.UserCommand``;
``stream.Run`` and ``stream.unsplit``; ``outputs.Output``; ``sinks.AlignOutput`` and ``sinks.open_sink``;
``feed.open_mates`` and ``feed.parts_between``;
``padded_fastq.block``; ``sam_stream.SamTail``, ``sam_stream.OrderedTail`` and ``sam_stream.survey``;
``sam.settled``.
"""
