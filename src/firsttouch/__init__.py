# SPDX-License-Identifier: Apache-2.0
"""firsttouch: validates NUMA hosts and tells their users how to run memory-bound programs on them."""

__version__ = "0.1.0"
