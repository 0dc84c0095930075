# SPDX-License-Identifier: Apache-2.0
"""Findings of runs about memory options: options that cannot affect a program, and options that never hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from firsttouch.host.pages import Memory
from firsttouch.scenarios.evidence import LEAST_MEMORY, wrong_memory
from firsttouch.scenarios.memory_options import option, option_of_kind
from firsttouch.units import format_bytes

#: A program with this part of its memory in transparent huge pages gains nothing by requesting them.
_ALL_HUGE = 0.95
#: After an option did not hold this many times, all scenarios with it are dropped.
_CHANCES = 2


def same_pages(a: Sequence[str], b: Sequence[str], name: str) -> bool:
    """Return whether option *name* is expected to have the same effect with the options *a* and *b*.

    The allocator requests huge pages, so another allocator may get some.
    """
    other_allocator = option_of_kind(a, "allocator") is not option_of_kind(b, "allocator")
    return name in b and not (option(name).kind == "pages" and other_allocator)


def needless(names: Sequence[str], run_with: Sequence[str], memory: Memory) -> str:
    """Return why the options *names* cannot affect a program with *memory*, or an empty string.

    *memory* belongs to a run with the options *run_with*. Without an option for the page size among them, it shows
    which pages the program gets anyway. If these include no huge page, the kernel grants them on request only, and
    no allocator requests them.
    """
    asked = option_of_kind(names, "pages")
    if asked is None or option_of_kind(run_with, "pages"):
        return ""
    total = memory.anonymous + memory.hugetlb
    if total < LEAST_MEMORY:
        return f"{asked.name}: the program has only {format_bytes(total)} of anonymous memory"
    least, most = asked.huge or (0.0, 1.0)
    if not most and not memory.huge:
        return f"{asked.name}: no memory is in transparent huge pages without it"
    same_allocator = option_of_kind(names, "allocator") is option_of_kind(run_with, "allocator")
    if least and same_allocator and memory.huge >= _ALL_HUGE * memory.anonymous:
        shown = f"{format_bytes(memory.huge)} of {format_bytes(memory.anonymous)}"
        return f"{asked.name}: {shown} are in transparent huge pages without it"
    return ""


class OptionFindings:
    """The findings of scenarios' runs about their memory options; *sets* are the options of each scenario.

    *memory* belongs to the last valid run of each scenario. *needless* has the reason why a scenario needs no run,
    and *failed* why it cannot have one: an option did not hold in another scenario.
    """

    def __init__(self, sets: Sequence[Sequence[str]]) -> None:
        self._sets = sets
        self.memory: dict[int, Memory] = {}
        self.needless: dict[int, str] = {}
        self.failed: dict[int, str] = {}
        self._broken: list[tuple[str, Sequence[str]]] = []

    def valid(self, number: int, memories: Iterable[Memory]) -> None:
        """Add a valid run of scenario *number*, whose instances had *memories*."""
        self.memory[number] = memory = Memory.total(memories)
        for i, names in enumerate(self._sets):
            if i not in self.memory and (reason := needless(names, self._sets[number], memory)):
                self.needless[i] = reason

    def invalid(self, number: int, memories: Iterable[Memory], reason: str) -> bool:
        """Add a run that is invalid for *reason*; return whether this makes an option fail for good."""
        names, memories = self._sets[number], list(memories)
        for name in names:
            faults = (wrong_memory([name], memory) for memory in memories)
            if not (fault := next((f for f in faults if f and f in reason), "")):
                continue
            self._broken.append((name, names))
            if sum(broken == name and same_pages(of, names, name) for broken, of in self._broken) < _CHANCES:
                continue
            for i, others in enumerate(self._sets):
                if i not in self.memory and same_pages(names, others, name):
                    self.failed[i] = f"invalid, {fault}"
            return True
        return False
