# SPDX-License-Identifier: Apache-2.0
"""The drills: a fault of a host, and what is to be said of the host in the end.

*shows* are the judged metrics that the fault must move, as
``CHECK.METRIC``; together the drills show each judged metric of the catalogue (tests/prose).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Fault = Mapping[str, Mapping[str, Any]]
MEMORY = ("bandwidth.copy_bandwidth", "loaded_latency.peak_bandwidth", "loaded_latency.saturation_bandwidth")
RATES = (*MEMORY, "contention.total_bandwidth", "contention.thread_bandwidth", "pages.copy_bandwidth")
CROSS = ("link 0 2", "link 0 3", "link 1 2", "link 1 3", "link 2 0", "link 2 1", "link 3 0", "link 3 1")


@dataclass(frozen=True)
class Drill:
    """A fault and what must be said of its host: *word* and *status*, *part* and *cause* as patterns."""

    name: str
    fault: Fault
    word: str
    part: str
    cause: str = ""
    shows: tuple[str, ...] = ()
    #: Other causes that may be named after the first.
    also: tuple[str, ...] = ()
    #: How many hosts of the fleet have the fault.
    hosts: int = 1

    @property
    def status(self) -> int:
        """The exit status of a job that finds this word."""
        return {"fail": 1, "invalid": 1, "suspect": 4}.get(self.word, 0)


@dataclass(frozen=True)
class FleetOfDrills:
    """Hosts of one order that are measured in one job; each of the first ones has the fault of a drill."""

    drills: tuple[Drill, ...]
    hosts: int = 9
    effort: str = "smoke"
    steps: tuple[str, ...] = ()
    #: Replacements of the system's facts.
    facts: Mapping[str, str] = field(default_factory=dict)


FLEETS: Mapping[str, FleetOfDrills] = {
    "exact": FleetOfDrills(
        (
            Drill(
                "wrong answers",
                {"core 5": {"wrong": 7}},
                *("fail", r"(?i)PU 5\b", "wrong answers"),
                ("correctness.wrong_answers",),
            ),
            Drill(
                "wrong words",
                {"memory 2": {"wrong": 3}},
                *("fail", r"bank 2\b", "wrong answers"),
                ("correctness.wrong_words",),
            ),
            Drill(
                "slow core",
                {"core 6": {"clock": 0.5}},
                *("fail", r"PU 6\b", "slow core"),
                ("cores.slow_cores", "cores.slowest_core"),
            ),
            Drill(
                "slow cache of a core",
                {"core 3": {"l2": 1.4}},
                *("fail", r"PU 3\b", "slow caches of a core"),
                ("cores.slow_cores", "cores.slowest_core"),
            ),
            Drill(
                "slow way of a core",
                {"core 9": {"memory": 1.5}},
                *("fail", r"PU 9\b", "slow way of a core to memory"),
                ("cores.slow_cores", "cores.slowest_core"),
            ),
            Drill("no answers", {"host": {"fails": ["correctness"]}}, *("suspect", "correctness", "")),
            Drill(
                "wrong answers, and a step that cannot run",
                {"core 4": {"wrong": 1}, "host": {"fails": ["latency"]}},
                *("fail", r"(?i)PU 4\b", "wrong answers"),
            ),
        ),
        hosts=11,
        steps=("topology", "cores", "correctness", "latency-0"),
    ),
    "memory": FleetOfDrills(
        (
            Drill(
                "bank with 7 of 8 channels",
                {"memory 0": {"bandwidth": 0.875}},
                *("fail", r"(bank|NUMA node) 0\b", "memory channel missing"),
                (*RATES, "stores.copy_bandwidth"),
            ),
            Drill(
                "bank with half of its channels",
                # Slow accesses with a loss of bandwidth are not the rare ones of another cause.
                {"memory 3": {"bandwidth": 0.5, "tail": 1.8}},
                *("fail", r"(bank|NUMA node) 3\b", "memory channel missing"),
                MEMORY,
            ),
            Drill(
                "slow idle latency with tails",
                {"memory 3": {"latency": 1.3, "tail": 1.5}},
                *("fail", r"(bank|NUMA node) 3\b", "slow memory timing"),
                (
                    "latency.random_latency",
                    "pages.random_latency",
                    "loaded_latency.unloaded_latency",
                    "tails.latency_p99_9",
                ),
            ),
            Drill(
                "rare slow accesses",
                {"memory 0": {"tail": 1.8}},
                *("fail", r"bank 0\b", "rare slow accesses"),
                ("tails.latency_p99_9", "tails.latency_p99_99"),
            ),
        ),
        hosts=12,
        steps=("topology", "latency-3", "bandwidth-1", "loaded-latency", "tails", "stores", "contention", "pages"),
    ),
    "links and clocks": FleetOfDrills(
        (
            Drill(
                "link at 60 %",
                {"link 0 3": {"bandwidth": 0.6}},
                *("fail", r"0 (to bank|and|to) 3\b", "slow link"),
                ("bandwidth.copy_bandwidth",),
            ),
            Drill(
                "slow way between packages",
                {link: {"latency": 1.2} for link in CROSS},
                *("fail", "host|package", "slow transfers between packages"),
                ("core_to_core.transfer_latency", "latency.random_latency"),
            ),
            Drill(
                "clock of all cores -10 %",
                {f"clock {node}": {"clock": 0.9} for node in range(4)},
                *("fail", "PUs|clock", "frequency or power cap"),
                ("cores.core_clock", "cores.chain_latency", "core_to_core.transfer_latency"),
            ),
            Drill(
                "clock of one NUMA node -10 %",
                {"clock 3": {"clock": 0.9}},
                *("fail", r"NUMA( node)? 3\b", "frequency or power cap"),
                ("latency.random_latency",),
            ),
        ),
        steps=("topology", "latency-0", "latency-3", "bandwidth-1", "core-to-core", "cores"),
    ),
    "alike": FleetOfDrills(
        (
            Drill(
                "two hosts whose memory loses 10 % alike",
                {f"memory {bank}": {"bandwidth": 0.9} for bank in range(4)},
                *("fail|suspect|undecided", "two groups|memory|bank", ""),
                MEMORY,
                hosts=2,
            ),
        ),
        hosts=8,
        steps=("topology", "bandwidth-1", "loaded-latency"),
    ),
    "few": FleetOfDrills(
        (
            Drill(
                "one of five hosts whose memory loses 15 %",
                {f"memory {bank}": {"bandwidth": 0.85} for bank in range(4)},
                *("fail", "memory|bandwidth|bank", ""),
                MEMORY,
            ),
        ),
        hosts=5,
        steps=("topology", "bandwidth-1", "loaded-latency"),
    ),
    "ways": FleetOfDrills(
        (
            Drill(
                "prefetchers off",
                {"host": {"prefetch": 0.5}},
                *("fail", r"sequential|prefetch", "prefetchers off"),
                ("latency.sequential_latency", "pages.prefetch_ratio"),
            ),
            Drill("no huge pages", {"host": {"without": ["thp"]}}, *("suspect", "thp pages", "")),
            Drill(
                "slow streaming stores",
                {"host": {"streaming": 0.7}},
                *("fail", "streaming", ""),
                ("stores.copy_bandwidth", "stores.streaming_gain"),
            ),
            Drill(
                "latency under load rises early",
                {"memory 0": {"queue": 2.0}},
                *("fail", r"(bank|NUMA node) 0\b", "latency under load rises early"),
                ("loaded_latency.saturation_bandwidth",),
            ),
            Drill(
                "slow third cache of a NUMA node",
                {"cache 3 0": {"latency": 1.3}},
                *("fail", r"NUMA( node)? 0\b", "slow cache"),
                ("latency.random_latency",),
            ),
        ),
        steps=(
            "topology",
            "latency-0",
            "latency-sequential-0",
            "latency-sequential-3",
            "bandwidth-1",
            "loaded-latency",
            "core-to-core",
            "pages",
            "stores",
        ),
    ),
    "kernels": FleetOfDrills(
        (
            Drill(
                "bank with 6 of 8 channels",
                {"memory 1": {"bandwidth": 0.75}},
                *("fail", r"(bank|NUMA node) 1\b", "memory channel missing"),
                (
                    *(f"bandwidth.{kernel}_bandwidth" for kernel in ("copy", "scale", "add", "triad")),
                    "pages.triad_bandwidth",
                ),
            ),
            Drill(
                "bank 0 with 6 of 8 channels",
                {"memory 0": {"bandwidth": 0.75}},
                *("fail", r"(bank|NUMA node) 0\b", "memory channel missing"),
                ("stores.triad_bandwidth",),
            ),
            Drill(
                "memory that cannot be read",
                {"modules": {"unreadable": 1}},
                *("suspect", "theoretical bandwidth", ""),
                ("topology.theoretical_bandwidth_known",),
            ),
            Drill("less memory", {"host": {"memory": 0.5}}, *("fail", "memory", ""), ("topology.memory",)),
        ),
        effort="full",
        steps=("topology", "bandwidth-1", "pages", "stores"),
        facts={"memory": ""},
    ),
    "configuration": FleetOfDrills(
        (
            Drill(
                "absent module",
                {"modules": {"CPU1 DIMM_G1": 0}, "memory 3": {"bandwidth": 0.75}},
                *("fail", "CPU1 DIMM_G1", "memory modules missing"),
                (*MEMORY, "topology.theoretical_bandwidth"),
                also=("memory saturates early",),
            ),
            Drill(
                "slower speed grade",
                {
                    "modules": {f"CPU{n} DIMM_{letter}1": 2400 for n in (0, 1) for letter in "ABCDEFGH"},
                    **{f"memory {bank}": {"bandwidth": 0.75} for bank in range(4)},
                },
                *("fail", "2400", "other memory modules"),
                (*MEMORY, "topology.theoretical_bandwidth"),
                also=("memory channel missing",),
            ),
            Drill("SMT off", {"host": {"threads": 1}}, *("fail", "PUs", "hyperthreading off"), ("topology.pus",)),
            Drill(
                "banks interleaved by the firmware",
                {"host": {"numa_nodes": 1}},
                *("fail", "NUMA node", "banks interleaved by the firmware"),
                ("topology.numa_nodes",),
                also=("fewer NUMA nodes",),
            ),
        ),
        steps=("topology", "latency-3", "bandwidth-1", "loaded-latency"),
    ),
    "counters": FleetOfDrills(
        (
            Drill(
                "uncorrected error",
                {"counters": {"uncorrected_errors": 1}},
                *("fail", "DIMM_A1", "uncorrected errors"),
                ("health.uncorrected_errors",),
            ),
            Drill(
                "many corrected errors",
                {"counters": {"corrected_errors": 5000}},
                *("suspect", "DIMM_A1", ""),
                ("health.corrected_errors",),
            ),
            Drill(
                "machine check",
                {"counters": {"machine_checks": 1}},
                *("suspect", "machine checks", ""),
                ("health.machine_checks",),
            ),
            Drill(
                "throttled",
                {"counters": {"throttle_events": 5000}},
                *("suspect", "throttle events", ""),
                ("health.throttle_events",),
            ),
            Drill("a step that fails", {"host": {"fails": ["bandwidth"]}}, *("suspect", "bandwidth", "")),
        ),
        steps=("topology", "latency-0", "bandwidth-1"),
    ),
}

#: Drills of what no campaign that validates measures: the hosts' own runs reach a store, and the store is judged.
STORED: tuple[Drill, ...] = (
    Drill(
        "clock that falls under load",
        {f"clock {node}": {"sustained": 0.85} for node in range(4)},
        *("fail", "sustained clock", "clock falls under load"),
        ("cores.sustained_clock",),
    ),
    Drill(
        "slow handing over of locks",
        {"link 0 3": {"latency": 1.4}},
        *("fail", "lock|records", ""),
        ("locks.lock_records",),
    ),
    Drill(
        "slow program",
        {"program": {"time": 1.3}},
        *("fail", "bwa-mem", ""),
        ("placement.alignment_time", "scaling.alignment_time", "weak_scaling.throughput"),
    ),
)


def drills() -> dict[str, Drill]:
    """Return all drills by name."""
    return {drill.name: drill for fleet in (*(f.drills for f in FLEETS.values()), STORED) for drill in fleet}
