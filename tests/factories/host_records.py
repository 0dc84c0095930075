# SPDX-License-Identifier: Apache-2.0
"""Records of made-up hosts of 1 to 8 NUMA nodes, as the checks write them, and reports of them."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from firsttouch.records.catalogue import checks
from firsttouch.records.schema import Record, read
from firsttouch.report.pages import build
from firsttouch.report.render import Summary
from firsttouch.scenarios.placement import name_of

SOFTWARE = {
    "latency": {"lmbench": "3.0-a9"},
    "bandwidth": {"likwid": "5.2.2", "stream": "5.10"},
    "scaling": {"bwa": "0.7.17", "numactl": "2.0.16"},
}
KIB, MIB = 1024, 1024**2


def measured(file: Path) -> list[Record]:
    """Return the records of *file* without the health, the settings and the load of this host."""
    settings = checks()["topology"].data
    return [record for record in read(file) if record.check != "health" and record.metric not in settings]


class Machine:
    """A host of *nodes* NUMA nodes with *per_node* PUs each. All values come from a seeded generator."""

    def __init__(self, nodes: int = 1, per_node: int = 4, *, host: str = "n1") -> None:
        self.nodes = nodes
        self.per_node = per_node
        self.host = host
        self.random = random.Random(1000 * nodes + per_node)  # noqa: S311

    @property
    def pus(self) -> int:
        return self.nodes * self.per_node

    def distance(self, origin: int, target: int) -> int:
        """10 local, 16 within a pair of NUMA nodes (one package), 22 beyond."""
        return 10 if origin == target else 16 if origin // 2 == target // 2 else 22

    def record(
        self, check: str, metric: str, unit: str, typical: float, *, spread: float = 0.02, **fields: Any
    ) -> Record:
        samples = tuple(typical * (1 + self.random.uniform(-spread, spread)) for _ in range(3))
        fields.setdefault("better", "lower" if unit in {"ns", "s"} else "higher")
        fields.setdefault("software", SOFTWARE.get(check, {}))
        return Record(
            check,
            metric,
            unit,
            samples=samples,
            host=self.host,
            system="example",
            partition="all",
            time="2024-05-01T10:00:00.000+00:00",
            **fields,
        )

    def topology(self) -> list[Record]:
        facts = [
            ("numa_nodes", "NUMA nodes", float(self.nodes)),
            ("pus", "PUs", float(self.pus)),
            ("memory", "GiB", 16.0 * self.nodes),
            ("theoretical_bandwidth", "GB/s", 51.2),
        ]
        return [
            replace(self.record("topology", metric, unit, value, spread=0), better="neither", samples=(value,))
            for metric, unit, value in facts
        ]

    def latency(self, pairs: Iterable[tuple[int, int]] | None = None) -> list[Record]:
        records = []
        for origin, target in pairs or [(0, 0), *([(0, self.nodes - 1)] if self.nodes > 1 else [])]:
            for step in range(38):
                size = int(512 * 2 ** (step / 2))
                value = next(ns for limit, ns in LEVELS if size <= limit)
                # Gradual transitions: the last third of a level is already slower.
                limit = next(limit for limit, _ in LEVELS if size <= limit)
                value *= 1.5 if size > 0.7 * limit else 1.0
                if value > 40:
                    value *= self.distance(origin, target) / 10
                parameters = {
                    "size_bytes": size,
                    "stride_bytes": 128,
                    "pu_nodes": [origin],
                    "bank": target,
                    "program": "lat_mem_rd",
                }
                for metric, ns in (("random_latency", value), ("sequential_latency", min(value, 2 + value / 8))):
                    spread = 0.03 if value < 40 else 0.08
                    records.append(self.record("latency", metric, "ns", ns, spread=spread, parameters=parameters))
        return records

    def bandwidth(self, sizes: Iterable[int] = (1,)) -> list[Record]:
        records = []
        ways = [("likwid-bench", "avx512", "regular"), ("stream", "avx512", "streaming")]
        sets = [s for size in sizes for s in itertools.combinations(range(self.nodes), size)]
        for (program, instructions, stores), pus, bank in itertools.product(ways, sets, range(self.nodes)):
            for kernel, factor in (("copy", 1.0), ("scale", 0.99), ("add", 1.08), ("triad", 1.1)):
                near = sum(12.0 * 10 / self.distance(p, bank) ** 1.4 * 10**0.4 for p in pus)
                parameters = {
                    "program": program,
                    "kernel": kernel,
                    "instructions": instructions,
                    "stores": stores,
                    "pu_nodes": list(pus),
                    "bank": bank,
                    "threads": self.per_node * len(pus),
                    "array_bytes": 256 * MIB,
                    "policy": "membind",
                }
                value = near * factor * (1.3 if stores == "streaming" else 1)
                records.append(
                    self.record("bandwidth", f"{kernel}_bandwidth", "GB/s", value, parameters=parameters)
                )
        return records

    def contention(self) -> list[Record]:
        records = []
        for threads in self.thread_counts():
            total = 14 * threads / (threads + 3.0)
            parameters = {"threads": threads, "bank": 0, "program": "firsttouch probe", "kernel": "random"}
            for metric, value in (("thread_bandwidth", total / threads), ("total_bandwidth", total)):
                records.append(self.record("contention", metric, "GB/s", value, parameters=parameters))
        return records

    def thread_counts(self) -> list[int]:
        return sorted({max(1, self.pus * eighths // 8) for eighths in (1, 2, 4, 6, 8)} | {1})

    def scaling(self, aligner: str = "bwa-mem", dataset: str = "lambda") -> list[Record]:
        return [
            self.run(aligner, dataset, 1, threads, policy)
            for threads in self.thread_counts()
            for policy in POLICIES
        ]

    def placement(self, aligner: str = "bwa-mem", dataset: str = "lambda") -> list[Record]:
        counts = [n for n in (2, 4, 8) if n <= self.pus]
        return [
            self.run(aligner, dataset, instances, self.pus // instances, policy)
            for instances in counts
            for policy in POLICIES
        ]

    def run(self, aligner: str, dataset: str, instances: int, threads: int, policy: str) -> Record:
        whole = instances * threads
        seconds = 200 / whole * (1 + 0.05 * whole / instances) * POLICIES[policy] ** (self.nodes > 1)
        pus = [list(range(i * threads, (i + 1) * threads)) for i in range(instances)]
        asked = [{"pus": p, "numa_nodes": [0], "numactl": ["--membind=0"], "policy": policy} for p in pus]
        actual = [{"looks": 9, "threads": threads, "pus": p, "pages": {"0": 9000, "1": 12}} for p in pus]
        return self.record(
            "scaling" if instances == 1 else "placement",
            "alignment_time",
            "s",
            seconds,
            spread=0.03,
            parameters={
                "aligner": aligner,
                "dataset": dataset,
                "scenario": name_of(instances, threads, policy),
                "instances": instances,
                "threads": threads,
                "policy": policy,
                "reads": 10000,
            },
            placement_asked=asked,
            placement_found=actual,
        )

    def counters(self) -> list[Record]:
        parameters = {"region": "triad", "bank": 0}
        return [self.record("counters", "remote_reads", "GB/s", 0.4, better="lower", parameters=parameters)]

    def everything(self) -> list[Record]:
        return [
            *self.topology(),
            *self.latency(),
            *self.bandwidth(),
            *self.contention(),
            *self.scaling(),
            *self.placement(),
            *self.counters(),
        ]

    def xml(self) -> str:
        """Return the host as hwloc's XML (version 2), reduced to what a topology needs."""
        packages = "".join(self._package(node) for node in range(self.nodes))
        order = " ".join(map(str, range(self.nodes)))
        values = " ".join(str(self.distance(a, b)) for a in range(self.nodes) for b in range(self.nodes))
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n<topology version="2.0">'
            f'<object type="Machine" cpuset="{_bitmap(range(self.pus))}" nodeset="{hex(2**self.nodes - 1)}">'
            f'<info name="HostName" value="{self.host}"/>{packages}</object>'
            f'<distances2 type="NUMANode" nbobjs="{self.nodes}" kind="5" name="NUMALatency" indexing="os">'
            f'<indexes length="0">{order}</indexes><u64values length="0">{values}</u64values></distances2>'
            "</topology>\n"
        )

    def _package(self, node: int) -> str:
        first = node * self.per_node
        pus = range(first, first + self.per_node)
        cores = "".join(
            f'<object type="L2Cache" cpuset="{_bitmap([p])}" cache_size="{MIB}" depth="2" cache_type="0">'
            f'<object type="L1Cache" cpuset="{_bitmap([p])}" cache_size="{32 * KIB}" depth="1" cache_type="1">'
            f'<object type="Core" os_index="{p}" cpuset="{_bitmap([p])}">'
            f'<object type="PU" os_index="{p}" cpuset="{_bitmap([p])}"/></object></object></object>'
            for p in pus
        )
        return (
            f'<object type="Package" os_index="{node}" cpuset="{_bitmap(pus)}">'
            f'<object type="NUMANode" os_index="{node}" cpuset="{_bitmap(pus)}" nodeset="{hex(1 << node)}" '
            f'local_memory="{16 * 1024 * MIB}"/>'
            f'<object type="L3Cache" cpuset="{_bitmap(pus)}" cache_size="{16 * MIB}" depth="3" cache_type="0">'
            f"{cores}</object></object>"
        )


def matrix_records(*, effort: str | None = None, size: int = 1 << 30) -> list[Record]:
    """Return the probe's latency and copy bandwidth of lstopo_attached.xml: NUMA nodes 0 and 2, banks 0 to 3.

    Banks 1 and 3, without PUs, have a third of the bandwidth; the other package gets half of it.
    """
    result = []
    for node, bank in itertools.product((0, 2), range(4)):
        far = node // 2 != bank // 2
        common: dict[str, Any] = {"program": "firsttouch-probe", "pu_nodes": [node], "bank": bank, "pages": "thp"}
        common |= {"effort": effort} if effort else {}
        fields: dict[str, Any] = {"host": "n1", "system": "example", "time": "2026-05-01T10:00:00.000+00:00"}
        for bytes_, ns in ((1 << 14, 2.0), (size, 90.0 + 40 * far + 100 * (bank % 2))):
            latency = {**common, "size_bytes": bytes_, "order": "random", "stride_bytes": 64}
            result.append(
                Record("latency", "random_latency", "ns", "lower", (ns - 1, ns, ns + 1), latency, **fields)
            )
        rate = (33.0 if bank % 2 else 100.0) * (0.5 if far else 1)
        copy = {**common, "kernel": "copy", "stores": "regular", "threads": 8, "array_bytes": 1 << 30}
        result.append(
            Record("bandwidth", "copy_bandwidth", "GB/s", "higher", (rate, rate, rate * 1.1), copy, **fields)
        )
    return result


def built_report(out: Path, records: list[Record], **options: Any) -> tuple[Summary, str, dict[str, Any]]:
    """Build a report; return its summary, the text of its page and its summary.json."""
    out.mkdir(parents=True, exist_ok=True)
    summary = build(records, out, **options)
    page = (out / "index.html").read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    return summary, page, json.loads((out / "summary.json").read_text(encoding="utf-8"))


def invalid(record: Record, reason: str = "11 % of the pages lie on NUMA node 3") -> Record:
    """Return *record* with the status invalid."""
    return replace(record, status="invalid", reason=reason)


#: (up to this size in bytes, ns): L1d, L2, L3 and memory.
LEVELS = ((32 * KIB, 1.6), (MIB, 5.0), (16 * MIB, 19.0), (2**60, 92.0))
#: Policy -> run time relative to interleave on a host with several NUMA nodes.
POLICIES = {"original": 1.9, "localalloc": 2.1, "interleave": 1.0}


def _bitmap(pus: Iterable[int]) -> str:
    mask = sum(1 << pu for pu in pus)
    words = []
    while mask:
        words.append(f"{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    return "0x" + ",0x".join(reversed(words))
