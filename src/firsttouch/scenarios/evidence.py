# SPDX-License-Identifier: Apache-2.0
"""The only judge of the kernel's view of a placement: where pages lie, by which policy, of which kind.

Each function returns the defect in a few words, or an empty string. :mod:`firsttouch.host.pages` reads what is
judged here. Programs, copies of an index, the page cache and RAM stores are judged by one rule. How far
interleaved pages may be uneven is a number of policies.toml, which the native probe has too (probe/src/memory.c).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import astuple

from firsttouch.host.cpusets import format_list
from firsttouch.host.pages import UNIT, Memory, huge_page
from firsttouch.scenarios import tiers
from firsttouch.scenarios.memory_options import MemoryOption, option
from firsttouch.scenarios.placement import Placement
from firsttouch.scenarios.policies import policy as policy_of
from firsttouch.units import format_bytes

#: A placement is verified only if the sampled memory is at least this part of the program's peak.
LEAST_SEEN = 0.5
#: With fewer 4 KiB pages per bank (4 MiB), there is too little data to check evenness.
FEW_PAGES = 1024
#: Less memory (bytes) of a program than this is not treated as unseen: of anonymous memory, and of all, whose
#: sizes the kernel does not count to the page.
LITTLE, LITTLE_OF_ALL = 2 << 20, FEW_PAGES * UNIT
#: A program with less anonymous memory (bytes) has no place for huge pages.
LEAST_MEMORY = 8 << 20


# ----------------------------------------------------------------------
# Where pages lie


def why_misplaced(
    pages: Mapping[int, int],
    banks: Sequence[int],
    *,
    outside: float,
    even: bool = False,
    weights: Sequence[int] = (),
    uneven: float | None = None,
    huge_pages: int = 1,
) -> str:
    """Return why *pages* (4 KiB pages per NUMA node) do not lie on *banks*, *even* or in proportion to *weights*.

    At most the fraction *outside* of them may lie elsewhere. A share may differ from the wanted one by the
    fraction *uneven* (default: the interleave policy's), and by *huge_pages* per weight, because the kernel deals
    whole ones.
    """
    total = sum(pages.values())
    shares = [pages.get(bank, 0) for bank in banks]
    if total - sum(shares) > outside * total:
        part = f"more than {outside:.0%}" if outside else f"{total - sum(shares)} of {total}"
        return f"pages per NUMA node {_counts(pages)}: {part} outside {format_list(banks)}"
    uneven = policy_of("interleave").tolerance if uneven is None else uneven
    weights = (1,) * len(banks) if even else weights
    for weight, count in zip(weights, shares, strict=bool(weights)):
        # The kernel puts a number of pages in turn on a NUMA node that equals its weight.
        wanted = sum(shares) * weight / sum(weights)
        if wanted >= FEW_PAGES and abs(count - wanted) > uneven * wanted + huge_pages * huge_page() * weight:
            by = f" by weights {':'.join(map(str, weights))}" if len(set(weights)) > 1 else ""
            counts = _counts(dict(zip(banks, shares, strict=True)))
            return f"pages per NUMA node {counts}{by}: uneven by more than {uneven:.0%}"
    return ""


def wrong_pages(asked: Placement, pages: Mapping[int, int], modes: Mapping[str, int]) -> str:
    """Return why a program's *pages* are not as *asked*; *modes* are its pages per memory policy."""
    policy = policy_of(asked.policy)
    held = sum(count for mode, count in modes.items() if policy.holds(mode, asked.extent))
    if held < (1 - policy.tolerance) * sum(pages.values()):
        return f"memory policy is {', '.join(sorted(modes))}, requested was {policy.mode[asked.extent]}"
    rule = policy.pages[asked.extent]
    if rule == "anywhere":
        return ""
    weights = tiers.kernel_weights(asked.numa_nodes) if rule == "weighted" else ()
    most, even = policy.tolerance, rule == "even"
    return why_misplaced(pages, asked.numa_nodes, outside=most, even=even, weights=weights, uneven=most)


def wrong_threads(asked: Placement, modes: Iterable[str]) -> str:
    """Return which memory policies of threads are not as *asked*: pages that such threads touch lie elsewhere."""
    policy = policy_of(asked.policy)
    wrong = sorted(mode for mode in modes if not policy.holds(mode, asked.extent))
    return (
        f"a thread's memory policy is {', '.join(wrong)}, requested was {policy.mode[asked.extent]}"
        if wrong
        else ""
    )


def _counts(pages: Mapping[int, int]) -> str:
    return ", ".join(f"{n}: {c}" for n, c in sorted(pages.items()))


# ----------------------------------------------------------------------
# Which kind of pages


def too_small(names: Sequence[str], memory: Memory) -> bool:
    """Return whether a program has too little memory for huge pages that the options *names* ask for, so far."""
    wanted = any(option(name).hugetlb or (option(name).huge or (0, 1))[0] for name in names)
    return wanted and memory.anonymous + memory.hugetlb < LEAST_MEMORY


def wrong_memory(names: Sequence[str], memory: Memory) -> str:
    """Return which of the memory options *names* did not hold for a program with *memory*."""
    return next(filter(None, (_broken(option(name), memory) for name in names)), "")


def _broken(asked: MemoryOption, memory: Memory) -> str:
    if asked.library and Path(asked.library).name not in memory.libraries:
        return f"{asked.name} was requested, but {asked.library} is not mapped"
    total = memory.anonymous + memory.hugetlb
    least, most = asked.huge or (0.0, 1.0)
    shown = f"{format_bytes(memory.huge)} of {format_bytes(memory.anonymous)} are in transparent huge pages"
    if (least or asked.hugetlb) and total < LEAST_MEMORY:
        return f"{asked.name} was requested, but the program has only {format_bytes(total)} of anonymous memory"
    if memory.huge < least * memory.anonymous or memory.huge > most * memory.anonymous:
        return f"{asked.name} was requested, but {shown}"
    if memory.hugetlb < asked.hugetlb * total:
        held = f"{format_bytes(memory.hugetlb)} of {format_bytes(total)}"
        return f"{asked.name} was requested, but {held} are in pages of hugetlbfs"
    if asked.thp_disable and not memory.thp_disabled:
        return f"{asked.name} was requested, but transparent huge pages are not switched off for the program"
    return ""


# ----------------------------------------------------------------------
# The texts about a run


class Verified(Protocol):
    """A run whose placement was checked: why it did not hold or is unknown, and why it is unknown, else empty."""

    @property
    def misplaced(self) -> str: ...  # noqa: D102
    @property
    def unverified(self) -> str: ...  # noqa: D102


#: Before the reason why a placement did not hold, or is unknown: for a measurement, which does not count then, and
#: for a run whose output is wanted.
INVALID = "INVALID: "
COMPLETE = "the output is complete, its placement is unverified: "


def state(run: Verified) -> str:
    """Return the state of a run's placement: verified, unverified or invalid."""
    return "unverified" if run.unverified else "invalid" if run.misplaced else "verified"


def describe(run: Verified, unverified: str = INVALID) -> str:
    """Return in a few words whether the placement of a run held; *unverified* stands before why it is unknown."""
    return in_words(state(run), run.unverified or run.misplaced, unverified)


def in_words(word: str, reason: str, unverified: str = INVALID) -> str:
    """Return the result of :func:`describe` for the *word* that :func:`state` returned, and the *reason*."""
    return {"verified": "placement verified", "invalid": f"{INVALID}{reason}"}.get(word, f"{unverified}{reason}")


# ----------------------------------------------------------------------
# Whether enough was seen


class Coverage(Struct, frozen=True):
    """How much of the memory of a program, or of several together, was sampled (bytes)."""

    #: Anonymous memory whose pages were sampled, and its certain amount at the program's peak.
    seen: int
    anonymous: int
    #: Resident pages of files, which are counted and not sampled, and all memory at the peak.
    files: int = 0
    peak: int = 0
    #: How many programs these are the sums of.
    programs: int = 1

    def __add__(self, other: Coverage) -> Coverage:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Coverage(*(a + b for a, b in pairs))

    @property
    def share(self) -> float:
        """The part of the memory at the peak that was seen, at most 1."""
        return min([1.0, *(seen / peak for seen, peak, _ in self._parts() if peak)])

    def reason(self) -> str:
        """Return that too little was seen to judge where the memory lies, or an empty string."""
        for seen, peak, little in self._parts():
            if seen < LEAST_SEEN * peak and peak - seen > little:
                return (
                    f"the placement cannot be verified: {format_bytes(seen)} of memory were sampled, and the "
                    f"program had at least {format_bytes(peak)} at its peak"
                )
        return ""

    def _parts(self) -> list[tuple[int, int, int]]:
        """Return the sampled part of the anonymous memory and of all memory, and how little is ignored.

        How many pages of files are resident at the peak is not known, only how many are mapped: the anonymous
        memory may be larger than its lower limit. All memory is known, but files may be most of it.
        """
        parts = ((self.seen, self.anonymous, LITTLE), (self.seen + self.files, self.peak, LITTLE_OF_ALL))
        return [(seen, peak, self.programs * little) for seen, peak, little in parts]
