# SPDX-License-Identifier: Apache-2.0
"""The description of this host.

In: the native probe's XML of this host or of a stored one, or hwloc's. Out: a
:class:`~firsttouch.host.topology.Topology`. Public: ``topology`` (``load``, ``of_this_host``, ``parse_xml``, and
where the probe is), ``cpusets`` (lists of CPUs and NUMA nodes), ``emulation`` (host names, and whether the host is
emulated), ``host_lists`` (lists of host names as Slurm writes them), ``available_memory`` (what the host and the
cgroups of this process have left), ``grant`` (what a command asks for and this process may not use), ``pages``
(where the pages of programs and files lie) and ``page_cache``.
"""
