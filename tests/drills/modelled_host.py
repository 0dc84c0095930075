# SPDX-License-Identifier: Apache-2.0
"""A host made of parts, and what the probe prints on it. Every value follows from the parts.

A part is written as in the catalogue of parts: ``memory BANK``, ``link FROM BANK``, ``clock NODE``,
``cache LEVEL NODE``, ``core PU``. A fault is a part with the properties that differ from a good one:

    {"n3": {"memory 0": {"bandwidth": 0.875}}}

``bandwidth`` and ``clock`` are shares of a good part's, ``latency`` and ``tail`` are factors, ``wrong`` is a count
of wrong answers or words. The model shares no code with firsttouch: it is also a program that takes the place of
the probe, whose FIRSTTOUCH_MODEL names a folder with model.json and the topologies of the hosts.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGES, NODES, CORES, THREADS = 2, 4, 4, 2
MEMORY = 64 << 30
GHZ = 3.0
#: Cycles of a load from the first and second cache, and the time (ns) of one from the third, by size (bytes).
L1, L2, L3 = (32 << 10, 4.0), (512 << 10, 14.0), (32 << 20, 13.0)
#: The parts (ns) of a load from memory: core and caches, the way by distance, the module.
CORE_NS, WAY_NS, MODULE_NS = 25.0, (0.0, 22.0, 95.0), 65.0
#: The highest rates (GB/s): of a bank, of a link by distance, of a core.
BANK, LINK, CORE = 48.0, (1000.0, 34.0, 20.0), 14.0
#: How sharply the smallest of several limits decides: the exponent of the norm that joins them.
SHARPNESS = 10
KERNELS = {"copy": 1.0, "scale": 0.99, "add": 1.06, "triad": 1.07}
INSTRUCTIONS = {"plain": 0.9, "sse2": 0.97, "avx2": 1.0}
STREAMING = 1.3
RATES = (0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0)
TRANSFER_NS = {"cache": 31.0, "package": 64.0, "host": 118.0}
PERCENTILES = {"latency_p50": 1.0, "latency_p99": 1.8, "latency_p99_9": 3.5, "latency_p99_99": 7.0}
WORKS = ("integer", "floating point", "copy", "compression")
#: From these losses on the probe calls a PU slow, by chain.
SLOW = {"registers": 0.05, "l1": 0.1, "l2": 0.1, "memory": 0.15}


def distance(node: int, bank: int) -> int:
    """Return 0 for the NUMA node's own bank, 1 within its package, 2 beyond it."""
    per_package = NODES // PACKAGES
    return 0 if node == bank else 1 if node // per_package == bank // per_package else 2


def least(*limits: float) -> float:
    """Return what several limits leave: a little less than the smallest."""
    largest = min(limits)
    return float(largest * sum((limit / largest) ** -SHARPNESS for limit in limits) ** (-1 / SHARPNESS))


@dataclass(frozen=True)
class Host:
    """A host with the properties of its faulty parts."""

    name: str
    faults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def part(self, part: str, quality: str, good: float = 1.0) -> float:
        """Return a property of a part: a good part's unless it is faulty."""
        return float(self.faults.get(part, {}).get(quality, good))

    @property
    def threads(self) -> int:
        """The PUs of each core that are online."""
        return int(self.part("host", "threads", THREADS))

    @property
    def nodes(self) -> int:
        """The NUMA nodes that the firmware shows."""
        return int(self.part("host", "numa_nodes", NODES))

    def dmidecode(self) -> str:
        """Return what ``dmidecode --type 17`` prints: a module on each of eight channels of two packages."""
        speeds = {f"CPU{socket} DIMM_{letter}1": 3200 for socket in (0, 1) for letter in "ABCDEFGH"}
        speeds |= self.faults.get("modules", {})
        lines = ["# dmidecode 3.4", "SMBIOS 3.3.0 present.", ""]
        for number, (slot, speed) in enumerate(speeds.items()):
            lines += [
                f"Handle 0x{0x1100 + number:04X}, DMI type 17, 92 bytes",
                "Memory Device",
                f"\tLocator: {slot}",
            ]
            lines.append(f"\tBank Locator: P{slot[3]} CHANNEL {slot[-2]}")
            if speed:
                lines += ["\tSize: 16 GB", "\tData Width: 64 bits", "\tType: DDR4", "\tRank: 2"]
                lines += [f"\tSpeed: {speed} MT/s", f"\tConfigured Memory Speed: {speed} MT/s"]
            else:
                lines += ["\tSize: No Module Installed"]
            lines.append("")
        return "\n".join(lines)

    def files(self) -> dict[str, str]:
        """Return files of the kernel that state the host's configuration."""
        stated = {
            "proc/sys/kernel/osrelease": "6.1.0-30-amd64",
            "sys/devices/system/cpu/smt/control": "on" if self.threads > 1 else "off",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
            "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
        }
        return stated | self.faults.get("files", {})

    def pus(self, nodes: Sequence[int]) -> list[int]:
        """Return the PUs of some NUMA nodes: first one of each core."""
        cores = NODES * CORES // self.nodes
        return [
            thread * NODES * CORES + node * cores + core
            for thread in range(self.threads)
            for node in nodes
            for core in range(cores)
        ]

    def node_of(self, pu: int) -> int:
        """Return the NUMA node of a PU."""
        return pu % (NODES * CORES) // (NODES * CORES // self.nodes)

    def clock(self, pu: int) -> float:
        """Return the clock of a PU (GHz) when all run."""
        return GHZ * self.part(f"clock {self.node_of(pu)}", "clock") * self.part(f"core {pu}", "clock")

    def load(self, pu: int, size: int, bank: int, *, pages: str = "base") -> float:
        """Return the time (ns) of a random load from *size* bytes in a bank."""
        node, clock = self.node_of(pu), self.clock(pu) / GHZ
        for number, (most, cycles) in enumerate((L1, L2), start=1):
            if size <= most:
                slower = self.part(f"cache {number} {node}", "latency") * self.part(f"core {pu}", f"l{number}")
                return cycles / (GHZ * clock) * slower
        third = L3[1] * (0.5 + 0.5 / clock) * self.part(f"cache 3 {node}", "latency")
        if size <= L3[0]:
            return third
        memory = MODULE_NS * self.part(f"memory {bank}", "latency")
        way = (CORE_NS / clock + WAY_NS[distance(node, bank)]) * self.part(f"link {node} {bank}", "latency")
        walk = 1.0 if pages == "base" else self.part("host", pages, 0.88)
        return (way + memory) * walk * self.part(f"core {pu}", "memory")

    def rate(self, nodes: Sequence[int], banks: Sequence[int], threads: int = 0) -> float:
        """Return the bandwidth (GB/s) of the PUs of *nodes*, on equally interleaved *banks*."""
        pus = self.pus(nodes)[: threads or None]
        cores = {pu % (NODES * CORES): pu for pu in pus}
        limits = [sum(CORE * self.clock(pu) / GHZ for pu in cores.values())]
        limits += [len(banks) * BANK * self.part(f"memory {bank}", "bandwidth") for bank in banks]
        limits += [
            len(banks) * len(nodes) * LINK[distance(node, bank)] * self.part(f"link {node} {bank}", "bandwidth")
            for node, bank in itertools.product(nodes, banks)
            if node != bank
        ]
        return least(*limits)


# ----------------------------------------------------------------------
# The probe's output by aspect: cases with the value that follows from the parts.


def numbers(text: str) -> list[int]:
    """Return the numbers of a list such as 0-3,8."""
    ends = [part.split("-") for part in text.split(",")]
    return [number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)]


Options = Mapping[str, str]
Case = dict[str, Any]


def _nodes(host: Host, options: Options) -> list[int]:
    return numbers(options["pu-nodes"]) if "pu-nodes" in options else list(range(host.nodes))


def _banks(host: Host, options: Options) -> list[int]:
    return numbers(options["banks"]) if "banks" in options else list(range(host.nodes))


def _latency(host: Host, options: Options) -> Iterator[Case]:
    curve = [4096 << doubled for doubled in range(17)]
    sizes = curve if options["sizes"] == "curve" else [1 << 28]
    for node, bank, order, size in itertools.product(
        _nodes(host, options), _banks(host, options), options["order"].split(","), sizes
    ):
        first = host.pus([node])[0]
        usual = host.load(first, size, bank, pages=options.get("pages", "base"))
        # Prefetchers hide most of a sequential load from memory, and no page walk costs less.
        usual /= (
            {"random": 1, "paged": 1.1, "sequential": 12 * host.part("host", "prefetch")}[order]
            if size > L3[0]
            else 1
        )
        yield {
            **{"metric": f"{order}_latency", "unit": "ns", "better": "lower", "usual": usual},
            **{"pu_nodes": [node], "pus": [first], "banks": [bank], "order": order},
            **{"size_bytes": size, "stride_bytes": 64, "stands_for": []},
        }


def _bandwidth(host: Host, options: Options) -> Iterator[Case]:
    nodes, banks = _nodes(host, options), _banks(host, options)
    sets = [[bank] for bank in banks]
    if "first" in options["interleave"] and len(banks) > 1:
        sets += [[banks[0], other] for other in banks[1:]]
    if "all" in options["interleave"] and len(banks) > 2:
        sets.append(banks)
    wide = INSTRUCTIONS if options.get("instructions") == "all" else {"avx2": 1.0}
    stores = ("regular", "streaming") if options.get("stores") == "both" else ("regular",)
    members = itertools.combinations(nodes, int(options["set-sizes"]))
    for chosen, places, kernel, width, kind in itertools.product(
        members, sets, options["kernels"].split(","), wide, stores
    ):
        if (kind, width) == ("streaming", "plain"):
            continue
        gain = STREAMING * host.part("host", "streaming") if kind == "streaming" else 1
        yield {
            **{"metric": f"{kernel}_bandwidth", "unit": "GB/s", "better": "higher"},
            "usual": host.rate(chosen, places) * KERNELS[kernel] * wide[width] * gain,
            **{"pu_nodes": list(chosen), "pus": host.pus(chosen), "banks": places, "kernel": kernel},
            **{"stores": kind, "instructions": width, "array_bytes": 1 << 28, "stands_for": []},
        }


def _contention(host: Host, options: Options) -> Iterator[Case]:
    for bank, threads in itertools.product(_banks(host, options), numbers(options["threads"])):
        near = sorted(range(host.nodes), key=lambda node: (distance(node, bank), node))
        pus = host.pus(near)[:threads]
        nodes = sorted({host.node_of(pu) for pu in pus})
        # Each thread has five lines under way, and reads and writes each.
        demand = sum(5 * 128 / host.load(pu, 1 << 28, bank) for pu in pus)
        total = least(demand, 0.6 * host.rate(nodes, [bank], threads))
        for metric, usual in (("total_bandwidth", total), ("thread_bandwidth", total / threads)):
            yield {
                **{"metric": metric, "unit": "GB/s", "better": "higher", "usual": usual},
                **{"pu_nodes": nodes, "pus": pus, "banks": [bank]},
                **{"array_bytes": 1 << 28, "access": "random read-modify-write"},
            }


def _loaded(host: Host, options: Options) -> Iterator[Case]:
    nodes = list(range(host.nodes))
    for node, bank, share, load in itertools.product(
        _nodes(host, options),
        _banks(host, options),
        options["read-shares"].split(","),
        ("local", "outgoing", "incoming"),
    ):
        loaders = [other for other in nodes if (other == node) == (load != "incoming")]
        load_bank = bank if load != "outgoing" else nodes[-1] - node
        if not loaders or (load == "outgoing" and load_bank == node):
            continue
        pus = host.pus(loaders)[1 if load != "incoming" else 0 :]
        writes = 1 - 0.1 * (1 - float(share))
        limit = host.rate(loaders, [load_bank]) * writes
        demand = 1.25 * BANK
        idle = host.load(host.pus([node])[0], 1 << 28, bank)
        for rate in RATES:
            reached = least(max(0.4, rate * demand), limit)
            used = reached / limit if load_bank == bank else 0.6 * reached / limit
            place = {
                **{"pu_nodes": [node], "pus": sorted({host.pus([node])[0], *pus}), "banks": [bank], "rate": rate},
                **{"load": load, "load_bank": load_bank, "read_share": float(share), "loaders": len(pus)},
                **{"order": "paged", "instructions": "avx2", "array_bytes": 1 << 28, "size_bytes": 1 << 28},
            }
            latency = idle + 2.6 * MODULE_NS * host.part(f"memory {bank}", "queue") * used**6
            yield {"metric": "loaded_latency", "unit": "ns", "better": "lower", "usual": latency, **place}
            yield {"metric": "load_bandwidth", "unit": "GB/s", "better": "higher", "usual": reached, **place}


def _core_to_core(host: Host, options: Options) -> Iterator[Case]:
    pairs: dict[str, list[tuple[int, int]]] = {"cache": [], "package": [], "host": []}
    for a, b in itertools.combinations([pu for node in _nodes(host, options) for pu in host.pus([node])[:2]], 2):
        pairs[("cache", "package", "host")[distance(host.node_of(a), host.node_of(b))]].append((a, b))
    for shared, members in pairs.items():
        for a, b in members:
            nodes = sorted({host.node_of(a), host.node_of(b)})
            way = host.part(
                f"cache 3 {nodes[0]}" if shared == "cache" else f"link {nodes[0]} {nodes[-1]}", "latency"
            )
            slowest = min(host.clock(a), host.clock(b)) / GHZ
            yield {
                **{"metric": "pair_latency", "unit": "ns", "better": "lower"},
                "usual": TRANSFER_NS[shared] * way / slowest,
                **{"pu_nodes": nodes, "pus": [a, b], "banks": [nodes[0]]},
                **{"shared": shared, "pairs": len(members), "pairs_of": len(members)},
                **({"cache_level": 3} if shared == "cache" else {}),
            }


def _correctness(host: Host, options: Options) -> Iterator[Case]:
    nodes = _nodes(host, options)
    place = {"unit": "1", "better": "lower", "pu_nodes": nodes, "units": 1000, "exact": True}
    for work in WORKS:
        wrong = {pu: host.part(f"core {pu}", "wrong", 0) for pu in host.pus(nodes)}
        for pu, count in [(pu, count) for pu, count in wrong.items() if count and work == WORKS[0]] or [(-1, 0.0)]:
            of_pu = {"pu": pu, "bits": "0x4"} if count else {}
            answers = {"metric": "wrong_answers", "work": work, "pus": host.pus(nodes), "banks": [0]}
            yield {**answers, "usual": count, **of_pu, **place}
    for bank in _banks(host, options):
        count = host.part(f"memory {bank}", "wrong", 0)
        where = {"bits": "0x10", "offset": 4096} if count else {}
        yield {"metric": "wrong_words", "pus": host.pus([bank]), "banks": [bank], "usual": count, **where, **place}


def _cores(host: Host, options: Options) -> Iterator[Case]:
    nodes = _nodes(host, options)
    pus = host.pus(nodes)
    place = {"pu_nodes": nodes, "pus": pus, "banks": [0]}
    sustained = "sustain" in options
    chains = (
        {"registers": 0}
        if options.get("chains") == "registers" or sustained
        else {"registers": 0, "l1": 8192, "l2": 256 << 10, "memory": 1 << 28}
    )
    runnings = options.get("running", "all,alone").split(",") if not sustained else ["all"]
    for running, (chain, size) in itertools.product(runnings, chains.items()):
        if chain == "registers":
            heat = min(host.part(f"clock {node}", "sustained") for node in nodes) if sustained else 1.0
            values = {pu: host.clock(pu) * heat for pu in pus}
            typical = statistics.median(values.values())
            shares = {pu: value / typical for pu, value in values.items()}
            slowest = min(shares, key=lambda pu: shares[pu])
            way = {"chain": chain, "running": running} if running == "alone" else {}
            yield {
                **{"metric": "sustained_clock" if sustained else "core_clock", "unit": "GHz", "better": "higher"},
                **{"usual": typical, "slowest": values[slowest], **way, **place},
                **({"sustain_s": float(options["sustain"])} if sustained else {}),
            }
        else:
            values = {pu: host.load(pu, size, host.node_of(pu)) for pu in pus}
            typical = statistics.median(values.values())
            shares = {pu: typical / value for pu, value in values.items()}
            slowest = min(shares, key=lambda pu: shares[pu])
            way = {"chain": chain, "running": running, "size_bytes": size}
            yield {
                "metric": "chain_latency",
                "unit": "ns",
                "better": "lower",
                "usual": typical,
                "slowest": values[slowest],
                **way,
                **place,
            }
        way = {"chain": chain, "running": running, **({"size_bytes": size} if size else {})}
        yield {
            "metric": "slowest_core",
            "unit": "1",
            "better": "higher",
            "usual": shares[slowest],
            "slowest_pu": slowest,
            **way,
            **place,
        }
    for chain, size in chains.items():
        way = {"chain": chain, "size_bytes": size} if size else {}
        slow = {}
        for pu in pus:
            factor = host.part(f"core {pu}", {"registers": "clock"}.get(chain, chain))
            loss = 1 - factor if chain == "registers" else 1 - 1 / factor
            if loss > SLOW[chain]:
                slow[pu] = round(loss, 2)
        for pu, loss in slow.items():
            yield {
                "metric": "slow_cores",
                "unit": "1",
                "better": "lower",
                "usual": 1.0,
                "exact": True,
                "pu": pu,
                "loss": loss,
                **way,
                **place,
            }
        if not slow:
            yield {
                "metric": "slow_cores",
                "unit": "1",
                "better": "lower",
                "usual": 0.0,
                "exact": True,
                **way,
                **place,
            }


def _tails(host: Host, options: Options) -> Iterator[Case]:
    for node, bank, load in itertools.product(_nodes(host, options), _banks(host, options), ("none", "local")):
        pus = host.pus([node])
        loaders = len(pus) - 1 if load == "local" else 0
        idle = host.load(pus[0], 1 << 28, bank) * (1.6 if loaders else 1.0)
        for metric, factor in PERCENTILES.items():
            tail = host.part(f"memory {bank}", "tail") * host.part(f"link {node} {bank}", "tail")
            usual = idle * factor * (tail if metric in ("latency_p99_9", "latency_p99_99") else 1)
            yield {
                **{"metric": metric, "unit": "ns", "better": "lower", "usual": usual, "accesses": 100_000},
                **{
                    "pu_nodes": [node],
                    "pus": pus[: loaders + 1],
                    "banks": [bank],
                    "load": load,
                    "loaders": loaders,
                },
                **{"order": "paged", "size_bytes": 1 << 28, "stride_bytes": 256, "stands_for": []},
            }


def _locks(host: Host, options: Options) -> Iterator[Case]:
    nodes = _nodes(host, options)
    pus = host.pus(nodes)
    place = {"pu_nodes": nodes, "banks": [0], "record_bytes": 250, "placement": "spread"}
    for lock, work, batch, threads in itertools.product(
        options.get("locks", "mutex,atomic").split(","),
        options.get("work", "0").split(","),
        numbers(options.get("batches", "1")),
        numbers(options["threads"]),
    ):
        slowest = min(host.clock(pu) for pu in pus[:threads]) / GHZ
        transfer = TRANSFER_NS["host"] * host.part("link 0 3", "latency")
        rate = 1e9 * batch / (transfer + 40 * batch / slowest)
        yield {
            **{"metric": "lock_records", "unit": "records/s", "better": "higher", "usual": rate},
            **{"lock": lock, "parsing": "batched", "batch": batch, "work_ns": float(work.removesuffix("us") or 0)},
            **{"pus": pus[:threads], **place},
        }


CASES = {
    "locks": _locks,
    "latency": _latency,
    "bandwidth": _bandwidth,
    "contention": _contention,
    "loaded-latency": _loaded,
    "core-to-core": _core_to_core,
    "correctness": _correctness,
    "cores": _cores,
    "tails": _tails,
}


# ----------------------------------------------------------------------
# The hosts as a fleet, with their natural spread and noise.


@dataclass(frozen=True)
class Fleet:
    """Hosts of one order, and the faults that some of them have."""

    seed: int = 1
    #: The relative standard deviations between good hosts, and of repetitions. Half of each variance is shared by
    #: all values with the same unit.
    spread: float = 0.005
    noise: float = 0.003
    faults: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)

    def host(self, name: str) -> Host:
        """Return a host of this fleet."""
        return Host(name, self.faults.get(name, {}))

    def _deviation(self, size: float, *key: object) -> float:
        return random.Random(f"{self.seed} {key}").gauss(0, size * 0.5**0.5)  # noqa: S311 - no secret

    def results(self, name: str, run: int, aspect: str, options: Options) -> Iterator[Case]:
        """Yield the results of the *run*-th run of the probe on a host."""
        host = self.host(name)
        for case in CASES[aspect](host, options):
            usual, exact = case.pop("usual"), case.pop("exact", False)
            key = json.dumps(
                {k: v for k, v in case.items() if k not in {"pus", "slowest", "slowest_pu"}}, sort_keys=True
            )
            count = int(options.get("min-repetitions", "3"))
            if exact:
                samples = [float(usual)] * count
            else:
                unit = case["unit"] if case["metric"] != "slowest_core" else "share"
                level = self._deviation(self.spread, name, unit) + self._deviation(self.spread, name, key)
                level += self._deviation(self.noise, name, unit, run) + self._deviation(self.noise, name, key, run)
                samples = [usual * (1 + level) * (1 + 0.002 * (n - (count - 1) / 2)) for n in range(count)]
            asked = {"asked": options.get("pages", "base"), "huge_share": 0, "verified": True}
            yield {
                **{"type": "result", "aspect": aspect, "value": statistics.median(samples), "samples": samples},
                **{"interval": None, "ended": "limit", "status": "valid", "reason": "", "partial": False},
                "threads": len(case["pus"]),
                "policy": "bind" if len(case["banks"]) == 1 else "interleave",
                "memory_bytes": 1 << 28,
                "pages": {**asked, "found": {str(bank): 1 << 16 for bank in case["banks"]}},
                "pus_found": case["pus"],
                **case,
            }

    def output(self, name: str, run: int, argv: Sequence[str]) -> tuple[int, str, str]:
        """Return exit status, standard output and standard error of the probe with *argv* on a host."""
        aspect, *given = argv
        options = dict(word.removeprefix("--").partition("=")[::2] for word in given)
        if options.get("pages") == "huge" or options.get("pages") in self.host(name).faults.get("host", {}).get(
            "without", ()
        ):
            return 3, "", "firsttouch-probe: error: there are no huge pages\n"
        if aspect in self.host(name).faults.get("host", {}).get("fails", ()):
            return 1, "", "firsttouch-probe: error: out of memory\n"
        results = list(self.results(name, run, aspect, options))
        begin = {"type": "begin", "probe": "1.0.0", "schema": 1, "aspect": aspect, "host": {}}
        end = {"type": "end", "status": "complete", "reason": "", "count": len(results), "invalid": 0}
        return 0, "".join(json.dumps(line) + "\n" for line in (begin, *results, end)), ""


def main(argv: list[str]) -> int:
    """Print what the probe prints; return its exit status."""
    folder = Path(os.environ["FIRSTTOUCH_MODEL"])
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    if argv[0] == "topology":
        own = folder / f"topology.{name}.xml"
        print((own if own.exists() else folder / "topology.xml").read_text())
        return 0
    fleet = Fleet(**json.loads((folder / "model.json").read_text()))
    # The lock of the host lets one run at a time.
    with (folder / f"runs.{name}").open("a+b") as runs:
        run = runs.seek(0, os.SEEK_END)
        runs.write(b".")
    if argv[0] in fleet.host(name).faults.get("host", {}).get("dies", ()):
        (folder / f"dies.{name}").touch()
        with (folder / "never").open() as fifo:  # a FIFO that nobody writes to: the host is silent from now on
            fifo.read()
    status, out, err = fleet.output(name, run, argv)
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
