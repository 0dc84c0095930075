# SPDX-License-Identifier: Apache-2.0
"""Reads: FASTQ files, checked, divided among instances on record boundaries, and fed to them, pairs in step.

An aligner that works in batches of a number of bases must find the same batches in every scenario, or its
output differs (BWA-MEM estimates insert sizes per batch): parts therefore begin where a batch begins.
"""

from firsttouch.reads.feed import Dynamic, Repeated, Static
from firsttouch.reads.names import names
from firsttouch.reads.parts import Part, divide, pieces
from firsttouch.reads.scan import Reads, inspect

__all__ = ["Dynamic", "Part", "Reads", "Repeated", "Static", "divide", "inspect", "names", "pieces"]
