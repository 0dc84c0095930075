# SPDX-License-Identifier: Apache-2.0
"""Replaces the probe: prints what the probe prints, with the values of a seeded model of eight hosts.

Each host has the hardware of the tutorial docs/tutorials/eight-hosts.md. FIRSTTOUCH_MODEL is a folder with the
values of Model as model.json. The folder counts the runs of each host: each run has its own noise.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NODES, CORES, MEMORY = 4, 32, 128 << 30
#: Latency (ns) of cycles up to a size (bytes), and of memory by distance: local, same package, other package.
CACHES = ((32 << 10, 1.2), (512 << 10, 3.6), (32 << 20, 13.0))
LATENCY = (92.0, 118.0, 195.0)
#: The bandwidth (GB/s) of a bank, by distance, and the share that each kernel reaches.
BANDWIDTH = (31.0, 24.0, 17.0)
KERNELS = {"copy": 1.0, "scale": 0.99, "add": 1.06, "triad": 1.07}
INSTRUCTIONS = {"plain": 0.9, "sse2": 0.97, "avx2": 1.0}
RATES = (0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0)
ASPECTS = ("latency", "bandwidth", "contention", "loaded-latency", "core-to-core", "correctness", "cores", "tails")


def topology_xml() -> str:
    """Return the hardware as hwloc's XML."""
    # Imported here because it loads pytest, which takes far longer than a run of this program.
    sys.path.append(str(Path(__file__).parents[1]))
    from factories import topologies  # noqa: PLC0415

    return topologies.host_of_packages(2, NODES // 2, CORES, MEMORY)


def distance(node: int, bank: int) -> int:
    """Return 0 for the NUMA node's own bank, 1 within its package, 2 beyond it."""
    return 0 if node == bank else 1 if node // 2 == bank // 2 else 2


#: The facts of the modelled hosts, as a system's file states them.
FACTS = """\
facts:
  source: "the order"
  processor: "AMD EPYC 7763"
  packages: 2
  numa_nodes: 4
  cores_per_numa_node: 32
  threads_per_core: 1
  memory_per_numa_node: "128 GiB"
  memory: {type: DDR4, transfer_rate: "3200 MT/s", channels_per_package: 8, source: "the order"}
"""


@dataclass(frozen=True)
class Model:
    """The values of the hosts."""

    seed: int = 1
    #: The relative standard deviations of repetitions, and between good hosts.
    noise: float = 0.01
    spread: float = 0.01
    #: The share of its bandwidth that a bank has, by host and bank.
    lacking: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def value(self, host: str, run: int, case: str, usual: float) -> float:
        """Return the value of one repetition of a *case* on a *host*."""
        level = random.Random(f"{self.seed} {host} {case}").gauss(0, self.spread)  # noqa: S311 - not a secret
        repetition = random.Random(f"{self.seed} {host} {case} {run}").gauss(0, self.noise)  # noqa: S311
        return usual * (1 + level) * (1 + repetition)

    def share(self, host: str, banks: list[int]) -> float:
        """Return the share of the bandwidth that the slowest of some banks has."""
        return min(self.lacking.get(host, {}).get(str(bank), 1.0) for bank in banks)

    def results(self, host: str, run: int, aspect: str, options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the results of one run of the probe on a *host*."""
        for case in CASES[aspect](options):
            usual = case.pop("usual")
            if case["unit"] == "GB/s" and case.pop("limited", True):
                usual *= self.share(host, case["banks"])
            name = json.dumps({k: v for k, v in case.items() if k != "pus"}, sort_keys=True)
            value = self.value(host, run, name, usual)
            count = int(options.get("min-repetitions", "1"))
            samples = [value * (1 + 0.002 * (n - (count - 1) / 2)) for n in range(count)]
            pages = {"asked": options.get("pages", "base"), "huge_share": 0, "verified": True}
            yield {
                "type": "result",
                "aspect": aspect,
                "value": statistics.median(samples),
                "samples": samples,
                "interval": None,
                "ended": "limit",
                "status": "valid",
                "reason": "",
                "partial": False,
                "threads": len(case["pus"]),
                "policy": "bind" if len(case["banks"]) == 1 else "interleave",
                "memory_bytes": 1 << 28,
                "pages": {**pages, "found": {str(bank): 1 << 16 for bank in case["banks"]}},
                "pus_found": case["pus"],
                **case,
            }


def numbers(text: str) -> list[int]:
    """Return the numbers of a list such as 0-3,8."""
    ends = [part.split("-") for part in text.split(",")]
    return [number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)]


def _pus(nodes: list[int]) -> list[int]:
    return [pu for node in nodes for pu in range(node * CORES, (node + 1) * CORES)]


def _latency(options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    curve = [4096 << doubled for doubled in range(17)]
    sizes = curve if options["sizes"] == "curve" else [1 << 28]
    for node, bank, order, size in itertools.product(
        numbers(options["pu-nodes"]), numbers(options["banks"]), options["order"].split(","), sizes
    ):
        usual = next((ns for most, ns in CACHES if size <= most), LATENCY[distance(node, bank)])
        usual /= {"random": 1, "paged": 1.1, "sequential": 12 if usual > 20 else 1}[order]
        yield {
            **{"metric": f"{order}_latency", "unit": "ns", "better": "lower", "usual": usual},
            **{"pu_nodes": [node], "pus": [node * CORES], "banks": [bank], "order": order},
            **{"size_bytes": size, "stride_bytes": 64, "stands_for": []},
        }


def _bandwidth(options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    nodes, banks = numbers(options["pu-nodes"]), numbers(options["banks"])
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
        rates = [BANDWIDTH[min(distance(node, bank) for node in chosen)] for bank in places]
        usual = min(rates) * len(rates) * KERNELS[kernel] * wide[width] * (1.3 if kind == "streaming" else 1)
        yield {
            **{"metric": f"{kernel}_bandwidth", "unit": "GB/s", "better": "higher", "usual": usual},
            **{"pu_nodes": list(chosen), "pus": _pus(list(chosen)), "banks": places, "kernel": kernel},
            **{"stores": kind, "instructions": width, "array_bytes": 1 << 28, "stands_for": []},
        }


def _contention(options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for bank, threads in itertools.product(numbers(options["banks"]), numbers(options["threads"])):
        near = sorted(range(NODES), key=lambda node: (distance(node, bank), node))
        pus = _pus(near)[:threads]
        total = min(4.5 * threads, 36.0)
        for metric, usual in (("total_bandwidth", total), ("thread_bandwidth", total / threads)):
            yield {
                **{"metric": metric, "unit": "GB/s", "better": "higher", "usual": usual},
                **{"pu_nodes": sorted({pu // CORES for pu in pus}), "pus": pus, "banks": [bank]},
                **{"array_bytes": 1 << 28, "access": "random read-modify-write", "limited": threads >= 8},
            }


def _loaded(options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for node, bank, share, load, rate in itertools.product(
        numbers(options["pu-nodes"]),
        numbers(options["banks"]),
        options["read-shares"].split(","),
        ("local", "outgoing", "incoming"),
        RATES,
    ):
        loaders = CORES - 1 if load != "incoming" else (NODES - 1) * CORES
        pus = [
            node * CORES,
            *(pu for pu in _pus(list(range(NODES))) if (pu // CORES == node) == (load != "incoming")),
        ]
        place = {
            **{
                "pu_nodes": [node],
                "pus": sorted(set(pus))[: loaders + 1],
                "banks": [bank],
                "rate": rate,
                "load": load,
            },
            **{
                "load_bank": bank if load != "outgoing" else 3 - node,
                "read_share": float(share),
                "loaders": loaders,
            },
            **{"order": "paged", "instructions": "avx2", "array_bytes": 1 << 28, "size_bytes": 1 << 28},
        }
        latency = LATENCY[distance(node, bank)] * (1 + 2.5 * rate**4)
        yield {"metric": "loaded_latency", "unit": "ns", "better": "lower", "usual": latency, **place}
        bandwidth = 0.4 + 38.0 * rate * (1 - 0.1 * (1 - float(share)))
        yield {"metric": "load_bandwidth", "unit": "GB/s", "better": "higher", "usual": bandwidth, **place}


def _core_to_core(options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    nodes = numbers(options["pu-nodes"])
    kinds = {"cache": 31.0, "package": 64.0, "host": 118.0}
    pairs = {"cache": [], "package": [], "host": []}
    for a, b in itertools.combinations([node * CORES + core for node in nodes for core in (0, 1)], 2):
        pairs[("cache", "package", "host")[distance(a // CORES, b // CORES)]].append((a, b))
    for shared, members in pairs.items():
        for a, b in members:
            yield {
                **{"metric": "pair_latency", "unit": "ns", "better": "lower", "usual": kinds[shared]},
                **{"pu_nodes": sorted({a // CORES, b // CORES}), "pus": [a, b], "banks": [a // CORES]},
                **{"shared": shared, "pairs": len(members), "pairs_of": len(members)},
                **({"cache_level": 3} if shared == "cache" else {}),
            }


def _correctness(_options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    place = {"unit": "1", "better": "lower", "usual": 0.0, "pu_nodes": list(range(NODES)), "units": 1000}
    for work in ("integer", "copy"):
        yield {"metric": "wrong_answers", "work": work, "pus": _pus(list(range(NODES))), "banks": [0], **place}
    for bank in range(NODES):
        yield {"metric": "wrong_words", "pus": _pus([bank]), "banks": [bank], **place}


def _cores(_options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    place = {"pu_nodes": list(range(NODES)), "pus": _pus(list(range(NODES))), "banks": [0]}
    yield {"metric": "slow_cores", "unit": "1", "better": "lower", "usual": 0.0, **place}
    yield {"metric": "core_clock", "unit": "GHz", "better": "higher", "usual": 3.1, "slowest": 3.0, **place}
    for chain, usual in (("l1", 1.3), ("l2", 4.5), ("memory", 95.0)):
        for running in ("all", "alone"):
            way = {"chain": chain, "running": running, "size_bytes": 8192, "slowest": usual, **place}
            yield {"metric": "chain_latency", "unit": "ns", "better": "lower", "usual": usual, **way}


def _tails(_options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for bank in range(NODES):
        place = {"pu_nodes": [bank], "pus": _pus([bank])[:1], "banks": [bank], "load": "none", "loaders": 0}
        for metric, usual in (("latency_p50", 90.0), ("latency_p99", 200.0), ("latency_p99_9", 400.0)):
            yield {"metric": metric, "unit": "ns", "better": "lower", "usual": usual, "accesses": 1000, **place}


CASES = {
    "latency": _latency,
    "bandwidth": _bandwidth,
    "contention": _contention,
    "loaded-latency": _loaded,
    "core-to-core": _core_to_core,
    "correctness": _correctness,
    "cores": _cores,
    "tails": _tails,
}


def main(argv: list[str]) -> int:
    """Print what the probe prints; return its exit status."""
    aspect, *given = argv
    if aspect == "topology":
        print(topology_xml())
        return 0
    options = dict(word.removeprefix("--").partition("=")[::2] for word in given)
    if options.get("pages") == "huge":
        print("firsttouch-probe: error: there are no huge pages", file=sys.stderr)
        return 3
    folder, host = Path(os.environ["FIRSTTOUCH_MODEL"]), socket.gethostname().partition(".")[0]
    model = Model(**json.loads((folder / "model.json").read_text()))
    runs = folder / f"runs.{host}"
    # The lock of the host lets one run at a time.
    with runs.open("a+b") as out:
        run = out.seek(0, os.SEEK_END)
        out.write(b".")
    results = list(model.results(host, run, aspect, options))
    begin = {"type": "begin", "probe": "1.0.0", "schema": 1, "aspect": aspect, "host": {}}
    end = {"type": "end", "status": "complete", "reason": "", "count": len(results), "invalid": 0}
    for line in (begin, *results, end):
        print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
