# SPDX-License-Identifier: Apache-2.0
"""What this host is.

In: /proc, /sys and lstopo's XML, of this host or stored. Out: a :class:`~firsttouch.host.topology.Topology`.
Public: ``topology`` (``load``, ``of_this_host``, ``parse_xml``), ``cpusets`` (CPU lists, cgroup limits, kernel
settings of the memory management), ``emulation`` (host names, and whether the host is emulated) and
``host_lists`` (lists of host names as Slurm writes them).
"""
