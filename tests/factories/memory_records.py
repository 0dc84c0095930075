# SPDX-License-Identifier: Apache-2.0
"""Records of made-up hosts, with and without faults: loaded memory, pairs of cores, page sizes, and stores."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from firsttouch.records.schema import Record

PROGRAM = "firsttouch-probe"
#: Of a good host: ns of idle memory, of the next NUMA node, and of random accesses without huge pages.
IDLE, REMOTE, BASE = 95.0, 150.0, 110.0
#: GB/s of a bank: theoretical, and the largest that loads reach.
THEORY, PEAK = 51.2, 43.0
#: GB/s at which latency has doubled, by load.
SATURATION = {"local": 39.0, "outgoing": 21.0, "incoming": 20.0}
#: Bytes of memory traffic that count for each byte loaded.
SHARES = (1.0, 0.75, 0.5)

#: Of locks: records of a batch, ns of a lock by the threads, and ns under the lock per record.
BATCHES = tuple(2**i for i in range(9))
LOCKS: dict[str, Callable[[int], float]] = {
    "spin": lambda threads: 20 * threads**1.5,
    "ticket": lambda threads: 40 * threads,
    "mutex": lambda threads: 150 + 15 * threads,
    "queue": lambda _: 120,
    "atomic": lambda _: 40,
}
COPIES = {"original": 180.0, "deferred": 110.0, "batched": 40.0, "blocked": 15.0}

#: Chains of a core -> ns of a step of pointers, and bytes.
CHAINS = {"registers": (0.0, 0), "l1": (1.3, 8192), "l2": (4.5, 1 << 18), "memory": (BASE, 1 << 28)}

#: (metric, parameters) -> the factor of a value.
Fault = Callable[[str, dict[str, Any]], float]


LOADS = ("local", "outgoing", "incoming")


def slow_caches(metric: str, case: dict[str, Any]) -> float:
    """The fault of a core whose first two caches, and way to memory, are slow."""
    return {"l1": 0.7, "l2": 0.7, "memory": 0.6}.get(case["chain"], 1.0) if metric == "slowest_core" else 1.0


def early_saturation(metric: str, _: dict[str, Any]) -> float:
    """The fault of a host whose memory saturates early."""
    return {"saturation_bandwidth": 0.8, "peak_bandwidth": 0.85}.get(metric, 1.0)


def slow_accesses(metric: str, _: dict[str, Any]) -> float:
    """The fault of a host whose rare slow accesses are slower than usual."""
    return {"latency_p99_9": 1.5, "latency_p99_99": 2.0}.get(metric, 1.0)


class Host:
    """The records of one host of *nodes* NUMA nodes; every repetition is a record, as in a campaign."""

    def __init__(
        self,
        name: str,
        *,
        nodes: int = 2,
        repetitions: int = 5,
        noise: float = 0.004,
        fault: Fault = lambda *_: 1.0,
        at_once: bool = False,
    ) -> None:
        self.name, self.nodes, self.repetitions, self.fault = name, nodes, repetitions, fault
        self.noise, self.at_once = noise, at_once
        self.random = random.Random(f"{name}1")  # noqa: S311

    def add(self, check: str, metric: str, unit: str, better: str, value: float, **case: Any) -> Iterator[Record]:
        """Yield the records of a metric: one per repetition, or one with all samples if *at_once*."""
        mean = value * self.fault(metric, case)
        samples = [mean * (1 + self.random.gauss(0, self.noise)) for _ in range(self.repetitions)]
        if check == "topology" or metric == "slow_cores":
            samples = [mean] * len(samples)
        for number, some in enumerate([samples] if self.at_once else [[s] for s in samples]):
            yield Record(
                *(check, metric, unit, better, tuple(some)),  # type: ignore[arg-type]
                parameters=case,
                host=self.name,
                system="amd-opteron",
                time=f"2026-01-01T00:00:{number:02d}+00:00",
            )

    def topology(self) -> Iterator[Record]:
        modules = {"source": "SMBIOS", "channels": 4, "packages": self.nodes, "banks": self.nodes}
        yield from self.add("topology", "theoretical_bandwidth", "GB/s", "neither", THEORY, **modules)

    def place(self, node: int, bank: int) -> dict[str, Any]:
        return {"program": PROGRAM, "pu_nodes": [node], "bank": bank, "policy": "membind", "pages": "base"}

    def loaded(self, shares: tuple[float, ...] = SHARES) -> Iterator[Record]:
        """Yield the curves of every NUMA node: its own bank under each load."""
        for node in range(self.nodes):
            for load, share in itertools.product(LOADS if self.nodes > 1 else LOADS[:1], shares):
                other = (node + 1) % self.nodes if load == "outgoing" else node
                curve = {**self.place(node, node), "load": load, "load_bank": other, "read_share": share}
                curve |= {"loaders": 8 if load == "incoming" else 7}
                saturation = SATURATION[load] * (0.7 + 0.3 * share)
                peak = saturation * PEAK / SATURATION["local"]
                for metric, value in (("saturation_bandwidth", saturation), ("peak_bandwidth", peak)):
                    yield from self.add("loaded_latency", metric, "GB/s", "higher", value, **curve)
                yield from self.add("loaded_latency", "unloaded_latency", "ns", "lower", IDLE, **curve)
                # A fault moves the points, too.
                saturation *= self.fault("saturation_bandwidth", curve)
                peak *= self.fault("peak_bandwidth", curve)
                for rate in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0):
                    used = rate * peak
                    # It has doubled at the saturation.
                    ns = IDLE * (1 + (used / saturation) ** 6)
                    at = {**curve, "rate": rate}
                    yield from self.add("loaded_latency", "load_bandwidth", "GB/s", "higher", used, **at)
                    yield from self.add("loaded_latency", "loaded_latency", "ns", "lower", ns, **at)

    def cores(self) -> Iterator[Record]:
        """Yield the clock of the cores, at once and after two minutes of load, and chains in caches and memory."""
        case = {"program": PROGRAM, "threads": 8, "slowest": 3.0}
        yield from self.add("cores", "core_clock", "GHz", "higher", 3.1, **case)
        curve = {"sustain_s": 120.0, "curve": [3.1] * 20 + [2.9] * 80}
        yield from self.add("cores", "sustained_clock", "GHz", "higher", 2.9, **case, **curve)
        slow = False
        for chain, (ns, size) in CHAINS.items():
            where = {"program": PROGRAM, "chain": chain} | ({"size_bytes": size} if size else {})
            for running in ("all", "alone"):
                way = {**where, "running": running, "slowest_pu": 3}
                yield from self.add("cores", "slowest_core", "1", "higher", 0.99, **way)
                if chain != "registers":
                    yield from self.add("cores", "chain_latency", "ns", "lower", ns, **way, slowest=1.01 * ns)
                elif running == "alone":
                    yield from self.add("cores", "core_clock", "GHz", "higher", 3.5, **way, slowest=3.4)
            share = self.fault("slowest_core", where)
            if share < 0.9:
                slow = True
                of_pu = {"program": PROGRAM, "pu": 3, "loss": 1 - share, "loss_alone": 1 - share}
                of_chain = {} if chain == "registers" else {"chain": chain, "size_bytes": size}
                yield from self.add("cores", "slow_cores", "1", "lower", 1.0, **of_pu, **of_chain)
        if not slow:
            yield from self.add("cores", "slow_cores", "1", "lower", 0.0, program=PROGRAM)

    def tails(self) -> Iterator[Record]:
        """Yield the percentiles of single accesses; the last one has its histogram."""
        for node, bank in itertools.product(range(self.nodes), repeat=2):
            for load in ("none", "local") if node == bank else ("none",):
                median = (BASE if node == bank else REMOTE) * (1.0 if load == "none" else 1.2)
                case = {**self.place(node, bank), "load": load, "accesses": 524288}
                shares = {"50": 1.0, "99": 2.4, "99_9": 4.2, "99_99": 7.0}
                for percentile, share in shares.items():
                    counts = {
                        "histogram_ns": [round(median * s) for s in (0.5, *shares.values(), 400.0)],
                        "histogram_accesses": [1310720, 1284000, 23593, 2360, 262, 40],
                        "histogram_interrupted": [0.0, 0.0, 0.0, 0.0, 0.0, 38.0],
                    }
                    where = {**case, **(counts if percentile == "99_99" else {})}
                    yield from self.add("tails", f"latency_p{percentile}", "ns", "lower", median * share, **where)

    def pairs(self, per_node: int = 8) -> Iterator[Record]:
        """Yield the matrix between PUs: two of a core, four of a cache."""
        far = {"core": 6.0, "cache": 24.0, "numa-node": 48.0, "host": 110.0}
        pus = range(self.nodes * per_node)
        for a, b in itertools.combinations(pus, 2):
            shared = next(
                (
                    name
                    for name, size in (("core", 2), ("cache", 4), ("numa-node", per_node))
                    if a // size == b // size
                ),
                "host",
            )
            case = {"program": PROGRAM, "pus": [a, b], "shared": shared, "bank": a // per_node}
            case |= {"cache_level": 3} if shared == "cache" else {}
            yield from self.add("core_to_core", "pair_latency", "ns", "lower", far[shared], **case)
        for shared, ns in far.items():
            if shared != "host" or self.nodes > 1:
                case = {"program": PROGRAM, "shared": shared, "line": "near", "pairs": 8, "pairs_of": 8}
                case |= {"cache_level": 3} if shared == "cache" else {}
                yield from self.add("core_to_core", "transfer_latency", "ns", "lower", ns, **case)

    def locks(self, per_node: int = 8, work_ns: float = 1000) -> Iterator[Record]:
        """Yield the rates of one reader: its lock, or the work of all threads, is the limit."""
        most = self.nodes * per_node
        cases = [
            (parsing, batch, threads, place)
            for threads in sorted({2**i for i in range(most.bit_length())} | {most})
            for place in (("compact", "spread") if self.nodes > 1 and 1 < threads < most else ("compact",))
            for parsing, sizes in (("original", [1]), ("deferred", [1]), ("batched", BATCHES), ("blocked", [48]))
            for batch in sizes
            if parsing != "batched" or batch == 32 or threads == most
        ]
        for (parsing, batch, threads, place), lock in itertools.product(cases, LOCKS):
            if lock == "atomic" and parsing != "blocked":
                continue
            far = 2.0 if place == "spread" or threads > per_node else 1.0
            held = LOCKS[lock](threads) * (far if threads > 1 else 0.5) / batch + COPIES[parsing]
            alone = held + work_ns + (0 if parsing == "original" else 100)
            where = {**self.place(0, 0), "lock": lock, "parsing": parsing, "work_ns": work_ns, "placement": place}
            case = {**where, "batch": batch, "threads": threads}
            rate = 1e9 / max(held, alone / threads)
            yield from self.add("locks", "lock_records", "records/s", "higher", rate, **case)
            if lock != "atomic":
                share = max(0.0, 1 - rate * alone / 1e9 / threads)
                yield from self.add("locks", "lock_waiting", "1", "neither", share, **case)

    def pages(self) -> Iterator[Record]:
        """Yield random latency and bandwidth by page size, and what tells of prefetchers and free huge pages."""
        for node in range(self.nodes):
            place = self.place(node, node)
            for pages, ns, rate in (("base", BASE, 37.0), ("thp", IDLE, 38.0), ("huge", IDLE - 1, 38.5)):
                case = {**place, "pages": pages}
                yield from self.add("pages", "random_latency", "ns", "lower", ns, **case)
                for kernel in ("copy", "triad"):
                    yield from self.add("pages", f"{kernel}_bandwidth", "GB/s", "higher", rate, **case)
            yield from self.add("pages", "prefetch_ratio", "1", "neither", 6.0, **place)
            yield from self.add("pages", "huge_pages_free", "GiB", "neither", 11.5 + node, **place)

    def stores(self) -> Iterator[Record]:
        """Yield copy and triad by instruction set, with regular and with streaming stores."""
        rates = {"plain": 30.0, "sse2": 34.0, "avx2": 38.0, "avx512": 37.0}
        for (instructions, rate), stores in itertools.product(rates.items(), ("regular", "streaming")):
            case = {**self.place(0, 0), "instructions": instructions, "stores": stores}
            for kernel in ("copy", "triad"):
                value = rate * (1.25 if stores == "streaming" else 1.0)
                yield from self.add("stores", f"{kernel}_bandwidth", "GB/s", "higher", value, **case)
