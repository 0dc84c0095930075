# SPDX-License-Identifier: Apache-2.0
"""Gets datasets: reference genomes and reads, each described by one TOML file in datasets/.

In: the name of a dataset. Out: verified, decompressed FASTA and FASTQ files in the store (FIRSTTOUCH_DATA).
``manifest`` validates the TOML files, ``fetch`` downloads and verifies, ``synthetic`` generates a genome
(``genome``) and simulates reads, ``store`` keeps the files with their digests.

Public: ``fetch.get``, ``fetch.state`` and ``fetch.LocalDataset``; ``manifest.load``
and ``manifest.available``; ``paths.data`` is the store.
"""
