# SPDX-License-Identifier: Apache-2.0
"""The aspects of a host, a module each, and the sections of a page that show them.

An aspect has a function ``aspect(view)``, which takes the records of a host and returns results and charts. What
they have in common is in :mod:`firsttouch.report.aspect`; :mod:`firsttouch.report.render` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from firsttouch.report.aspect import Aspect
from firsttouch.report.aspects import (
    bandwidth,
    contention,
    core_to_core,
    latency,
    loaded_latency,
    locks,
    page_sizes,
    placement,
    scaling,
    stores,
    study,
    throughput,
    topology,
)
from firsttouch.report.model import HostView

#: The sections in the order of a report: name -> heading and aspects.
SECTIONS: Mapping[str, tuple[str, Sequence[Callable[[HostView], Aspect]]]] = {
    "topology": ("Topology", (topology.aspect,)),
    "latency": ("Latency", (latency.aspect,)),
    "bandwidth": ("Bandwidth", (bandwidth.aspect,)),
    "contention": ("Contention", (contention.aspect,)),
    "load": ("Memory under load", (loaded_latency.aspect,)),
    "cores": ("Between cores", (core_to_core.aspect,)),
    "locks": ("Locks", (locks.aspect,)),
    "pages": ("Page sizes and stores", (page_sizes.aspect, stores.aspect)),
    "scaling": ("Threads and memory policies", (scaling.aspect, throughput.aspect)),
    "study": ("Thread scaling study", (study.aspect,)),
    "placement": ("Scenarios", (placement.aspect,)),
}

#: The aspects of a host by section.
Aspects = Mapping[str, Sequence[Aspect]]


def of_host(view: HostView) -> Aspects:
    """Return the aspects of a host."""
    return {name: [aspect(view) for aspect in aspects] for name, (_, aspects) in SECTIONS.items()}
