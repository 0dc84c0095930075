# SPDX-License-Identifier: Apache-2.0
"""The measured matrix of NUMA nodes and banks, for other programs: hwloc, the kernel's weights, and JSON."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from firsttouch.benchmarks.probe import NAME
from firsttouch.documents import attributes
from firsttouch.errors import BadInput, one_line
from firsttouch.host.cpusets import format_hwloc, format_list
from firsttouch.host.emulation import short_name
from firsttouch.host.topology import Topology
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.report.model import banks, node_set, pu_nodes
from firsttouch.report.text import clean
from firsttouch.scenarios import tiers
from firsttouch.units import format_bytes

LATENCY, COPY = "random_latency", "copy_bandwidth"
#: The keys of a value in JSON; docs/howto/tiers.md describes them.
COLUMNS = (
    *("initiator", "bank", "metric", "value", "unit", "samples", "minimum", "maximum", "spread"),
    *("program", "instructions", "stores", "pages", "threads", "bytes", "measured_initiator", "measured_bank"),
    *("measures", "effort", "host", "system", "time"),
)
Pair = tuple[int, int]


class Matrix(Struct, frozen=True):
    """The values of one host: metric -> (NUMA node of the PUs, bank) -> record."""

    host: str
    values: Mapping[str, Mapping[Pair, Record]]

    def rates(self, metric: str = COPY) -> dict[Pair, float]:
        """Return the values of *metric* in the unit of its records."""
        return {pair: record.value for pair, record in self.values.get(metric, {}).items()}

    def complete(self, topology: Topology, *metrics: str) -> Matrix:
        """Return this matrix; raises BadInput unless each NUMA node with PUs was measured with each bank."""
        for metric in metrics:
            wanted = [(node, bank) for bank in topology.memory_nodes for node in topology.cpu_nodes]
            missing = [pair for pair in wanted if pair not in self.values.get(metric, {})]
            if missing:
                node, bank = missing[0]
                more = f" and {len(missing) - 1} more pairs" if len(missing) > 1 else ""
                raise BadInput(
                    f"the records of {self.host} have no valid {metric} of NUMA node {node} with bank {bank}"
                    f"{more}: measure all with FIRSTTOUCH_EFFORT=full"
                )
        return self


def matrix_of(records: Iterable[Record], topology: Topology, host: str) -> Matrix:
    """Return the matrix of *host* (empty: the only one) among *records*: single NUMA nodes access single banks.

    Of several records of a pair the newest counts. Raises BadInput if there is none, for records of other hosts
    only, of several efforts, or that do not fit *topology*.
    """
    of_matrix = [r for r in records if r.check in {"latency", "bandwidth"}]
    hosts = sorted({short_name(r.host) for r in of_matrix})
    if not of_matrix:
        raise BadInput("no record of the checks latency and bandwidth: measure with `firsttouch characterize`")
    if not host and len(hosts) == 1:
        host = hosts[0]
    if (short := short_name(host)) not in hosts:
        names, whose = ", ".join(hosts[:3]) + (", ..." if len(hosts) > 3 else ""), host or "a host without a name"
        raise BadInput(
            f"the records are of {names}, the topology is of {whose}: give that of one of them by --xml"
        )
    measured = [r for r in of_matrix if short_name(r.host) == short and r.status == "valid" and _pairs(r)]
    if len(efforts := {str(r.parameters.get("effort", "full")) for r in measured}) > 1:
        raise BadInput(f"records of several efforts: {', '.join(sorted(efforts))}: give those of one run")
    values: dict[str, Mapping[Pair, Record]] = {}
    numbers = {node.index for node in topology.numa_nodes}
    for metric in sorted({r.metric for r in measured}):
        of_metric = [r for r in measured if r.metric == metric]
        if r := next((r for r in of_metric if not numbers.issuperset(itertools.chain(*_pairs(r)))), None):
            where = f"NUMA node {format_list(pu_nodes(r))} with bank {format_list(banks(r))}"
            raise BadInput(f"{metric} of {where} was measured, which this topology does not have")
        values[metric] = _best_way(of_metric)
    for pair, record in values.get(LATENCY, {}).items():
        size, cache = record.parameters["size_bytes"], topology.last_cache_bytes()
        if size <= cache:
            walked = f"{format_bytes(size)}, within the cache of {format_bytes(cache)}"
            raise BadInput(f"the latency of NUMA node {pair[0]} with bank {pair[1]} was measured up to {walked}")
    return Matrix(host, values)


def _pairs(record: Record) -> list[Pair]:
    """Return the pairs of NUMA node and bank that the record stands for; none if it has several of either."""
    p = record.parameters
    if record.metric not in {LATENCY} and not record.metric.endswith("_bandwidth"):
        return []
    places = [(pu_nodes(record), banks(record))]
    for alike in p.get("stands_for") or []:
        places.append((node_set(alike.get("pu_nodes")) or (), node_set(alike.get("banks")) or ()))
    if record.metric == LATENCY and not isinstance(p.get("size_bytes"), int):
        return []
    return [(nodes[0], bank[0]) for nodes, bank in places if len(nodes) == len(bank) == 1]


def _best_way(records: Sequence[Record]) -> dict[Pair, Record]:
    """Return the pairs of the way of measuring with most pairs, of several the probe's with regular stores.

    Of a latency curve the largest size counts, which is memory.
    """
    ways: dict[str, dict[Pair, Record]] = {}
    for record in sorted(records, key=lambda r: (r.parameters.get("size_bytes", 0), r.time)):
        way = json.dumps(Case.of(record).way, default=str)
        for pair in _pairs(record):
            ways.setdefault(way, {})[pair] = record

    def rank(item: tuple[str, Mapping[Pair, Record]]) -> tuple[int, bool, bool, str]:
        p = next(iter(item[1].values())).parameters
        return (len(item[1]), p.get("program") == NAME, p.get("stores") == "regular", item[0])

    return max(ways.items(), key=rank)[1]


# ----------------------------------------------------------------------
# JSON: a row for each value.


def _rows(matrix: Matrix) -> list[dict[str, Any]]:
    rows = []
    for values in matrix.values.values():
        for (node, bank), record in sorted(values.items()):
            p = record.parameters
            row = {
                **attributes(record, "metric", "value", "unit", "spread", "host", "system", "time"),
                **{"initiator": node, "bank": bank, "samples": record.repetitions},
                **{"minimum": min(record.samples), "maximum": max(record.samples)},
                **{name: p.get(name, "") for name in ("program", "instructions", "stores", "pages")},
                **{"threads": 1, "measures": "memory", "effort": "full"},
                **{name: p[name] for name in ("threads", "measures", "effort") if name in p},
                "bytes": p.get("size_bytes", p.get("array_bytes", "")),
                "measured_initiator": pu_nodes(record)[0],
                "measured_bank": banks(record)[0],
            }
            rows.append({name: row[name] for name in COLUMNS})
    return rows


def to_json(matrix: Matrix, topology: Topology) -> str:
    """Return the matrix as JSON: the host, its NUMA nodes as in ``topology --json``, and the rows."""
    document = {"host": matrix.host, "numa_nodes": topology.to_dict()["numa_nodes"], "values": _rows(matrix)}
    return json.dumps(document, indent=1) + "\n"


# ----------------------------------------------------------------------
# hwloc's memory attributes.

#: Attribute -> metric, hwloc's flags (1: higher is better, 2: lower is better, 4: values have initiators) and the
#: factor from our unit. Copy loads as much as it stores, which is what hwloc's Bandwidth means. Our latency is of
#: loads; a store to memory loads its line first, so that it stands for both.
_ATTRIBUTES: dict[str, tuple[str, int, float]] = {
    "Bandwidth": (COPY, 5, 1e9 / 2**20),
    "Latency": (LATENCY, 6, 1.0),
    "ReadLatency": (LATENCY, 6, 1.0),
}
#: The firmware's values of these are removed, so that no program compares them with measured ones.
_REPLACED = {*_ATTRIBUTES, "ReadBandwidth", "WriteBandwidth", "WriteLatency"}


def to_memattrs(matrix: Matrix, topology: Topology, xml: str) -> str:
    """Return the hwloc *xml* of *topology* with Bandwidth (MiB/s), Latency and ReadLatency (ns) as measured."""
    root = ET.fromstring(xml)  # noqa: S314 - parse_xml has read it
    for attribute in root.findall("memattr"):
        if attribute.get("name") in _REPLACED:
            root.remove(attribute)
    objects = {e.get("os_index"): e.get("gp_index") for e in root.iter("object") if e.get("type") == "NUMANode"}
    if None in objects.values():
        raise BadInput("its NUMA nodes have no gp_index: write it again with lstopo", file=topology.file)
    machine = root.find("object[@type='Machine']")
    assert machine is not None  # noqa: S101 - parse_xml requires it
    records = [r for metric in (LATENCY, COPY) for r in matrix.values[metric].values()]
    program = clean(str(records[0].parameters.get("program", "")))
    source = f"{program}, {max(r.time for r in records)}: copy, random loads"
    machine.insert(0, ET.Element("info", name="MeasuredMemoryAttributes", value=source))
    for name, (metric, flags, factor) in _ATTRIBUTES.items():
        attribute = ET.SubElement(root, "memattr", name=name, flags=str(flags))
        for (node, bank), value in sorted(matrix.rates(metric).items()):
            if (pus := topology.node(node).pus) and bank in topology.memory_nodes:
                ET.SubElement(
                    attribute,
                    "memattr_value",
                    target_obj_type="NUMANode",
                    target_obj_gp_index=str(objects[str(bank)]),
                    value=str(max(1, round(value * factor))),
                    initiator_cpuset=format_hwloc(pus),
                )
    major = root.get("version", "2").partition(".")[0]
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc{major}.dtd">\n'
    ET.indent(root)
    return head + ET.tostring(root, encoding="unicode") + "\n"


# ----------------------------------------------------------------------
# The kernel's interleave weights.


def to_weights(matrix: Matrix, topology: Topology) -> str:
    """Return a shell script that sets the kernel's weights to the ratios of the copy bandwidths of the banks.

    A bank counts with its bandwidth from the NUMA node that reaches it fastest. Comments name the NUMA nodes for
    which the kernel's one vector is wrong. The host's name, in a comment, is the only text of records.
    """
    rates = {pair: rate for pair, rate in matrix.rates().items() if pair[0] in topology.cpu_nodes and rate > 0}
    banks_of = list(topology.memory_nodes)
    best = tiers.best_rates(rates, banks_of)
    weights = tiers.small_weights(best)
    by_bank = dict(zip(banks_of, weights, strict=True))
    lines = [
        "#!/bin/sh",
        f"# Weights of weighted interleave for {one_line(matrix.host)}, from its copy bandwidth.",
        "# Needs Linux 6.9 and root.",
    ]
    for bank, rate in zip(banks_of, best, strict=True):
        share = by_bank[bank] / sum(weights)
        lines.append(
            f"# bank {bank}: {rate:.4g} GB/s, {rate / sum(best):.1%} of the sum, given {share:.1%} of the pages"
        )
    lines.append(f"# largest error of a share: {tiers.weights_error(weights, best):.1%}")
    if len(set(weights)) == 1:
        lines.append("# All weights are equal: plain interleave does the same.")
    lines += _contradictions(topology, rates, by_bank)
    lines.append("set -e")
    lines += [f"echo {weight} > {tiers.WEIGHTS}/node{bank}" for bank, weight in by_bank.items()]
    return "\n".join(lines) + "\n"


def _contradictions(topology: Topology, rates: Mapping[Pair, float], weights: Mapping[int, int]) -> list[str]:
    """Return a comment for each NUMA node whose own bandwidths need other weights, and what to do instead."""

    def needed(node: int, among: Sequence[int]) -> str:
        """Return the weights that *node* needs for the banks *among*, or "" if *weights* are as good."""
        better = tiers.better_weights([weights[bank] for bank in among], [rates[node, bank] for bank in among])
        return f"{':'.join(map(str, better))} for banks {format_list(among)}" if better else ""

    lines = []
    for node in topology.cpu_nodes:
        wrong, local = needed(node, list(weights)), tiers.own_banks(topology, [node])
        inside = needed(node, local) if wrong and len(local) > 1 else ""
        remedy = f"restrict its instances to its own bank, --membind={format_list(local)}"
        if inside:
            remedy = f"even its own tiers need {inside}; no one vector serves all NUMA nodes"
        elif len(local) > 1:
            remedy = f"restrict its instances to its own tiers, --weighted-interleave={format_list(local)}"
        lines += [f"# NUMA node {node} alone needs {wrong}: {remedy}"] if wrong else []
    return lines
