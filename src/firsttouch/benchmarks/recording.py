# SPDX-License-Identifier: Apache-2.0
"""Holds this host during a measurement, and appends the records and the host's error counters to a file."""

from __future__ import annotations

import contextlib
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from firsttouch.benchmarks import kernel_settings
from firsttouch.host import kernel_files
from firsttouch.host.memory_modules import edac_folders, edac_label
from firsttouch.records.schema import Record, append, check_appendable, software

# ----------------------------------------------------------------------
# Counters of errors and of throttling that the kernel shows any user
#
# For memory modules, these are the counters of EDAC drivers (per module, else per row, else per memory controller)
# and the pages that the kernel retired; for processors, machine checks and thermal throttling.

CORRECTED, UNCORRECTED = "corrected_errors", "uncorrected_errors"
THROTTLED, MACHINE_CHECKS = "throttle_events", "machine_checks"
#: EDAC's kinds of errors by their names in files.
_EDAC = {"ce": CORRECTED, "ue": UNCORRECTED}


class Counter(NamedTuple):
    """A counter: its *metric*, and the memory *module* or other part that it belongs to."""

    metric: str
    module: str


Counts = Mapping[Counter, int]
#: Line of /proc/interrupts -> its events. MCP counts the kernel's polls and no errors.
_INTERRUPTS = {
    "MCE": Counter(MACHINE_CHECKS, "exceptions"),
    "DFR": Counter(MACHINE_CHECKS, "deferred errors"),
    "THR": Counter(CORRECTED, "threshold interrupts"),
}


def read_counters(root: Path = Path("/")) -> dict[Counter, int]:
    """Return all counters of this host, or of the stored *root*, that can be read."""
    counters: dict[Counter, int] = defaultdict(int)
    for counter, count in (*_memory(root), *_poisoned(root), *_machine_checks(root), *_throttling(root)):
        counters[counter] += count
    return dict(counters)


def counted_between(before: Counts, after: Counts) -> dict[Counter, int]:
    """Return the count of each counter between two readings.

    A counter that decreased was reset to 0 when its driver was reloaded; its current value is the least number of
    events. A counter that only one reading has is unknown.
    """
    both = before.keys() & after.keys()
    changed = {counter: after[counter] - before[counter] for counter in sorted(both)}
    return {counter: after[counter] if change < 0 else change for counter, change in changed.items()}


def _count(file: Path) -> int | None:
    value = kernel_files.number(file)
    return None if value is None else int(value)


def _memory(root: Path) -> Iterator[tuple[Counter, int]]:
    modules = edac_folders(root)
    for controller in kernel_files.by_number(root / "sys/devices/system/edac/mc", "mc"):
        own = [module for module in modules if module.parent == controller]
        for kind, metric in _EDAC.items():
            counts = [(edac_label(module), _count(module / f"dimm_{kind}_count")) for module in own]
            if not any(count is not None for _, count in counts):
                counts = list(_rows(controller, kind))
            # The counts without a known module; the controller's other counters are sums over modules.
            unknown = _count(controller / f"{kind}_noinfo_count")
            if not counts:
                counts, unknown = [(controller.name, _count(controller / f"{kind}_count"))], None
            for module, count in (*counts, (f"{controller.name}, unknown module", unknown)):
                if count is not None:
                    yield Counter(metric, module), count


def _rows(controller: Path, kind: str) -> Iterator[tuple[str, int | None]]:
    """Yield the counters of an older kernel: corrected errors per channel of a row, others per row."""
    for row in kernel_files.by_number(controller, "csrow"):
        place = f"{controller.name} {row.name}"
        channels = sorted(row.glob(f"ch[0-9]*_{kind}_count"))
        for channel in channels:
            number = channel.name.partition("_")[0]
            yield kernel_files.text(row / f"{number}_dimm_label") or f"{place} {number}", _count(channel)
        if not channels:
            yield place, _count(row / f"{kind}_count")


def _poisoned(root: Path) -> Iterator[tuple[Counter, int]]:
    for node in kernel_files.by_number(root / "sys/devices/system/node", "node"):
        count = _count(node / "memory_failure/total")
        if count is not None:
            number = node.name.removeprefix("node")
            yield Counter(UNCORRECTED, f"pages of NUMA node {number}"), count


def _machine_checks(root: Path) -> Iterator[tuple[Counter, int]]:
    for line in kernel_files.text(root / "proc/interrupts").splitlines():
        name, colon, rest = line.strip().partition(":")
        if colon and name in _INTERRUPTS:
            numbers = re.match(r"[\s\d]*", rest)
            counts = map(int, numbers[0].split()) if numbers else ()
            yield _INTERRUPTS[name], sum(counts)


def _throttling(root: Path) -> Iterator[tuple[Counter, int]]:
    """Yield how often packages, and their cores, were throttled. PUs of a core have the same events."""
    packages: dict[str, int] = {}
    cores: dict[str, dict[str, int]] = defaultdict(dict)
    for pu in kernel_files.by_number(root / "sys/devices/system/cpu", "cpu"):
        of_core = _count(pu / "thermal_throttle/core_throttle_count")
        of_package = _count(pu / "thermal_throttle/package_throttle_count")
        if of_core is None and of_package is None:
            continue
        package = kernel_files.text(pu / "topology/physical_package_id")
        core = kernel_files.text(pu / "topology/core_id") or pu.name
        if of_package is not None:
            packages[package] = max(of_package, packages.get(package, 0))
        if of_core is not None:
            cores[package][core] = max(of_core, cores[package].get(core, 0))
    for package, count in packages.items():
        yield Counter(THROTTLED, f"package {package}"), count
    for package, counts in cores.items():
        yield Counter(THROTTLED, f"cores of package {package}"), sum(counts.values())


# ----------------------------------------------------------------------
# Records of a measurement

CHECK = "health"


class Watch:
    """Reads the error counters of the host (or of a stored *root*) when created, and again in :meth:`records`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._began = root, time.monotonic()
        self._before = read_counters(root)
        self._seconds = 0.0
        #: The events, by counter: complete after :meth:`records`.
        self.counted: dict[Counter, int] = {}

    def records(self) -> list[Record]:
        """Return a record for each counter with events, and a record of 0 for each metric without any event.

        A metric without a readable counter has no record. The counters cover the whole host, including other
        programs.
        """
        self.counted = counted_between(self._before, read_counters(self._root))
        self._seconds = round(time.monotonic() - self._began, 3)
        events = {counter: count for counter, count in self.counted.items() if count}
        quiet = {counter.metric for counter in self.counted} - {counter.metric for counter in events}
        return [
            *(self._record(counter.metric, count, module=counter.module) for counter, count in events.items()),
            *(self._record(metric, 0) for metric in sorted(quiet)),
        ]

    def _record(self, metric: str, count: int, **parameters: str) -> Record:
        return Record(
            *(CHECK, metric, "1", "lower", (float(count),)),
            parameters={**parameters, "seconds": self._seconds},
            software=software(),
        )

    def event_lines(self) -> list[str]:
        """Return a line for each counter with events: ``corrected errors: 3 in 12.0 s (DIMM_A1)``."""
        return [
            f"{counter.metric.replace('_', ' ')}: {count} in {self._seconds:.1f} s ({counter.module})"
            for counter, count in self.counted.items()
            if count
        ]


@contextlib.contextmanager
def hold_and_record(
    file: Path | None,
    *,
    share_host: bool = False,
    watched: bool = True,
    with_settings: bool = True,
    say: Callable[[str], None] = print,
) -> Iterator[Callable[[Sequence[Record]], None]]:
    """Hold the host and yield a function that appends records to *file* (None: it discards them).

    The kernel settings and the load by other programs, read before the measurement, precede the first records if
    *with_settings*. With *share_host*, it does not wait for other runs. Without *watched*, as for a topology, it
    ignores other runs, their load, and error counters. Raises BadInput if the file holds anything but records.
    """
    from firsttouch.execution import host_lock  # noqa: PLC0415 - help of commands needs none

    if file:
        check_appendable(file)

    settings: list[Record] = []

    def keep(records: Sequence[Record]) -> None:
        if file:
            append(file, [*settings, *records])
            settings.clear()

    holding = host_lock.hold_unless_shared(say, share_host=share_host or not watched)
    with holding, watching_health(file if watched else None, say=say):
        if file and watched and with_settings:
            settings += kernel_settings.records()
        yield keep


@contextlib.contextmanager
def watching_health(file: Path | None, *, say: Callable[[str], None] = print) -> Iterator[None]:
    """Append this host's error counts of the measurement to the *file* of records, if there is one.

    After an error nothing is appended: a step without a result has no health records.
    """
    if file is None:
        yield
        return
    watch = Watch()
    yield
    if measured := watch.records():
        append(file, measured)
    for text in watch.event_lines():
        say(f"firsttouch: {text}")
