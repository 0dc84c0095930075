# SPDX-License-Identifier: Apache-2.0
"""Page sizes: latency and bandwidth with each page size of the host, prefetchers, and the free huge pages."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from msgspec.structs import replace

from firsttouch.benchmarks import probe, profiles, programs, stores
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.drawn_order import shuffle
from firsttouch.benchmarks.measure import AspectRequest, Benchmark, ReframeTest, run
from firsttouch.errors import CannotHere
from firsttouch.host import available_memory
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record, software

CHECK = "pages"
#: The page sizes of the probe. Every host has the first.
PAGES = ("base", "thp", "huge")
#: The probe's options for the latency on an emulated host.
_SMALL = ("--sizes=1MiB",)


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Measure each NUMA node with every page size of the host, on the requested banks or on its nearest one."""
    nodes = asked.pu_nodes or Cases(host, profiles.chosen_effort()).pu_nodes()
    programs.place(host, nodes, asked.banks or ())
    places = [(node, bank) for node in nodes for bank in asked.banks or [programs.nearest(host, (node,))]]
    banks = sorted({bank for _, bank in places})
    yield [r for bank in banks for r in _huge_pages_free(bank, say)]
    for node, bank in shuffle(places):
        for pages in PAGES:
            try:
                records = list(_of_pages(asked, node, bank, pages, say))
            except CannotHere as error:
                if pages == PAGES[0]:
                    raise
                say(f"{pages} pages on bank {bank} are left out: {error}")
                continue
            # On fragmented memory the kernel gives base pages instead.
            wrong = next((r.reason for r in records if r.status != "valid" and "huge pages" in r.reason), "")
            if wrong:
                say(f"{pages} pages on bank {bank} are left out: {wrong}")
                continue
            yield [replace(r, check=CHECK) for r in records]


def _of_pages(asked: AspectRequest, node: int, bank: int, pages: str, say: probe.Say) -> Iterator[Record]:
    """Yield random latency, copy and triad with one page size; with base pages also the prefetch ratio."""
    where = [f"--pu-nodes={node}", f"--banks={bank}", f"--pages={pages}"]
    base = pages == PAGES[0]
    options = ["--sizes=memory", f"--order={'random,paged,sequential' if base else 'random'}"]
    of_orders: dict[str, Record] = {}
    for records in run(replace(asked, aspect="latency"), [*where, *options], say, small=_SMALL):
        of_orders |= {r.parameters["order"]: r for r in records}
    yield from (r for order, r in of_orders.items() if order == "random")
    if {"paged", "sequential"} <= of_orders.keys():
        yield _prefetch_ratio(of_orders["paged"], of_orders["sequential"], say)
    kernels = [k for k in stores.KERNELS if k in profiles.chosen_effort().kernels]
    options = [f"--kernels={','.join(kernels)}", "--set-sizes=1", "--interleave=none"]
    for records in run(replace(asked, aspect="bandwidth"), [*where, *options], say):
        yield from records


def _prefetch_ratio(paged: Record, sequential: Record, say: probe.Say) -> Record:
    """Return the ratio of the latency in paged order to the latency in sequential order of the same pages.

    In both orders the TLB has the address of the next line, so the prefetchers cause the difference.
    """
    samples = tuple(p / s for p, s in zip(paged.samples, sequential.samples, strict=False))
    say(f"sequential loads are {statistics.median(samples):.1f} times as fast as random ones in the same pages")
    parameters = {k: v for k, v in paged.parameters.items() if k != "order"}
    parameters |= {"paged_latency": paged.value, "sequential_latency": sequential.value}
    return replace(
        paged, metric="prefetch_ratio", unit="1", better="neither", samples=samples, parameters=parameters
    )


def _huge_pages_free(bank: int, say: probe.Say) -> list[Record]:
    """Return the memory (GiB) of a bank that is available as huge pages now; none if the kernel does not say."""
    free = (available_memory.huge_pages_free() or {}).get(bank)
    if free is None:
        say(f"free huge pages of bank {bank}: unknown, because /proc/buddyinfo cannot be read")
        return []
    say(f"free huge pages of bank {bank}: {free / 2**30:.2f} GiB")
    parameters = {"bank": bank, **profiles.chosen_effort().parameters}
    return [Record(CHECK, "huge_pages_free", "GiB", "neither", (free / 2**30,), parameters, software=software())]


def _options(cases: Cases) -> list[str]:
    return ["--pu-nodes", format_list(cases.pu_nodes())]


def _label(record: Record, _cases: Cases) -> str:
    """Name a variable per metric, page size and bank."""
    p = record.parameters
    size = f"_{p['pages']}" if "pages" in p and record.metric != "prefetch_ratio" else ""
    return f"{record.metric}{size}_bank{p['bank']}"


_TEST = ReframeTest(
    "pages",
    lambda _: "latency and bandwidth by page size",
    _options,
    # Latency, the prefetch ratio and a rate with base pages, which every host has.
    lambda cases: 3 * len(cases.pu_nodes()),
    _label,
)
BENCHMARK = Benchmark(_measure, steps=lambda cases: [_options(cases)], tests=(_TEST,))
