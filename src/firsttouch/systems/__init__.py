# SPDX-License-Identifier: Apache-2.0
"""Systems as data: one validated YAML file each, with facts, partitions and references.

In: the YAML file of a system, or the topology of this host. Out: a :class:`~definition.System`.

- ``definition``: load and find systems, compare a host with one, and its theoretical bandwidth
- ``facts``: the parts of the hosts
- ``processors``: families of processors, with their memory and the bandwidth that it reaches
- ``references``: the expected values, from the file or from published tables
- ``draft``: the YAML of a system drafted from a topology
- ``expectation``: the level that the memory and the caches of one host should reach, by its modules and processor
"""
