# SPDX-License-Identifier: Apache-2.0
"""What this host is: topology, CPU sets and cgroup limits, kernel settings, emulation."""
