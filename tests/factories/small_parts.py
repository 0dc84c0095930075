# SPDX-License-Identifier: Apache-2.0
"""The command line of firsttouch with parts of a 32nd of their size, so that few reads fill several.

Run this file with the words of a command.
"""

from __future__ import annotations

import sys

from firsttouch import cli
from firsttouch.genomics import division

if __name__ == "__main__":
    division.PART_BYTES //= 32
    sys.exit(cli.main())
