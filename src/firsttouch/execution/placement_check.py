# SPDX-License-Identifier: Apache-2.0
"""Verify the placement of a running instance: its threads' affinity, its pages per NUMA node, its memory options.

Read from /proc (kernel documents filesystems/proc and admin-guide/mm/numa_memory_policy). A placement that was
requested but not obtained is a common silent error, so it is read back instead of assumed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from firsttouch.host.cpusets import format_list, parse_list, status_list
from firsttouch.host.mappings import address_of, file_bytes, mapping_of, node_pages
from firsttouch.scenarios import memory_options, tiers
from firsttouch.scenarios.memory_options import Memory
from firsttouch.scenarios.placement import Placement
from firsttouch.scenarios.policies import mode_of
from firsttouch.scenarios.policies import policy as policy_of
from firsttouch.units import format_bytes

_DEAD = re.compile(r"^State:\s+[ZX]", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)
#: A placement is verified only if the sampled pages are at least this part of the program's peak.
LEAST_SEEN = 0.5
#: A program that has this many times the anonymous memory of its last look is looked at again.
GROWTH = 1.25
#: Less anonymous memory (bytes) than this does not count as unseen, nor as growth that calls for another look.
_LITTLE = 1 << 20
#: 4 KiB pages of a transparent huge page, which lies on one bank: the precision of the check for evenness.
HUGE_PAGE = 512
#: A program that does not map its index at fewer looks may have ended before the next one. They follow each other
#: within 0.1 s until it does.
_LOOKS = 10
#: An instance with fewer 4 KiB pages per bank (4 MiB) has too little data to check its evenness.
FEW_PAGES = 1024


#: Becomes the program that is placed, unless the parent process died before setpriv had asked for its signal.
IF_PARENT_LIVES = 'test "$PPID" = "$0" && exec "$@"'


#: Number of a thread -> the PUs that it may run on.
Affinities = dict[int, frozenset[int]]


class _Sample(NamedTuple):
    """One look: pages and PUs of all processes, the PUs held by the program, and the number of its threads."""

    pages: int = 0
    pus: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    together: int = 0


@dataclass
class IndexPages:
    """The index of an instance under the memory *option*: what was made for it, and what the kernel shows.

    *files* are the devices and inodes of its files, *paths* their real paths if programs see them under these:
    some file systems show another device in a mapping. *copy_pages* are the 4 KiB pages of the copy per NUMA node,
    *copy_huge* its bytes in huge pages, and *misplaced* is why the copy does not lie where it should. *mapped*:
    the program, which must map the files if *must_map*, does so. *pages* of them are mapped per NUMA node at the
    look with the most.
    """

    option: str
    files: frozenset[tuple[int, int]] = frozenset()
    paths: frozenset[str] = frozenset()
    must_map: bool = False
    copy_pages: dict[int, int] = field(default_factory=dict)
    copy_huge: int = 0
    misplaced: str = ""
    mapped: bool = False
    pages: dict[int, int] = field(default_factory=dict)

    @property
    def missing(self) -> bool:
        """Whether the program was not yet seen to map the index that it must map."""
        return self.must_map and not self.mapped

    def look(self, process: Path, numa_maps: str) -> None:
        """Add what one process maps, by its maps and the text of its numa_maps."""
        mappings = filter(None, map(mapping_of, _maps(process).splitlines()))
        begins = {m.address for m in mappings if m.file in self.files or m.path in self.paths}
        if not begins:
            return
        self.mapped = True
        pages = Counter[int]()
        for line in numa_maps.splitlines():
            if address_of(line) in begins:
                pages.update(node_pages(line))
        if sum(pages.values()) >= sum(self.pages.values()):
            self.pages = dict(pages)

    def wrong(self) -> str:
        """Return why the option did not hold, or an empty string."""
        if self.misplaced:
            return f"{self.option} was requested, but of the copy of the index {self.misplaced}"
        if self.missing:
            what = "its copy" if self.copy_pages else "the files"
            return f"{self.option} was requested, but the program does not map {what} of the index"
        strays = set(self.pages) - set(self.copy_pages)
        if strays and self.copy_pages:
            nodes = format_list(strays)
            return f"{self.option} was requested, but mapped pages of the index are on NUMA nodes {nodes}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, a part of a record's ``placement_found``."""
        return {
            "copy_pages": _by_node(self.copy_pages),
            "copy_huge_bytes": self.copy_huge,
            "mapped": self.mapped,
            "mapped_pages": _by_node(self.pages),
        }


def _by_node(pages: Mapping[int, int]) -> dict[str, int]:
    return {str(node): count for node, count in sorted(pages.items())}


@dataclass
class Observed:
    """The observed placement of one instance, over any number of looks (samples of /proc).

    *threads*: largest number of threads at one look. *pus*: union of the threads' affinities over the looks at
    which the instance had at least half of its largest page count; earlier ones are ignored because some programs
    (likwid-bench, users of hwloc) visit every PU during start-up. *pages* (4 KiB units of anonymous memory per
    NUMA node) and *modes* (pages per memory policy) are those of the look with the most pages. *held*: the PUs
    that the process with the most pages may run on, which is the program and not a wrapper script. *together* is
    the number of threads of all processes that run this program: those of other programs that it starts
    (likwid-bench starts a compiler) do not count. Both are those of the look with the most pages among the looks
    with more than half of the most of these threads: before and after its threads run, a program may hold its
    memory and have one thread that is bound to one PU. Looks at which threads have ended, and no other has moved,
    do not change them. *peak_bytes*: the largest sum of the processes' peak resident sets. *memory* is that of the
    look with the most pages. *index* is about an index that is not the instance's own (None: it is).
    """

    looks: int = 0
    threads: int = 0
    pus: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    together: int = 0
    pages: dict[int, int] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    peak_bytes: int = 0
    memory: Memory = field(default_factory=Memory)
    index: IndexPages | None = None
    unreadable: str = ""
    #: Largest resident set (bytes) of one process, until it ends as sampled (VmHWM), afterwards by wait4(2).
    largest_peak: int = 0
    #: Largest sum of the sizes (bytes) of the processes' mappings of files: resident pages of files are fewer.
    file_bytes: int = 0
    #: Largest anonymous memory (bytes, RssAnon) at one look.
    anonymous: int = 0
    _samples: list[_Sample] = field(default_factory=list, repr=False)
    _fullest: _Sample = field(default=_Sample(), repr=False)
    _affinities: Affinities = field(default_factory=dict, repr=False)

    def _add(self, sample: _Sample, affinities: Affinities) -> None:
        """Add one look, at which the threads of the process with the most pages had these *affinities*."""
        before = self._fullest
        if affinities.items() < self._affinities.items():
            # Some threads have ended, and the PUs that are left do not show where those were held.
            sample = sample._replace(held=before.held, together=before.together)
            affinities = self._affinities
        samples = [*self._samples, sample]
        most = max(sample.pages for sample in samples)
        self._samples = [sample for sample in samples if 2 * sample.pages >= most]
        self.pus = frozenset[int]().union(*(sample.pus for sample in self._samples))
        most = max(sample.together for sample in self._samples)
        running = [sample for sample in self._samples if 2 * sample.together > most]
        self._fullest = max(reversed(running), key=lambda sample: sample.pages)
        self.held, self.together = self._fullest.held, self._fullest.together
        if self._fullest is sample:
            self._affinities = affinities
        elif self._fullest is not before:
            self._affinities = {}

    @property
    def seen_bytes(self) -> int:
        """The bytes of anonymous memory whose pages were sampled, at the look with the most."""
        return 4096 * sum(self.pages.values())

    @property
    def least_anonymous(self) -> int:
        """The bytes of anonymous memory that the largest process had at least at its peak.

        A resident set includes pages of files, such as a mapped index, which are not sampled.
        """
        return max(0, self.largest_peak - self.file_bytes)

    @property
    def seen_share(self) -> float:
        """The sampled part of the anonymous memory that the program certainly had at its peak, at most 1."""
        return min(1.0, self.seen_bytes / self.least_anonymous) if self.least_anonymous else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of a record's ``placement_found``."""
        return {
            "looks": self.looks,
            "threads": self.threads,
            "pus": sorted(self.pus),
            "held": sorted(self.held),
            "pages": _by_node(self.pages),
            "policy": max(self.modes, key=self.modes.__getitem__, default=""),
            "memory": self.memory.to_dict() | ({"index": self.index.to_dict()} if self.index else {}),
            "seen_share": round(self.seen_share, 4),
            "unreadable": self.unreadable,
        }


def peak_bytes(process: Path) -> int:
    """Return the peak resident set of a process (a folder of /proc) since it became its present program."""
    return _bytes(_PEAK, _status(process))


def family(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Return *pid* and all its living descendants, such as the program that a wrapper script starts."""
    members, todo = [], [pid]
    while todo:
        parent = todo.pop()
        members.append(parent)
        try:
            tasks = list((proc / str(parent) / "task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                todo.extend(map(int, (task / "children").read_text().split()))
            except OSError:
                continue
    return members


def look(pid: int, observed: Observed, proc: Path = Path("/proc")) -> None:
    """Sample *pid* and its descendants once and add the sample to *observed*."""
    if _starting(pid, proc):
        return
    threads, anonymous, pages, modes = 0, 0, Counter[int](), Counter[str]()
    pus: frozenset[int] = frozenset()
    largest, most, threads_of = (Affinities(), ""), -1, Counter[str]()
    members: list[tuple[Path, str, str]] = []
    for member in family(pid, proc):
        tasks = _affinities(proc / str(member))
        before = sum(pages.values())
        # Before the pages: what a program gets while they are read counts as growth.
        anonymous += _bytes(_ANONYMOUS, _status(proc / str(member)))
        try:
            numa_maps = (proc / str(member) / "numa_maps").read_text()
        except FileNotFoundError:
            if not (proc / "self/numa_maps").exists():
                observed.unreadable = "this kernel has no numa_maps (CONFIG_NUMA is off)"
            continue
        except ProcessLookupError:
            continue
        except OSError as error:
            observed.unreadable = f"/proc/{member}/numa_maps: {error.strerror}"
            continue
        status = _status(proc / str(member))
        # The last numa_maps of a process that has ended may show pages whose policy is gone already.
        if not status or _DEAD.search(status):
            continue
        members.append((proc / str(member), numa_maps, status))
        if observed.index:
            observed.index.look(proc / str(member), numa_maps)
        _add_pages(numa_maps, pages, modes)
        threads += len(tasks)
        pus = pus.union(*tasks.values())
        program = _program(proc / str(member))
        threads_of[program] += len(tasks)
        if tasks and sum(pages.values()) - before > most:
            largest, most = (tasks, program), sum(pages.values()) - before
    if not threads:
        return
    observed.looks += 1
    observed.threads = max(observed.threads, threads)
    affinities, program = largest
    held = frozenset[int]().union(*affinities.values())
    online = _online(proc)
    pus, held = (pus & online, held & online) if online else (pus, held)
    observed._add(_Sample(sum(pages.values()), pus, held, threads_of[program]), affinities)
    observed.anonymous = max(observed.anonymous, anonymous)
    _add_sizes(observed, [(process, status) for process, _, status in members])
    if sum(pages.values()) >= sum(observed.pages.values()):
        observed.pages, observed.modes = dict(pages), dict(modes)
        observed.memory = Memory()
        for process, numa_maps, status in members:
            observed.memory.add(_rollup(process), numa_maps, status)


def _add_sizes(observed: Observed, members: Sequence[tuple[Path, str]]) -> None:
    """Add the sizes of the processes *members*, each with its folder and its status."""
    peaks = [_bytes(_PEAK, status) for _, status in members]
    observed.peak_bytes = max(observed.peak_bytes, sum(peaks))
    observed.largest_peak = max(observed.largest_peak, *peaks)
    observed.file_bytes = max(observed.file_bytes, sum(file_bytes(_maps(process)) for process, _ in members))


def grown(pid: int, observed: Observed, proc: Path = Path("/proc")) -> bool:
    """Return whether *pid* and its descendants hold so much more anonymous memory that another look is due.

    It costs far less than a look, because it does not read the page tables.
    """
    if _starting(pid, proc):
        return False
    statuses = [_status(proc / str(member)) for member in family(pid, proc)]
    observed.largest_peak = max(observed.largest_peak, *(_bytes(_PEAK, status) for status in statuses))
    anonymous = sum(_bytes(_ANONYMOUS, status) for status in statuses)
    return anonymous > GROWTH * observed.anonymous + _LITTLE


def _bytes(pattern: re.Pattern[str], status: str) -> int:
    """Return a size that a status states in kB; 0 if it does not, as that of a process that has ended."""
    return 1024 * int(match[1]) if (match := pattern.search(status)) else 0


def _program(process: Path) -> str:
    """Return the path of the program that a process runs; the process's own if it cannot be read."""
    try:
        return str((process / "exe").readlink())
    except OSError:
        return str(process)


def _maps(process: Path) -> str:
    """Return the maps of a process; empty if it has ended."""
    try:
        return (process / "maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _rollup(process: Path) -> str:
    """Return smaps_rollup of a process; empty if it has ended or the kernel has none (Linux 4.14)."""
    try:
        return (process / "smaps_rollup").read_text()
    except OSError:
        return ""


def _affinities(process: Path) -> Affinities:
    """Return the PUs of each living thread of a process; empty if the process has ended."""
    try:
        statuses = {int(thread.name): _status(thread) for thread in (process / "task").iterdir()}
    except OSError:
        return {}
    living = {number: text for number, text in statuses.items() if text and not _DEAD.search(text)}
    return {number: status_list(text, "Cpus_allowed_list") for number, text in living.items()}


def _status(process: Path) -> str:
    """Return the status of a process or thread; empty if it does not exist any more."""
    try:
        return (process / "status").read_text()
    except OSError:
        return ""


def _online(proc: Path) -> frozenset[int]:
    """Return the PUs that are online; an affinity may also name PUs that are offline."""
    try:
        return parse_list((proc.parent / "sys/devices/system/cpu/online").read_text())
    except OSError:
        return frozenset()


def _starting(pid: int, proc: Path) -> bool:
    """Return whether *pid* is still a program of the launcher, which becomes the placed program."""
    process = proc / str(pid)
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        # Read last: what the shell becomes is numactl or the program.
        name = (process / "comm").read_text().strip()
    except OSError:
        return True
    # Within execve(2), a process has no words yet, and still the name and the PUs of the program before: of the
    # launcher, of the shell, or of numactl.
    return name in {"setpriv", "numactl", "nsenter"} or IF_PARENT_LIVES.encode() in words or words == [b""]


def _add_pages(numa_maps: str, pages: Counter[int], modes: Counter[str]) -> None:
    for line in numa_maps.splitlines():
        # The first reader of a file decides where its pages lie in the page cache, not this policy.
        if " anon=" not in line or (" file=" in line and " file=/anon_hugepage" not in line):
            continue
        of_mapping = node_pages(line)
        pages.update(of_mapping)
        # A mapping without pages has no part in the policies.
        if of_mapping:
            modes[mode_of(line)] += of_mapping.total()


def unverified(observed: Observed) -> str:
    """Return why the placement could not be observed, or an empty string if it was."""
    if observed.unreadable:
        return f"the placement cannot be verified: {observed.unreadable}"
    if not observed.looks or not observed.pages:
        return "the placement cannot be verified: the instance ended before it could be sampled"
    if observed.index and observed.index.missing and observed.looks < _LOOKS:
        return "the placement cannot be verified: the instance ended before it was seen to map the index"
    return _mostly_unseen(observed)


def _mostly_unseen(observed: Observed) -> str:
    """Return that most memory was never sampled, or an empty string."""
    seen, least = observed.seen_bytes, observed.least_anonymous
    if observed.seen_share >= LEAST_SEEN or least - seen <= _LITTLE:
        return ""
    return (
        f"the placement cannot be verified: {format_bytes(seen)} of memory were sampled, and the program had at "
        f"least {format_bytes(least)} at its peak"
    )


def fewest_pus(asked: Placement, threads: int) -> int:
    """Return on how many PUs *threads* threads are at least, unless something else pins them."""
    return min(threads, len(asked.pus))


def verify(asked: Placement, threads: int, observed: Observed) -> str:
    """Return why the placement did not hold, or an empty string if it did.

    *threads* is the requested number of threads; fewer PUs than that mean that something else pins them as well.
    """
    reason = unverified(observed)
    if reason and reason != _mostly_unseen(observed):
        return reason
    # A wrong PU is wrong, however little memory was sampled.
    if stray := observed.pus - set(asked.pus):
        return f"threads may run on PUs {format_list(stray)}, requested were {format_list(asked.pus)}"
    if len(observed.held) < fewest_pus(asked, threads):
        return (
            f"{threads} threads are held on PUs {format_list(observed.held)} of {format_list(asked.pus)}: "
            "something else pins them as well"
        )
    if reason:
        return reason
    reason = _judge_pages(asked, observed) or memory_options.verify(asked.options, observed.memory)
    return reason or (observed.index.wrong() if observed.index else "")


def _judge_pages(asked: Placement, observed: Observed) -> str:
    policy = policy_of(asked.policy)
    total = sum(observed.pages.values())
    held = sum(count for mode, count in observed.modes.items() if policy.holds(mode, asked.extent))
    if held < (1 - policy.tolerance) * total:
        mode = policy.mode[asked.extent]
        return f"memory policy is {', '.join(sorted(observed.modes))}, requested was {mode}"
    rule = policy.pages[asked.extent]
    if rule == "anywhere":
        return ""
    share = {n: observed.pages.get(n, 0) for n in asked.numa_nodes}
    if total - sum(share.values()) > policy.tolerance * total:
        return (
            f"pages per NUMA node {_counts(observed.pages)}: more than {policy.tolerance:.0%} "
            f"outside {format_list(asked.numa_nodes)}"
        )
    weights = tiers.kernel_weights(share) if rule == "weighted" else (1,) * len(share) if rule == "even" else ()
    for weight, count in zip(weights, share.values(), strict=False):
        # The kernel puts as many pages in turn on a NUMA node as its weight.
        wanted = sum(share.values()) * weight / sum(weights)
        if wanted >= FEW_PAGES and abs(count - wanted) > policy.tolerance * wanted + HUGE_PAGE * weight:
            by = f" by weights {':'.join(map(str, weights))}" if rule == "weighted" else ""
            return f"pages per NUMA node {_counts(share)}{by}: uneven by more than {policy.tolerance:.0%}"
    return ""


def _counts(pages: dict[int, int]) -> str:
    return ", ".join(f"{n}: {c}" for n, c in sorted(pages.items()))
