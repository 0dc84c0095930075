# SPDX-License-Identifier: Apache-2.0
"""Drafts a system's file from a topology. Comments ask the admin for the facts that hwloc does not know."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections import Counter

from firsttouch import paths
from firsttouch.errors import BadInput
from firsttouch.host import kernel_files
from firsttouch.host import topology as topology_module
from firsttouch.host.emulation import short_name
from firsttouch.host.topology import Topology

_TEMPLATE = """\
# SPDX-License-Identifier: Apache-2.0
# Drafted by `firsttouch system draft {name}`. Check it with `firsttouch system check FILE`.
name: {name}
description: {description}
# Regular expressions. ReFrame selects the first system with one that matches the start of the host's name.
hostnames: {hostnames}
facts:
  source: "hwloc, on one host of this system"
  processor: {processor}
  packages: {packages}
  numa_nodes: {numa_nodes}
{optional}  cores_per_numa_node: {cores}
  threads_per_core: {threads}
  memory_per_numa_node: {memory}
  # The theoretical bandwidth needs facts that hwloc does not know. As root, `dmidecode --type memory` shows
  # "Configured Memory Speed" (transfers per second) and, in the modules' locators, how many channels of each
  # package have a module. Uncomment and fill in:
  # memory:
  #   type: DDR4
  #   transfer_rate: "3200 MT/s"
  #   channels_per_package: 8
  #   source: "dmidecode on HOST"
{distances}{caches}partitions:
{partition}# The values that the hosts are expected to reach. For example:
# references:
#   - check: topology
#     metric: memory
#     fact: memory
#     tolerance: {{lower: "-3 %"}}
#     source: "the order"
references: []
"""
_LOCAL = """\
  # For a cluster: scheduler: slurm, access: ["--exclusive"] (and "--partition=NAME" if the hosts are not in
  # the site's default partition), time_limit: "1h".
  - name: default
    description: "this host, without a scheduler"
    scheduler: local
    launcher: local
    max_jobs: 1
    environs: [builtin]
    backend: native
"""
_SLURM = """\
  # If the hosts are not in the site's default partition, add "--partition=NAME" to access, for ReFrame, campaign
  # submit and fleet.
  - name: default
    description: "whole hosts by Slurm"
    scheduler: slurm
    launcher: local
    access: ["--exclusive"]
    max_jobs: 64
    time_limit: "4h"
    environs: [builtin]
    backend: native
"""


def draft(
    name: str,
    topology: Topology,
    *,
    host: str = "",
    processor: str | None = None,
    slurm: bool = False,
) -> str:
    """Return the YAML of a system of hosts with this *topology*: facts, one partition, no references.

    ``hostnames`` matches only *host*, with any domain, until the admin adds others; without *host* it matches all.
    The partition's scheduler is Slurm if *slurm*, or else local. *processor* is the model's name if the topology
    lacks it. Raises BadInput for a *name* that ReFrame does not accept.
    """
    check_name(name)
    nodes = topology.numa_nodes
    packages = sorted({pu.package for pu in topology.pus})
    count = len(packages) or 1
    of_nodes = [{pu.package for pu in topology.pus if pu.numa_node == node.index} for node in nodes]
    package_of = [packages.index(of_node.pop()) if len(of_node) == 1 else None for of_node in of_nodes]
    cores = [len({pu.core for pu in topology.pus if pu.numa_node == node.index}) for node in nodes]
    per_core = Counter(pu.core for pu in topology.pus)
    threads = max(per_core.values(), default=1)
    memory = [f"{node.memory_bytes / 2**30:.2f} GiB" if node.memory_bytes else "0 B" for node in nodes]
    optional = []
    numbers = [node.index for node in nodes]
    if numbers != list(range(len(nodes))):
        optional.append(f"  numa_node_numbers: {json.dumps(numbers)}\n")
    per_package = len(nodes) // count
    if len(nodes) % count or package_of != [i // per_package for i in range(len(nodes))]:
        optional.append("  # The package of each NUMA node; null: none, or several.\n")
        optional.append(f"  package_of_numa_node: {json.dumps(package_of)}\n")
    if len(topology.pus) != sum(cores) * threads:
        optional.append("  # The cores differ in their number of hardware threads, or some are in no NUMA node.\n")
        optional.append(f"  pus: {len(topology.pus)}\n")
    return _TEMPLATE.format(
        name=name,
        description=_quoted(f"hosts such as {host}" if host else "this host"),
        hostnames=json.dumps([rf"{re.escape(host)}(\..*)?$" if host else ".*"], ensure_ascii=False),
        processor=_quoted(_clean(processor or topology.info.get("CPUModel", "")) or "unknown: fill in"),
        packages=count,
        numa_nodes=len(nodes),
        optional="".join(optional),
        cores=cores[0] if len(set(cores)) == 1 and cores[0] else json.dumps(cores),
        threads=threads,
        memory=json.dumps(memory[0] if len(set(memory)) == 1 else memory),
        distances=_distances(topology, numbers),
        caches=_caches(topology),
        partition=_SLURM if slurm else _LOCAL,
    )


def draft_host(name: str) -> str:
    """Return the draft of *name* from this host; ``local`` fits any host. Raises Missing without the probe."""
    check_name(name)
    host = "" if name == paths.LOCAL else short_name(socket.gethostname())
    # The system "local" is measured without a scheduler.
    slurm = name != paths.LOCAL and shutil.which("sbatch") is not None
    # Some architectures have no name of the model.
    model = next(kernel_files.processor_values("model name"), None)
    return draft(name, topology_module.read_host(), host=host, processor=model, slurm=slurm)


def check_name(name: str) -> None:
    """Raise BadInput for a name that ReFrame does not accept."""
    if not re.match(paths.NAME, name):
        raise BadInput(f"'{name}' is not a name for a system: it has only letters, digits, _ and -")


def _distances(topology: Topology, numbers: list[int]) -> str:
    rows = [[topology.distances.get((a, b), 0) for b in numbers] for a in numbers]
    if not all(distance > 0 for row in rows for distance in row):
        return "  # The firmware of this host reports no distances.\n"
    lines = "".join(f"      - {json.dumps(row)}\n" for row in rows)
    return f'  distances:\n    matrix:\n{lines}    source: "the firmware, by hwloc"\n'


def _caches(topology: Topology) -> str:
    caches = sorted(
        {(c.level, c.size_bytes, len(c.pus)) for c in topology.caches if c.level and c.size_bytes and c.pus}
    )
    if not caches:
        return "  # hwloc finds no caches on this host.\n"
    lines = "".join(
        f'    - {{level: {level}, size: "{_size(size)}", pus: {pus}}}\n' for level, size, pus in caches
    )
    return f"  caches:\n{lines}"


def _size(size: int) -> str:
    return f"{size} B" if size % 1024 else f"{size // 1024} KiB"


def _clean(text: str) -> str:
    """Return *text*, which may come from firmware, without characters that YAML does not allow."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


def _quoted(text: str) -> str:
    return json.dumps(_clean(text), ensure_ascii=False)
