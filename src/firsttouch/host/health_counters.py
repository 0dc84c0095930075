# SPDX-License-Identifier: Apache-2.0
"""Counters of errors and of throttling that the kernel shows any user.

:func:`read` takes all of them, :func:`difference` states the events between two readings. For memory modules,
these are the counters of EDAC drivers (per module, else per row, else per memory controller) and the pages that
the kernel retired; for processors, machine checks and thermal throttling.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from firsttouch.host import kernel_files
from firsttouch.host.memory_modules import edac_folders, edac_label

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


def read(root: Path = Path("/")) -> dict[Counter, int]:
    """Return all counters of this host, or of the stored *root*, that can be read."""
    counters: dict[Counter, int] = defaultdict(int)
    for counter, count in (*_memory(root), *_poisoned(root), *_machine_checks(root), *_throttling(root)):
        counters[counter] += count
    return dict(counters)


def difference(before: Counts, after: Counts) -> dict[Counter, int]:
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
