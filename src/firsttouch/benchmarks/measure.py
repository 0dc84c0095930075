# SPDX-License-Identifier: Apache-2.0
"""Measures one aspect of this host and yields records.

The native probe measures whole matrices, and takes the memory of each bank once. lmbench, likwid-bench and STREAM
measure few placements, as a cross-check of the probe.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from firsttouch.benchmarks import core_to_core, loaded_latency, locks, probe, profiles, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.profiles import Effort
from firsttouch.benchmarks.programs import Nodes
from firsttouch.errors import BadInput, CannotHere
from firsttouch.host import available_memory, configuration, memory_modules
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record, software
from firsttouch.systems import theoretical_bandwidth

#: The fewest and the most repetitions of each case by the probe. It stops when the median is known to 5 %, which
#: takes five repetitions at least. Three repetitions cost less than the allocation of their memory.
LEAST, MOST = 3, 10
#: Repetitions that spread by more than this fraction allow no comparison. Exclusive hosts stay well below.
WIDE = 0.25

#: For the expected time of bandwidth: the arrays that each kernel moves, the least size of one (bytes; otherwise
#: four times the last-level caches), the repetitions that most cases take, and a rate (bytes/s) of far memory.
ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
LEAST_ARRAY, USUAL, SLOW = 64e6, 5, 10e9

#: The kernels of the aspect stores: the one that gains most from streaming stores, and STREAM's headline.
STORE_KERNELS = ("copy", "triad")

#: The page sizes of the probe. Every host has the first.
PAGES = ("base", "thp", "huge")

#: Aspect -> the programs that can measure it. The first is the default.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "topology": (),
    "latency": (probe.NAME, "lmbench"),
    "bandwidth": (probe.NAME, "likwid-bench", "stream"),
    "contention": (probe.NAME, "likwid-bench"),
    "stores": (probe.NAME,),
    "loaded-latency": (probe.NAME,),
    "core-to-core": (probe.NAME,),
    "locks": (probe.NAME,),
    "pages": (probe.NAME,),
}


@dataclass(frozen=True)
class Asked:
    """What to measure of an aspect; None means all that the effort includes.

    *pu_nodes* and *banks* are numbers of NUMA nodes. *set_sizes* are the NUMA nodes per PU-set (None: one PU-set
    of all *pu_nodes*, if these are given). *threads* are thread counts. *interleave* is the probe's option,
    and so is *pairs*.
    """

    aspect: str
    program: str | None = None
    pu_nodes: Sequence[int] | None = None
    set_sizes: Sequence[int] | None = None
    banks: Sequence[int] | None = None
    interleave: str = "first/all"
    threads: Sequence[int] | None = None
    pairs: str | None = None
    random: bool = True
    repetitions: int = 3

    def by(self) -> str:
        """Return the program; raises BadInput if it cannot measure the aspect."""
        programs_of = PROGRAMS[self.aspect]
        program = self.program or next(iter(programs_of), "")
        if program and program not in programs_of:
            raise BadInput(
                f"{program} does not measure {self.aspect}: {' and '.join(programs_of) or 'nothing'} can"
            )
        return program


def measure(host: Topology, asked: Asked, *, say: probe.Say = print) -> Iterator[list[Record]]:
    """Yield the records of one aspect as they come. Raises BadInput before anything is measured.

    The probe yields the latency curve (ns by bytes of a random cycle), STREAM's kernels (GB/s, regular stores),
    the rates (GB/s) of threads that access one bank at once, at random (thesis section 3.5), those of copy and
    triad by every instruction set with regular and with streaming stores, curves of latency (ns) by the load of
    other PUs (GB/s), latencies (ns) between pairs of PUs, the rates (records/s) of threads that take records from
    one reader under a lock, or latency and bandwidth by page size.
    """
    by_probe = asked.by() == probe.NAME
    if asked.aspect == "topology":
        yield list(topology(host, say=say))
    elif asked.aspect == "stores":
        yield from _stores(host, asked, say)
    elif asked.aspect == "loaded-latency":
        yield from loaded_latency.curves(_loaded(host, asked, say))
    elif asked.aspect == "core-to-core":
        yield from _core_to_core(host, asked, say)
    elif asked.aspect == "locks":
        yield from _locks(host, asked, say)
    elif asked.aspect == "pages":
        yield from _pages(host, asked, say)
    elif by_probe:
        yield from _by_probe(host, asked, say)
    else:
        yield from _by_others(host, asked, say)


def _by_probe(host: Topology, asked: Asked, say: probe.Say) -> Iterator[list[Record]]:
    """Measure each PU-set on the banks asked for, or else on those of the effort, in few runs of the probe."""
    effort = profiles.chosen()
    if asked.banks:
        effort = replace(effort, banks="all")
    banks = list(asked.banks or host.memory_nodes)
    sets: list[Nodes] = [(node,) for node in asked.pu_nodes or host.cpu_nodes]
    options, threads = ["--sizes=curve", f"--order={'random' if asked.random else 'sequential'}"], []
    if asked.aspect == "bandwidth":
        sets = _sets(host, asked)
        options = [f"--kernels={','.join(effort.kernels)}", f"--interleave={asked.interleave}"]
    elif asked.aspect == "contention":
        # One thread and two are measured on each NUMA node. More threads fill the NUMA nodes nearest to the bank.
        threads = _threads(host, asked)
        sets, options = [host.cpu_nodes], [f"--threads={format_list(threads)}"]
    for nodes in sets:
        programs.pus_of(host, nodes)
    for bank in banks:
        programs.bank_bytes(host, bank)
    for number in threads:
        programs.filling(host, banks[0], number)
    if asked.aspect == "bandwidth":
        _say_plan(host, sets, banks, effort, say)
    for members, targets in programs.rows(host, sets, banks, effort):
        pu_nodes = format_list({n for nodes in members for n in nodes})
        where = [f"--pu-nodes={pu_nodes}", f"--banks={format_list(targets)}"]
        if asked.aspect == "bandwidth":
            where.append(f"--set-sizes={len(members[0])}")
        yield from _run(asked, [*where, *options], say)


def _stores(host: Topology, asked: Asked, say: probe.Say) -> Iterator[list[Record]]:
    """Measure every instruction set x store type on one NUMA node (default: the first) and its nearest bank."""
    nodes = tuple(asked.pu_nodes or host.cpu_nodes[:1])
    banks = list(asked.banks or [programs.nearest(host, nodes)])
    programs.pus_of(host, nodes)
    for bank in banks:
        programs.bank_bytes(host, bank)
    kernels = [k for k in STORE_KERNELS if k in profiles.chosen().kernels]
    options = ["--instructions=all", "--stores=both", f"--kernels={','.join(kernels)}", "--interleave=none"]
    for bank in banks:
        where = [f"--pu-nodes={format_list(nodes)}", f"--set-sizes={len(nodes)}", f"--banks={bank}"]
        running = _run(replace(asked, aspect="bandwidth"), [*where, *options], say)
        measured = [replace(r, check="stores") for records in running for r in records]
        yield [*measured, *(gain for kernel in kernels for gain in _streaming_gain(measured, kernel, say))]


def _streaming_gain(measured: Sequence[Record], kernel: str, say: probe.Say) -> Iterator[Record]:
    """Yield the rate of a kernel's fastest streaming stores over that of its fastest regular ones.

    There is no such record on a processor without streaming stores. A sample compares the two rates of a
    repetition, in which the probe runs all cases one after the other.
    """
    rates = [r for r in measured if r.parameters["kernel"] == kernel]
    fastest = {}
    for stores in ("regular", "streaming"):
        of_stores = [r for r in rates if r.parameters["stores"] == stores]
        fastest[stores] = max(of_stores, key=lambda r: statistics.median(r.samples), default=None)
    streaming, regular = fastest["streaming"], fastest["regular"]
    if streaming is None or regular is None:
        return
    names = {f"fastest_{stores}": r.parameters["instructions"] for stores, r in fastest.items() if r}
    gains = tuple(s / r for s, r in zip(streaming.samples, regular.samples, strict=False))
    say(
        f"{kernel}: the fastest streaming stores are {names['fastest_streaming']}, "
        f"{statistics.median(gains):.2f} times the fastest regular ones, {names['fastest_regular']}"
    )
    parameters = {k: v for k, v in streaming.parameters.items() if k not in {"instructions", "stores"}} | names
    yield replace(
        streaming, metric="streaming_gain", unit="1", better="neither", samples=gains, parameters=parameters
    )


def _loaded(host: Topology, asked: Asked, say: probe.Say) -> Iterator[list[Record]]:
    """Measure all curves in one run of the probe, which takes the memory of all banks once."""
    cases = Cases(host, profiles.chosen())
    nodes = list(asked.pu_nodes or cases.pu_nodes())
    banks = list(asked.banks or host.memory_nodes)
    if not asked.banks and not asked.pu_nodes and len(nodes) < len(host.cpu_nodes):
        banks = sorted({programs.nearest(host, (node,)) for node in nodes})  # none of the other NUMA nodes'
    for node in nodes:
        programs.pus_of(host, (node,))
    for bank in banks:
        programs.bank_bytes(host, bank)
    shares = ",".join(f"{share:g}" for share in profiles.chosen().read_shares)
    where = [f"--pu-nodes={format_list(nodes)}", f"--banks={format_list(banks)}"]
    yield from _run(asked, [*where, f"--read-shares={shares}"], say)


def _core_to_core(host: Topology, asked: Asked, say: probe.Say) -> Iterator[list[Record]]:
    """Measure pairs of PUs, with the line on the bank nearest to the first of them unless banks are given."""
    nodes = tuple(asked.pu_nodes or host.cpu_nodes)
    programs.pus_of(host, nodes)
    for bank in asked.banks or ():
        programs.bank_bytes(host, bank)
    options = [f"--pairs={asked.pairs or profiles.chosen().pairs}", f"--pu-nodes={format_list(nodes)}"]
    options += [f"--banks={format_list(asked.banks)}"] if asked.banks else []
    matrix: list[Record] = []
    for records in _run(asked, options, say):
        matrix.extend(records)
        yield records
    summary = list(core_to_core.summary(matrix, host))
    for record in summary:
        say(core_to_core.describe(record))
    yield summary


def _locks(host: Topology, asked: Asked, say: probe.Say) -> Iterator[list[Record]]:
    """Measure all locks and ways to parse, by numbers of threads, and by batch sizes with the most threads."""
    effort = profiles.chosen()
    nodes = tuple(asked.pu_nodes or host.cpu_nodes)
    most = len(programs.pus_of(host, nodes))
    for bank in asked.banks or ():
        programs.bank_bytes(host, bank)
    threads = sorted(asked.threads or effort.some(effort.threads, locks.thread_counts(most)))
    if wrong := [number for number in threads if not 1 <= number <= most]:
        raise BadInput(
            f"{wrong[-1]} threads: NUMA nodes {format_list(nodes)} have 1 to {most} PUs for this process"
        )
    where = [f"--pu-nodes={format_list(nodes)}"]
    where += [f"--banks={format_list(asked.banks)}"] if asked.banks else []
    measured: list[Record] = []
    for options in locks.runs(threads, effort):
        # Time matters more than precision: there are hundreds of cases on a large host.
        for records in _run(asked, [*where, *options], say, most=LEAST):
            measured.extend(records)
            yield records
    needed = locks.batches_needed(measured)
    for record in needed:
        say(locks.describe(record))
    yield needed


def _pages(host: Topology, asked: Asked, say: probe.Say) -> Iterator[list[Record]]:
    """Measure each NUMA node on its nearest bank, or on those asked for, with every page size of the host."""
    nodes = asked.pu_nodes or Cases(host, profiles.chosen()).pu_nodes()
    for node in nodes:
        programs.pus_of(host, (node,))
    places = [(node, bank) for node in nodes for bank in asked.banks or [programs.nearest(host, (node,))]]
    banks = sorted({bank for _, bank in places})
    for bank in banks:
        programs.bank_bytes(host, bank)
    yield [r for bank in banks for r in _huge_pages_free(bank, say)]
    for node, bank in places:
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
            yield [replace(r, check="pages") for r in records]


def _of_pages(asked: Asked, node: int, bank: int, pages: str, say: probe.Say) -> Iterator[Record]:
    """Yield random latency, copy and triad with one page size, and with base pages the prefetch ratio."""
    where = [f"--pu-nodes={node}", f"--banks={bank}", f"--pages={pages}"]
    base = pages == PAGES[0]
    options = ["--sizes=memory", f"--order={'random,paged,sequential' if base else 'random'}"]
    small = programs.probe_options("pages")
    of_orders: dict[str, Record] = {}
    for records in _run(replace(asked, aspect="latency"), [*where, *options], say, small=small):
        of_orders |= {r.parameters["order"]: r for r in records}
    yield from (r for order, r in of_orders.items() if order == "random")
    if {"paged", "sequential"} <= of_orders.keys():
        yield _prefetch_ratio(of_orders["paged"], of_orders["sequential"], say)
    kernels = [k for k in STORE_KERNELS if k in profiles.chosen().kernels]
    options = [f"--kernels={','.join(kernels)}", "--set-sizes=1", "--interleave=none"]
    for records in _run(replace(asked, aspect="bandwidth"), [*where, *options], say):
        yield from records


def _prefetch_ratio(paged: Record, sequential: Record, say: probe.Say) -> Record:
    """Return the latency in paged order over that in sequential order of the same pages.

    In both orders the TLB has the address of the next line, so that what remains is the prefetchers' part.
    """
    samples = tuple(p / s for p, s in zip(paged.samples, sequential.samples, strict=False))
    say(f"sequential loads are {statistics.median(samples):.1f} times as fast as random ones in the same pages")
    parameters = {k: v for k, v in paged.parameters.items() if k != "order"}
    parameters |= {"paged_latency": paged.value, "sequential_latency": sequential.value}
    return replace(
        paged, metric="prefetch_ratio", unit="1", better="neither", samples=samples, parameters=parameters
    )


def _huge_pages_free(bank: int, say: probe.Say) -> list[Record]:
    """Return the memory (GiB) of a bank that could be had as huge pages now; none if the kernel does not tell."""
    free = (available_memory.huge_pages_free() or {}).get(bank)
    if free is None:
        say(f"free huge pages of bank {bank}: unknown, /proc/buddyinfo does not tell")
        return []
    say(f"free huge pages of bank {bank}: {free / 2**30:.2f} GiB")
    parameters = {"bank": bank, **profiles.chosen().parameters}
    return [Record("pages", "huge_pages_free", "GiB", "neither", (free / 2**30,), parameters, software=software())]


def _run(
    asked: Asked, options: Sequence[str], say: probe.Say, *, small: Sequence[str] | None = None, most: int = MOST
) -> Iterator[list[Record]]:
    """Yield the records of one run of the probe as they come; raises KeyboardInterrupt if it was interrupted.

    *small* are its options on an emulated host (default: those of the aspect). *most* limits the repetitions of
    each case.
    """
    effort = profiles.chosen()
    least = max(LEAST, min(asked.repetitions, effort.repetitions))
    # Prefetchers hide sequential latency, so nothing judges it.
    most = max(least, min(most, effort.repetitions)) if asked.random else least
    counts = [f"--min-repetitions={least}", f"--max-repetitions={most}"]
    small = programs.probe_options(asked.aspect) if small is None else small
    running = probe.follow(asked.aspect, [*options, *counts, *small], say=say)
    while True:
        try:
            records = next(running)
        except StopIteration as end:
            if end.value.status == "partial":
                raise KeyboardInterrupt from None
            return
        yield [replace(r, parameters={**r.parameters, **effort.parameters}) for r in records]


def _by_others(host: Topology, asked: Asked, say: probe.Say) -> Iterator[list[Record]]:
    """Measure with lmbench, likwid-bench or STREAM: on the nearest bank of each PU-set, unless banks are given."""
    count = asked.repetitions
    if asked.aspect == "contention":
        for bank in asked.banks or [programs.nearest(host, host.cpu_nodes[:1])]:
            for threads in _threads(host, asked):
                yield from programs.contention(host, bank, threads, repetitions=count, say=say)
        return
    alone = [(node,) for node in asked.pu_nodes or host.cpu_nodes]
    for nodes in alone if asked.aspect == "latency" else _sets(host, asked):
        programs.pus_of(host, nodes)
        for bank in asked.banks or [programs.nearest(host, nodes)]:
            if asked.aspect == "latency":
                yield from programs.latency(host, nodes[0], bank, random=asked.random, repetitions=count, say=say)
            else:
                yield from programs.bandwidth(host, nodes, bank, asked.by(), repetitions=count, say=say)


def _sets(host: Topology, asked: Asked) -> list[Nodes]:
    nodes = sorted(asked.pu_nodes or host.cpu_nodes)
    sizes = [len(nodes)] if asked.pu_nodes else Cases(host, profiles.chosen()).set_sizes()
    return programs.sets_of(host, nodes, asked.set_sizes or sizes)


def _say_plan(host: Topology, sets: Sequence[Nodes], banks: Sequence[int], effort: Effort, say: probe.Say) -> None:
    """Say how many placements a run measures, about how long it takes, and which PU-sets it leaves out."""
    placements = sum(len(effort.banks_of(host, nodes, banks)) for nodes in sets)
    level = max((cache.level for cache in host.caches), default=0)
    caches = sum(cache.size_bytes for cache in host.caches if cache.level == level)
    arrays = sum(ARRAYS[kernel] for kernel in effort.kernels)
    seconds = placements * USUAL * arrays * max(LEAST_ARRAY, 4 * caches) / SLOW
    time = f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{max(1.0, seconds / 60):.0f} min"
    what = f"{placements:,} placements of {len(sets)} PU-sets and {len(banks)} banks"
    say(f"{what}, about {time} at {SLOW / 1e9:g} GB/s")
    for text in programs.sets_left_out(sorted({node for nodes in sets for node in nodes}), sets):
        say(text)


def _threads(host: Topology, asked: Asked) -> list[int]:
    return sorted(asked.threads or Cases(host, profiles.chosen()).contention_threads())


def topology(host: Topology, *, say: probe.Say = print) -> Iterator[Record]:
    """Yield NUMA nodes, usable PUs, memory (GiB), configuration and theoretical bandwidth of the host.

    The bandwidth (GB/s) is that of one package by formula 3.1 of the thesis, from the SMBIOS tables or else from
    the facts of the system that FIRSTTOUCH_SYSTEM names. If it is unknown, theoretical_bandwidth_known has the
    reason.
    """
    memory = sum(n.memory_bytes for n in host.numa_nodes) / 2**30
    counts = {"numa_nodes": len(host.numa_nodes), "pus": len(host.allowed_pus)}
    for metric, unit, value in (*((m, "1", n) for m, n in counts.items()), ("memory", "GiB", memory)):
        yield Record("topology", metric, unit, "neither", (float(value),), software=software())
    installed = memory_modules.installed()
    yield from _configuration(host, installed)
    theoretical = theoretical_bandwidth.of_this_host(os.environ.get("FIRSTTOUCH_SYSTEM"), installed)
    rate = theoretical.bytes_per_second
    source = {"source": theoretical.source} if rate else {"reason": theoretical.reason}
    yield Record(
        "topology", "theoretical_bandwidth_known", "1", "higher", (float(bool(rate)),), source, software=software()
    )
    if not rate:
        say(f"theoretical bandwidth unknown: {theoretical.reason}")
        return
    packages = len({pu.package for pu in host.pus}) or 1
    banks = sum(1 for node in host.numa_nodes if node.memory_bytes)
    modules = {
        "channels": theoretical.channels,
        "transfer_rate": theoretical.transfer_rate,
        "packages": packages,
        "banks": banks,
    }
    sample = rate / packages / 1e9
    say(f"theoretical bandwidth: {sample:.1f} GB/s of each of {packages} packages ({theoretical.source})")
    yield Record(
        *("topology", "theoretical_bandwidth", "GB/s", "neither", (sample,)),
        parameters=source | modules,
        software=software(),
    )


def _configuration(host: Topology, installed: memory_modules.Installed) -> Iterator[Record]:
    """Yield the settings of the host as one record, whose value is their number."""
    now = configuration.read(host, installed=installed)
    if now.settings:
        yield Record(
            *("configuration", "settings", "1", "neither", (float(len(now.settings)),)),
            parameters={"settings": now.settings, "provenance": now.provenance},
            software=software(),
        )
