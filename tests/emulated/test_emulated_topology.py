# SPDX-License-Identifier: Apache-2.0
"""Each machine has the topology of its data file, and the kernel places memory accordingly."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from firsttouch.host.topology import parse_xml
from firsttouch.scenarios import tiers

from . import machine
from .guest import Completed, Guest

MIB = 1 << 20
PAGES_PER_MIB = 256
#: The kernel's own share of a bank: page structures on every bank, its code and data on node 0.
KERNEL_SHARE = 0.03
KERNEL_ON_NODE_0 = 80 * MIB

#: The machine "unequal" has the Xeon's processor, so that this one need not boot.
every_machine = pytest.mark.parametrize(
    "guest", [name for name in machine.names() if name != "intel-xeon"], indirect=True
)


def online_pus(guest: Guest, node: int) -> list[int]:
    return [pu for pu in guest.machine.pus_of(node) if pu not in guest.machine.offline_pus]


def allowed_nodes(guest: Guest) -> list[int]:
    return list(guest.machine.allowed_nodes or guest.machine.nodes)


def placed_by(guest: Guest, touch: Path, *numactl: str, mebibytes: int = 4) -> Completed:
    return guest.run(["numactl", *numactl, touch, str(mebibytes)])


@every_machine
def test_numactl_shows_the_machine(guest: Guest) -> None:
    shown = guest.run(["numactl", "--hardware"], check=True).text
    described = guest.machine
    for node in described.nodes:
        pus = re.search(rf"^node {node} cpus:(.*)$", shown, re.MULTILINE)
        size = re.search(rf"^node {node} size: (\d+) MB$", shown, re.MULTILINE)
        distances = re.search(rf"^ +{node}: +(.*)$", shown, re.MULTILINE)
        assert pus
        assert [int(pu) for pu in pus[1].split()] == online_pus(guest, node)
        assert distances
        assert tuple(map(int, distances[1].split())) == described.distances[node]
        assert size
        most = described.memory[node]
        least = most * (1 - KERNEL_SHARE) - (0 if node else KERNEL_ON_NODE_0)
        assert least - 2 * MIB <= int(size[1]) * MIB <= most


@pytest.mark.parametrize("guest", ["amd-opteron"], indirect=True)
def test_lstopo_shows_the_machine(guest: Guest) -> None:
    """The probe, which uses hwloc too, shows the other machines: test_every_aspect_on_every_placement."""
    shown = guest.run(["lstopo-no-graphics", "--of", "xml"], check=True).text
    pus = {int(n) for n in re.findall(r'type="PU" os_index="(\d+)"', shown)}
    nodes = {int(n) for n in re.findall(r'type="NUMANode" os_index="(\d+)"', shown)}
    assert pus == {*range(sum(guest.machine.pus))}
    assert nodes == {*guest.machine.nodes}


@pytest.mark.parametrize("guest", ["tiers"], indirect=True)
def test_the_firmwares_bandwidths_name_the_tiers(guest: Guest, native_probe: Path) -> None:
    seen = parse_xml(guest.run([native_probe, "topology", "--xml"], check=True).text)
    described = guest.machine
    assert {n.index: n.bandwidth for n in seen.numa_nodes} == {
        node: 1024 * described.bandwidth[described.initiator(node)][node] for node in described.nodes
    }
    names = [(tier.name, tier.banks) for tier in tiers.tiers(seen)]
    assert names == [("high-bandwidth memory", (2,)), ("DRAM", (0, 1)), ("memory without PUs", (3,))]
    assert [tiers.own_banks(seen, [node]) for node in (0, 1)] == [(0, 2), (1, 3)]


@every_machine
def test_membind_puts_every_page_there_or_fails_loudly(guest: Guest, touch: Path) -> None:
    pages = 4 * PAGES_PER_MIB
    for node in guest.machine.nodes:
        outcome = placed_by(guest, touch, f"--membind={node}")
        if node in allowed_nodes(guest) and guest.machine.memory[node]:
            assert result(outcome)["pages"] == {str(node): pages}
        else:
            assert outcome.returncode not in {0, -9}
            assert outcome.error_text
            assert b"pages" not in outcome.stdout


@every_machine
def test_localalloc_puts_every_page_where_the_pus_are(guest: Guest, touch: Path) -> None:
    nodes = [node for node in allowed_nodes(guest) if online_pus(guest, node) and guest.machine.memory[node]]
    for node in (nodes[0], nodes[-1]):
        placed = result(placed_by(guest, touch, "--localalloc", f"--cpunodebind={node}"))
        assert placed == {"pages": {str(node): 4 * PAGES_PER_MIB}, "pus": online_pus(guest, node)}


@pytest.mark.parametrize("guest", ["unequal"], indirect=True)
def test_pus_without_memory_of_their_own_use_the_nearest(guest: Guest, touch: Path) -> None:
    memory, distances = guest.machine.memory, guest.machine.distances
    for node in allowed_nodes(guest):
        if online_pus(guest, node) and not memory[node]:
            # numactl accepts the PUs of such a NUMA node only by their numbers.
            assert placed_by(guest, touch, f"--cpunodebind={node}").returncode == 1
            placed = result(
                placed_by(guest, touch, "--localalloc", f"--physcpubind={guest.machine.pus_of(node)[0]}")
            )
            nearest = min(distances[node][other] for other in guest.machine.nodes if memory[other])
            assert {distances[node][int(other)] for other in placed["pages"]} == {nearest}


@every_machine
def test_interleave_is_even_within_two_percent(guest: Guest, touch: Path) -> None:
    placed = result(placed_by(guest, touch, "--interleave=all", mebibytes=16))
    banks = [node for node in allowed_nodes(guest) if guest.machine.memory[node]]
    assert sorted(map(int, placed["pages"])) == banks
    assert sum(placed["pages"].values()) == 16 * PAGES_PER_MIB
    share = 16 * PAGES_PER_MIB / len(banks)
    assert all(abs(pages - share) <= 0.02 * share for pages in placed["pages"].values())


@pytest.mark.parametrize("guest", ["unequal"], indirect=True)
def test_a_full_bank(guest: Guest, touch: Path) -> None:
    smallest = guest.machine.memory.index(min(filter(None, guest.machine.memory)))
    size = guest.machine.memory[smallest] // MIB + 36
    placed = result(placed_by(guest, touch, f"--preferred={smallest}", mebibytes=size))["pages"]
    assert 0 < placed[str(smallest)] < sum(placed.values()) == size * PAGES_PER_MIB
    outcome = placed_by(guest, touch, f"--membind={smallest}", mebibytes=size)
    assert outcome.returncode == -9
    assert not outcome.stdout
    assert "Out of memory" in guest.run(["dmesg"], check=True).text


def result(outcome: Completed) -> dict[str, Any]:
    """Return the output of touch; the run must have succeeded."""
    assert outcome.returncode == 0, outcome.error_text
    parsed: dict[str, Any] = json.loads(outcome.stdout)
    return parsed
