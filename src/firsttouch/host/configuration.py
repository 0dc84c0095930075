# SPDX-License-Identifier: Apache-2.0
"""The configuration and the firmware of this host, as one flat mapping of names to texts.

:func:`read` reads files of the kernel and the memory modules. A setting that cannot be read is absent, and never
empty or zero. All values cover the whole host. If its PUs differ, the text has the number of PUs with each value.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct, field

from firsttouch.host import kernel_files, memory_modules
from firsttouch.host.memory_modules import Installed
from firsttouch.host.topology import Topology
from firsttouch.units import format_bytes

#: The settings of memory modules begin with this; the rest is the module's slot.
MODULE = "memory.modules."
#: The setting with the sizes of caches: ``L1 32 KiB, L2 1 MiB``.
CACHES = "cpu.caches"
#: The setting with the firmware's distances of NUMA nodes: ``0: 0=10 1=21; 1: 0=21 1=10``.
DISTANCES = "numa.distances"
#: The setting of a virtual machine.
VIRTUAL = "machine.virtual"
#: Vendors of virtual machines by the firmware's tables, for processors without the flag ``hypervisor`` (systemd,
#: src/basic/virt.c).
_VIRTUAL_VENDORS = {"QEMU", "Xen", "VMware, Inc.", "Google", "Amazon EC2", "Apple Virtualization"}
_CPU = "sys/devices/system/cpu"
_HUGE = "sys/kernel/mm/transparent_hugepage"
_WEIGHTS = "sys/kernel/mm/mempolicy/weighted_interleave"
_TIERS = "sys/devices/virtual/memory_tiering"
_SCHED_EXT = "sys/kernel/sched_ext"
#: Setting -> the file whose text is its value.
_FILES = {
    "firmware.vendor": "sys/class/dmi/id/bios_vendor",
    "firmware.version": "sys/class/dmi/id/bios_version",
    "firmware.date": "sys/class/dmi/id/bios_date",
    "board.vendor": "sys/class/dmi/id/board_vendor",
    "board.name": "sys/class/dmi/id/board_name",
    "board.product": "sys/class/dmi/id/product_name",
    "kernel.release": "proc/sys/kernel/osrelease",
    "kernel.command_line": "proc/cmdline",
    "cpu.smt": f"{_CPU}/smt/control",
    "cpu.idle_driver": f"{_CPU}/cpuidle/current_driver",
    "memory.numa_balancing": "proc/sys/kernel/numa_balancing",
    "memory.zone_reclaim": "proc/sys/vm/zone_reclaim_mode",
    "memory.demotion": "sys/kernel/mm/numa/demotion_enabled",
    "memory.interleave_weights_automatic": f"{_WEIGHTS}/auto",
}
#: Setting -> the file whose word in brackets is its value.
_CHOICES = {
    "memory.huge_pages": f"{_HUGE}/enabled",
    "memory.huge_pages_defrag": f"{_HUGE}/defrag",
    "memory.huge_pages_shmem": f"{_HUGE}/shmem_enabled",
}
#: Setting -> the file of each PU with its value.
_OF_PUS = {
    "cpu.governor": "cpufreq/scaling_governor",
    "cpu.frequency_driver": "cpufreq/scaling_driver",
    "cpu.energy_preference": "cpufreq/energy_performance_preference",
}
#: Texts that mean "not set"; the last one is a driver's.
_NOTHING = kernel_files.UNSTATED | {"<unsupported>"}


class Settings(Struct, frozen=True):
    """The *settings* of a host. *provenance*: dmidecode, udev or edac, for settings that have several sources.

    *parts* are hashes that change with the host's parts (see :func:`identities`).
    """

    settings: Mapping[str, str]
    provenance: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)


def read(host: Topology, root: Path = Path("/"), installed: Installed | None = None) -> Settings:
    """Return the settings of this *host* or of the stored *root*; *installed*: its memory modules, if known."""
    installed = installed or memory_modules.read_modules(root)
    settings = {name: kernel_files.text(root / file) for name, file in _FILES.items()}
    settings |= {name: kernel_files.bracketed_word(root / file) for name, file in _CHOICES.items()}
    settings |= _processor(root) | _frequencies(root) | _mitigations(root)
    settings["cpu.idle_states"] = _idle_states(root)
    settings["memory.huge_pages_reserved"] = _reserved(root)
    settings |= _kernel_policies(root) | _cgroup_limits(root)
    settings["numa.nodes_per_package"] = _nodes_per_package(host)
    rows: dict[int, list[str]] = {}
    for (node, other), distance in sorted(host.distances.items()):
        rows.setdefault(node, []).append(f"{other}={distance}")
    settings[DISTANCES] = "; ".join(f"{node}: {' '.join(row)}" for node, row in rows.items())
    sizes = sorted({(cache.level, cache.size_bytes) for cache in host.caches if cache.size_bytes})
    settings[CACHES] = ", ".join(f"L{level} {format_bytes(size)}" for level, size in sizes)
    settings[VIRTUAL] = "yes" if _is_virtual(root, settings) else ""
    settings |= {f"{MODULE}{slot}": module.text() for slot, module in installed.by_slot().items()}
    readable = {name: value for name, value in sorted(settings.items()) if value not in _NOTHING}
    provenance = {"memory.modules": installed.source} if installed.source else {}
    return Settings(readable, provenance, identities(root))


def _is_virtual(root: Path, settings: Mapping[str, str]) -> bool:
    """Return whether this is a virtual machine, by the processor's flags or, without flags, by the vendor."""
    if flags := next(kernel_files.processor_values("flags", root), ""):
        return "hypervisor" in flags.split()
    vendor = kernel_files.text(root / "sys/class/dmi/id/sys_vendor")
    return vendor in _VIRTUAL_VENDORS and not settings["board.product"].endswith((".metal", "-metal"))


def _processor(root: Path) -> dict[str, str]:
    """Return model and microcode of the processors. On Arm the kernel shows a number instead of a model name."""
    models = [*kernel_files.processor_values("model name", root)]
    if not models:
        number = kernel_files.text(root / f"{_CPU}/cpu0/regs/identification/midr_el1")
        models = [f"MIDR {number}"] if number else []
    microcodes = kernel_files.processor_values("microcode", root)
    return {"cpu.model": _counted(models), "cpu.microcode": _counted(microcodes)}


def _frequencies(root: Path) -> dict[str, str]:
    """Return governors and allowed frequencies, and whether processors may go beyond their base frequency."""
    pus = kernel_files.by_number(root / _CPU, "cpu")
    settings = {name: _counted(kernel_files.text(pu / file) for pu in pus) for name, file in _OF_PUS.items()}
    settings["cpu.frequency_range"] = _counted(
        _range(pu / "cpufreq/scaling_min_freq", pu / "cpufreq/scaling_max_freq") for pu in pus
    )
    # The clock of caches and memory controllers of Intel's processors.
    uncore = sorted((root / _CPU / "intel_uncore_frequency").glob("package_*"))
    settings["cpu.uncore_frequency_range"] = _counted(
        _range(package / "min_freq_khz", package / "max_freq_khz") for package in uncore
    )
    no_turbo = kernel_files.number(root / f"{_CPU}/intel_pstate/no_turbo")
    boost = kernel_files.number(root / f"{_CPU}/cpufreq/boost")
    turbo = not no_turbo if no_turbo is not None else boost
    settings["cpu.turbo"] = "" if turbo is None else "on" if turbo else "off"
    return settings


def _range(low: Path, high: Path) -> str:
    lowest, highest = kernel_files.number(low), kernel_files.number(high)
    return "" if lowest is None or highest is None else f"{lowest / 1e3:g} to {highest / 1e3:g} MHz"


def _counted(values: Iterable[str]) -> str:
    """Return the common value of all PUs, or each value with the number of PUs that have it."""
    counts = Counter(value for value in values if value not in _NOTHING)
    if len(counts) < 2:
        return next(iter(counts), "")
    return ", ".join(f"{value} ({count} of {counts.total()})" for value, count in sorted(counts.items()))


def _mitigations(root: Path) -> dict[str, str]:
    try:
        files = sorted((root / _CPU / "vulnerabilities").iterdir())
    except OSError:
        return {}
    return {f"kernel.mitigations.{file.name}": kernel_files.text(file) for file in files}


def _idle_states(root: Path) -> str:
    """Return the idle states with their latencies, and where PUs may not enter them."""
    pus = [pu / "cpuidle" for pu in kernel_files.by_number(root / _CPU, "cpu")]
    states = []
    for state in kernel_files.by_number(pus[0], "state") if pus else []:
        latency = kernel_files.number(state / "latency")
        text = (kernel_files.text(state / "name") or state.name) + (f" {latency:g} us" if latency else "")
        disabled = [kernel_files.number(pu / state.name / "disable") for pu in pus]
        count = sum(bool(value) for value in disabled)
        where = "" if count == len(pus) else f" on {count} of {len(pus)} PUs"
        states.append(text + (f" (disabled{where})" if count else ""))
    return ", ".join(states)


def _reserved(root: Path) -> str:
    """Return the reserved huge pages of each size: ``2048 kB: 512, 1048576 kB: 0``."""
    folder = root / "sys/kernel/mm/hugepages"
    try:
        sizes = sorted(int(f.name[10:-2]) for f in folder.glob("hugepages-*kB") if f.name[10:-2].isdecimal())
    except OSError:
        return ""
    counts = [(size, kernel_files.number(folder / f"hugepages-{size}kB/nr_hugepages")) for size in sizes]
    return ", ".join(f"{size} kB: {count:g}" for size, count in counts if count is not None)


def _kernel_policies(root: Path) -> dict[str, str]:
    """Return the sizes of transparent huge pages with their modes, interleave weights, tiers and the scheduler.

    The scheduler is the one that sched_ext has loaded; a kernel without sched_ext lacks this setting. (Linux,
    admin-guide/mm/transhuge, ABI/testing/sysfs-kernel-mm-mempolicy-weighted-interleave and -memory-tiers,
    scheduler/sched-ext.)
    """
    sizes = sorted((root / _HUGE).glob("hugepages-*kB"), key=lambda size: int(size.name[10:-2]))
    modes = {size.name[10:-2]: kernel_files.bracketed_word(size / "enabled") for size in sizes}
    by_mode = {mode: [size for size in modes if modes[size] == mode] for mode in sorted({*modes.values()} - {""})}
    weights = {node.name[4:]: kernel_files.text(node) for node in kernel_files.by_number(root / _WEIGHTS, "node")}
    tiers = kernel_files.by_number(root / _TIERS, "memory_tier")
    state = kernel_files.text(root / _SCHED_EXT / "state")
    return {
        "memory.huge_pages_sizes": "; ".join(
            f"{mode}: {', '.join(of_mode)} kB" for mode, of_mode in by_mode.items()
        ),
        "memory.interleave_weights": ", ".join(f"{node}: {weight}" for node, weight in weights.items() if weight),
        "memory.tiers": ", ".join(f"{tier.name[11:]}: {kernel_files.text(tier / 'nodelist')}" for tier in tiers),
        "kernel.sched_ext": state
        if state != "enabled"
        else kernel_files.text(root / _SCHED_EXT / "root/ops") or state,
    }


def _cgroup_limits(root: Path) -> dict[str, str]:
    """Return the limits of this process's cgroups (version 2): the nearest one that is set, or max."""
    lines = kernel_files.text(root / "proc/self/cgroup", "replace").splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), "")
    folder = root / "sys/fs/cgroup" / path.lstrip("/")
    levels = [level for level in (folder, *folder.parents) if level.is_relative_to(root / "sys/fs/cgroup")]

    def nearest(name: str) -> str:
        texts = [text for level in levels if (text := kernel_files.text(level / name))]
        return next((text for text in texts if text.split()[0] != "max"), "max" if texts else "")

    return {f"cgroup.{name}": nearest(name) for name in ("cpu.max", "memory.high", "memory.max")}


def _nodes_per_package(host: Topology) -> str:
    """Return the NUMA nodes with PUs per package (NPS or SNC, as the firmware set it)."""
    nodes: dict[int, set[int]] = {}
    for pu in host.pus:
        if pu.numa_node is not None:
            nodes.setdefault(pu.package, set()).add(pu.numa_node)
    counts = sorted({len(its) for its in nodes.values()})
    return " or ".join(map(str, counts))


# ----------------------------------------------------------------------
# The identity of this host's parts. Boards and processors of a system are of one model; serial numbers (mostly
# readable by root only) and addresses of network cards (readable by everybody) tell them apart. Only hashes leave
# the host.

#: Texts that are not a serial number.
_NO_SERIAL = kernel_files.UNSTATED | {"0", "0x0"}
#: The value of ``addr_assign_type`` for a card's permanent address.
_PERMANENT = 0
#: The bit of the first byte of addresses that software has chosen.
_LOCAL = 0x02


def identities(root: Path = Path("/")) -> dict[str, str]:
    """Return the hashes of the ``board``, the ``processors`` and the network ``interfaces`` that can be read."""
    processors = {
        kernel_files.text(pu / "topology/ppin")
        for pu in kernel_files.by_number(root / "sys/devices/system/cpu", "cpu")
    }
    serials = {
        "board": [kernel_files.text(root / "sys/class/dmi/id/board_serial")],
        "processors": [" ".join(sorted(processors - _NO_SERIAL))],
        "interfaces": _addresses(root / "sys/class/net"),
    }
    hashes = {
        name: [hashlib.sha256(text.encode()).hexdigest()[:12] for text in texts if text not in _NO_SERIAL]
        for name, texts in serials.items()
    }
    return {name: " ".join(sorted(of_part)) for name, of_part in hashes.items() if of_part}


def _addresses(folder: Path) -> list[str]:
    """Return the permanent addresses of network cards; virtual ones have none, or another one after each start."""
    try:
        interfaces = sorted(folder.iterdir())
    except OSError:
        return []
    addresses = []
    for interface in interfaces:
        # A bond gives its address to all its cards.
        address = kernel_files.text(interface / "bonding_slave/perm_hwaddr")
        if not address and kernel_files.number(interface / "addr_assign_type") == _PERMANENT:
            address = kernel_files.text(interface / "address")
        first = address.split(":")[0]
        if (interface / "device").exists() and first and not int(first, 16) & _LOCAL:
            addresses.append(address)
    return addresses
