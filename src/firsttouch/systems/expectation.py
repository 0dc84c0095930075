# SPDX-License-Identifier: Apache-2.0
"""The level that the memory and the caches of one host should reach, without references or other hosts.

The bandwidth of a bank follows from its modules or its processor, and the share of theory that reads reach on such
processors. Caches are faster than the next level. A part is *as expected*, *low* or *impossible* (suspect, never a
fail), or *unknown*. The judge compares equal parts of the host with each other
(:mod:`firsttouch.judge.questions.ratios`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.documents import attributes
from firsttouch.host.configuration import CACHES, DISTANCES, MODULE, VIRTUAL
from firsttouch.host.memory_modules import channel_of, rate_of, socket_of_slot
from firsttouch.records.cases import Case, by_key
from firsttouch.records.groups import Floats
from firsttouch.records.parts import part_of
from firsttouch.records.samples_table import BANK_BANDWIDTH, SamplesTable
from firsttouch.systems import processors
from firsttouch.systems.facts import CHANNEL_BYTES, Facts
from firsttouch.systems.processors import Processor
from firsttouch.units import format_bytes, parse_bytes, quantity

#: The answers about a part by its expected level. Impossible: better than it can be.
Answer = Literal["as expected", "low", "impossible", "unknown"]
#: The answers that make a host suspect, the worse one first.
SUSPECTED: Sequence[Answer] = ("low", "impossible")

#: A policy: a cache whose accesses take this share of the time of memory's is not seen.
AS_MEMORY: Final = 0.75
#: The share of the theoretical bandwidth that reads by all PUs reach, the median of 125 bare-metal hosts of 35
#: models whose modules were read (SpareCores/sc-inspector-data of 22 August 2026, bw_mem; 0.72 to 0.92 from 5 to
#: 95 %).
READ_SHARE: Final = 0.86
#: The least and the largest share that ordinary copies reach on them if each byte is counted once (sc-membench).
COPY_SHARES: Final = (0.21, 0.4)
#: The loss beyond which one in a hundred of these hosts lies below hosts of its own model, of other models of its
#: microarchitecture, and of any other model. They are used for the probe's reads, too: one thread of it reads 1.13
#: times as fast as bw_mem (bench/one_host.py; median of 16 rounds on a busy slice, from 0.33 to 2.64).
SHARE_TOLERANCES: Final = {"model": 0.155, "kin": 0.17, "any": 0.25}

SLICE = "a part of a host, such as a virtual machine, whose bandwidth others share"
_ROOT = "run it as root once, as the modules cannot be read"
_NO_RATE = "measure the bandwidth of all PUs of its NUMA node"
_NO_MODEL = "no file of systems/processors describes the processor"
_NO_CHANNELS = "give it references, as no rate follows from the channels of {}"
_AGAINST = "compare it with its earlier records: firsttouch check --against"
_NO_SIZES = "measure the configuration of the host, too"
IDLE = "measure it again when the host is idle"
_CHECK_THEORY = "measure it again, and compare the modules that the firmware states with what is built in"
_IMPOSSIBLE = "faster than its modules can be: a cache before them, a wrong measurement or theory"
#: The excess of a bandwidth over its theory that is allowed, as both are rounded.
_ROUNDING = 1.02
#: The last level of caches that belong to one core.
_OF_CORE = 2
_WITH_READS = "write-allocate included"
#: The share of the moved bytes that STREAM counts, by kernel: ordinary stores read each line first.
_COUNTED = {"copy": 2 / 3, "scale": 2 / 3, "add": 3 / 4, "triad": 3 / 4}


class Expectation(Struct, frozen=True):
    """The level that a *part* should reach in one *kind* of metric, and *reaches*, in *unit* (NaN: unknown).

    Beyond *limit* it is low. *basis* is the source of the level, *needs* names missing facts, and *theory* is the
    level that the modules allow (NaN: unknown).
    """

    part: str
    kind: str
    answer: Answer
    basis: str
    reaches: float = math.nan
    expected: float = math.nan
    limit: float = math.nan
    unit: str = ""
    needs: str = ""
    theory: float = math.nan

    @classmethod
    def for_part(
        cls, part: str, kind: str, reaches: float, expected: float, tolerance: float, *, unit: str, basis: str
    ) -> Expectation:
        """Return the answer for a part that may lose the fraction *tolerance* of what is *expected*.

        For latencies, larger is worse.
        """
        is_latency = kind == "latency"
        limit = expected / (1 - tolerance) if is_latency else expected * (1 - tolerance)
        is_low = reaches > limit if is_latency else reaches < limit
        return cls(part, kind, "low" if is_low else "as expected", basis, reaches, expected, limit, unit)

    @property
    def sight(self) -> float:
        """The smallest loss (a fraction) that would be called low; NaN unless the part is as expected."""
        share = self.limit / self.reaches
        return 1 - min(share, 1 / share) if self.answer == "as expected" else math.nan

    def text(self) -> str:
        """Return the expectation as one sentence."""
        value = f" {quantity(self.reaches, self.unit)}" if math.isfinite(self.reaches) else ""
        stated = f"{self.part}: {self.kind}{value}, {self.answer}"
        if self.answer == "low":
            stated += f" (limit {quantity(self.limit, self.unit)})"
        elif self.sight > 0:
            stated += f" (a loss of {100 * self.sight:.0f} % would be low)"
        return f"{stated}: {self.basis}" + (f"; {self.needs}" if self.needs else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        numbers = {name: getattr(self, name) for name in ("reaches", "expected", "limit", "theory", "sight")}
        return {
            **attributes(self, "part", "kind", "answer", "basis", "unit", "needs"),
            **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
            "text": self.text(),
        }


def answer(expectations: Iterable[Expectation]) -> Answer:
    """Return the answer for a host: its worst part's; "as expected" requires that its memory bandwidth is."""
    expectations = list(expectations)
    for suspected in SUSPECTED:
        if any(e.answer == suspected for e in expectations):
            return suspected
    of_memory = [e.answer for e in expectations if (e.part.split()[0], e.kind) == ("memory", "bandwidth")]
    return "as expected" if of_memory and "unknown" not in of_memory else "unknown"


def deciding(expectations: Iterable[Expectation]) -> Expectation | None:
    """Return the expectation that states the :func:`answer` with the widest sight, None without one.

    Rates come before ratios.
    """
    expectations = list(expectations)
    stating = [e for e in expectations if e.answer == answer(expectations)]
    return max(stating, key=lambda e: (e.unit == "GB/s", max(e.sight, 0.0)), default=None)


def traffic(case: Case, value: float) -> float:
    """Return the bandwidth of memory that a *value* shows (GB/s), as if all were reads; NaN: it shows none."""
    p = case.parameters
    if case.unit != "GB/s" or p.get("threads") == 1:
        return math.nan
    if case.metric == "peak_bandwidth":
        return value if p.get("read_share") == 1 else math.nan
    if case.check not in {"bandwidth", "stores", "pages"}:
        return math.nan
    return value / (1.0 if p.get("stores") == "streaming" else _COUNTED.get(str(p.get("kernel")), math.nan))


class Measured(Struct, frozen=True):
    """A case of a host with its *value*; *is_calm*: at least one repetition was not disturbed."""

    case: Case
    value: float
    is_calm: bool

    @property
    def reads(self) -> float:
        """The bandwidth of memory that the value shows, see :func:`traffic`."""
        return traffic(self.case, self.value)

    @property
    def program(self) -> object:
        """The program that measured it."""
        return self.case.parameters.get("program")

    @property
    def size(self) -> float:
        """The size of a latency's working set (bytes); 0: not stated."""
        size = self.case.parameters.get("size_bytes")
        return size if isinstance(size, (int, float)) else 0

    @property
    def is_of_curve(self) -> bool:
        """Whether it is a point of the curve of local latencies by size."""
        is_random = (self.case.check, self.case.metric) == ("latency", "random_latency")
        return is_random and self.size > 0 and part_of(self.case).name in {"clock", "cache", "memory"}

    @property
    def way(self) -> tuple[str, str, str]:
        """The labels that identify how it was measured, without the place."""
        where = {"pu_nodes", "bank", "relation"}
        others = sorted((k, str(v)) for k, v in self.case.parameters.items() if k not in where)
        return self.case.check, self.case.metric, str(others)


def processor_name(settings: Mapping[str, str]) -> str:
    """Return the name by which files of processors describe the processor of a host with these *settings*."""
    return f"{settings.get('cpu.model', '')}, {settings.get('board.vendor', '')}"


#: An expectation, and the values that it rests on.
Stated = tuple[Expectation, Sequence[Measured]]


def settled(stated: Iterable[Stated]) -> Iterator[Expectation]:
    """Yield the expectations. A part that was measured only while disturbed is neither good nor low."""
    for expected, measured in stated:
        is_disturbed = bool(measured) and not any(m.is_calm for m in measured)
        if is_disturbed and expected.answer != "impossible":
            yield replace(expected, answer="unknown", needs=IDLE, theory=math.nan)
        else:
            yield expected


class HostParts:
    """The measured parts of a *host* (a number of *samples*), and its known facts.

    *values* belong to the groups of the host (NaN: not used), *facts* to the system if known; *settings* are the
    host's configuration.
    """

    def __init__(
        self, samples: SamplesTable, values: Floats, host: int, facts: Facts | None, settings: Mapping[str, str]
    ) -> None:
        measured = []
        for group, value in zip(samples.groups_of_host(host).tolist(), values.tolist(), strict=True):
            if value > 0 and samples.judged[samples.begins[group] + samples.counts[group] - 1]:
                rows = samples.rows_of(slice(group, group + 1))
                is_calm = not samples.is_busy(rows).all()
                measured.append(Measured(samples.cases[samples.case[group]], value, is_calm))
        states = samples.settings.get(samples.hosts[host], {})
        is_first = samples.session_count(host) < 2
        self._advice = _AGAINST if is_first and samples.hosts[host] not in samples.replaced else ""
        self._facts, self._settings, self._theory = facts, settings, states.get(BANK_BANDWIDTH)
        places = [(part_of(m.case), m) for m in measured]
        #: The values of each bank and of each link, by their numbers.
        self.banks, self.links = (
            {place: [m for _, m in of] for place, of in by_key(of_name, lambda pair: pair[0].place).items()}
            for of_name in (
                [(p, m) for p, m in places if p.name == name and p.place] for name in ("memory", "link")
            )
        )
        #: Rates of all PUs by programs with unknown traffic.
        self._totals = [
            m
            for p, m in places
            if (p.name, m.case.metric, m.program) == ("banks", "total_bandwidth", None)
            and isinstance(m.case.parameters.get("pu_nodes"), (list, tuple))
        ]
        curves = by_key((m for _, m in places if m.is_of_curve), lambda m: str(m.case.parameters.get("pu_nodes")))
        #: The local latencies by size of each NUMA node, of one program.
        self._curves = {
            nodes: sorted((m for m in of_nodes if m.program == of_nodes[0].program), key=lambda m: m.size)
            for nodes, of_nodes in curves.items()
        }
        names = (processor_name(settings), facts.processor if facts else "")
        self._processor: Processor | None = next(filter(None, map(processors.find, names)), None)
        #: The texts of the modules by slot.
        self._texts = {k.removeprefix(MODULE): text for k, text in settings.items() if k.startswith(MODULE)}
        slots = by_key(self._texts, lambda slot: socket_of_slot(slot, self._texts[slot]))
        #: The transfers per second (0: unknown) of the slowest module of each channel of each package, by the
        #: firmware's number; None: the slots' names do not tell.
        self._channels = {
            package: [
                min(rate_of(self._texts[slot]) for slot in of_channel)
                for of_channel in by_key(of_package, lambda slot: channel_of(self._texts[slot]) or slot).values()
            ]
            for package, of_package in sorted(slots.items(), key=str)
        }
        #: The firmware's distances of pairs of NUMA nodes.
        self.distances = {
            (row.split(":")[0], node): distance
            for row in settings.get(DISTANCES, "").split("; ")
            for node, distance in re.findall(r"(\d+)=(\d+)", row)
        }
        #: NUMA nodes of a package (packages may differ: the most), and packages with memory.
        self.nodes = max(map(int, settings.get("numa.nodes_per_package", "1").split(" or ")))
        self._packages = max(len(self.banks) / self.nodes, 1.0)
        cores = self._processor.model.cores if self._processor else None
        self._is_slice = (
            bool(settings.get(VIRTUAL))
            or states.get("usable_share", 1.0) < 1
            or states.get("pus", math.inf) < (cores or 0) * self._packages
        )

    def from_sources(self) -> Iterator[Stated]:
        """Yield the levels that follow from the modules, the processor or the system's facts."""
        if not self._is_slice:
            yield from ((expected, ()) for expected in self._populated())
        best = {b: [m for m in of if m.reads > 0] for (b,), of in sorted(self.banks.items())}
        if self._totals and not any(best.values()):
            total = max(self._totals, key=lambda m: m.value)
            yield self._bandwidth("", total.value, total.value, total), [total]
            return
        for bank, measured in best.items():
            fastest = max(measured, key=lambda m: m.reads, default=None)
            rates = (fastest.reads, max(m.value for m in measured)) if fastest else (math.nan, math.nan)
            stated = self._bandwidth(bank, *rates)
            if stated.reaches > rates[1] and stated.answer != "unknown":
                stated = replace(stated, basis=f"{stated.basis}, {_WITH_READS}")
            yield stated, [fastest] if fastest else ()

    def _bandwidth(self, bank: str, reaches: float, counted: float, total: Measured | None = None) -> Expectation:
        """Return the rate that a bank should reach (GB/s, as reads), or all banks in a program's *total*.

        *counted* (GB/s) excludes reads that stores may cause.
        """
        part = "memory of all banks" if total else f"memory of bank {bank}"

        def unknown(basis: str, needs: str = "") -> Expectation:
            return Expectation(part, "bandwidth", "unknown", basis, reaches, unit="GB/s", needs=needs)

        if self._is_slice:
            return unknown(SLICE, self._advice)
        if math.isnan(reaches):
            return unknown("not measured", _NO_RATE)
        memory = self._processor.family.memory if self._processor else None
        share = processors.read_share(self._processor) if self._processor else None
        if memory and not memory.channels and not (share and share.is_own):
            return unknown("no theoretical bandwidth to compare with", _NO_CHANNELS.format(memory.type))
        theory, highest, is_certain = self._theory_of(bank)
        if not theory:
            needs = _ROOT if memory else f"{_ROOT}; {_NO_MODEL}"
            return unknown("no theoretical bandwidth to compare with", needs)
        center, whose = (share.value, share.source) if share else (READ_SHARE, "of 125 hosts")
        tolerance = SHARE_TOLERANCES["any" if share is None else "model" if share.is_own else "kin"]
        tolerance = share.tolerance if share and share.tolerance else tolerance
        if total:
            theory, highest = (rate * len(total.case.parameters["pu_nodes"]) for rate in (theory, highest))
            center, tolerance = COPY_SHARES[1], 1 - COPY_SHARES[0] / COPY_SHARES[1]
            whose = "counted once"
        if counted > _ROUNDING * highest:
            stated = unknown(f"{_IMPOSSIBLE} ({quantity(highest, 'GB/s')})", _CHECK_THEORY)
            return (
                replace(stated, answer="impossible", reaches=counted, expected=highest) if is_certain else stated
            )
        # Stores that do not read their lines first move fewer bytes than estimated.
        reaches = min(reaches, theory)
        basis = f"{'copies' if total else 'reads'} reach {100 * center:.0f} % ({whose}) of "
        basis += quantity(theory, "GB/s")
        if not is_certain:
            basis += ", which every channel has with the fastest modules"
        stated = Expectation.for_part(
            part, "bandwidth", reaches, center * theory, tolerance, unit="GB/s", basis=basis
        )
        if is_certain and total is None:
            stated = replace(stated, theory=theory)
        return stated if is_certain or stated.answer != "low" else unknown(basis, _ROOT)

    def _theory_of(self, bank: str) -> tuple[float, float, bool]:
        """Return the theoretical bandwidth of a bank and the most that it may have (GB/s; 0: unknown).

        The third value is whether its modules are known. The bank has an equal share of its package, or of the
        host if the firmware does not name packages or *bank* is empty; it may have a share of whole channels.
        """
        rates, packages = [*itertools.chain(*self._channels.values())], self._packages
        is_certain, mean = bool(rates) and all(rates), sum(rates) / packages
        if bank and None not in self._channels and len(self._channels) == packages:
            rates, packages = [*self._channels.values()][int(bank) // self.nodes], 1.0
        count, memory = len(rates) / packages, self._processor.family.memory if self._processor else None
        theory = self._theory or 0.0
        if not theory and memory and memory.channels and memory.transfer_rate:
            theory = memory.channels * memory.transfer_rate * CHANNEL_BYTES / self.nodes / 1e9
            if is_certain:
                theory *= min(count / memory.channels, 1) * min(rates) / memory.transfer_rate
        elif is_certain:
            theory *= sum(rates) / packages / mean
        highest = theory
        if is_certain:
            with_whole_channels = math.ceil(count / self.nodes) * self.nodes * max(rates)
            highest *= with_whole_channels * packages / sum(rates)
        return theory, highest, is_certain or self._theory is not None

    def _populated(self) -> Iterator[Expectation]:
        """Yield how many channels of each package have modules: all or half of them are as expected."""
        of_system = self._facts.channels_per_package if self._facts else None
        channels = of_system or (self._processor.family.memory.channels if self._processor else None)
        if not channels or (None in self._channels and self._packages > 1):
            return
        counts = {package: min(len(rates), channels) for package, rates in self._channels.items()}
        most = max(counts.values(), default=0)
        usual = most if 2 * most == channels else channels
        for package, count in counts.items():
            basis = f"the {'system' if of_system else 'processor'} has {channels} channels"
            yield Expectation.for_part(
                f"modules of package {package or 0}", "channels", count, usual, 0.0, unit="1", basis=basis
            )

    def caches(self) -> Iterator[Stated]:
        """Yield whether each cache is faster than the next level, and the last one clearly faster than memory."""
        recorded = re.findall(r"L(\d+) ([^,]+)", self._settings.get(CACHES, ""))
        sizes = sorted({(parse_bytes(size), int(level)) for level, size in recorded})
        sizes = sizes or sorted({(c.size_bytes, c.level) for c in self._facts.caches} if self._facts else ())
        packaged = (self._processor and self._processor.model.last_level_caches) or 1
        for nodes, curve in self._curves.items():
            part = f"caches of NUMA {nodes.strip('[]()')}".replace(",", "")
            if not sizes:
                # Whatever their sizes are, smaller data are not slower.
                m, memory = max(curve, key=lambda m: m.value), curve[-1]
                basis = ", ".join(f"{format_bytes(c.size)} {quantity(c.value, 'ns')}" for c in (m, memory))
                limits = (m.value, memory.value, 1 - AS_MEMORY)
                stated = Expectation.for_part(part, "latency", *limits, unit="ns", basis=basis)
                unknown = Expectation(part, "latency", "unknown", "their sizes are not recorded", needs=_NO_SIZES)
                yield self._of_slice(stated, m) if stated.answer == "low" else unknown, (m, memory)
                continue
            levels = []
            for (below, _), (size, level) in itertools.pairwise([(0, 0), *sizes]):
                # A cache is shared with code and other data: half of it is surely in it. The memory of a NUMA node
                # may use only its share of the caches of a package (Intel's SNC).
                fitting = size / 2 * (min(packaged / self.nodes, 1) if level > _OF_CORE else 1)
                levels += [(f"L{level}", m) for m in curve if below < m.size <= fitting][-1:]
            if not levels or curve[-1].size <= sizes[-1][0]:
                continue
            levels.append(("memory", curve[-1]))
            pairs = [(a, b, AS_MEMORY if b[0] == "memory" else 1.0) for a, b in itertools.pairwise(levels)]
            (name, m), (behind, slower), most = max(pairs, key=lambda p: p[0][1].value / p[1][1].value / p[2])
            basis = f"{name} {quantity(m.value, 'ns')}, {behind} {quantity(slower.value, 'ns')}"
            stated = Expectation.for_part(
                part, "latency", m.value, most * slower.value, 0.0, unit="ns", basis=basis
            )
            yield self._of_slice(stated, m), (m, slower)

    def _of_slice(self, stated: Expectation, m: Measured) -> Expectation:
        """Return what is *stated* of caches that *m* shows: caches of a part of a host are never low."""
        if stated.answer != "low" or not self._is_slice:
            return stated
        why = f"{stated.basis}: the caches are not this guest's own" if m.is_calm else stated.basis
        return replace(stated, basis=why, answer="unknown", needs="" if m.is_calm else IDLE)
