# SPDX-License-Identifier: Apache-2.0
"""``python -m firsttouch``: the command line."""

import sys

from firsttouch.cli import main

sys.exit(main())
