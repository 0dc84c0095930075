# SPDX-License-Identifier: Apache-2.0
"""SAM output of several instances: surveyed, put in input order under one header, and summed up.

Big outputs pass through here, so nothing is done line by line in Python that can be done on blocks.
"""

from firsttouch.sam.join import Piece, described, in_order, write
from firsttouch.sam.lines import Survey, survey
from firsttouch.sam.restore import restore
from firsttouch.sam.sums import Sums, settled, sums

__all__ = ["Piece", "Sums", "Survey", "described", "in_order", "restore", "settled", "sums", "survey", "write"]
