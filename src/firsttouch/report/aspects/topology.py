# SPDX-License-Identifier: Apache-2.0
"""The topology: NUMA nodes with memory, caches and PUs, distances (thesis, figure 2.6), theoretical bandwidth."""

from __future__ import annotations

from collections import Counter

from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Chart, Result, value
from firsttouch.report.document import Cell, Entry, Table
from firsttouch.report.model import Absent, HostView, banks
from firsttouch.report.text import count
from firsttouch.units import format_bytes, percent

CHECK = "topology"
_TITLE = "Topology"
_HOW = "Read by hwloc. The firmware states the distances, where 10 is local; no value here was measured."


def aspect(view: HostView) -> Aspect:
    """Return the size of the host, its theoretical bandwidth, and the tables of its topology if it is known."""
    sizes = size_texts(view)
    results = [Result("topology", text=", ".join(sizes), is_detail=True)] if sizes else []
    if record := theoretical(view):
        source = record.parameters.get("source")
        compared = f"per package, from {source}" if source else ""
        results.append(Result("theoretical bandwidth", compared=compared, text=value(record)))
    why = unknown(view)
    absent = [Absent("theoretical bandwidth", why)] if why else []
    if not results and not why:
        absent.append(Absent("the metrics of the topology check", view.why_absent(CHECK)))
    host = view.topology
    if host is None:
        absent.append(Absent(_TITLE, "no topology (hwloc XML) of this host was given"))
        return Aspect(results, absent=absent)
    tables = [*filter(None, (_numa_nodes(host), _caches(host), _distances(host)))]
    caches = dict.fromkeys(
        f"{level_name(c.level)} {format_bytes(c.size_bytes)}" for c in sorted(host.caches, key=lambda c: c.level)
    )
    shows = [f"{', '.join([*sizes, *caches])}."]
    return Aspect(results, [Chart(CHECK, _TITLE, _HOW, shows, tables=tables)], absent)


def size_texts(view: HostView) -> list[str]:
    """Return the recorded ones of: number of NUMA nodes, number of PUs, memory."""
    records = {r.metric: r for r in view.select(CHECK)}
    nouns = (("numa_nodes", "NUMA node"), ("pus", "PU"))
    texts = [count(round(records[metric].value), noun) for metric, noun in nouns if metric in records]
    return [*texts, value(records["memory"])] if "memory" in records else texts


# ----------------------------------------------------------------------
# Measured bandwidth as a fraction of the theoretical one (thesis, section 3.2, formula 3.1).

METRIC = "theoretical_bandwidth"
KNOWN = "theoretical_bandwidth_known"


def fraction(view: HostView, record: Record) -> float | None:
    """Return the ratio of the record's rate to the theoretical bandwidth of its banks, None if unknown.

    Formula 3.1 gives the theoretical bandwidth of a package, and all banks are assumed to be equal.
    """
    bank = bank_bandwidth(view)
    if bank is None or record.unit != "GB/s" or not banks(record):
        return None
    return record.value / (bank * len(banks(record)))


def share_of_theory(view: HostView, record: Record) -> str:
    """Return the record's rate as a share of the theoretical one, "" if unknown."""
    share = fraction(view, record)
    return "" if share is None else f"{percent(share)} of theory"


def bank_bandwidth(view: HostView) -> float | None:
    """Return the theoretical bandwidth of one bank (GB/s), None if unknown; banks are assumed to be equal."""
    theory = theoretical(view)
    if theory is None or theory.unit != "GB/s":
        return None
    packages, all_banks = theory.parameters.get("packages"), theory.parameters.get("banks")
    if not isinstance(packages, int) or not isinstance(all_banks, int) or not all_banks or theory.value <= 0:
        return None
    return theory.value * packages / all_banks


def theoretical(view: HostView) -> Record | None:
    """Return the newest record of the theoretical bandwidth from any source, which verdicts use, too."""
    return max(view.select(CHECK, metric=METRIC), key=lambda r: (r.time, r.value), default=None)


def unknown(view: HostView) -> str:
    """Return why the theoretical bandwidth of the host is unknown, "" if any record has it."""
    if theoretical(view) is not None:
        return ""
    record = max(view.select(CHECK, metric=KNOWN), key=lambda r: r.time, default=None)
    return str(record.parameters.get("reason", "")) if record is not None and not record.value else ""


# ----------------------------------------------------------------------
# Tables.


def _numa_nodes(topology: Topology) -> Table:
    """Return the NUMA nodes with their PUs and memory."""
    rows = [
        (
            str(node.index),
            format_list(node.pus),
            len(topology.usable_pus(node.index)),
            Cell(node.memory_bytes, format_bytes) if node.memory_bytes else "memoryless",
            node.subtype or ("DRAM" if node.memory_bytes else ""),
        )
        for node in topology.numa_nodes
    ]
    header = ("NUMA node", "PUs", "PUs that may be used", "memory", "kind")
    return Table("NUMA nodes", header, rows)


def _caches(topology: Topology) -> Table:
    """Return the sizes of the data caches, their number, and the number of PUs that share one."""
    groups = Counter((cache.level, cache.size_bytes, len(cache.pus)) for cache in topology.caches)
    rows = [
        (level_name(level), Cell(size, format_bytes), how_many, sharing)
        for (level, size, sharing), how_many in sorted(groups.items())
    ]
    return Table("Data caches", ("level", "size", "how many", "PUs that share one"), rows)


def level_name(level: int) -> str:
    """Return the name of a level of data caches."""
    return f"L{level}{'d' if level == 1 else ''}"


def _distances(topology: Topology) -> Table | None:
    """Return the firmware's distances between NUMA nodes, None if it states none."""
    order = [n.index for n in topology.numa_nodes]
    if not topology.distances or len(order) == 1:
        return None
    rows: list[tuple[Entry, ...]] = [(f"from {a}", *(topology.distance(a, b) for b in order)) for a in order]
    caption = "Distances according to the firmware (10 is local; not measured)"
    header = ("NUMA node", *(f"to {b}" for b in order))
    return Table(caption, header, rows)
