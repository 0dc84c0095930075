# SPDX-License-Identifier: Apache-2.0
"""Verify the placement of a running instance: its threads' affinity, its pages per NUMA node, its memory options.

Failing to obtain a requested placement is a common silent error, so it is read back from /proc: :func:`look`
samples a running program, and :func:`verify` judges the samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from firsttouch.host import pages
from firsttouch.host.cpusets import format_list, parse_list, status_list
from firsttouch.host.pages import Memory, Sizes
from firsttouch.scenarios import evidence, memory_options
from firsttouch.scenarios.evidence import Coverage
from firsttouch.scenarios.placement import Placement

PROC = Path("/proc")
#: A program whose memory (without files) has grown by this factor since its last sample is sampled again.
GROWTH = 1.25
#: Growth below this (bytes) causes no further sample.
_GROWN = 1 << 20
#: A program without its index in fewer samples than this may have ended before it was mapped. Until it is seen,
#: samples follow each other within 0.1 s.
_LOOKS = 10
#: Becomes the placed program, unless the parent process died before setpriv had requested the signal.
IF_PARENT_LIVES = 'test "$PPID" = "$0" && exec "$@"'
#: Thread number -> the PUs that it may run on.
Affinities = dict[int, frozenset[int]]


class _Sample(Struct, frozen=True):
    """One sample: pages and PUs of all processes; pages, PUs and number of threads of the program."""

    pages: int = 0
    pus: frozenset[int] = frozenset()
    of_program: int = 0
    held: frozenset[int] = frozenset()
    together: int = 0


class IndexPages(Struct):
    """The index of an instance under the memory *option*: its copies, and what the kernel shows of them."""

    option: str
    #: The devices and inodes of its files, and their real paths if programs use these, because some file systems
    #: show another device in a mapping.
    files: frozenset[tuple[int, int]] = frozenset()
    paths: frozenset[str] = frozenset()
    #: Whether the program must map the files, and whether it was seen to.
    must_map: bool = False
    mapped: bool = False
    #: The 4 KiB pages of the copy per NUMA node, its bytes in huge pages, and why it is misplaced.
    copy_pages: dict[int, int] = field(default_factory=dict)
    copy_huge: int = 0
    misplaced: str = ""
    #: The mapped pages per NUMA node, in the sample with the most.
    pages: dict[int, int] = field(default_factory=dict)

    @property
    def missing(self) -> bool:
        """Whether the program must map the index but has not yet been seen to."""
        return self.must_map and not self.mapped

    def look(self, process: Path, numa_maps: str) -> None:
        """Add the mappings of one process, by its maps and the text of its numa_maps."""
        mappings = filter(None, map(pages.file_mapping, pages.maps(process).splitlines()))
        begins = {m.address for m in mappings if m.file in self.files or m.path in self.paths}
        if not begins:
            return
        self.mapped = True
        mapped = pages.mapped_pages(numa_maps, begins)
        if mapped.total() >= sum(self.pages.values()):
            self.pages = dict(mapped)

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
            "copy_pages": pages.by_node(self.copy_pages),
            "copy_huge_bytes": self.copy_huge,
            "mapped": self.mapped,
            "mapped_pages": pages.by_node(self.pages),
        }


class Observed(Struct):
    """The observed placement of one instance, over any number of samples of /proc."""

    looks: int = 0
    #: Largest number of threads in one sample.
    threads: int = 0
    #: Union of the threads' affinities over the samples with at least half of the largest page count, because some
    #: programs (likwid-bench, users of hwloc) visit every PU during start-up.
    pus: frozenset[int] = frozenset()
    #: The PUs of the process with the most pages, which is the program and not a wrapper script, and the number of
    #: threads of all processes that run this program (likwid-bench also starts a compiler).
    held: frozenset[int] = frozenset()
    together: int = 0
    #: Anonymous 4 KiB pages per NUMA node and per memory policy, and the memory, in the sample with the most
    #: pages.
    pages: dict[int, int] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    #: The memory policies of all threads but the first one of each process, over all samples.
    thread_modes: set[str] = field(default_factory=set)
    #: Copied pages of files in that sample, which are anonymous memory, too.
    copied: int = 0
    memory: Memory = field(default_factory=Memory)
    #: The index, if the instance uses a copy of it (None: it loads its own).
    index: IndexPages | None = None
    unreadable: str = ""
    #: The largest sums (bytes) over the processes at one time: of peak resident sets, anonymous memory, resident
    #: pages of files (including files in memory), and sizes of mappings of files.
    peak_bytes: int = 0
    most_anonymous: int = 0
    file_resident: int = 0
    file_bytes: int = 0
    #: Anonymous and shared memory (bytes) in the largest sample.
    resident: int = 0
    #: Largest resident set (bytes) of one process: sampled (VmHWM) until it ends, then from wait4(2).
    largest_peak: int = 0
    _samples: list[_Sample] = field(default_factory=list)
    _fullest: _Sample = _Sample()
    _affinities: Affinities = field(default_factory=dict)

    def _add(self, sample: _Sample, affinities: Affinities) -> None:
        """Add one sample, in which the threads of the process with the most pages had these *affinities*.

        :attr:`held` and :attr:`together` come from the sample with the most pages of that process among those with
        more than half of the most threads, because before and after its threads run, a program may have its memory
        and a single thread on one PU. Of equal samples the newest is used. Samples in which threads have ended,
        and no other has moved, do not change them.
        """
        before = self._fullest
        if affinities.items() < self._affinities.items():
            # Some threads have ended, and the remaining PUs do not show where these were bound.
            sample = replace(sample, held=before.held, together=before.together)
            affinities = self._affinities
        samples = [*self._samples, sample]
        most = max(sample.pages for sample in samples)
        self._samples = [sample for sample in samples if 2 * sample.pages >= most]
        self.pus = frozenset[int]().union(*(sample.pus for sample in self._samples))
        most = max(sample.together for sample in self._samples)
        running = [sample for sample in self._samples if 2 * sample.together > most]
        self._fullest = max(reversed(running), key=lambda sample: sample.of_program)
        self.held, self.together = self._fullest.held, self._fullest.together
        if self._fullest is sample:
            self._affinities = affinities
        elif self._fullest is not before:
            self._affinities = {}

    def add_sizes(self, sizes: Iterable[Sizes], sampled_shared: int | None = None) -> int:
        """Add the *sizes* of all processes at one time; return their anonymous and shared memory (bytes).

        *sampled_shared* bytes of the shared memory were sampled; the rest is files in memory. None: the memory was
        not sampled, and the shared memory may be of either kind.
        """
        sizes = list(sizes)
        anonymous, shared = sum(size.anonymous for size in sizes), sum(size.shared for size in sizes)
        of_files = 0 if sampled_shared is None else max(0, shared - sampled_shared)
        self.most_anonymous = max(self.most_anonymous, anonymous + (sampled_shared or 0))
        self.file_resident = max(self.file_resident, sum(size.files for size in sizes) + of_files)
        self.peak_bytes = max(self.peak_bytes, sum(size.peak for size in sizes))
        self.largest_peak = max([self.largest_peak, *(size.peak for size in sizes)])
        return anonymous + shared

    @property
    def coverage(self) -> Coverage:
        """How much of the program's memory was sampled."""
        # A resident set includes pages of files, such as a mapped index, which are not sampled. The program may
        # have mapped more files since the last look.
        files = max(self.file_bytes, self.file_resident)
        anonymous = max(self.most_anonymous, self.largest_peak - files)
        seen = pages.UNIT * (sum(self.pages.values()) + self.copied)
        return Coverage(seen, anonymous, self.file_resident, self.largest_peak)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of a record's ``placement_found``."""
        return {
            "looks": self.looks,
            "threads": self.threads,
            "pus": sorted(self.pus),
            "held": sorted(self.held),
            "pages": pages.by_node(self.pages),
            "policy": max(self.modes, key=self.modes.__getitem__, default=""),
            "memory": self.memory.to_dict() | ({"index": self.index.to_dict()} if self.index else {}),
            "seen_share": round(self.coverage.share, 4),
            "unreadable": self.unreadable,
        }


def launcher_peak() -> int:
    """Return the peak resident set (bytes) of this process, which a program inherits until it runs (ru_maxrss)."""
    return pages.sizes(pages.status(PROC / "self")).peak


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


def look(pid: int, observed: Observed, proc: Path = PROC) -> None:
    """Sample *pid* and its descendants once and add the sample to *observed*."""
    if _starting(pid, proc):
        return
    threads, shared = 0, 0
    nodes, modes, copied, pus = Counter[int](), Counter[str](), 0, frozenset[int]()
    affinities, most, largest, threads_of = Affinities(), -1, "", Counter[str]()
    members: list[tuple[Path, str, str]] = []
    sizes: list[Sizes] = []
    for process in (proc / str(member) for member in family(pid, proc)):
        tasks = _affinities(process)
        # Read before the pages: memory that a program gets meanwhile is growth that was not sampled.
        sizes.append(pages.sizes(pages.status(process)))
        try:
            numa_maps = pages.numa_maps(process)
        except FileNotFoundError:
            if not pages.has_numa_maps(proc):
                observed.unreadable = "this kernel has no numa_maps (CONFIG_NUMA is off)"
            continue
        except ProcessLookupError:
            continue
        except OSError as error:
            observed.unreadable = f"/proc/{process.name}/numa_maps: {error.strerror}"
            continue
        # The last numa_maps of a process that has ended may show pages without their policy.
        if not (status := pages.status(process)):
            continue
        members.append((process, numa_maps, status))
        if observed.index:
            observed.index.look(process, numa_maps)
        sampled = pages.anonymous_pages(numa_maps)
        nodes.update(sampled.nodes)
        modes.update(sampled.modes)
        copied, shared = copied + sampled.copied, shared + sampled.shared
        threads += len(tasks)
        pus = pus.union(*tasks.values())
        observed.thread_modes |= _policies_of_threads(process, tasks)
        program = _program(process)
        threads_of[program] += len(tasks)
        if tasks and sampled.nodes.total() > most:
            affinities, most, largest = tasks, sampled.nodes.total(), program
    if not threads:
        return
    observed.looks += 1
    observed.threads = max(observed.threads, threads)
    held = frozenset[int]().union(*affinities.values())
    online = _online(proc)
    pus, held = (pus & online, held & online) if online else (pus, held)
    observed._add(_Sample(nodes.total(), pus, max(most, 0), held, threads_of[largest]), affinities)
    observed.resident = max(observed.resident, observed.add_sizes(sizes, pages.UNIT * shared))
    file_bytes = sum(pages.file_bytes(pages.maps(process)) for process, _, _ in members)
    observed.file_bytes = max(observed.file_bytes, file_bytes)
    if nodes.total() >= sum(observed.pages.values()):
        observed.pages, observed.modes, observed.copied = dict(nodes), dict(modes), copied
        # A program that is ending may have freed its memory since its pages were read.
        observed.memory = max(_memory(members), observed.memory, key=lambda m: m.anonymous + m.hugetlb)


def _memory(members: Iterable[tuple[Path, str, str]]) -> Memory:
    """Return the memory of processes, each with its numa_maps and status."""
    memory = Memory()
    for process, numa_maps, status in members:
        memory.add(pages.smaps_rollup(process), numa_maps, status, memory_options.libraries())
    return memory


def has_grown(pid: int, observed: Observed, proc: Path = PROC) -> bool:
    """Return whether the memory of *pid* and its descendants, without files, has grown enough for a new sample.

    It costs far less than a sample, because the kernel does not read the page tables.
    """
    if _starting(pid, proc):
        return False
    sizes = (pages.sizes(pages.status(proc / str(member))) for member in family(pid, proc))
    return observed.add_sizes(sizes) > GROWTH * observed.resident + _GROWN


def _program(process: Path) -> str:
    """Return the path of the program that a process runs, or of the process if that cannot be read."""
    try:
        return str((process / "exe").readlink())
    except OSError:
        return str(process)


def _affinities(process: Path) -> Affinities:
    """Return the PUs of each living thread of a process; empty if the process has ended."""
    try:
        statuses = {int(thread.name): pages.status(thread) for thread in (process / "task").iterdir()}
    except OSError:
        return {}
    return {number: status_list(text, "Cpus_allowed_list") for number, text in statuses.items() if text}


def _policies_of_threads(process: Path, tasks: Collection[int]) -> set[str]:
    """Return the memory policies of a process's threads except the first one, whose policy its pages show."""
    others = (process / "task" / str(number) for number in tasks if str(number) != process.name)
    return {policy for policy in map(pages.policy_of_thread, others) if policy}


def _online(proc: Path) -> frozenset[int]:
    """Return the online PUs; an affinity may also name offline ones."""
    try:
        return parse_list((proc.parent / "sys/devices/system/cpu/online").read_text())
    except OSError:
        return frozenset()


def _starting(pid: int, proc: Path) -> bool:
    """Return whether *pid* is still a program of the launcher, not yet the placed program."""
    process = proc / str(pid)
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        # Read last, because the shell becomes numactl or the program.
        name = (process / "comm").read_text().strip()
    except OSError:
        return True
    # Within execve(2), a process has no argv yet, and still the name and the PUs of the previous program: the
    # launcher, the shell, or numactl.
    return name in {"setpriv", "numactl", "nsenter"} or IF_PARENT_LIVES.encode() in words or words == [b""]


def why_unverified(observed: Observed) -> str:
    """Return why the placement could not be observed, or an empty string if it was."""
    if observed.unreadable:
        return f"the placement cannot be verified: {observed.unreadable}"
    if not observed.looks or not observed.pages:
        return "the placement cannot be verified: the instance ended before it could be sampled"
    if observed.index and observed.index.missing and observed.looks < _LOOKS:
        return "the placement cannot be verified: the instance ended before it was seen to map the index"
    return observed.coverage.reason()


def fewest_pus(asked: Placement, threads: int) -> int:
    """Return the fewest PUs of *threads* threads, unless something else pins them."""
    return min(threads, len(asked.pus))


def verify(asked: Placement, threads: int, observed: Observed) -> str:
    """Return why the placement did not hold, or an empty string if it did.

    If the threads have fewer PUs than the requested number *threads*, something else pins them as well.
    """
    reason = why_unverified(observed)
    if reason and reason != observed.coverage.reason():
        return reason
    # A wrong PU is an error even if little memory was sampled.
    if stray := observed.pus - set(asked.pus):
        return f"threads may run on PUs {format_list(stray)}, requested were {format_list(asked.pus)}"
    if len(observed.held) < fewest_pus(asked, threads):
        return (
            f"{threads} threads are held on PUs {format_list(observed.held)} of {format_list(asked.pus)}: "
            "something else pins them as well"
        )
    return (
        reason
        or evidence.wrong_pages(asked, observed.pages, observed.modes)
        or evidence.wrong_threads(asked, observed.thread_modes)
        or evidence.wrong_memory(asked.options, observed.memory)
        or (observed.index.wrong() if observed.index else "")
    )
