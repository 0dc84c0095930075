# SPDX-License-Identifier: Apache-2.0
"""The cases of each step of the methodology on the system that ReFrame runs on."""

from __future__ import annotations

import functools

from reframe.core.runtime import runtime

from firsttouch.measure import effort as effort_module
from firsttouch.measure.effort import Effort
from firsttouch.methodology import Cases, topology_of
from firsttouch.systems import System, load


@functools.cache
def system() -> System:
    """Return the system that ReFrame was started for."""
    return load(runtime().system.name)


def effort() -> Effort:
    """Return how thorough ReFrame was asked to be."""
    return effort_module.chosen()


@functools.cache
def cases() -> Cases:
    """Return the cases of that system."""
    return Cases(topology_of(system().facts), effort())


def cpu_nodes() -> list[int]:
    """Return the NUMA nodes that have PUs."""
    return list(cases().host.cpu_nodes)


def pu_nodes() -> list[int]:
    """Return the NUMA nodes with PUs that are measured one by one."""
    return cases().pu_nodes()


def banks(*nodes: int) -> list[int]:
    """Return the NUMA nodes with memory that the PU-set of *nodes* is measured with."""
    return cases().banks(*nodes)


def pu_sets() -> list[tuple[int, ...]]:
    """Return the PU-sets that are measured."""
    return cases().pu_sets()


def contention_threads() -> list[int]:
    """Return the thread counts of the contention step."""
    return cases().contention_threads()


def scenarios(*, single: bool) -> list[str]:
    """Return the names of the scenarios with one instance, or of those with several."""
    return cases().scenarios(single=single)


def weak_scaling() -> list[str]:
    """Return the names of the scenarios with as many reads for each thread."""
    return cases().weak_scaling()


def aligners() -> list[str]:
    """Return the names of the aligners whose scenarios are run."""
    return cases().aligners()
