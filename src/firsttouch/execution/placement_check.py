# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of a running instance: its threads' affinity and its pages per NUMA node.

Read from /proc (kernel document filesystems/proc, admin-guide/mm/numa_memory_policy): a placement that was
asked for and not obtained is the classic silent error of this field, so it is looked at, never assumed.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firsttouch.host.cpusets import format_list, parse_list, status_list
from firsttouch.scenarios.placement import Placement
from firsttouch.scenarios.policies import mode_of
from firsttouch.scenarios.policies import policy as policy_of

_PAGES = re.compile(r" N(\d+)=(\d+)")
_DEAD = re.compile(r"^State:\s+[ZX]", re.MULTILINE)
_KILOBYTES = re.compile(r" kernelpagesize_kB=(\d+)")
#: A transparent huge page lies on one bank: evenness can only be judged to this many 4 KiB pages per bank.
HUGE_PAGE = 512
#: Below this many 4 KiB pages per bank (4 MiB) an instance has touched too little to judge where its data lie.
FEW_PAGES = 1024


@dataclass
class Found:
    """The placement found of one instance, gathered over any number of looks.

    *threads* is the largest number of threads seen at once. *pus* is the union of their affinities, of the looks
    at which the instance had at least half of the most pages: while they start, programs that look at the
    machine themselves go round all PUs (likwid-bench, hwloc's users). *pages* (4 KiB units of anonymous memory
    per NUMA node) and *modes* (pages per memory policy) are those of the look that saw the most. *held* are the
    PUs on which, in that look, the process with the most pages might run: the program itself, not a script
    around it. *peak_bytes* is the largest sum of the processes' peak resident sets.
    """

    looks: int = 0
    threads: int = 0
    pus: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    pages: dict[int, int] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    peak_bytes: int = 0
    unreadable: str = ""
    _affinities: list[tuple[int, frozenset[int]]] = field(default_factory=list, repr=False)

    def add(self, pus: frozenset[int], pages: int) -> None:
        """Add the affinities of one look, at which the instance had that many pages."""
        most = max([pages, *(p for p, _ in self._affinities)])
        self._affinities = [(p, a) for p, a in (*self._affinities, (pages, pus)) if 2 * p >= most]
        self.pus = frozenset[int]().union(*(a for _, a in self._affinities))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of a record's ``placement_found``."""
        return {
            "looks": self.looks,
            "threads": self.threads,
            "pus": sorted(self.pus),
            "held": sorted(self.held),
            "pages": {str(n): c for n, c in sorted(self.pages.items())},
            "policy": max(self.modes, key=self.modes.__getitem__, default=""),
            "unreadable": self.unreadable,
        }


def family(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Return *pid* and all its living descendants (a wrapper script's aligner is what counts)."""
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        found.append(parent)
        try:
            tasks = list((proc / str(parent) / "task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                todo.extend(map(int, (task / "children").read_text().split()))
            except OSError:
                continue
    return found


def look(pid: int, found: Found, proc: Path = Path("/proc")) -> None:
    """Look once at *pid* and its descendants and add what is seen to *found*."""
    if _starting(pid, proc):
        return
    threads, peak, pages, modes = 0, 0, Counter[int](), Counter[str]()
    pus: frozenset[int] = frozenset()
    held, most = pus, -1
    for member in family(pid, proc):
        tasks = _affinities(proc / str(member))
        before = sum(pages.values())
        try:
            numa_maps = (proc / str(member) / "numa_maps").read_text()
        except FileNotFoundError:
            if not (proc / "self/numa_maps").exists():
                found.unreadable = "this kernel has no numa_maps (CONFIG_NUMA is off)"
            continue
        except ProcessLookupError:
            continue
        except OSError as error:
            found.unreadable = f"/proc/{member}/numa_maps: {error.strerror}"
            continue
        if _ended(proc / str(member)):
            continue
        _add_pages(numa_maps, pages, modes)
        peak += _peak_kilobytes(proc / str(member)) * 1024
        threads += len(tasks)
        pus = pus.union(*tasks)
        if tasks and sum(pages.values()) - before > most:
            held, most = frozenset[int]().union(*tasks), sum(pages.values()) - before
    if not threads:
        return
    found.looks += 1
    found.threads = max(found.threads, threads)
    online = _online(proc)
    pus, held = (pus & online, held & online) if online else (pus, held)
    found.add(pus, sum(pages.values()))
    found.peak_bytes = max(found.peak_bytes, peak)
    if sum(pages.values()) >= sum(found.pages.values()):
        found.pages, found.modes, found.held = dict(pages), dict(modes), held


def _affinities(process: Path) -> list[frozenset[int]]:
    """Return the PUs of each living thread of a process, none where it has ended meanwhile."""
    tasks = []
    try:
        threads = list((process / "task").iterdir())
    except OSError:
        return []
    for thread in threads:
        try:
            text = (thread / "status").read_text()
        except OSError:
            continue
        if not _DEAD.search(text):
            tasks.append(status_list(text, "Cpus_allowed_list"))
    return tasks


def _ended(process: Path) -> bool:
    """Tell whether a process has ended: what was read last may show its memory with its policy gone already."""
    try:
        return bool(_DEAD.search((process / "status").read_text()))
    except OSError:
        return True


def _online(proc: Path) -> frozenset[int]:
    """Return the PUs that are online: an affinity names those too that are not, and may never run anything."""
    try:
        return parse_list((proc.parent / "sys/devices/system/cpu/online").read_text())
    except OSError:
        return frozenset()


def _starting(pid: int, proc: Path) -> bool:
    """Tell whether *pid* is still one of the programs that set the placement up before they become the job."""
    try:
        return (proc / str(pid) / "comm").read_text().strip() in {"setpriv", "numactl"}
    except OSError:
        return True


def _peak_kilobytes(process: Path) -> int:
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", (process / "status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _add_pages(numa_maps: str, pages: Counter[int], modes: Counter[str]) -> None:
    for line in numa_maps.splitlines():
        # File pages lie in the page cache, where whoever read the file first put them: not this policy's doing.
        if " anon=" not in line or (" file=" in line and " file=/anon_hugepage" not in line):
            continue
        size = _KILOBYTES.search(line)
        unit = int(size[1]) // 4 if size else 1
        mode = mode_of(line)
        for node, count in _PAGES.findall(line):
            pages[int(node)] += int(count) * unit
            modes[mode] += int(count) * unit


def unverified(found: Found) -> str:
    """Return why nothing can be said of the placement, or an empty string where it was seen."""
    if found.unreadable:
        return f"the placement cannot be verified: {found.unreadable}"
    if not found.looks or not found.pages:
        return "the placement cannot be verified: the instance ended before it could be looked at"
    return ""


def judge(asked: Placement, threads: int, found: Found) -> str:
    """Return why the placement did not hold, or an empty string where it did.

    *threads* is what the instance was told to use: fewer PUs than that mean that something else pinned it too.
    """
    if reason := unverified(found):
        return reason
    if stray := found.pus - set(asked.pus):
        return f"threads may run on PUs {format_list(stray)}, asked for were {format_list(asked.pus)}"
    if len(found.held) < min(threads, len(asked.pus)):
        return (
            f"{threads} threads are held on PUs {format_list(found.held)} of {format_list(asked.pus)}: "
            "something else pins them as well"
        )
    return _judge_pages(asked, found)


def _judge_pages(asked: Placement, found: Found) -> str:
    policy = policy_of(asked.policy)
    total = sum(found.pages.values())
    held = sum(count for mode, count in found.modes.items() if policy.holds(mode, asked.extent))
    if held < (1 - policy.tolerance) * total:
        wanted = policy.mode[asked.extent]
        return f"memory policy is {', '.join(sorted(found.modes))}, asked for was {wanted}"
    rule = policy.pages[asked.extent]
    if rule == "anywhere":
        return ""
    share = {n: found.pages.get(n, 0) for n in asked.numa_nodes}
    if total - sum(share.values()) > policy.tolerance * total:
        return (
            f"pages per NUMA node {_counts(found.pages)}: more than {policy.tolerance:.0%} "
            f"outside {format_list(asked.numa_nodes)}"
        )
    mean = sum(share.values()) / len(share)
    slack = policy.tolerance * mean + HUGE_PAGE
    if rule == "even" and mean >= FEW_PAGES and any(abs(c - mean) > slack for c in share.values()):
        return f"pages per NUMA node {_counts(share)}: not even within {policy.tolerance:.0%}"
    return ""


def _counts(pages: dict[int, int]) -> str:
    return ", ".join(f"{n}: {c}" for n, c in sorted(pages.items()))
