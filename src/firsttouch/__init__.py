# SPDX-License-Identifier: Apache-2.0
"""firsttouch: validates NUMA hosts, and finds the fastest placement of memory-bound programs on them."""

__version__ = "0.1.0"
