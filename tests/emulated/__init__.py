# SPDX-License-Identifier: Apache-2.0
"""Emulated NUMA machines: a guest with a real Linux kernel and the NUMA nodes that its data file describes."""
