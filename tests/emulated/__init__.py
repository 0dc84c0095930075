# SPDX-License-Identifier: Apache-2.0
"""Emulated NUMA machines: a guest with a real Linux kernel and as many NUMA nodes as its data file says."""
