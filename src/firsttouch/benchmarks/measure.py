# SPDX-License-Identifier: Apache-2.0
"""Measures one aspect of this host and yields records.

The native probe measures whole matrices, and allocates the memory of each bank once. lmbench, likwid-bench and
STREAM cross-check it with a few placements.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.benchmarks import drawn_order, probe, profiles, programs, stream
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.drawn_order import shuffle
from firsttouch.benchmarks.profiles import Effort
from firsttouch.benchmarks.programs import Nodes
from firsttouch.benchmarks.recording import hold_and_record
from firsttouch.errors import BadInput, CannotHere, none_such
from firsttouch.host import configuration, emulation, memory_modules
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology, load
from firsttouch.records.cases import Case
from firsttouch.records.catalogue import checks
from firsttouch.records.schema import Record, software
from firsttouch.systems import definition

#: The fewest and the most repetitions of each case by the probe. It stops when the median is known to 5 %, which
#: takes at least five repetitions. Three repetitions cost less than allocating their memory.
LEAST, MOST = 3, 10
#: Values whose repetitions spread by more than this fraction are not comparable. Exclusive hosts stay well below.
WIDE = 0.25
#: The meaning of such a spread.
BUSY = "this host was not idle. Measure again when it is"

#: For the expected time of bandwidth: the least size of an array (bytes; otherwise four times the last-level
#: caches), the repetitions that most cases take, and a rate (bytes/s) of far memory.
LEAST_ARRAY, USUAL, SLOW = 64e6, 5, 10e9


#: The aspects for which a seed determines the order of banks, PU-sets, numbers of threads and sizes.
IN_DRAWN_ORDER = frozenset({"bandwidth", "contention", "latency", "tails"})

#: Options that only some aspects accept. For other aspects they are errors.
OPTIONS = ("pu_nodes", "set_sizes", "banks", "order", "threads", "sustain")


class AspectRequest(Struct, frozen=True):
    """The requested measurements of an aspect; None means all of the effort.

    *pu_nodes* and *banks* are numbers of NUMA nodes. *set_sizes* are the NUMA nodes per PU-set (None: one PU-set
    of all *pu_nodes*, if these are given). *threads* are numbers of threads, and *order* is the order of accesses
    ("random" by default). *sustain* is the time of a load (s). *repetitions* are timed runs (None: three).
    """

    aspect: str
    program: str | None = None
    pu_nodes: Sequence[int] | None = None
    set_sizes: Sequence[int] | None = None
    banks: Sequence[int] | None = None
    order: str | None = None
    threads: Sequence[int] | None = None
    sustain: float | None = None
    repetitions: int | None = None

    @property
    def runs(self) -> int:
        """The timed runs of each case."""
        return self.repetitions or 3

    def check(self) -> None:
        """Raise BadInput for a value that the aspect does not take, or a program that cannot measure it."""
        self.by()
        for name in OPTIONS:
            takers = sorted(aspect for aspect, how in aspects().items() if name in how.options)
            if getattr(self, name) is not None and self.aspect not in takers:
                option = f"--{name.replace('_', '-')}"
                raise BadInput(f"{option} is not an option of {self.aspect}, but of {' and '.join(takers)}")
        if (self.repetitions or 1) > 1 and not aspects()[self.aspect].repeats(self):
            raise BadInput(f"{self.aspect} is measured once: leave --repetitions {self.repetitions} out")

    def by(self) -> str:
        """Return the program that measures; raises BadInput if it cannot measure the aspect."""
        if self.aspect not in aspects():
            raise BadInput(none_such("aspect", self.aspect, aspects()))
        programs_of = aspects()[self.aspect].programs
        program = self.program or next(iter(programs_of), "")
        if program and program not in programs_of:
            raise BadInput(
                f"{program} does not measure {self.aspect}: {' and '.join(programs_of) or 'nothing'} can"
            )
        return program


#: Yields the records of one aspect as they come.
Measure = Callable[[Topology, AspectRequest, probe.Say], Iterator[list[Record]]]


class ReframeTest(Struct, frozen=True):
    """A test of ReFrame that measures an aspect: its name and title, and what depends on a host's cases."""

    name: str
    title: Callable[[Cases], str]
    #: Returns the further arguments of ``firsttouch measure ASPECT``.
    options: Callable[[Cases], list[str]] = lambda _: []
    #: Returns how many records the command writes at least.
    least_records: Callable[[Cases], int] = lambda _: 1
    #: Returns the name of a record's performance variable, None if it has none.
    label: Callable[[Record, Cases], str | None] = lambda record, _: record.metric
    #: Returns why the test cannot be run, or an empty string.
    refused: Callable[[Cases], str] = lambda _: ""
    #: Timed repetitions of each measurement; None if the aspect is measured once.
    repetitions: int | None = 3
    time_limit: str = "2h"
    #: Further tags (see :class:`firsttouch.benchmarks.checks.OneHost`).
    tags: frozenset[str] = frozenset()


class Benchmark(Struct, frozen=True):
    """How an aspect is measured: the ``BENCHMARK`` of the module with the name of the aspect's check."""

    measure: Measure
    #: The options of ``firsttouch measure`` that it takes.
    options: frozenset[str] = frozenset({"pu_nodes", "banks"})
    #: The programs that can measure it; the first is the default.
    programs: tuple[str, ...] = (probe.NAME,)
    #: Returns whether a request's number of repetitions applies.
    repeats: Callable[[AspectRequest], bool] = lambda _: True
    #: Returns the further arguments of each step in which a campaign measures it.
    steps: Callable[[Cases], list[list[str]]] = lambda _: [[]]
    #: The probe's options on an emulated host, where touching memory of the usual size takes minutes, and no cache
    #: has to be exceeded. A curve keeps the number of sizes that a check requires.
    small: tuple[str, ...] = ()
    #: Whether campaigns that validate hosts measure it.
    validates: bool = True
    #: The tests of ReFrame that measure it, if no file in reframe/ has them.
    tests: tuple[ReframeTest, ...] = ()


@functools.cache
def aspects() -> Mapping[str, Benchmark]:
    """Return the aspects by name, in the order of the catalogue of checks."""
    by_name: dict[str, Benchmark] = {}
    for check in checks():
        name = check.replace("_", "-")
        if check in _ASPECTS:
            by_name[name] = _ASPECTS[check]
        elif check.isidentifier() and importlib.util.find_spec(f"{__package__}.{check}"):
            module = importlib.import_module(f"{__package__}.{check}")
            if hasattr(module, "BENCHMARK"):
                by_name[name] = module.BENCHMARK
    return by_name


def measure(host: Topology, asked: AspectRequest, *, say: probe.Say = print) -> Iterator[list[Record]]:
    """Yield the records of one aspect as they come. Raises BadInput before anything is measured."""
    asked.check()
    return aspects()[asked.aspect].measure(host, asked, say)


def measure_aspect(
    asked: AspectRequest, *, file: Path | None = None, share_host: bool = False, say: probe.Say = print
) -> list[Record]:
    """Measure one aspect of this host alone, and return the records.

    They are appended to *file* as they come. Raises BadInput before anything is measured.
    """
    measured: list[Record] = []
    with hold_and_record(file, share_host=share_host, watched=asked.aspect != "topology", say=say) as keep:
        for records in measure(load(), asked, say=say):
            measured.extend(records)
            keep(records)
    return measured


def spread(measured: Sequence[Record]) -> Iterator[str]:
    """Yield the spread of the repetitions of *measured*, and a warning if it is too wide for a comparison."""
    repeated = sorted((r for r in measured if r.status == "valid" and r.repetitions > 1), key=lambda r: r.spread)
    if not repeated:
        return
    widest = repeated[-1]
    text = f"{widest.spread:.1%}"
    if len(repeated) > 1:
        median = statistics.median(r.spread for r in repeated)
        text = f"median {median:.1%}, widest {text} ({Case.from_record(widest).title})"
    yield f"spread of {widest.repetitions} repetitions: {text}"
    if wide := [r for r in repeated if r.spread > WIDE]:
        yield f"firsttouch: {len(wide)} of {len(repeated)} values spread by more than {WIDE:.0%}: {BUSY}"


def _by_program(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    yield from (_by_probe if asked.by() == probe.NAME else _by_others)(host, asked, say)


def _by_probe(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Measure each PU-set on the requested banks, or else on the effort's banks, in few runs of the probe."""
    effort = profiles.chosen_effort()
    if asked.banks:
        effort = replace(effort, banks="all")
    banks = list(asked.banks or host.memory_nodes)
    sets: list[Nodes] = [(node,) for node in asked.pu_nodes or host.cpu_nodes]
    options, threads = ["--sizes=curve", f"--order={asked.order or 'random'}"], []
    if asked.aspect == "bandwidth":
        sets = _sets(host, asked)
        options = [f"--kernels={','.join(effort.kernels)}", "--interleave=first/all"]
    elif asked.aspect == "contention":
        # One and two threads are measured on each NUMA node. More threads fill the NUMA nodes nearest to the bank.
        threads = _threads(host, asked)
        sets, options = [host.cpu_nodes], [f"--threads={format_list(threads)}"]
    programs.place(host, sorted({node for nodes in sets for node in nodes}), banks)
    if asked.aspect == "bandwidth":
        _say_plan(host, sets, banks, effort, say)
    for members, targets in shuffle(programs.rows(host, sets, banks, effort)):
        pu_nodes = format_list({n for nodes in members for n in nodes})
        where = [f"--pu-nodes={pu_nodes}", f"--banks={format_list(targets)}"]
        if asked.aspect == "bandwidth":
            where.append(f"--set-sizes={len(members[0])}")
        yield from run(asked, [*where, *options], say)


def run(
    asked: AspectRequest,
    options: Sequence[str],
    say: probe.Say,
    *,
    small: Sequence[str] | None = None,
    most: int = MOST,
) -> Iterator[list[Record]]:
    """Yield the records of one run of the probe as they come; raises KeyboardInterrupt if it was interrupted.

    *small* are its options on an emulated host (None: the options of the aspect). *most* limits the repetitions of
    each case.
    """
    effort = profiles.chosen_effort()
    least = max(LEAST, effort.limit(asked.runs))
    # Prefetchers hide sequential latency, so it is never judged.
    most = max(least, effort.limit(most)) if asked.order != "sequential" else least
    benchmark = aspects()[asked.aspect]
    repeated = [f"--min-repetitions={least}", f"--max-repetitions={most}"] if benchmark.repeats(asked) else []
    small = (benchmark.small if small is None else small) if emulation.emulator() else ()
    order = [f"--seed={drawn_order.seed()}"] if asked.aspect in IN_DRAWN_ORDER else []
    for records in probe.follow(asked.aspect, [*options, *repeated, *small, *order], say=say):
        yield [replace(r, parameters={**r.parameters, **effort.parameters}) for r in records]


def _by_others(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Measure with lmbench, likwid-bench or STREAM: on the nearest bank of each PU-set, unless banks are given."""
    if emulation.emulator():
        raise CannotHere(f"only the probe measures an emulated host, because times mean nothing: not {asked.by()}")
    count = asked.runs
    alone = [(node,) for node in asked.pu_nodes or host.cpu_nodes]
    for nodes in shuffle(alone if asked.aspect == "latency" else _sets(host, asked)):
        programs.pus_of(host, nodes)
        for bank in asked.banks or [programs.nearest(host, nodes)]:
            if asked.aspect == "latency":
                yield from programs.latency(
                    host, nodes[0], bank, random=asked.order != "sequential", repetitions=count, say=say
                )
            else:
                yield from programs.bandwidth(host, nodes, bank, asked.by(), repetitions=count, say=say)


def _sets(host: Topology, asked: AspectRequest) -> list[Nodes]:
    nodes = sorted(asked.pu_nodes or host.cpu_nodes)
    sizes = [len(nodes)] if asked.pu_nodes else Cases(host, profiles.chosen_effort()).set_sizes()
    return programs.sets_of(host, nodes, asked.set_sizes or sizes)


def _say_plan(host: Topology, sets: Sequence[Nodes], banks: Sequence[int], effort: Effort, say: probe.Say) -> None:
    """Print how many placements a run measures, about how long it takes, and which PU-sets it leaves out."""
    placements = sum(len(effort.banks_of(host, nodes, banks)) for nodes in sets)
    level = max((cache.level for cache in host.caches), default=0)
    caches = sum(cache.size_bytes for cache in host.caches if cache.level == level)
    arrays = sum(stream.ARRAYS[kernel] for kernel in effort.kernels)
    seconds = placements * USUAL * arrays * max(LEAST_ARRAY, 4 * caches) / SLOW
    time = f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{max(1.0, seconds / 60):.0f} min"
    what = f"{placements:,} placements of {len(sets)} PU-sets and {len(banks)} banks"
    say(f"{what}, about {time} at {SLOW / 1e9:g} GB/s")
    for text in programs.sets_left_out(sorted({node for nodes in sets for node in nodes}), sets):
        say(text)


def _threads(host: Topology, asked: AspectRequest) -> list[int]:
    pus = len(programs.pus_of(host, host.cpu_nodes))
    if wrong := [number for number in asked.threads or () if not 1 <= number <= pus]:
        raise BadInput(f"{wrong[-1]} threads: this process may use 1 to {pus} PUs")
    return sorted(asked.threads or Cases(host, profiles.chosen_effort()).contention_threads())


def topology(host: Topology, *, say: probe.Say = print) -> Iterator[Record]:
    """Yield NUMA nodes, usable PUs, memory (GiB), configuration and theoretical bandwidth of the host.

    The bandwidth (GB/s) of one package follows formula 3.1 of the thesis, from the SMBIOS tables or else from
    the facts of the system that FIRSTTOUCH_SYSTEM names. If it is unknown, theoretical_bandwidth_known has the
    reason.
    """
    memory = sum(n.memory_bytes for n in host.numa_nodes) / 2**30
    counts = {"numa_nodes": len(host.numa_nodes), "pus": len(host.allowed_pus)}
    for metric, unit, value in (*((m, "1", n) for m, n in counts.items()), ("memory", "GiB", memory)):
        yield Record("topology", metric, unit, "neither", (float(value),), software=software())
    installed = memory_modules.read_modules()
    yield from _configuration(host, installed)
    theoretical = definition.theoretical_of_host(os.environ.get("FIRSTTOUCH_SYSTEM"), installed)
    rate = theoretical.bytes_per_second
    source = {"source": theoretical.source} if rate else {"reason": theoretical.reason}
    yield Record(
        "topology", "theoretical_bandwidth_known", "1", "higher", (float(bool(rate)),), source, software=software()
    )
    if not rate:
        say(f"theoretical bandwidth unknown: {theoretical.reason}")
        return
    packages = len({pu.package for pu in host.pus}) or 1
    # The modules of banks without PUs, such as CXL's, are not among the channels of a package.
    nodes = {pu.numa_node for pu in host.pus}
    banks = sum(1 for node in host.numa_nodes if node.memory_bytes and node.index in nodes)
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
            parameters={"settings": now.settings, "provenance": now.provenance, "parts": now.parts},
            software=software(),
        )


def _contention_label(record: Record, _cases: Cases) -> str:
    """Name the rate of one thread and of all, per bank, and per NUMA node if all threads are on one."""
    p = record.parameters
    nodes = f"_from{p['pu_nodes'][0]}" if len(p.get("pu_nodes", ())) == 1 else ""
    return f"{record.metric}_{p['threads']}threads{nodes}_bank{p['bank']}"


def _contention_options(cases: Cases) -> list[str]:
    threads = format_list(cases.contention_threads())
    return ["--threads", threads, "--banks", format_list(cases.banks(*cases.host.cpu_nodes))]


_TOPOLOGY_TEST = ReframeTest(
    "topology",
    lambda _: "topology",
    least_records=lambda _: 3,
    repetitions=None,
    time_limit="5m",
    tags=frozenset({"quick"}),
)
#: Random accesses to every bank in turn, by threads that fill the NUMA nodes from the nearest to the farthest.
_CONTENTION_TEST = ReframeTest(
    "contention",
    lambda cases: f"contention of {format_list(cases.contention_threads())} threads",
    _contention_options,
    lambda cases: 2 * len(cases.contention_threads()) * len(cases.banks(*cases.host.cpu_nodes)),
    _contention_label,
)
#: The topology, and the aspects whose records are the probe's results: the latency curve (ns by bytes of a random
#: cycle), STREAM's kernels (GB/s, regular stores), and the rates (GB/s) of threads with random accesses to one
#: bank (thesis section 3.5). Campaigns divide them into steps.
_ASPECTS = {
    "topology": Benchmark(
        lambda host, _, say: iter([list(topology(host, say=say))]),
        frozenset(),
        (),
        lambda _: False,
        tests=(_TOPOLOGY_TEST,),
    ),
    "latency": Benchmark(
        _by_program,
        frozenset({"pu_nodes", "banks", "order"}),
        (probe.NAME, "lmbench"),
        small=(f"--sizes={','.join(f'{4 << doubled}KiB' for doubled in range(12))}",),
    ),
    "bandwidth": Benchmark(
        _by_program,
        frozenset({"pu_nodes", "set_sizes", "banks"}),
        (probe.NAME, "likwid-bench", "stream"),
        small=("--array-bytes=4MiB",),
    ),
    "contention": Benchmark(
        _by_probe,
        frozenset({"banks", "threads"}),
        small=("--array-bytes=4MiB",),
        tests=(_CONTENTION_TEST,),
    ),
}
