# SPDX-License-Identifier: Apache-2.0
"""The checks, metrics and parameters that references may name: what the checks' records use.

A reference that names anything else could never match a record, so it is an error when the file is read.
"""

from __future__ import annotations

from typing import Literal

#: How a NUMA node's PUs relate to a memory bank (see :meth:`firsttouch.systems.facts.Facts.relation`).
Relation = Literal["local", "neighbour", "near", "between", "farthest"]
RELATIONS: tuple[Relation, ...] = ("local", "neighbour", "near", "between", "farthest")

#: check -> metric -> unit of its records ("1": a plain count).
METRICS: dict[str, dict[str, str]] = {
    "topology": {
        "numa_nodes": "1",
        "pus": "1",
        "memory": "GiB",
        "theoretical_bandwidth": "GB/s",
        "theoretical_bandwidth_known": "1",
    },
    "latency": {"random_latency": "ns", "sequential_latency": "ns"},
    "bandwidth": {f"{kernel}_bandwidth": "GB/s" for kernel in ("copy", "scale", "add", "triad")},
    "contention": {"thread_bandwidth": "GB/s", "total_bandwidth": "GB/s"},
    "scaling": {"alignment_time": "s"},
    "placement": {"alignment_time": "s"},
    "weak_scaling": {"throughput": "kreads/s"},
}

_MEASURED = ("program", "pu_nodes", "bank", "banks", "relation", "threads", "policy", "pages")
_ALIGNED = ("aligner", "dataset", "scenario", "instances", "threads", "policy")

#: check -> the parameters of its records, and ``relation``, which is derived from pu_nodes and bank.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "topology": ("source",),
    "latency": (*_MEASURED, "size_bytes", "stride_bytes", "order"),
    "bandwidth": (*_MEASURED, "kernel", "instructions", "stores", "array_bytes"),
    "contention": (*_MEASURED, "kernel", "instructions", "stores", "array_bytes", "access", "mode"),
    "scaling": _ALIGNED,
    "placement": _ALIGNED,
    "weak_scaling": (*_ALIGNED, "reads_per_thread"),
}
