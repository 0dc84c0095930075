# SPDX-License-Identifier: Apache-2.0
"""Judges a placement by what the kernel shows: where pages lie, by which policy, and of which kind.

Only this module does. Each function returns the defect in a few words, or an empty string.
:mod:`firsttouch.host.pages` reads what is judged here. Programs, copies of an index, the page cache and RAM stores
are judged by one rule. policies.json states how uneven interleaved pages may be; the native probe has the same
number (probe/src/memory.c).
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
#: With fewer 4 KiB pages per bank (4 MiB), evenness is not checked.
FEW_PAGES = 1024
#: Less unseen memory (bytes) than this is ignored: of anonymous memory, and of all memory, whose size the kernel
#: does not count to the page.
LITTLE, LITTLE_OF_ALL = 2 << 20, FEW_PAGES * UNIT
#: A program with less anonymous memory (bytes) cannot use huge pages.
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
    """Return why *pages* (4 KiB, per NUMA node) are not on *banks*, evenly (*even*) or by *weights*.

    At most the fraction *outside* of them may lie elsewhere. A share may differ from the wanted one by the
    fraction *uneven* (default: the interleave policy's), and by *huge_pages* per weight, because the kernel
    distributes whole huge pages.
    """
    total = sum(pages.values())
    shares = [pages.get(bank, 0) for bank in banks]
    if total - sum(shares) > outside * total:
        part = f"more than {outside:.0%}" if outside else f"{total - sum(shares)} of {total}"
        return f"pages per NUMA node {_counts(pages)}: {part} outside {format_list(banks)}"
    uneven = policy_of("interleave").tolerance if uneven is None else uneven
    weights = (1,) * len(banks) if even else weights
    for weight, count in zip(weights, shares, strict=bool(weights)):
        # In each turn, the kernel puts a number of pages on a NUMA node that equals its weight.
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
    """Return which memory policies of threads differ from *asked*, so that their pages lie elsewhere."""
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
    """Return whether a program still has too little memory for the huge pages that the options *names* request."""
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
# Descriptions of a run


class Verified(Protocol):
    """A run with a checked placement: why it did not hold or is unknown, and why it is unknown; else empty."""

    @property
    def misplaced(self) -> str: ...  # noqa: D102
    @property
    def unverified(self) -> str: ...  # noqa: D102


#: Precedes the reason why a placement did not hold or is unknown: for a measurement, which is then discarded, and
#: for a run whose output is wanted.
INVALID = "INVALID: "
COMPLETE = "the output is complete, its placement is unverified: "


def state(run: Verified) -> str:
    """Return the state of a run's placement: verified, unverified or invalid."""
    return "unverified" if run.unverified else "invalid" if run.misplaced else "verified"


def describe(run: Verified, unverified: str = INVALID) -> str:
    """Return in words whether the placement of a run held; *unverified* precedes why it is unknown."""
    return in_words(state(run), run.unverified or run.misplaced, unverified)


def in_words(word: str, reason: str, unverified: str = INVALID) -> str:
    """Return the result of :func:`describe` for the *word* that :func:`state` returned, and the *reason*."""
    return {"verified": "placement verified", "invalid": f"{INVALID}{reason}"}.get(word, f"{unverified}{reason}")


# ----------------------------------------------------------------------
# Whether enough memory was sampled


class Coverage(Struct, frozen=True):
    """How much of the memory of a program, or of several together, was sampled (bytes)."""

    #: Anonymous memory whose pages were sampled, and a lower limit of it at the program's peak.
    seen: int
    anonymous: int
    #: Resident pages of files, which are counted but not sampled, and all memory at the peak.
    files: int = 0
    peak: int = 0
    #: The number of programs in these sums.
    programs: int = 1

    def __add__(self, other: Coverage) -> Coverage:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Coverage(*(a + b for a, b in pairs))

    @property
    def share(self) -> float:
        """The part of the memory at the peak that was seen, at most 1."""
        return min([1.0, *(seen / peak for seen, peak, _ in self._parts() if peak)])

    def reason(self) -> str:
        """Return a message if too little memory was sampled to judge where it lies, or an empty string."""
        for seen, peak, little in self._parts():
            if seen < LEAST_SEEN * peak and peak - seen > little:
                return (
                    f"the placement cannot be verified: {format_bytes(seen)} of memory were sampled, and the "
                    f"program had at least {format_bytes(peak)} at its peak"
                )
        return ""

    def _parts(self) -> list[tuple[int, int, int]]:
        """Return the sampled part of the anonymous memory and of all memory, each with the unseen rest to ignore.

        The kernel shows how many pages of files are mapped at the peak, not how many are resident, so the
        anonymous memory is known by its lower limit only. The total is known, but may be mostly files.
        """
        parts = ((self.seen, self.anonymous, LITTLE), (self.seen + self.files, self.peak, LITTLE_OF_ALL))
        return [(seen, peak, self.programs * little) for seen, peak, little in parts]
