# SPDX-License-Identifier: Apache-2.0
"""The description of this host.

In: the native probe's XML of this host or of a stored one, or hwloc's. Out: a
:class:`~firsttouch.host.topology.Topology`. Public: ``topology`` (``load``, ``read_host``, ``parse_xml``, and
where the probe is), ``cpusets`` (lists of CPUs and NUMA nodes), ``emulation`` (host names, and whether the host is
emulated), ``host_lists`` (lists of host names as Slurm writes them), ``available_memory`` (free memory of the
host and of this process's cgroups), ``grant`` (requests of a command that this process may not use) and
``pages`` (where the pages of programs and files lie).
"""
