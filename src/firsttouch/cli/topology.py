# SPDX-License-Identifier: Apache-2.0
"""``firsttouch topology``: NUMA nodes, PUs, memory and distances; and the measured matrix for other programs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.execution.progress import say
from firsttouch.host.cpusets import format_list
from firsttouch.host.emulation import host_name, short_name
from firsttouch.host.topology import Topology, load
from firsttouch.records import atomic_files
from firsttouch.scenarios import tiers
from firsttouch.units import format_bytes

EXAMPLES = """\
  firsttouch topology
  firsttouch topology --xml host.xml --json
  firsttouch topology --fsroot /tmp/64amd64-4s2n4ca2co
  firsttouch topology --system amd-opteron     # does this host match that system?
  firsttouch topology --export memattrs -o host.xml     # then: lstopo --input host.xml --memattrs
  firsttouch topology --export weights results/ -o weights.sh
  firsttouch topology --export json --xml n7.xml store/"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "topology", run, EXAMPLES)
    options.add_topology(parser)
    options.add(parser, "--system", help="compare with a system; exit status 1 if NUMA nodes or PUs differ")
    forms = (
        "write the measured bandwidth and latency of every NUMA node and bank as hwloc's memory attributes (XML), "
        "the kernel's interleave weights (shell), or JSON"
    )
    parser.add_argument("--export", choices=("memattrs", "weights", "json"), help=forms)
    given = "with --export: records or folders with them (default: the newest characterization)"
    options.add(parser, "records", nargs="*", help=given)
    options.add(parser, "--output", help="with --export: the file (default: standard output)")


def run(args: argparse.Namespace) -> int:
    """Print the topology, or export the measured one; raises RunFailed if the host does not match --system."""
    if args.export:
        if args.json or args.system:
            raise BadInput("--export has its own form: leave out --json and --system, or choose --export json")
        text = _exported(args.export, args.records, args.output, xml_file=args.xml, fsroot=args.fsroot)
        if args.output:
            atomic_files.write(args.output, text)
            print(args.output)
        else:
            sys.stdout.write(text)
        return 0
    if args.records or args.output:
        raise BadInput("records and --output belong to --export: choose memattrs, weights or json")
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


def measured_rates(host: Topology) -> dict[tuple[int, int], float]:
    """Return the bandwidths (GB/s) of the NUMA nodes and banks of this *host* with several memory tiers.

    They are from the newest characterization; empty if there is none.
    """
    latest = paths.results() / "latest"
    if not host.here or len(tiers.tiers(host)) < 2 or not latest.exists():
        return {}
    from firsttouch.report import inputs, matrix  # noqa: PLC0415 - loads the table library

    try:
        return matrix.matrix_of(inputs.gather([latest]).records(), host, host_name()).rates()
    except (BadInput, Missing) as error:
        say(f"firsttouch: interleave weights are not compared with measured bandwidths: {error}")
        return {}


def _exported(
    form: str, given: Sequence[Path], output: Path | None, *, xml_file: Path | None, fsroot: Path | None
) -> str:
    """Return the measured matrix in a *form* of --export; raises BadInput if the records do not have it."""
    from firsttouch.host import topology  # noqa: PLC0415
    from firsttouch.report import inputs, matrix  # noqa: PLC0415 - see the package

    records = given or [paths.results() / "latest"]
    if not given and not records[0].exists():
        raise BadInput("no characterization to export: run `firsttouch characterize`, or name records")
    if output:
        atomic_files.refuse_overwriting([output], [*records, *([xml_file] if xml_file else [])])
    xml = topology.read_xml(xml=xml_file, fsroot=fsroot)
    host = topology.parse_xml(xml, file=xml_file or fsroot)
    name = short_name(host.info.get("HostName", "")) if xml_file or fsroot else host_name()
    gathered = inputs.gather(records)
    measured = matrix.matrix_of(gathered.records(), host, name)
    gathered.refuse_unread()
    match form:
        case "memattrs":
            return matrix.to_memattrs(measured.complete(host, matrix.LATENCY, matrix.COPY), host, xml)
        case "weights":
            return matrix.to_weights(measured.complete(host, matrix.COPY), host)
        case _:
            return matrix.to_json(measured.complete(host, matrix.LATENCY, matrix.COPY), host)


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
