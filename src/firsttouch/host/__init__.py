# SPDX-License-Identifier: Apache-2.0
"""What this host is: its topology, CPU sets and cgroup limits, and whether it is emulated."""
