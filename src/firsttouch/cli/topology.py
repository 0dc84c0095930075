# SPDX-License-Identifier: Apache-2.0
"""``firsttouch topology``: NUMA nodes, PUs, memory and distances."""

from __future__ import annotations

import argparse

from firsttouch.cli import options
from firsttouch.errors import RunFailed
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology, load
from firsttouch.scenarios import tiers
from firsttouch.units import format_bytes

EXAMPLES = """\
  firsttouch topology
  firsttouch topology --xml host.xml --json
  firsttouch topology --fsroot /tmp/64amd64-4s2n4ca2co
  firsttouch topology --system amd-opteron     # does this host match that system?"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "topology", run, EXAMPLES)
    options.add_topology(parser)
    options.add(parser, "--system", help="compare with a system; exit status 1 if NUMA nodes or PUs differ")


def run(args: argparse.Namespace) -> int:
    """Print the topology; raises RunFailed if the host does not match --system."""
    if args.system:
        from firsttouch.systems import definition  # noqa: PLC0415 - see the package

        system = definition.load(args.system)
    host = load(xml=args.xml, fsroot=args.fsroot)
    if args.json:
        options.print_json(host.to_dict())
    else:
        print(describe(host))
    if args.system and (difference := definition.mismatch(system, host)):
        raise RunFailed(difference)
    return 0


def describe(topology: Topology) -> str:
    """Return the topology as tables for a terminal."""
    from tabulate import tabulate  # noqa: PLC0415 - see the package

    rows = []
    for node in topology.numa_nodes:
        usable = topology.usable_pus(node.index)
        allowed = "yes" if node.index in topology.memory_nodes else "no"
        memory = format_bytes(node.memory_bytes) + (f" {node.subtype}" if node.subtype else "")
        if node.side_cache_bytes:
            memory += f", cached by {format_bytes(node.side_cache_bytes)}"
        rows.append((node.index, format_list(node.pus), format_list(usable) or "none", memory, allowed))
    text = tabulate(rows, ("NUMA node", "PUs", "usable PUs", "memory", "data may lie there"))
    caches = ", ".join(
        f"L{lv} {format_bytes(s)}" for lv, s in sorted({(c.level, c.size_bytes) for c in topology.caches})
    )
    text += f"\n\ncaches: {caches or 'unknown'}"
    if domains := topology.domains:
        named = (f"{number}: {format_list(pus)}" for number, pus in enumerate(domains))
        text += f"\nPUs of the last-level caches: {'; '.join(named)}"
    if len(layers := tiers.tiers(topology)) > 1:
        named = (f"{tier.name} ({format_list(tier.banks)})" for tier in layers)
        text += f"\nmemory tiers, the fastest first: {', '.join(named)}"
    if topology.memory_limit_bytes is not None:
        text += f"\nmemory limit of the cgroup: {format_bytes(topology.memory_limit_bytes)}"
    text += "".join(f"\nnote: {remark}" for remark in topology.remarks())
    if not topology.distances:
        return text + "\ndistances: not reported by the firmware"
    order = [n.index for n in topology.numa_nodes]
    matrix = [[a] + [topology.distance(a, b) for b in order] for a in order]
    return f"{text}\n\n{tabulate(matrix, ('distance to', *map(str, order)))}"
