# SPDX-License-Identifier: Apache-2.0
"""Stored file-system roots of made-up hosts: the files of sys/ and proc/ that describe NUMA nodes and limits."""

from collections.abc import Mapping
from pathlib import Path


def stored_root(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """Lay out two NUMA nodes of two PUs each in *folder*, and more *files* (path -> text); return the folder."""
    texts = {"proc/cpuinfo": "", "sys/devices/system/cpu/online": "0-3", "sys/devices/system/node/online": "0-1"}
    for pu in range(4):
        base = f"sys/devices/system/cpu/cpu{pu}/topology/"
        texts |= {base + "core_id": str(pu), base + "physical_package_id": str(pu // 2)}
        texts |= {base + "thread_siblings": f"{1 << pu:x}", base + "core_siblings": "3" if pu < 2 else "c"}
    for number in range(2):
        base = f"sys/devices/system/node/node{number}/"
        texts |= {base + "cpumap": "c" if number else "3", base + "distance": "21 10" if number else "10 21"}
        texts[base + "meminfo"] = f"Node {number} MemTotal: 1048576 kB"
    for name, text in {**texts, **(files or {})}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return folder


def numa_root(folder: Path) -> Path:
    """Lay out two NUMA nodes of two PUs each, with the kernel's lists of these PUs."""
    return stored_root(
        folder, {f"sys/devices/system/node/node{n}/cpulist": pus for n, pus in enumerate(("0-1", "2-3"))}
    )


def hybrid_root(folder: Path) -> Path:
    """Lay out three cores in one NUMA node: one has two PUs, the others share an L2, and all share an L3."""
    node = "sys/devices/system/node/"
    files = {f"{node}online": "0", f"{node}node0/cpumap": "f", f"{node}node0/cpulist": "0-3"}
    files[f"{node}node0/distance"] = "10"
    for pu, (siblings, sharing) in enumerate([("3", "3"), ("3", "3"), ("4", "c"), ("8", "c")]):
        base = f"sys/devices/system/cpu/cpu{pu}/"
        core = {"thread_siblings": siblings, "core_siblings": "f", "physical_package_id": "0"}
        files |= {f"{base}topology/{name}": text for name, text in core.items()}
        for level, members in ((2, sharing), (3, "f")):
            cache = {"level": str(level), "type": "Unified", "size": "1024K", "shared_cpu_map": members}
            files |= {f"{base}cache/index{level}/{name}": text for name, text in cache.items()}
    return stored_root(folder, files)


def configured_root(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """Lay out the configuration files of a server with two packages in *folder*, and more *files*."""
    texts = {
        "sys/class/dmi/id/bios_vendor": "Dell Inc.",
        "sys/class/dmi/id/bios_version": "2.3.1",
        "sys/class/dmi/id/bios_date": "01/18/2024",
        "sys/class/dmi/id/board_name": "0PYVT1",
        "sys/class/dmi/id/board_vendor": "Not Specified",
        "proc/sys/kernel/osrelease": "5.14.0-427.el9.x86_64",
        "proc/sys/kernel/numa_balancing": "1",
        "proc/cmdline": "BOOT_IMAGE=(hd0,gpt2)/vmlinuz root=UUID=0b5c-11 ro quiet",
        "proc/cpuinfo": "\n".join(
            f"processor\t: {pu}\nmodel name\t: Xeon 6430\nmicrocode\t: {'0x2b000590' if pu else '0x2b0004d0'}\n"
            for pu in range(4)
        ),
        "sys/devices/system/cpu/smt/control": "off",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "1",
        "sys/devices/system/cpu/vulnerabilities/l1tf": "Not affected",
        "sys/devices/system/cpu/cpuidle/current_driver": "intel_idle",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/kernel/mm/transparent_hugepage/defrag": "always defer [defer+madvise] madvise never",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512",
        "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "4",
    }
    for pu in range(4):
        base = f"sys/devices/system/cpu/cpu{pu}/"
        texts |= {base + "cpufreq/scaling_governor": "performance" if pu else "powersave"}
        texts |= {base + "cpufreq/scaling_min_freq": "800000", base + "cpufreq/scaling_max_freq": "3400000"}
        for state, (name, latency) in enumerate([("POLL", 0), ("C1", 2), ("C6", 170)]):
            idle = f"{base}cpuidle/state{state}/"
            texts |= {idle + "name": name, idle + "latency": str(latency)}
            texts[idle + "disable"] = str(int(name == "C6"))
    for number in range(2):
        base = f"sys/devices/system/edac/mc/mc{number}/"
        texts |= {base + "mc_name": "Intel_10nm", base + "ce_noinfo_count": "0", base + "ue_noinfo_count": "0"}
        for slot in range(2):
            module = f"{base}dimm{slot}/"
            texts |= {
                module + "dimm_label": f"CPU_SrcID#{number}_MC#0_Chan#{slot}_DIMM#0",
                module + "dimm_location": f"channel {slot} slot 0 ",
                module + "dimm_mem_type": "Registered-DDR5",
                module + "size": "32768",
                module + "dimm_ce_count": "0",
                module + "dimm_ue_count": "0",
            }
    return stored_root(folder, {**texts, **(files or {})})
